// The configuration reference: every section, task and variant with its options, generated from
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

/// Returns the names of all topics: model, attention, data, train, optimizer, and attention.NAME
/// and data.NAME for every variant and task.
std::vector<std::string> topic_names();
/// Returns a topic. Throws ConfigError for an unknown name, naming the nearest.
Topic topic(const std::string& name);

/// An option and where it is declared.
struct DeclaredOption {
  std::string topic;  // "attention.performer"
  Field field;

  std::string section() const;  // "attention"
  std::string owner() const;    // "performer"; or the section, if that declares it
  /// "attention.features", as in --set.
  std::string name() const;
  /// "attention.performer.features", unique.
  std::string full_name() const;
};

/// Returns what an option accepts: "at least 0", or its type if it accepts any value.
std::string accepted_values(const Field& field);
/// Returns the words that an option accepts; empty unless it is a choice or boolean.
std::vector<std::string> choices(const Field& field);

/// Returns every option of every topic, in the order of topic_names().
std::vector<DeclaredOption> declared_options();
/// Returns the options that a name refers to: as in --set ("attention.features"), a full name, or a
/// bare name ("features"). Empty if there are none.
std::vector<DeclaredOption> options_named(const std::string& name);
/// Returns the options whose name or meaning contains a text, ignoring case.
std::vector<DeclaredOption> options_about(const std::string& text);

/// Formats a topic as text for a terminal.
std::string to_text(const Topic& topic);
/// Formats options as text for a terminal: meaning, values, default, and how to set each.
std::string to_text(const std::vector<DeclaredOption>& options);
/// Returns a topic's options as a Markdown table, or its topics as a list.
std::string to_markdown(const Topic& topic);
/// Returns all topics as one Markdown page, train/options.md.
std::string reference_page();

/// Returns an effective_config() in declaration order, with a comment above each option that states
/// its meaning, accepted values and default. With `given`, returns a configuration to start from:
/// options that are not in it and whose default is computed from other options or the data become
/// comments, and so do options that do not apply.
std::string commented_toml(const std::string& effective, const Config* given = nullptr);

}  // namespace longhand::train
