// Config: the five sections of options of an experiment, from a TOML file and assignments.
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

/// The sections [model], [attention], [data], [train] and [optimizer] of an experiment: the options
/// that were given, and where. Each component reads its own section; the values read, given or
/// default, are the effective configuration (see train/config/experiment.h).
class Config {
 public:
  /// Reads a TOML file. Options of the attention of one layer are in a table of their own,
  /// [attention.1], and are named "1.window" in the section. Throws ConfigError with line and column
  /// for invalid TOML, unknown sections (naming the nearest known one), and values of a type that no
  /// option has.
  static Config load(const std::filesystem::path& path);
  /// Parses TOML text; `name` is its name in errors. Tables in `without` are left to the caller.
  static Config parse(std::string_view toml, const std::string& name,
                      const std::set<std::string>& without = {});

  /// Overrides one option of the file: "attention.type=performer". The value is parsed as a TOML
  /// value, or taken as text if that fails; `source` is its name in errors. If this changes
  /// attention.type, data.task or optimizer.type, or data.path to one of another kind (""; a folder; a
  /// file with another extension), the other options of that section in the file become optional: those
  /// that then do not apply are ignored, and listed by ignored(). So do those of [model] if this is
  /// data.masked, which asks for another kind of model. Throws ConfigError for text of another
  /// form and for an unknown section.
  void assign(std::string_view assignment, const std::string& source = "--set");
  /// Overrides one option with a value.
  void assign(const std::string& section, const std::string& key, OptionValue value,
              const std::string& source);

  /// Removes an option, as if it had not been given.
  void erase(const std::string& section, const std::string& key);

  /// Returns a section by name. Throws ConfigError for an unknown one, naming the nearest.
  const Options& section(std::string_view name) const;

  const Options& model() const { return sections_[0]; }
  const Options& attention() const { return sections_[1]; }
  const Options& data() const { return sections_[2]; }
  const Options& train() const { return sections_[3]; }
  const Options& optimizer() const { return sections_[4]; }

  /// Every option that was given, by full name, such as "model.d_model".
  std::map<std::string, OptionValue> given() const;

  /// The optional options that no component has taken, such as "attention.landmarks", if `effective`
  /// are the values read.
  std::vector<std::string> ignored(const EffectiveSections& effective) const;

 private:
  std::array<Options, 5> sections_{Options("model"), Options("attention"), Options("data"),
                                   Options("train"), Options("optimizer")};
  std::array<std::set<std::string>, 5> from_file_;  // keys
};

/// The sections of a configuration as a TOML file, which Config::parse() reads back unchanged.
std::string to_toml(const EffectiveSections& effective);

/// The path of a run or checkpoint file as it is recorded: absolute, without a slash at its end.
std::string absolute_path(const std::filesystem::path& path);

}  // namespace longhand::train
