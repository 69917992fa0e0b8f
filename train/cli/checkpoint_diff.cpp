// longhand checkpoint diff: what differs between two checkpoints, or a checkpoint and a file of tensors.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "longhand/core/error.h"
#include "longhand/train/checkpoint/difference.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/cli/checkpoint.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/results/table.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

struct Arguments {
  std::vector<std::string> files;
  std::string checkpoint = "best";
  double tolerance = 0;
  bool all = false;
  bool weights = false;
  bool json = false;
};

/// One side: its states by name, and what is known of its training.
struct Side {
  std::string file;
  std::map<std::string, nn::StateDict> states;
  std::map<std::string, OptionValue> facts;  // options, step, seed
};

/// Not the directory of a run, whatever its name.
bool is_tensor_file(const std::string& path) {
  return train::is_tensor_file(path) && !std::filesystem::is_directory(path);
}

/// `weights_only`: the other side is a file of tensors, which has the weights used in evaluation.
Side read(const Arguments& a, const std::string& path, bool weights_only) {
  if (is_tensor_file(path)) return {path, {{"weights", train::read_tensor_file(path).tensors}}, {}};
  train::SavedModel saved = train::load_model(path, a.checkpoint);
  const train::Checkpoint& c = saved.checkpoint;
  Side out{saved.file, {{"weights", c.weights()}}, saved.config.given()};
  if (!weights_only)
    out.states = {{"model", c.model}, {"optimizer", c.optimizer}, {"averaged weights", c.ema}};
  out.facts["step"] = c.training.step;
  out.facts["version"] = c.version;
  out.facts["machine"] = c.machine;
  return out;
}

std::string shape_and_type(const Tensor& tensor) {
  if (!tensor.defined()) return "-";
  return fmt::format("{} {}", name_of(tensor.dtype()), concat_message(tensor.shape()));
}

/// What differs in one state.
struct Part {
  std::string name;
  std::vector<train::TensorDifference> tensors;
};

bool is_within(const train::TensorDifference& each, double tolerance) {
  return each.same_shape() && each.same_dtype() &&
         (each.differing == 0 || each.largest <= tolerance);
}

train::Table table_of(const Part& part, const Arguments& a) {
  train::Table out{"tensors",
                   part.name,
                   "",
                   {{"tensor", ""},
                    {"first", "in A"},
                    {"second", "in B"},
                    {"differing", "values that differ"},
                    {"largest", "largest |a - b|", 3},
                    {"relative", "|a - b| / |a|", 3}}};
  std::vector<const train::TensorDifference*> order;
  for (const auto& each : part.tensors)
    if (a.all || !is_within(each, a.tolerance)) order.push_back(&each);
  // What cannot be compared first, then the largest differences.
  const auto key = [](const train::TensorDifference* each) {
    const bool huge = !each->same_shape() || !each->same_dtype() || !std::isfinite(each->largest);
    return huge ? std::numeric_limits<double>::infinity() : each->largest;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto* x, const auto* y) { return key(x) > key(y); });
  for (const auto* each : order) {
    const bool same = each->same_shape();
    out.rows.push_back({each->name, shape_and_type(each->first),
                        same && each->same_dtype() ? train::Cell{"same"}
                                                   : train::Cell{shape_and_type(each->second)},
                        same ? train::Cell{each->differing} : train::Cell{},
                        same ? train::Cell{each->largest} : train::Cell{},
                        same ? train::Cell{each->relative} : train::Cell{}});
  }
  return out;
}

