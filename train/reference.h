// The reference of a configuration: every section, task and variant with its options, from their
// declarations.
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
  /// What the page leads to: names of topics with their summaries.
  std::vector<std::pair<std::string, std::string>> topics{};
};

/// The names: model, attention, data, train, optimizer, and attention.NAME and data.NAME for every
/// variant and task.
std::vector<std::string> topic_names();
/// Throws ConfigError for an unknown name, with the nearest.
Topic topic(const std::string& name);

/// The page as text for a terminal.
std::string to_text(const Topic& topic, int64_t width = 100);
/// Its options as a Markdown table, or its topics as a list.
std::string to_markdown(const Topic& topic);

/// A configuration as effective_config() gives it, with the meaning of each option in a comment.
std::string with_comments(const std::string& toml);

}  // namespace longhand::train
