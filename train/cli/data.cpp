// longhand data: writes, prints, hashes and verifies the data of tasks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "longhand/data/dataset.h"
#include "longhand/data/listops.h"
#include "longhand/data/subset.h"
#include "longhand/data/tasks/stored.h"
#include "longhand/data/trailer.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/data_check.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/config/experiment.h"

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

Json to_json(const data::TaskInfo& info) {
  return {{"task", info.name},
          {"vocabulary", info.vocabulary},
          {"classes", info.classes},
          {"per_token", info.per_token},
          {"causal", info.causal},
          {"bytes", info.bytes},
          {"max_length", info.max_length},
          {"labels", info.labels}};
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
  if (arguments.json) {
    Json out = to_json(made.task.info);
    out["file"] = arguments.out;
    for (const std::string& split : made.task.splits())
      out["examples"][split] = made.task.split(split).size();
    print_json(out);
  } else if (!arguments.quiet) {
    print_stdout_if_possible("{}: {} training, {} validation and {} test examples\n", arguments.out,
                             made.task.train->size(), made.task.validation->size(),
                             made.task.test ? made.task.test->size() : 0);
  }
  return success;
}

int show(const Arguments& arguments) {
  const Made made = make(arguments, data::Splits::only(arguments.split));
  const data::TaskInfo& info = made.task.info;
  const data::Dataset& dataset = made.task.split(arguments.split);
  Json out = to_json(info);
  if (!arguments.json)
    print_stdout("{}: {} examples of up to {} tokens below {}, with one class below {} per {}\n",
                 arguments.split, dataset.size(), info.max_length, info.vocabulary, info.classes,
                 info.per_token ? "token" : "sequence");
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const data::Batch batch = dataset.collate({{i}});
    const int64_t length = batch.lengths ? batch.lengths.data<int32_t>()[0] : batch.tokens.size(1);
    const auto tokens = row(batch.tokens, 0, length), targets = row(batch.targets, 0, length);
    if (arguments.json) {
      Json& example = out["examples"].emplace_back(Json{{"tokens", tokens}, {"targets", targets}});
      if (info.bytes || info.name == "listops") example["text"] = text_of_tokens(info, tokens);
      if (!info.labels.empty() && !info.per_token) example["label"] = info.label_of(targets[0]);
    } else {
      print_stdout("\n{}\n", text_of_tokens(info, tokens));
      if (info.bytes && info.per_token)
        print_stdout("targets: {}\n", text_of_bytes(targets));
      else if (info.labels.empty())
        print_stdout("{}: {}\n", info.per_token ? "targets" : "target", fmt::join(targets, " "));
      else
        print_stdout("{}: {}\n", info.per_token ? "targets" : "target", names_of(info, targets));
    }
  }
  if (arguments.json) print_json(out);
  return success;
}

int hash(const Arguments& arguments) {
  const bool one = !arguments.split.empty();
  const Made made = make(arguments, one ? data::Splits::only(arguments.split) : data::Splits());
  const Waiting waiting(Progress::mode_for_stderr(arguments.quiet), "hashing");
  Json out = to_json(made.task.info);
  for (const std::string& split : made.task.splits()) {
    const data::Dataset& dataset = made.task.split(split);
    const std::string digits = data::content_hash(dataset);
    out["splits"][split] = {{"examples", dataset.size()}, {"hash", digits}};
    if (!arguments.json) print_stdout("{}  {} ({} examples)\n", digits, split, dataset.size());
  }
  if (arguments.json) print_json(out);
  return success;
}

int list_tasks(bool json) {
  Json out = Json::array();
  for (const std::string& name : data::task_names()) {
    const Schema options = data::task_options(name);
    out.push_back(
        {{"name", name}, {"summary", data::task_summary(name)}, {"options", names_of(options)}});
    if (!json) print_stdout("{}\n", wrapped_lines(name + ": " + data::task_summary(name), 100));
  }
  if (json)
    print_json({{"tasks", out}});
  else
    print_stdout("\nOptions of a task: longhand help data.NAME\n");
  return success;
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
  make.quiet(*a);
  make.json(a->json);

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
  hash_all.quiet(*a);
  hash_all.json(a->json);

  group.command("tasks", "List the tasks and their options", [a] { return list_tasks(a->json); })
      .json(a->json);

  add_data_checks(group);
}

}  // namespace longhand::cli
