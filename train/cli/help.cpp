// longhand help: the options of every section, task and variant.
#include <fmt/format.h>

#include <algorithm>

#include "longhand/train/cli/commands.h"
#include "longhand/train/reference.h"

namespace longhand::cli {

int help(const HelpArguments& arguments) {
  if (!arguments.topic.empty()) {
    const train::Topic topic = train::topic(arguments.topic);
    fmt::print("{}", arguments.markdown ? to_markdown(topic) : to_text(topic));
    return success;
  }
  fmt::print("Options of a configuration, by section; give one as a topic:\n\n");
  for (const std::string& name : train::topic_names())
    if (name.find('.') == std::string::npos)
      fmt::print("  longhand help {:<12}{}\n", name, train::topic(name).summary);
  fmt::print(
      "\nand longhand help attention.NAME or data.NAME for a variant or a task. Commands: longhand "
      "--help\n");
  return success;
}

}  // namespace longhand::cli
