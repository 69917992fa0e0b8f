// The reference of configurations: every section, task and variant with its options, generated from
// their declarations.
#pragma once

#include <string>
#include <vector>

#include "longhand/core/schema.h"

namespace longhand::train {

/// A page of the reference.
struct Topic {
  std::string name;     // "train", "attention.performer"
  std::string summary;  // one line
  Schema options;       // empty for "attention"
  /// Topics below this one, with their summaries.
  std::vector<std::pair<std::string, std::string>> topics{};
};

/// The names of all topics: model, attention, data, train, optimizer, and attention.NAME and
/// data.NAME for every variant and task.
std::vector<std::string> topic_names();
/// Throws ConfigError for an unknown name, with the nearest.
Topic topic(const std::string& name);

/// The topic as text for a terminal.
std::string to_text(const Topic& topic, int64_t width = 100);
/// Its options as a Markdown table, or its topics as a list.
std::string to_markdown(const Topic& topic);

/// An effective_config() with the meaning of each option as a comment.
std::string with_comments(const std::string& toml);

}  // namespace longhand::train
