// longhand data: writes, prints, hashes and verifies the data of tasks.
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "longhand/data/dataset.h"
#include "longhand/data/listops.h"
#include "longhand/data/subset.h"
#include "longhand/data/tasks/stored.h"
#include "longhand/data/trailer.h"
#include "longhand/train/cli/commands/groups.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/answer.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/output/progress.h"
#include "longhand/train/config/experiment.h"

namespace longhand::data {

void fields(train::Is<TaskInfo> auto& t, auto& f) {
  f("task", t.name);
  f("vocabulary", t.vocabulary);
  f("classes", t.classes);
  f("per_token", t.per_token);
  f("causal", t.causal);
  f("bytes", t.bytes);
  f("max_length", t.max_length);
  f("labels", t.labels);
}

}  // namespace longhand::data

namespace longhand::cli {
namespace {

struct Arguments : Common {
  std::string task;
  std::string split;  // empty: all
  std::string out;
  int64_t count = 0;
};

struct Made {
  data::Task task;
  uint64_t seed;
};

/// The splits to make: the given one, or all.
Made make(const Arguments& arguments, const data::Splits& used = {}) {
  train::Config config;
  config.assign("data", "task", arguments.task, "TASK");
  apply_to_data(arguments, config);
  config.model().check_known({"max_length"});
  config.attention().check_known({});
  config.train().check_known({"seed"});
  config.optimizer().check_known({});
  EffectiveValues values;
  train::read_task_info(config, &values);
  const auto seed = std::get<int64_t>(values.at("seed").value);
  const Waiting waiting(Progress::mode_for_stderr(arguments.quiet), "preparing data");
  Made made{train::read_task(config, used), static_cast<uint64_t>(seed)};
  if (arguments.count > 0)
    for (auto* split : {&made.task.train, &made.task.validation, &made.task.test})
      if (*split) *split = data::first_examples(std::move(*split), arguments.count);
  return made;
}

/// One row of a tensor of i32, its first `count` numbers.
std::vector<int32_t> row(const Tensor& tensor, int64_t index, int64_t count) {
  const Tensor one = tensor.select(0, index);
  return one.rank() == 0 ? one.reshape({1}).to_vector<int32_t>()
                         : one.slice(0, 0, count).to_vector<int32_t>();
}

/// Bytes as text, with unprintable ones escaped as \x0a.
std::string text_of_bytes(const std::vector<int32_t>& tokens) {
  std::string out;
  for (const int32_t token : tokens)
    out += token == '\\'                   ? "\\\\"
           : token >= 0x20 && token < 0x7f ? std::string(1, static_cast<char>(token))
                                           : fmt::format("\\x{:02x}", token);
  return out;
}

std::string text_of_tokens(const data::TaskInfo& info, const std::vector<int32_t>& tokens) {
  if (info.bytes) return text_of_bytes(tokens);
  if (info.name == "listops")
    return data::listops::to_text(std::vector<uint8_t>(tokens.begin(), tokens.end()));
  return fmt::format("{}", fmt::join(tokens, " "));
}

/// "2 (sports)" for every target.
std::string names_of(const data::TaskInfo& info, const std::vector<int32_t>& targets) {
  std::string out;
  for (const int32_t target : targets)
    out += fmt::format("{}{} ({})", out.empty() ? "" : " ", target, info.label_of(target));
  return out;
}

int make_file(const Arguments& arguments) {
  const Made made = make(arguments);
  {
    const Waiting waiting(Progress::mode_for_stderr(arguments.quiet), "writing " + arguments.out);
    data::write_task(made.task, arguments.out, made.seed);
  }
  Json examples;
  for (const std::string& split : made.task.splits())
    examples[split] = made.task.split(split).size();
  if (!arguments.json && !arguments.quiet)
    print_stdout_if_possible("{}: {} training, {} validation and {} test examples\n", arguments.out,
                             made.task.train->size(), made.task.validation->size(),
                             made.task.test ? made.task.test->size() : 0);
  return Answer(arguments.json)
      .add(made.task.info)
      .add("file", arguments.out)
      .add("examples", examples)
      .end();
}

int show(const Arguments& arguments) {
  const Made made = make(arguments, data::Splits::only(arguments.split));
  const data::TaskInfo& info = made.task.info;
  const data::Dataset& dataset = made.task.split(arguments.split);
  Answer out(arguments.json);
  out.add(info);
  if (!arguments.json)
    print_stdout("{}: {} examples of up to {} tokens below {}, with one class below {} per {}\n",
                 arguments.split, dataset.size(), info.max_length, info.vocabulary, info.classes,
                 info.per_token ? "token" : "sequence");
  Json examples;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const data::Batch batch = dataset.collate({{i}});
    const int64_t length = batch.lengths ? batch.lengths.data<int32_t>()[0] : batch.tokens.size(1);
    const auto tokens = row(batch.tokens, 0, length), targets = row(batch.targets, 0, length);
    Json& example = examples.emplace_back(Json{{"tokens", tokens}, {"targets", targets}});
    if (info.bytes || info.name == "listops") example["text"] = text_of_tokens(info, tokens);
    if (!info.labels.empty() && !info.per_token) example["label"] = info.label_of(targets[0]);
    if (arguments.json) continue;
    print_stdout("\n{}\n{}: {}\n", text_of_tokens(info, tokens),
                 info.per_token ? "targets" : "target",
                 info.bytes && info.per_token ? text_of_bytes(targets)
                 : info.labels.empty()        ? fmt::format("{}", fmt::join(targets, " "))
                                              : names_of(info, targets));
  }
  if (!examples.is_null()) out.add("examples", examples);
  return out.end();
}

int hash(const Arguments& arguments) {
  const bool one = !arguments.split.empty();
  const Made made = make(arguments, one ? data::Splits::only(arguments.split) : data::Splits());
  const Waiting waiting(Progress::mode_for_stderr(arguments.quiet), "hashing");
  Answer out(arguments.json);
  Json splits;
  for (const std::string& split : made.task.splits()) {
    const data::Dataset& dataset = made.task.split(split);
    splits[split] = {{"examples", dataset.size()}, {"hash", data::content_hash(dataset)}};
    out.literal(fmt::format("{}  {} ({} examples)\n", splits[split]["hash"].get<std::string>(),
                            split, dataset.size()));
  }
  return out.add(made.task.info).add("splits", splits).end();
}

int list_tasks(bool json) {
  Answer out(json);
  out.add("tasks", list_of(data::task_names(), [&](const std::string& name) -> Json {
            out.literal(wrapped_lines(name + ": " + data::task_summary(name), 100) + "\n");
            return {{"name", name},
                    {"summary", data::task_summary(name)},
                    {"options", names_of(data::task_options(name))}};
          }));
  return out.text("\nOptions of a task: longhand help data.NAME\n").end();
}

}  // namespace

