// longhand help: the options of every section, task and variant.
#include <fmt/format.h>

#include <memory>

#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/reference.h"

namespace longhand::cli {
namespace {

struct Arguments {
  std::string topic;  // empty: list the topics
  bool markdown = false;
};

int help(const Arguments& arguments) {
  if (!arguments.topic.empty()) {
    const train::Topic topic = train::topic(arguments.topic);
    print_stdout("{}", arguments.markdown ? to_markdown(topic) : to_text(topic));
    return success;
  }
  print_stdout("Options of a configuration, by section:\n\n");
  for (const std::string& name : train::topic_names())
    if (name.find('.') == std::string::npos)
      print_stdout("  longhand help {:<12}{}\n", name, train::topic(name).summary);
  print_stdout(
      "\nFor a variant or a task: longhand help attention.NAME or data.NAME. Commands: longhand "
      "--help\n");
  return success;
}

}  // namespace

void add_help(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command("help", "Print the options of a section, a task or a variant",
                              [a] { return help(*a); });
  c.add("topic", a->topic, "TOPIC",
        "model, attention, data, train, optimizer, attention.NAME or data.NAME");
  c.flag("--markdown", a->markdown, "Print a Markdown table");
}

}  // namespace longhand::cli