Json to_json(const train::TensorDifference& each) {
  const auto side = [](const Tensor& tensor) -> Json {
    if (!tensor.defined()) return nullptr;
    return {{"dtype", std::string(name_of(tensor.dtype()))},
            {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
  };
  Json out = {{"name", each.name}, {"a", side(each.first)}, {"b", side(each.second)}};
  if (each.same_shape()) {
    out["differing"] = each.differing;
    out["largest"] = json_number(each.largest);
    out["relative"] = json_number(each.relative);
  }
  return out;
}

/// The options and counters that differ, with both values; nothing where a side does not have it.
std::map<std::string, std::pair<std::optional<OptionValue>, std::optional<OptionValue>>> facts(
    const Side& a, const Side& b) {
  std::map<std::string, std::pair<std::optional<OptionValue>, std::optional<OptionValue>>> out;
  if (a.facts.empty() || b.facts.empty()) return out;  // a file of tensors
  for (const auto& [name, value] : a.facts) out[name].first = value;
  for (const auto& [name, value] : b.facts) out[name].second = value;
  std::erase_if(out, [](const auto& each) { return each.second.first == each.second.second; });
  return out;
}

int diff(const Arguments& a) {
  check<ConfigError>(a.files.size() == 2, "checkpoint diff: expected two files or runs, got ",
                     a.files.size());
  const bool weights_only = a.weights || is_tensor_file(a.files[0]) || is_tensor_file(a.files[1]);
  const Side first = read(a, a.files[0], weights_only), second = read(a, a.files[1], weights_only);
  std::vector<Part> parts;
  bool equal = true;
  for (const auto& [name, state] : first.states) {
    parts.push_back({name, train::differences(state, second.states.at(name))});
    for (const auto& each : parts.back().tensors) equal &= is_within(each, a.tolerance);
  }
  const auto changed = facts(first, second);
  const auto text = [](const std::optional<OptionValue>& value) {
    return value ? to_string(*value) : std::string("-");
  };
  if (a.json) {
    Json out = {{"a", first.file}, {"b", second.file}, {"equal", equal}};
    for (const Part& part : parts) {
      Json& list = out["tensors"][part.name] = Json::array();
      for (const auto& each : part.tensors)
        if (a.all || !is_within(each, a.tolerance)) list.push_back(to_json(each));
    }
    out["other"] = Json::object();
    for (const auto& [name, values] : changed)
      out["other"][name] = {text(values.first), text(values.second)};
    print_json(out);
    return equal ? success : failure;
  }
  print_stdout("A  {}\nB  {}\n", first.file, second.file);
  for (const auto& [name, values] : changed)
    print_stdout("{}: {} in A, {} in B\n", name, text(values.first), text(values.second));
  for (const Part& part : parts) {
    if (part.tensors.empty()) continue;
    const size_t in_first = first.states.at(part.name).size(),
                 in_second = second.states.at(part.name).size();
    if (in_first == 0 || in_second == 0) {
      print_stdout("\n{}: {} tensors in A, {} in B\n", part.name, in_first, in_second);
      continue;
    }
    const auto different =
        std::count_if(part.tensors.begin(), part.tensors.end(),
                      [&](const auto& each) { return !is_within(each, a.tolerance); });
    print_stdout("\n{}: {} of {} tensors differ\n", part.name, different, part.tensors.size());
    if (const train::Table table = table_of(part, a); !table.rows.empty())
      print_stdout("\n{}", train::to_text(table));
  }
  return equal ? success : failure;
}

}  // namespace

void add_checkpoint_diff(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c =
      group.command("diff", "Compare the tensors of two checkpoints; exits with 1 if they differ",
                    [a] { return diff(*a); });
  c.add("files", a->files, "A B",
        "Two checkpoints, run directories or files of tensors (.safetensors, .npz)")
      .required();
  c.add("--checkpoint", a->checkpoint, "NAME",
        "Of run directories: best, last or the name of another checkpoint [best]");
  c.add("--tolerance", a->tolerance, "X",
        "Tensors count as equal if no two values differ by more than X [0]")
      .not_negative();
  c.flag("--weights", a->weights,
         "Compare only the weights used in evaluation, not what training goes on with");
  c.flag("--all", a->all, "List tensors that are equal, too");
  c.json(a->json);
  c.footer(
      "Lists tensors that one of them does not have, then those of other shapes and types, then "
      "the largest differences; and options, steps and versions that differ. A file of tensors "
      "is compared with the weights used in evaluation, which are averaged ones where there are "
      "any.");
}

}  // namespace longhand::cli
