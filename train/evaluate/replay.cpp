#include "longhand/train/evaluate/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "longhand/autograd/observer.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/results/table.h"
#include "longhand/train/step/gradients.h"
#include "longhand/train/trainer.h"
#include "longhand/train/transfer/distill.h"

namespace longhand::train {
namespace {

const void* address(const Tensor& t) {
  return t.defined() && is_float(t.dtype()) ? t.address() : nullptr;
}

/// Thrown to end the step at the first bad operation.
struct Found {};

/// Records every operation, and finds the first one with a non-finite result or gradient.
class Checker final : public OperationObserver {
 public:
  explicit Checker(const attention::Transformer& model) {
    for (const auto& [name, tensor] : model.state_dict()) names_[address(tensor)] = name;
    for (const auto& [name, module] : model.named_modules()) modules_.insert(module);
  }

  std::optional<BadOperation> first;

  void on_result(const Operation& operation, Tensor& result) override {
    if (!is_float(result.dtype())) return;
    BadOperation now;
    now.operation = operation.name;
    now.layer = layer_of(operation.inputs);
    bool masked = makes_masks(operation.name);  // or of masked inputs
    for (const Variable& input : operation.inputs) {
      if (!input.defined() || !is_float(input.dtype())) continue;
      const auto name = names_.find(address(input.value()));
      now.inputs.push_back(range_of(input.value(), name == names_.end() ? "" : name->second));
      const ValueRange& range = now.inputs.back();
      masked = masked || (range.negative_infinity > 0 && range.name.empty());
    }
    now.results = {range_of(result)};
    const ValueRange& range = now.results[0];
    if (range.nan + range.positive_infinity > 0) fail(std::move(now));
    if (range.negative_infinity > 0 && !masked && !overflow_) overflow_ = now;
    if (operation.number) recorded_[*operation.number] = std::move(now);
  }

  void on_gradients(std::string_view, uint64_t number, const Tensor& grad_out,
                    std::span<Tensor* const> grad_in) override {
    bool finite = true;
    std::vector<ValueRange> gradients;
    for (const Tensor* const grad : grad_in) {
      if (!grad || !grad->defined()) continue;
      gradients.push_back(range_of(*grad));
      finite = finite && gradients.back().finite();
    }
    if (finite) {
      recorded_.erase(number);
      return;
    }
    BadOperation now = std::move(recorded_.at(number));
    now.backward = true;
    now.results = std::move(gradients);
    if (grad_out.numel() > 0) now.gradient = range_of(grad_out);
    fail(std::move(now));
  }

 private:
  /// Returns whether -Inf may be the intended result of an operation.
  static bool makes_masks(std::string_view operation) {
    return operation == "where" || operation == "log" || operation == "log_softmax";
  }

  [[noreturn]] void fail(BadOperation operation) {
    first = overflow_ ? std::move(overflow_) : std::move(operation);
    throw Found();
  }

  /// Returns the parameters' module if they share one inside the running module, else the latter.
  std::string layer_of(std::span<const Variable> inputs) const {
    const nn::Running* const running = nn::Running::innermost();
    if (!running) return "loss";
    const std::string& path = running->module().full_name();
    if (!modules_.count(&running->module())) return path.empty() ? "teacher" : "teacher." + path;
    std::string layer;
    for (const Variable& input : inputs) {
      const auto found = input.defined() ? names_.find(address(input.value())) : names_.end();
      if (found == names_.end()) continue;
      const std::string module = found->second.substr(0, found->second.rfind('.'));
      if (path.empty()) return module;
      if (!module.starts_with(path + ".")) continue;
      if (!layer.empty() && layer != module) return path;  // several layers with the same input
      layer = module;
    }
    if (!layer.empty()) return layer;
    return path.empty() ? "model" : path;
  }

