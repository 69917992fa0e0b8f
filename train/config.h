// Config: an experiment as five sections of options, from a TOML file and from assignments.
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

/// The sections [model], [attention], [data], [train] and [optimizer] of an experiment. Whoever is
/// configured by a section reads it; what is read, given or default, is the effective
/// configuration. Copies share their options.
class Config {
 public:
  Config();

  /// Reads a TOML file. Options of one layer's attention stand in a table of its own, [attention.1],
  /// and are named "1.window" in the section. Throws ConfigError with line and column for what is no TOML, a section that
  /// does not exist (with the nearest that does), and values that no option can have.
  static Config load(const std::filesystem::path& path);
  /// The same for a text; `name` is what errors call it.
  static Config parse(std::string_view toml, const std::string& name);

  /// Sets one option over what the file says: "attention.type=performer". The value is read as TOML
  /// writes values, and as a bare text if that fails; `source` is what errors call it. Where this
  /// changes attention.type, data.task or optimizer.type, the file's other options of that section
  /// become optional: those that the new type does not know are ignored, and listed by ignored().
  /// Throws ConfigError for a text of another form and for a section that does not exist.
  void assign(std::string_view assignment, const std::string& source = "--set");
  /// The same for a value that is one already.
  void assign(const std::string& section, const std::string& key, OptionValue value,
              const std::string& source);

  /// Takes an option away, as if it had not been given.
  void erase(const std::string& section, const std::string& key);

  /// A section by name. Throws ConfigError for an unknown one, naming the nearest.
  Options& section(std::string_view name);
  const Options& section(std::string_view name) const;

  Options& model() { return sections_[0]; }
  Options& attention() { return sections_[1]; }
  Options& data() { return sections_[2]; }
  Options& train() { return sections_[3]; }
  Options& optimizer() { return sections_[4]; }
  const Options& model() const { return sections_[0]; }
  const Options& attention() const { return sections_[1]; }
  const Options& data() const { return sections_[2]; }
  const Options& train() const { return sections_[3]; }
  const Options& optimizer() const { return sections_[4]; }

  /// Every option that was given, by its full name, such as "model.d_model".
  std::map<std::string, OptionValue> given() const;

  /// To be called when all parts have read their options: throws ConfigError for the first option
  /// that nobody has read, naming its place and the nearest that was.
  void check_all_read() const;
  /// The optional ones that nobody has read, as "attention.landmarks".
  std::vector<std::string> ignored() const;

  /// The same options, given alike, of which none has been read.
  Config unread() const;

  /// Every option read, with its value, as a TOML file; parse() of it gives the same again. Those in
  /// `without`, named in full such as "model.vocabulary", are left out.
  std::string to_toml(const std::set<std::string>& without = {}) const;

 private:
  struct Given {
    OptionValue value;
    std::string where;
    bool from_file = false;
    bool optional = false;
  };
  void give(size_t section, const std::string& key, Given given);

  std::array<Options, 5> sections_;
  std::array<std::map<std::string, Given>, 5> given_;
};

}  // namespace longhand::train
