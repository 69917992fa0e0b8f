// longhand data check: verifies data files and lists their contents.
#include <unistd.h>

#include <ranges>

#include "longhand/core/options.h"
#include "longhand/data/contents.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/in_memory.h"
#include "longhand/data/listops.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/sandbox.h"

namespace longhand::data {

void fields(train::Is<Contents> auto& c, auto& f) {
  f("examples", c.examples);
  f("shortest", c.shortest);
  f("median", c.median);
  f("longest", c.longest);
  f("tokens", c.tokens);
  f("different_tokens", c.different_tokens);
  f("largest_token", c.largest_token);
  f("ignored", c.ignored);
  f("repeated", c.repeated);
  f("hash", c.hash);
}

void fields(train::Is<Survey> auto& s, auto& f) {
  f("groups", s.groups);
  f("datasets", s.datasets);
  f("attributes", s.attributes);
  f("refused", s.refused);
  f("first_refusal", s.first_refusal);
}

}  // namespace longhand::data

namespace longhand::cli {
namespace {

struct DataCheckArguments : Common {
  std::string task, path;
  bool in_process = false, from_stdin = false;  // of check_hdf5()
};

/// A split and its contents.
using Named = std::pair<std::string, data::Contents>;

/// Returns "neg 12, pos 13" for the first classes.
std::string text_of_classes(const data::TaskInfo& info, const data::Contents& contents) {
  constexpr size_t most = 12;
  std::vector<std::string> out;
  for (const auto& [target, count] : contents.classes | std::views::take(most))
    out.push_back(bounded(info.label_of(target), 30) + " " + with_commas(count));
  if (contents.classes.size() > most)
    out.push_back(fmt::format("... ({} classes)", with_commas(std::ssize(contents.classes))));
  return comma_list(out);
}

/// Adds the field "splits" and its text.
void add_splits(Answer& out, const std::vector<Named>& splits, const data::TaskInfo& info) {
  Json all;
  for (const auto& [name, c] : splits) {
    Json& json = all[name] = train::json_of(c);
    out.print("{:<11} ", name)
        .text(
            "{examples:,} examples, hash {hash}\n"
            "  lengths     {shortest:,} to {longest:,} tokens, median {median:,}; {tokens:,} in "
            "all\n"
            "  vocabulary  {different_tokens:,} different tokens, the largest {largest_token:,}\n",
            json);
    if (info.targets == data::TargetKind::classes)
      out.print("  {:<11} {}\n", info.per_token ? "targets" : "labels", text_of_classes(info, c));
    if (c.ignored > 0) out.text("  ignored     {ignored:,} targets\n", json);
    if (c.repeated > 0)
      out.text("  repeated    {repeated:,} examples have the tokens of an earlier one\n", json);
    for (const auto& [target, count] : c.classes) {
      Json& entry = json["classes"].emplace_back(Json{{"class", target}, {"count", count}});
      if (!info.labels.empty()) entry["label"] = info.label_of(target);
    }
  }
  // Training examples that also occur in evaluation inflate its scores.
  for (size_t i = 1; i < splits.size() && splits[0].first == "train"; ++i) {
    const int64_t shared = data::shared_examples(splits[0].second, splits[i].second);
    all[splits[i].first]["shared_with_train"] = shared;
    if (shared > 0)
      out.print("{} shared by {} and train\n", counted(shared, "example"), splits[i].first);
  }
  out.add("splits", all);
}

/// Returns a remark on a vocabulary far larger than the tokens that occur, since every number below
/// the largest has a row in the embedding. Empty: none.
std::string remark_on_vocabulary(const data::TaskInfo& info, const std::vector<Named>& splits) {
  constexpr int64_t usual = 1 << 16, most_gaps = 16;
  int64_t different = 0, largest = 0;
  for (const auto& [name, contents] : splits) {
    different = std::max(different, contents.different_tokens);
    largest = std::max<int64_t>(largest, contents.largest_token);
  }
  if (info.vocabulary <= usual || info.vocabulary / most_gaps <= different) return "";
  return fmt::format(
      "the largest token is {}, but no split has more than {} different ones: an embedding of {} "
      "rows would be mostly unused. Number the tokens that occur from 0 on, in all splits alike, "
      "with NumPy by numpy.unique(tokens, return_inverse=True)",
      with_commas(largest), with_commas(different), with_commas(info.vocabulary));
}

/// Reads all of a task from files, and lists the contents of its splits.
int check_task(const DataCheckArguments& arguments) {
  train::Config config;
  config.assign("data", "task", arguments.task, "TASK");
  config.assign("data", "path", arguments.path, "PATH");
  apply_to_data(arguments, config);
  for (const auto& [key, value] : {std::pair("task", arguments.task), {"path", arguments.path}})
    check<ConfigError>(config.data().find(key)->value == OptionValue(value), "--set data.", key,
                       ": expected ", value,
                       ", which the command line names already; leave the option out");
  for (const char* section : {"model", "attention", "optimizer"})
    config.section(section).check_known({});
  config.train().check_known({"seed"});
  std::vector<Named> splits;
  data::Task task;
  {
    const Waiting waiting(arguments.json, "reading");
    task = train::read_task(
        config, arguments.split.empty() ? data::Splits() : data::Splits::only(arguments.split));
    for (const std::string& split : task.splits())
      if (arguments.split.empty() || split == arguments.split)
        splits.emplace_back(split, data::contents_of(task.split(split)));
  }
  const data::TaskInfo& info = task.info;
  Answer out(arguments.json);
  out.add("path", arguments.path)
      .add("task", info.name)
      .add("vocabulary", info.vocabulary)
      .add("classes", info.classes)
      .add("per_token", info.per_token)
      .add("causal", info.causal)
      .add("max_length", info.max_length)
      .text("{path}: {task}, tokens below {vocabulary:,}, ")
      .literal(info.describe_targets())
      .literal(info.causal ? ", causal\n" : "\n");
  add_splits(out, splits, info);
  if (const std::string remark = remark_on_vocabulary(info, splits); !remark.empty())
    out.add("remark", remark).literal(wrapped_lines("remark: " + remark, 100) + "\n");
  return out.end();
}

data::Contents contents_of_listops(const std::string& file) {
  data::Sequences all;
  data::listops::read_tsv(
      file, [&](int64_t, std::span<const uint8_t> tokens, int target) { all.add(tokens, target); });
  return data::contents_of(*data::in_memory(std::move(all)));
}

int check_listops(const DataCheckArguments& a) {
  const data::listops::TsvReport report = data::listops::check_tsv(a.path);
  Answer out(a.json);
  out.add("file", a.path)
      .add("expressions", report.expressions)
      .add("agreeing", report.agreeing)
      .add("disagreeing",
           list_of(report.first,
                   [](const auto& d) -> Json {
                     return {{"line", d.line}, {"target", d.target}, {"value", d.value}};
                   }))
      .text("{agreeing} of {expressions} targets agree\n")
      .each("disagreeing",
            "line {line}: target {target}, but the value of the expression is {value}\n");
  add_splits(out, {{"file", contents_of_listops(a.path)}}, {});
  out.end();
  check<DataError>(report.agreeing == report.expressions, a.path, ": ",
                   report.expressions - report.agreeing, " of ", report.expressions,
                   " targets disagree with their expression");
  return success;
}

int check_hdf5(const DataCheckArguments& a) {
  const auto open_again = [&] {
    return a.from_stdin ? data::RegularFile(dup(STDIN_FILENO), a.path) : data::RegularFile(a.path);
  };
  data::RegularFile regular = open_again();
  if (!a.in_process) {
    print_stdout("{}", read_file_in_child(regular, a.json));
    return success;
  }
  data::RegularFile same = open_again();
  command_line();  // while /proc is readable
  train::limit_resources(regular.size());
  Tensor::zeros({1});  // while the tensor arena can query its size limits
  set_threads(1);      // the sandbox allows no new threads
  const bool sandboxed = train::enter_sandbox();
  // Load a checkpoint first as it will be loaded: whether libhdf5 crashes depends on it.
  data::set_file_guard([](const data::RegularFile&) {});
  try {
    train::load(std::move(same));
  } catch (const DataError&) {
    // a data file, or a checkpoint that loading will refuse with a reason
  }
  const data::Survey found = data::survey(regular);
  Answer out(a.json);
  out.add("file", a.path)
      .add("sandboxed", sandboxed)
      .add(found)
      .text(
          "{groups} groups, {datasets} datasets and {attributes} attributes; {refused} cannot be "
          "read\n");
  if (found.refused > 0) out.literal("first: " + bounded(found.first_refusal, 1000) + "\n");
  return out.end();
}

}  // namespace

void add_data_check(Command& program) {
  for (const char* const task : {"tokens", "text_classification", "text_lm", "pixels"}) {
    auto [c, a] =
        program.command<DataCheckArguments>(std::string("data check ") + task, check_task);
    a->task = task;
    a->split.clear();  // all
    c.add("path", a->path).required();
    c.add("--split", a->split);
    c.common(*a, "set json words");
  }
  auto [listops, l] = program.command<DataCheckArguments>("data check listops", check_listops);
  listops.add("file", l->path).required();
  listops.common(*l, "json");
  auto [hdf5, h] = program.command<DataCheckArguments>("data check hdf5", check_hdf5);
  hdf5.add("file", h->path).required();
  hdf5.flag("--in-process", h->in_process);
  hdf5.flag("--stdin", h->from_stdin);
  hdf5.common(*h, "json");
}

}  // namespace longhand::cli
