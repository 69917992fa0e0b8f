// The reference of configurations: every section, task and variant with its options, generated from
// their declarations.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/core/schema.h"
#include "longhand/train/config/config.h"

namespace longhand::train {

/// A page of the reference.
struct Topic {
  std::string name;     // "train", "attention.performer"
  std::string summary;  // one line
  Schema options{};     // empty for "attention"
  /// Topics below this one, with their summaries.
  std::vector<std::pair<std::string, std::string>> topics{};
};

/// The names of all topics: model, attention, data, train, optimizer, and attention.NAME and
/// data.NAME for every variant and task.
std::vector<std::string> topic_names();
/// Throws ConfigError for an unknown name, with the nearest.
Topic topic(const std::string& name);

/// An option where it is declared.
struct DeclaredOption {
  std::string topic;  // "attention.performer"
  Field field;

  std::string section() const;  // "attention"
  std::string owner() const;    // "performer"; the section if that declares it
  /// "attention.features", as in --set.
  std::string name() const;
  /// "attention.performer.features", unique.
  std::string full_name() const;
};

/// What an option accepts: "at least 0", or its type if it takes any value.
std::string accepted_values(const Field& field);
/// The words that an option accepts; empty if it is no choice and not true or false.
std::vector<std::string> choices(const Field& field);

/// Every option of every topic, in the order of topic_names().
std::vector<DeclaredOption> declared_options();
/// Those that a name means: a name as in --set ("attention.features"), a full name, or the bare name
/// ("features"). Empty if there are none.
std::vector<DeclaredOption> options_named(const std::string& name);
/// Those in whose name or meaning a text occurs, in capital letters or not.
std::vector<DeclaredOption> options_about(const std::string& text);

/// The topic as text for a terminal.
std::string to_text(const Topic& topic);
/// Options as text for a terminal: each with its meaning, values, default, and how to set it.
std::string to_text(const std::vector<DeclaredOption>& options);
/// Its options as a Markdown table, or its topics as a list.
std::string to_markdown(const Topic& topic);
/// All topics as one Markdown page, which is train/options.md.
std::string reference_page();

/// An effective_config() in the order of the declarations, each option below a comment with its meaning,
/// the values that it accepts and its default. With `given`, a configuration to start from: options that
/// are not in it are comments if their default is computed from other options or from the data, and those
/// that do not apply are comments, too.
std::string commented_toml(const std::string& effective, const Config* given = nullptr);

}  // namespace longhand::train