void add_data(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command group = program.group("data", "Write, print, hash and verify data");
  const auto add_task = [&](Command& c) {
    c.add("task", a->task, "TASK", "Name of a task; longhand data tasks lists them").required();
    c.set(*a, "data.KEY=VALUE", "Set an option of the task; may be repeated");
    c.seed(*a);
    c.threads();
    c.words_to_set(*a);
  };
  Command make = group.command("make", "Write a task's data to a file for the task \"tokens\"",
                               [a] { return make_file(*a); });
  add_task(make);
  make.out(a->out, "FILE.h5", "File to write",
           [](const auto& file) {
             return data::has_trailer(data::RegularFile(file), data::data_file);
           })
      .required();
  make.add("--count", a->count, "N", "At most N examples of each split [all]").positive();
  make.common(*a, "quiet json");

  Command show_some = group.command("show", "Print examples of a task", [a] {
    if (a->count == 0) a->count = 3;
    if (a->split.empty()) a->split = "train";
    return show(*a);
  });
  add_task(show_some);
  show_some.add("--split", a->split, "SPLIT", "train, validation or test [train]");
  show_some.add("--count", a->count, "N", "Number of examples to print [3]").positive();
  show_some.json(a->json);

  Command hash_all = group.command(
      "hash", "Print a hash of a task's data, identical on all machines", [a] { return hash(*a); });
  add_task(hash_all);
  hash_all.add("--split", a->split, "SPLIT", "Only train, validation or test [all]");
  hash_all.add("--count", a->count, "N", "Hash the first N examples of each split [all]")
      .positive();
  hash_all.common(*a, "quiet json");

  group.command("tasks", "List the tasks and their options", [a] { return list_tasks(a->json); })
      .json(a->json);

  add_data_checks(group);
}

}  // namespace longhand::cli
