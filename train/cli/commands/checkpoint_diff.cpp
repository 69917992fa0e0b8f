// longhand checkpoint diff: differences between two checkpoints, or a checkpoint and a tensor file.
#include <limits>

#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/transfer/compare.h"

namespace longhand::cli {
namespace {

struct CheckpointDiffArguments : Common {
  std::vector<std::string> files;
  train::CompareOptions options;
  bool all = false;
};

std::string shape_and_type(const Tensor& tensor) {
  if (!tensor.defined()) return "-";
  return fmt::format("{} {}", name_of(tensor.dtype()), concat_message(tensor.shape()));
}

train::Table table_of(const train::ComparedState& part, const CheckpointDiffArguments& a) {
  train::Table out{.name = "tensors", .title = part.name};
  std::vector<const train::TensorDifference*> order;
  for (const auto& each : part.tensors)
    if (a.all || !each.is_within(a.options.tolerance)) order.push_back(&each);
  // Incomparable tensors first, then by decreasing difference.
  const auto key = [](const train::TensorDifference* each) {
    const bool huge = !each->same_shape() || !each->same_dtype() || !std::isfinite(each->largest);
    return huge ? std::numeric_limits<double>::infinity() : each->largest;
  };
  std::ranges::stable_sort(order, [&](const auto* x, const auto* y) { return key(x) > key(y); });
  for (const auto* each : order) {
    const bool same = each->same_shape();
    const auto if_same = [&](auto value) { return same ? train::Cell{value} : train::Cell{}; };
    add_row(out,
            {{"tensor", each->name},
             {"first", shape_and_type(each->first), "in A"},
             {"second", same && each->same_dtype() ? "same" : shape_and_type(each->second), "in B"},
             {"differing", if_same(each->differing), "values that differ"},
             {"largest", if_same(each->largest), "largest |a - b|", 3},
             {"relative", if_same(each->relative), "|a - b| / |a|", 3}});
  }
  return out;
}

Json to_json(const train::TensorDifference& each) {
  const auto side = [](const Tensor& tensor) {
    return tensor.defined() ? json_of_type(tensor) : Json();
  };
  Json out = {{"name", each.name}, {"a", side(each.first)}, {"b", side(each.second)}};
  if (each.same_shape()) {
    out["differing"] = each.differing;
    out["largest"] = json_number(each.largest);
    out["relative"] = json_number(each.relative);
  }
  return out;
}

int diff(const CheckpointDiffArguments& a) {
  check<ConfigError>(a.files.size() == 2, "checkpoint diff: expected two files or runs, got ",
                     a.files.size());
  const train::Comparison found = train::compare(a.files[0], a.files[1], a.options);
  const auto text = [](const std::optional<OptionValue>& value) {
    return value ? to_string(*value) : std::string("-");
  };
  Answer out(a.json);
  out.add("a", found.first)
      .add("b", found.second)
      .add("equal", found.equal)
      .text("A  {a}\nB  {b}\n");
  Json tensors, other = Json::object();
  for (const auto& [name, values] : found.other) {
    other[name] = {text(values.first), text(values.second)};
    out.print("{}: {} in A, {} in B\n", name, text(values.first), text(values.second));
  }
  for (const train::ComparedState& part : found.states) {
    int64_t different = 0;
    Json& list = tensors[part.name] = Json::array();
    for (const auto& each : part.tensors) {
      const bool differs = !each.is_within(a.options.tolerance);
      different += differs;
      if (a.all || differs) list.push_back(to_json(each));
    }
    if (part.tensors.empty()) continue;
    if (part.in_first == 0 || part.in_second == 0) {
      out.print("\n{}: {} tensors in A, {} in B\n", part.name, part.in_first, part.in_second);
      continue;
    }
    out.print("\n{}: {} of {} tensors differ\n", part.name, different, part.tensors.size());
    if (const train::Table table = table_of(part, a); !table.rows.empty())
      out.literal("\n").table(table);
  }
  return out.add("tensors", tensors).add("other", other).end(found.equal ? success : failure);
}

}  // namespace

void add_checkpoint_diff(Command& program) {
  auto [c, a] = program.command<CheckpointDiffArguments>("checkpoint diff", diff);
  c.add("files", a->files).required();
  c.add("--checkpoint", a->options.checkpoint);
  c.add("--tolerance", a->options.tolerance).not_negative();
  c.flag("--weights", a->options.weights);
  c.flag("--all", a->all);
  c.common(*a, "json");
}

}  // namespace longhand::cli
