// Config: the five sections of an experiment's options, from a TOML file and assignments.
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/options.h"

namespace longhand::train {

/// The sections [model], [attention], [data], [train] and [optimizer] of an experiment: which
/// options were given, and where. Each component reads its own section; the values read, whether
/// given or default, are the effective configuration (see train/config/experiment.h).
class Config {
 public:
  /// Reads a TOML file. Attention options of a single layer stand in a separate table,
  /// [attention.1], and are named "1.window" in the section. Throws ConfigError with line and
  /// column for invalid TOML, for unknown sections (naming the nearest known one), and for values
  /// of a type that no option has.
  static Config load(const std::filesystem::path& path);
  /// Parses TOML text; `name` is its name in errors. Tables in `without` are left to the caller.
  static Config parse(std::string_view toml, const std::string& name,
                      const std::set<std::string>& without = {});

  /// Overrides one option of the file: "attention.type=performer". The value is parsed as TOML, or
  /// taken as text if that fails; `source` is its name in errors. If this changes attention.type,
  /// data.task or optimizer.type, or changes data.path to another kind (""; a folder; a file with
  /// another extension), the file's other options in that section become optional: those that no
  /// longer apply are ignored, and listed by ignored(). So do those of [model] if this sets
  /// data.masked, which needs another kind of model. Throws ConfigError for malformed text and for
  /// an unknown section.
  void assign(std::string_view assignment, const std::string& source = "--set");
  /// Overrides one option with a value.
  void assign(const std::string& section, const std::string& key, OptionValue value,
              const std::string& source);

  /// Removes an option, as if it had never been given.
  void erase(const std::string& section, const std::string& key);

  /// Returns a section by name. Throws ConfigError for an unknown one, naming the nearest.
  const Options& section(std::string_view name) const;

  const Options& model() const { return sections_[0]; }
  const Options& attention() const { return sections_[1]; }
  const Options& data() const { return sections_[2]; }
  const Options& train() const { return sections_[3]; }
  const Options& optimizer() const { return sections_[4]; }

  /// Returns every given option by full name, such as "model.d_model".
  std::map<std::string, OptionValue> given() const;

  /// Returns the optional options that no component has read, such as "attention.landmarks";
  /// `effective` holds the values read.
  std::vector<std::string> ignored(const EffectiveSections& effective) const;

 private:
  std::array<Options, 5> sections_{Options("model"), Options("attention"), Options("data"),
                                   Options("train"), Options("optimizer")};
  std::array<std::set<std::string>, 5> from_file_;  // keys
};

/// Returns the sections as a TOML file, which Config::parse() reads back unchanged.
std::string to_toml(const EffectiveSections& effective);

/// Returns the path of a run or checkpoint as recorded: absolute, without a trailing slash.
std::string absolute_path(const std::filesystem::path& path);

}  // namespace longhand::train