  std::set<const nn::Module*> modules_;                  // of the model that is trained
  std::map<const void*, std::string> names_;             // of parameters and buffers
  std::unordered_map<uint64_t, BadOperation> recorded_;  // by number, until their backward has run
  std::optional<BadOperation> overflow_;  // the first one with a -Inf that is not a mask
};

std::vector<ValueRange> not_finite(const Checkpoint& checkpoint) {
  std::vector<ValueRange> out;
  const auto add = [&](const nn::StateDict& state, const std::string& prefix) {
    for (const auto& [name, tensor] : state) {
      if (!is_float(tensor.dtype())) continue;
      ValueRange range = range_of(tensor, prefix + name);
      if (!range.finite()) out.push_back(std::move(range));
    }
  };
  add(checkpoint.model, "");
  add(checkpoint.optimizer, "optimizer ");
  add(checkpoint.ema, "average ");
  return out;
}

}  // namespace

ValueRange range_of(const Tensor& tensor, std::string name) {
  ValueRange out{.name = std::move(name), .shape = tensor.shape(), .dtype = tensor.dtype()};
  bool any = false;
  const Tensor dense = tensor.contiguous();
  dispatch_float(dense.dtype(), [&]<class T>() {
    const T* const x = dense.data<T>();
    for (int64_t i = 0; i < dense.numel(); ++i) {
      const double value = x[i];
      if (std::isnan(value)) {
        ++out.nan;
      } else if (std::isinf(value)) {
        ++(value > 0 ? out.positive_infinity : out.negative_infinity);
      } else {
        out.least = any ? std::min(out.least, value) : value;
        out.greatest = any ? std::max(out.greatest, value) : value;
        any = true;
      }
    }
  });
  if (!any) out.least = out.greatest = std::numeric_limits<double>::quiet_NaN();
  return out;
}

ReplayedStep replay(const SavedModel& snapshot) {
  Experiment e(snapshot.config);
  snapshot.check_data(e.task, e.config);
  data::Loader loader = e.loader();
  Trainer trainer(e.model, logits_of(e.model), *e.optimizer, e.schedule, loader, e.task, e.options,
                  {}, {}, {}, distilled_loss(e, load_teacher(e.plan.train.distill)));
  trainer.resume(snapshot.checkpoint);

  const TrainingState& state = snapshot.checkpoint.training;
  ReplayedStep out{.step = state.step + 1,
                   .learning_rate = e.schedule.at(state.step),
                   .state = not_finite(snapshot.checkpoint)};
  Checker checker(e.model);
  try {
    const auto [total, size] = trainer.compute_step();
    out.loss = total.sums.loss;
    out.gradient_norm = global_norm(total.gradients);
    const auto parameters = e.model.named_parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!total.gradients[i]) continue;
      out.gradients.push_back({parameters[i].first, global_norm({total.gradients[i]})});
      if (std::isfinite(out.gradients.back().norm) || checker.first) continue;
      // All parts are finite.
      checker.first = {.operation = "sum over micro-batches",
                       .layer = parameters[i].first,
                       .backward = true,
                       .results = {range_of(total.gradients[i])}};
    }
    std::ranges::stable_sort(out.gradients, [](const auto& a, const auto& b) {
      return std::isfinite(b.norm) && !(a.norm <= b.norm);
    });
    GuardState guard = state.guard;
    out.defect = judge(e.options.step.guard, guard, total.sums.loss, *out.gradient_norm);
  } catch (const Found&) {
  } catch (const Error& error) {
    out.error = error.what();
  }
  out.first = std::move(checker.first);
  return out;
}

std::string last_snapshot(const std::filesystem::path& run) {
  std::string last;
  for (const std::filesystem::path& file : checkpoints_in(run / "checkpoints"))
    if (file.filename().string().starts_with("before-step-")) last = file.filename().string();
  check<ConfigError>(
      !last.empty(), run.string(),
      " has no checkpoints/before-step-N.h5, which training saves when a step is not "
      "finite or an outlier; name another checkpoint to repeat the step after it");
  return last;
}

std::string to_text(const ValueRange& range) {
  std::string out = concat_message(range.shape, " ", range.dtype);
  if (!std::isnan(range.least))
    out += fmt::format(", {:.4g} to {:.4g}", range.least, range.greatest);
  for (const auto& [count, what] : {std::pair{range.nan, "NaN"},
                                    {range.positive_infinity, "Inf"},
                                    {range.negative_infinity, "-Inf"}})
    if (count > 0) out += fmt::format(", {} {}", with_commas(count), what);
  if (!range.name.empty()) out += ": " + range.name;
  return out;
}

}  // namespace longhand::train
