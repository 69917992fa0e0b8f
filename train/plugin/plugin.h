// A plugin: your own attention variants and tasks in a shared library that the program loads. One
// of its files uses LONGHAND_PLUGIN. examples/plugin is a complete example; CMake's
// longhand_add_plugin() builds it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "longhand/attention/registry.h"
#include "longhand/core/version.h"
#include "longhand/data/registry.h"

namespace longhand::train {

/// Increased when classes that plugins derive from or pass on change in ways that plugin_layout
/// does not show, such as a new virtual function.
inline constexpr uint32_t plugin_interface = 1;

/// The sizes of the types that a plugin shares with the library, as one number: it differs if they
/// were compiled with different headers or standard libraries.
inline constexpr uint64_t plugin_layout = [] {
  const std::array sizes = {
      sizeof(std::string),
      sizeof(Tensor),
      sizeof(Variable),
      sizeof(Options),
      sizeof(OptionVisitor),
      sizeof(OptionReader),
      sizeof(Field),
      sizeof(nn::Module),
      sizeof(nn::Scope),
      sizeof(nn::Pass),
      sizeof(attention::Variant),
      sizeof(attention::Config),
      sizeof(attention::Inputs),
      sizeof(attention::Mask),
      sizeof(attention::Work),
      sizeof(attention::Capabilities),
      sizeof(attention::Spec),
      sizeof(attention::Evidence),
      sizeof(data::TaskSpec),
      sizeof(data::TaskInfo),
      sizeof(data::Task),
      sizeof(data::Splits),
      sizeof(data::Batch),
      sizeof(data::Dataset),
      sizeof(Generator),
  };
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const size_t size : sizes) hash = (hash ^ size) * 1099511628211u;
  return hash;
}();

/// A plugin's description of itself and of what it was compiled with. LONGHAND_PLUGIN defines it;
/// the program reads it before calling anything. The first member must stay first.
struct PluginInfo {
  uint32_t interface = plugin_interface;
  const char* longhand = LONGHAND_VERSION;
  uint64_t layout = plugin_layout;
  const char* name = nullptr;
  const char* version = nullptr;
  void (*add)() = nullptr;  // registers the variants and tasks
};

}  // namespace longhand::train

/// Defines a shared library's plugin, once. The body of a function follows, which registers
/// variants and tasks:
///
///     LONGHAND_PLUGIN("mine", "1.0") {
///       longhand::attention::add("my_attention", my_spec());
///       longhand::data::add("my_task", my_task_spec());
///     }
///
/// Name and version are recorded in the checkpoints of runs that use the plugin.
#define LONGHAND_PLUGIN(plugin_name, plugin_version)                                   \
  static void longhand_plugin_add();                                                   \
  extern "C" __attribute__((visibility("default")))                                    \
  const longhand::train::PluginInfo longhand_plugin;                                   \
  extern "C" const longhand::train::PluginInfo longhand_plugin{                        \
      .name = (plugin_name), .version = (plugin_version), .add = longhand_plugin_add}; \
  static void longhand_plugin_add()
