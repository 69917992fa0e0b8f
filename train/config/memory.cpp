#include "longhand/train/config/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/memory_peak.h"
#include "longhand/core/storage.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/step/evaluation.h"
#include "longhand/train/step/step.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

double length_of(const TransformerConfig& c) {
  return number(c.max_length) + (!c.per_token && c.pooling == "cls" ? 1 : 0);
}

/// Examples of which only the sizes mean something.
class Shapes : public data::Dataset {
 public:
  Shapes(const MemoryRequest& request, int64_t size) : request_(request), size_(size) {}

  int64_t size() const override { return size_; }
  int64_t length(int64_t) const override { return request_.model.max_length; }
  data::Batch collate(std::span<const int64_t> indices) const override {
    const int64_t B = std::ssize(indices), N = request_.model.max_length;
    const Shape tokens{B, N}, sequences{B};
    data::Batch out{Tensor::empty(tokens, DType::i32),
                    Tensor::empty(request_.model.per_token ? tokens : sequences, DType::i32),
                    {}};
    if (!request_.padded || N == 1) return out;
    std::vector<int32_t> lengths(static_cast<size_t>(B), static_cast<int32_t>(N));
    lengths[0] = static_cast<int32_t>(N - 1);
    out.lengths = Tensor::from(lengths, {B});
    return out;
  }

 private:
  const MemoryRequest& request_;
  int64_t size_;
};

/// As logits_of(): of the targets that count.
LogitsFn shapes_of_logits(attention::Transformer& model, double counted) {
  return [&model, counted](const data::Batch& batch, const nn::Pass& pass) {
    if (batch.targets.rank() != 2 || counted > 0.5)
      return Prediction{model.forward(batch.tokens, batch.lengths, pass), batch.targets};
    const auto count = static_cast<int64_t>(counted * number(batch.targets.numel()));
    const Tensor rows = Tensor::empty({std::max<int64_t>(1, count)}, DType::i32);
    return Prediction{model.forward(batch.tokens, batch.lengths, pass, rows),
                      Tensor::empty(rows.shape(), DType::i32)};
  };
}

/// The cross entropy, and that of a teacher's logits.
LossFn taught_loss(const LogitsFn& student, const LogitsFn& teacher) {
  return [=](const data::Batch& part, const BatchSize& whole, const nn::Pass& pass) {
    const Prediction predicted = predict(student, part, pass);
    const Tensor taught = [&] {
      const NoGrad no_grad;
      return teacher(part, nn::Pass::evaluate()).logits.value();
    }();
    Loss out;
    measure_into(out, predicted, whole, 0);
    out.value =
        cross_entropy(predicted.logits, predicted.targets, cross_entropy_options(whole, 0)) +
        kl_divergence(predicted.logits, taught, {.targets = predicted.targets});
    return out;
  };
}

double bytes_of(const nn::StateDict& state) {
  double out = 0;
  for (const auto& [name, tensor] : state)
    out += number(tensor.numel()) * number(static_cast<int64_t>(size_of(tensor.dtype())));
  return out;
}

double in_use() { return number(static_cast<int64_t>(memory_stats().in_use)); }
double reserved() { return number(static_cast<int64_t>(memory_stats().reserved)); }

/// A run of one step, one batch of an evaluation and one checkpoint, without computations.
class Rehearsal {
 public:
  Rehearsal(const MemoryRequest& request, const RanksOfEstimate& ranks)
      : r_(request), ranks_(ranks), most_(8 * memory_limit(request).bytes) {}

  MemoryEstimate run() {
    double* part = &out_.parameters;  // what takes memory now
    try {
      rehearse(part);
    } catch (const std::bad_alloc&) {
      *part = most_, out_.exceeds = true;
    } catch (const std::length_error&) {  // of a vector
      *part = most_, out_.exceeds = true;
    } catch (const ShapeError& error) {
      if (!std::string_view(error.what()).ends_with("exceed 64-bit integers")) throw;
      *part = most_, out_.exceeds = true;
    }
    return out_;
  }

 private:
  void rehearse(double*& part) {
    const DryRun dry(most_);
    attention::Transformer model(nn::root(), r_.model);
    const Parameters parameters = model.named_parameters();
    for (const auto& [name, parameter] : parameters)
      out_.parameter_count += number(parameter.value().numel());
    const double P = out_.parameter_count * number(r_.model.element_bytes());
    out_.parameters = in_use();
    part = &out_.optimizer;
    const auto optimizer = make_optimizer(r_.optimizer, parameters);
    if (r_.shares_optimizer) ranks_.reducer.divide(*optimizer);
    std::optional<Ema> average;
    if (r_.average) average.emplace(parameters, 0.5);
    out_.optimizer = in_use() - out_.parameters;
    part = &out_.teacher;
    std::optional<attention::Transformer> teacher;
    if (r_.teacher) teacher.emplace(nn::root(), r_.model);
    out_.teacher = in_use() - out_.parameters - out_.optimizer;
    const double state = in_use();
    const LogitsFn logits = shapes_of_logits(model, r_.counted);
    if (r_.trains) {
      part = &out_.training;
      LossFn loss = cross_entropy_loss(logits, 0);
      if (teacher) loss = taught_loss(logits, shapes_of_logits(*teacher, r_.counted));
      train(model, *optimizer, std::move(loss), average ? &*average : nullptr, P);
      out_.training = std::max(0.0, reserved() - state - out_.gradients);
    }
    if (r_.eval_batch_size > 0) {
      part = &out_.evaluation;
      const double before = reserved();
      reset_memory_peak();
      const Shapes examples(r_, r_.eval_batch_size);
      evaluate(logits, examples, {.batch_size = r_.eval_batch_size, .reducer = &ranks_.reducer});
      const double peak =
          reserved() > before ? reserved() : number(static_cast<int64_t>(memory_stats().peak));
      out_.evaluation = std::max(0.0, peak - state);
    }
    part = &out_.checkpoint;
    if (r_.saves) {
      const double before = reserved();
      double image = bytes_of(model.state_dict()) + bytes_of(optimizer->state_dict());
      if (average) image += bytes_of(average->state_dict());
      out_.checkpoint = 2 * image + reserved() - before;
    }
    const double B = number(std::max(r_.trains ? r_.batch_size : 0, r_.eval_batch_size));
    out_.data = r_.data.bytes + 8 * r_.data.examples;
    // Of the batches, what has not been made.
    if (r_.trains) out_.data += 8 * (B - number(trained_)) * number(r_.model.max_length);
  }

  /// Of many micro-batches only some, because more take no more than sums of gradients.
  void train(nn::Module& model, Optimizer& optimizer, LossFn loss, Ema* average, double P) {
    constexpr int64_t fewer = 8;
    const int64_t of = ranks_.reducer.share().of, parts = std::min(r_.micro_batches, r_.batch_size),
                  shards = std::min(parts, std::max(fewer, of));
    trained_ = parts > shards ? r_.micro_batch_size() * shards : r_.batch_size;
    const StepOptions options{.shards = shards, .recompute = r_.recompute};
    const auto levels = [&](int64_t n) {
      return std::floor(std::log2(number(std::max<int64_t>(1, n / of))));
    };
    out_.gradients = P;
    const Shapes examples(r_, trained_);
    data::Loader loader(examples, {.batch_size = trained_, .shuffle = false}, Generator(0));
    Step step({.model = model,
               .loss = std::move(loss),
               .optimizer = optimizer,
               .schedule = {},
               .loader = loader,
               .options = options});
    step.join(ranks_.reducer);
    TrainingState state;
    if (ranks_.sent) out_.sent = ranks_.sent();
    step.take(state, average);
    for (size_t i = 0; i < out_.sent.size(); ++i) out_.sent[i] = ranks_.sent()[i] - out_.sent[i];
    out_.repeats = number(parts) / number(shards);
    out_.gradients += P * (levels(parts) - levels(shards));
  }

  const MemoryRequest& r_;
  const RanksOfEstimate& ranks_;
  double most_;  // bytes beyond which it ends
  int64_t trained_ = 0;
  MemoryEstimate out_;
};

/// a + t (b - a)
MemoryEstimate extrapolated(const MemoryEstimate& a, const MemoryEstimate& b, double t) {
  if (a.exceeds || b.exceeds) return a.exceeds ? a : b;
  MemoryEstimate out = b;
  for (double MemoryEstimate::*const part :
       {&MemoryEstimate::parameters, &MemoryEstimate::gradients, &MemoryEstimate::optimizer,
        &MemoryEstimate::training, &MemoryEstimate::evaluation, &MemoryEstimate::data,
        &MemoryEstimate::teacher, &MemoryEstimate::checkpoint, &MemoryEstimate::parameter_count})
    out.*part = std::max(0.0, a.*part + t * (b.*part - a.*part));
  for (size_t i = 0; i < out.sent.size(); ++i)
    out.sent[i] = a.sent[i] + t * (b.sent[i] - a.sent[i]);
  return out;
}

/// Whether each layer needs to be constructed, because options or ranks differ.
bool layers_differ(const TransformerConfig& c) {
  const auto has_list = [&](const std::string& key) {
    const auto* const list =
        std::get_if<std::vector<int64_t>>(&c.attention_options.find(key)->value);
    return list && list->size() > 1;
  };
  const std::vector<std::string> keys = c.attention_options.keys();
  return !c.layer_attention.empty() || c.low_rank.size() > 1 ||
         std::any_of(keys.begin(), keys.end(), has_list);
}

/// Sets what a few examples tell: the share of their targets that count, and whether some are padded.
void look_at(const data::Dataset& dataset, MemoryRequest& request) {
  request.counted = 1;
  std::vector<int64_t> indices(static_cast<size_t>(std::min<int64_t>(8, dataset.size())));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  if (indices.empty()) return;
  const data::Batch batch = dataset.collate(indices);
  request.padded = batch.lengths.defined();
  if (batch.targets.rank() != 2) return;
  const auto targets = batch.targets.to_vector<int32_t>();
  const auto counted = std::count_if(targets.begin(), targets.end(),
                                     [](int32_t t) { return t != data::ignore_index; });
  request.counted = number(counted) / number(std::max<int64_t>(1, std::ssize(targets)));
}

/// The limit in a file of a control group; infinity if there is none.
double limit_in(const fs::path& file) {
  std::ifstream in(file);
  double bytes = 0;
  return in >> bytes ? bytes : INFINITY;  // "max" is no number
}

/// The least limit of the control groups of this process and those above them.
double group_limit() {
  double least = INFINITY;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const fs::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const name = unified ? "memory.max" : "memory.limit_in_bytes";
    fs::path group = line.substr(second + 1);
    for (int depth = 0; depth < 64; ++depth) {
      least = std::min(least, limit_in(root / group.relative_path() / name));
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return least;
}

std::string count_text(double value) {
  char digits[64];
  if (value >= 1e15) {
    std::snprintf(digits, sizeof digits, "%.2g", value);
    return digits;
  }
  std::snprintf(digits, sizeof digits, "%.0f", value);
  std::string out;
  for (size_t i = 0; digits[i]; ++i) {
    const size_t left = std::string_view(digits).size() - 1 - i;
    out += digits[i];
    if (left > 0 && left % 3 == 0) out += ',';
  }
  return out;
}

/// Two significant digits, rounded down: the largest value that fits is an estimate.
int64_t rounded(int64_t value) {
  int64_t unit = 1;
  while (value / unit >= 100) unit *= 10;
  return value / unit * unit;
}

/// An option that may be the cause, and how to set it in a request.
struct Knob {
  std::string name;
  int64_t value, least = 1, step = 1;
  std::function<void(MemoryRequest&, int64_t)> set;
  std::string unit{};
};

class Excess {
 public:
  Excess(const MemoryRequest& request, double limit)
      : request_(request), limit_(limit), estimate_(estimate_memory(request)) {}

  bool exists() const { return !fits(request_); }

  /// "train.batch_size = 100,000 x 64 tokens with softmax attention needs"
  std::string cause() const {
    const TransformerConfig& c = request_.model;
    const auto is_largest = [&](double part) {
      return part >= std::max({state(), estimate_.training, evaluation(), estimate_.data});
    };
    const auto size = [](const char* name, int64_t value) {
      return concat_message(name, " = ", count_text(number(value)));
    };
    if (is_largest(estimate_.data))
      return concat_message("the data of ", count_text(request_.data.examples), " examples needs");
    if (is_largest(state())) {
      const bool of_tokens =
          number(c.vocabulary) * number(c.d_model) > estimate_.parameter_count / 4;
      return concat_message(
          size("model.layers", c.layers), " x ", size("model.d_model", c.d_model),
          c.d_mlp > 0 ? ", " + size("model.d_mlp", c.d_mlp) : "",
          of_tokens ? ", " + size("model.vocabulary", c.vocabulary) : "", ": ",
          estimate_.parameter_count > 0 ? count_text(estimate_.parameter_count) + " " : "",
          "parameters", request_.trains ? " with gradients and optimizer state need" : " need");
    }
    const bool evaluates = is_largest(evaluation());
    // Sizes of the model where they are what is large.
    std::string through;
    if (c.layers > 100) through += " through " + size("model.layers", c.layers);
    if (c.d_model > 4096) through += " of " + size("model.d_model", c.d_model);
    if (c.d_mlp > 16384) through += " with " + size("model.d_mlp", c.d_mlp);
    const std::string batch = !evaluates ? size("train.batch_size", request_.batch_size)
                              : request_.eval_follows
                                  ? "evaluation of " + size("train.batch_size", request_.batch_size)
                                  : size("train.eval_batch_size", request_.eval_batch_size);
    return concat_message(batch, " x ", count_text(length_of(c)), " tokens",
                          !evaluates && request_.micro_batches > 1
                              ? concat_message(" in ", request_.micro_batches, " micro-batches")
                              : "",
                          through, " with ", is_naive() ? "naive " : "", c.attention_name(),
                          " attention needs");
  }

  /// What would fit, each alone.
  std::string remedies() const {
    std::vector<std::string> list;
    for (const Knob& knob : knobs()) {
      const int64_t most = largest(knob);
      if (most >= knob.least && list.size() < 3)
        list.push_back(
            concat_message("at most ", knob.name, count_text(number(rounded(most))), knob.unit));
    }
    if (const std::string parts = micro_batches(); !parts.empty())
      list.insert(list.begin() + std::min<std::ptrdiff_t>(1, std::ssize(list)), parts);
    for (const auto& [text, change] : switches())
      if (MemoryRequest other = request_; change(other), fits(other)) list.push_back(text);
    std::string out;
    for (size_t i = 0; i < list.size(); ++i)
      out.append(i == 0 ? "" : i + 1 == list.size() ? ", or " : ", ").append(list[i]);
    return out;
  }

 private:
  double evaluation() const { return request_.eval_batch_size > 0 ? estimate_.evaluation : 0; }
  double state() const {
    return estimate_.parameters + estimate_.gradients + estimate_.optimizer + estimate_.teacher +
           estimate_.checkpoint;
  }
  /// Infinite if that is far more than there is.
  static double bytes(const MemoryRequest& r) {
    const MemoryEstimate e = estimate_memory(r);
    return e.exceeds ? INFINITY : e.total() + program_memory;
  }
  bool fits(const MemoryRequest& r) const {
    try {
      return bytes(r) <= limit_;
    } catch (const ConfigError&) {  // another option does not allow this value
      return false;
    }
  }

  /// The largest value below the present one that fits; 0 if none does.
  int64_t largest(const Knob& knob) const {
    const auto bytes_with = [&](int64_t units) {
      MemoryRequest other = request_;
      knob.set(other, units * knob.step);
      try {
        return bytes(other);
      } catch (const ConfigError&) {  // another option does not allow this value
        return double{INFINITY};
      }
    };
    // In units of a step: low fits, high does not.
    int64_t low = std::max<int64_t>(1, knob.least / knob.step), high = knob.value / knob.step;
    double below = bytes_with(low), above = INFINITY;
    if (below > limit_) return 0;
    // By the line through both ends where that is known, because most sizes count as they are.
    for (bool halve = false; high - low > std::max<int64_t>(1, high / 256); halve = !halve) {
      const double share = (limit_ - below) / (above - below);
      const int64_t by_line = low + static_cast<int64_t>(share * number(high - low)),
                    by_ratio = static_cast<int64_t>(std::sqrt(number(low) * number(high)));
      const int64_t middle =
          std::clamp(halve || !std::isfinite(above) ? by_ratio : by_line, low + 1, high - 1);
      const double between = bytes_with(middle);
      const bool fits = between <= limit_;
      (fits ? low : high) = middle;
      (fits ? below : above) = between;
    }
    return low * knob.step;
  }

  /// In the order in which they are the likely cause: what is largest comes first.
  std::vector<Knob> knobs() const {
    const TransformerConfig& c = request_.model;
    std::vector<Knob> all;
    const bool steps = request_.trains && estimate_.training >= evaluation();
    const double work = std::max(estimate_.training, evaluation());
    if (work >= state()) {
      if (steps || request_.eval_follows)
        all.push_back(
            {"train.batch_size = ", request_.batch_size, 1, 1, [](MemoryRequest& r, int64_t v) {
               if (r.eval_follows) r.eval_batch_size = std::min(r.eval_batch_size, v);
               r.batch_size = v;
               r.micro_batches = std::min(r.micro_batches, v);
             }});
      if (!steps)
        all.push_back({"train.eval_batch_size = ", request_.eval_batch_size, 1, 1,
                       [](MemoryRequest& r, int64_t v) { r.eval_batch_size = v; }});
      all.push_back({"", c.max_length, 16, 1,
                     [](MemoryRequest& r, int64_t v) { r.model.max_length = v; },
                     " tokens in a sequence"});
    }
    all.push_back({"model.layers = ", c.layers, 1, 1,
                   [](MemoryRequest& r, int64_t v) { r.model.layers = v; }});
    all.push_back(
        {"model.d_mlp = ", c.d_mlp, 1, 1, [](MemoryRequest& r, int64_t v) { r.model.d_mlp = v; }});
    all.push_back(
        {"model.d_model = ", c.d_model, c.heads, c.heads, [](MemoryRequest& r, int64_t v) {
           if (!r.fixed_mlp && r.model.d_mlp > 0) r.model.d_mlp = 2 * v;
           r.model.d_model = v;
         }});
    if (work < state() && number(c.vocabulary) * number(c.d_model) > estimate_.parameter_count / 4)
      all.push_back({"", c.vocabulary, 1, 1,
                     [](MemoryRequest& r, int64_t v) {
                       if (r.model.classes == r.model.vocabulary) r.model.classes = v;
                       r.model.vocabulary = v;
                     },
                     " different tokens, numbered from 0 (model.vocabulary)"});
    all.push_back(
        {"data.train_size = ", static_cast<int64_t>(std::min(request_.data.examples, 9e18)), 1, 1,
         [](MemoryRequest& r, int64_t v) {
           r.data.bytes *= number(v) / r.data.examples;
           r.data.examples = number(v);
         }});
    std::erase_if(all, [](const Knob& k) { return k.value <= k.least || k.value == 0; });
    // Of a number that must shrink to next to nothing, another one is the cause.
    const auto kept = [&](const Knob& k) { return number(largest(k)) / number(k.value); };
    std::stable_sort(all.begin(), all.end(),
                     [&](const Knob& a, const Knob& b) { return is_work(a) && !is_work(b); });
    std::erase_if(
        all, [&](const Knob& k) { return !is_work(k) && number(k.value) < 4096 && kept(k) < 0.1; });
    return all;
  }
  static bool is_work(const Knob& k) {
    return k.name.starts_with("train.") || k.unit.starts_with(" tokens");
  }

  std::string micro_batches() const {
    if (!request_.trains || request_.micro_batches >= request_.batch_size ||
        estimate_.training < evaluation())
      return {};
    for (const bool with_evaluation : {false, true}) {
      MemoryRequest other = request_;
      const auto fits_in = [&](int64_t parts) {
        other.micro_batches = parts;
        other.eval_batch_size = request_.eval_batch_size;
        if (with_evaluation)
          other.eval_batch_size = std::min(other.eval_batch_size, other.micro_batch_size());
        return fits(other);
      };
      int64_t low = request_.micro_batches, high = request_.batch_size;  // high fits, low does not
      if (!fits_in(high)) continue;
      while (high - low > std::max<int64_t>(1, low / 16)) {
        const auto middle = std::clamp(static_cast<int64_t>(std::sqrt(number(low) * number(high))),
                                       low + 1, high - 1);
        (fits_in(middle) ? high : low) = middle;
      }
      fits_in(high);
      std::string text = concat_message("train.micro_batches = ", count_text(number(high)));
      if (with_evaluation)
        text += concat_message(" with train.eval_batch_size = ",
                               count_text(number(other.eval_batch_size)));
      return text;
    }
    return {};
  }

  std::vector<std::pair<std::string, std::function<void(MemoryRequest&)>>> switches() const {
    std::vector<std::pair<std::string, std::function<void(MemoryRequest&)>>> all;
    if (request_.trains && !request_.recompute)
      all.emplace_back("train.recompute = true", [](MemoryRequest& r) { r.recompute = true; });
    if (is_naive())
      all.emplace_back("attention.impl = \"tiled\"", [](MemoryRequest& r) {
        r.model.attention_options.set("impl", std::string("tiled"));
      });
    return all;
  }

  /// attention.impl = "naive"
  bool is_naive() const {
    const TransformerConfig& c = request_.model;
    const auto* const impl = c.attention_options.find("impl");
    return c.layer_attention.empty() && impl && impl->value == OptionValue(std::string("naive"));
  }

  const MemoryRequest& request_;
  double limit_;
  MemoryEstimate estimate_;
};

}  // namespace

double MemoryEstimate::work() const { return std::max(gradients + training, evaluation); }

double MemoryEstimate::total() const {
  return parameters + optimizer + work() + data + teacher + checkpoint;
}

MemoryRequest memory_request(const Plan& plan, const data::Task* task) {
  const TrainerOptions& t = plan.train.trainer;
  MemoryRequest out{.model = plan.model,
                    .fixed_mlp = plan.effective.at("model").at("d_mlp").given,
                    .trains = !task || task->train,
                    .batch_size = plan.train.loading.batch_size,
                    .micro_batches = t.step.shards * t.step.micro_batches,
                    .eval_batch_size = t.eval_batch_size,
                    .eval_follows = !plan.effective.at("train").at("eval_batch_size").given,
                    .recompute = t.step.recompute,
                    .optimizer = plan.optimizer.optimizer,
                    .average = t.ema_decay > 0,
                    .teacher = !plan.train.distill.from.empty(),
                    .saves = !task || task->train,
                    .counted = 0,
                    .data = plan.data,
                    .limit_gib = plan.train.memory_limit,
                    .shares_optimizer = t.shard_optimizer};
  if (!task) {
    if (out.data.examples > 0)
      out.batch_size =
          std::min(out.batch_size, static_cast<int64_t>(std::min(out.data.examples, 9e18)));
    return out;
  }
  const data::Dataset* const some = task->train        ? task->train.get()
                                    : task->validation ? task->validation.get()
                                                       : task->test.get();
  if (!some) return out;
  look_at(*some, out);
  if (!task->train) return out;
  out.data.examples = number(task->train->size());
  out.batch_size = std::min(out.batch_size, task->train->size());
  out.micro_batches = std::min(out.micro_batches, out.batch_size);
  out.eval_batch_size =
      task->validation ? std::min(out.eval_batch_size, task->validation->size()) : 0;
  return out;
}

// What is beyond these sizes is more of the same.
MemoryEstimate estimate_memory(const MemoryRequest& r, const RanksOfEstimate& ranks) {
  constexpr int64_t layers = 16, sequences = 2048;
  const auto between = [&](const auto& resize, int64_t size, int64_t enough) {
    const auto of = [&](int64_t n) {
      MemoryRequest other = r;
      resize(other, n);
      return estimate_memory(other, ranks);
    };
    const int64_t fewer = enough / 2;
    const MemoryEstimate a = of(fewer);
    return a.exceeds ? a : extrapolated(a, of(enough), number(size - fewer) / number(fewer));
  };
  if (r.model.layers > layers && !layers_differ(r.model))
    return between([](MemoryRequest& o, int64_t n) { o.model.layers = n; }, r.model.layers, layers);
  if (r.trains && r.micro_batch_size() > sequences)
    return between([&](MemoryRequest& o, int64_t n) { o.batch_size = n * r.micro_batches; },
                   r.micro_batch_size(), sequences);
  if (r.eval_batch_size > sequences)
    return between([](MemoryRequest& o, int64_t n) { o.eval_batch_size = n; }, r.eval_batch_size,
                   sequences);
  return Rehearsal(r, ranks).run();
}

MemoryLimit machine_memory() {
  const double physical = number(sysconf(_SC_PHYS_PAGES)) * number(sysconf(_SC_PAGESIZE));
  MemoryLimit out{0.9 * physical,
                  concat_message("this machine (90 % of its ", bytes_text(physical), ")")};
  const auto consider = [&](double bytes, const char* what) {
    if (bytes < out.bytes) out = {bytes, what};
  };
  consider(group_limit(), "this process (by its control group)");
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    consider(static_cast<double>(addresses.rlim_cur) / 2,
             "this process (half of its address space, ulimit -v)");
  return out;
}

MemoryLimit memory_limit(const MemoryRequest& request) {
  if (request.limit_gib > 0) return {request.limit_gib * (1 << 30), "train.memory_limit"};
  return machine_memory();
}

void check_memory(const MemoryRequest& request) {
  const MemoryLimit limit = memory_limit(request);
  const Excess excess(request, limit.bytes);
  if (!excess.exists()) return;
  const std::string remedies = excess.remedies();
  const MemoryEstimate estimate = estimate_memory(request);
  throw ConfigError(concat_message(
      excess.cause(), estimate.exceeds ? " more than " : " ",
      bytes_text(estimate.total() + program_memory), ", ", limit.what, " has ",
      bytes_text(limit.bytes),
      remedies.empty() ? "; no single option can reduce that enough" : ": " + remedies,
      "; train.memory_limit = GIB replaces the limit, --estimate shows the parts"));
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = bytes / 1024;
  for (; value >= 1000 && unit < 5; ++unit) value /= 1024;
  char text[64];
  std::snprintf(text, sizeof text,
                value >= 1e6  ? "%.2g %s"
                : value >= 10 ? "%.0f %s"
                              : "%.1f %s",
                value, units[unit]);
  return text;
}

namespace {

/// The parts with their names, in the order of the table.
std::vector<std::pair<std::string, double>> parts_of(const MemoryEstimate& e) {
  std::vector<std::pair<std::string, double>> all = {{"parameters", e.parameters}};
  const bool evaluates = e.evaluation > e.gradients + e.training;
  if (e.gradients > 0) all.emplace_back("gradients", evaluates ? 0 : e.gradients);
  if (e.optimizer > 0) all.emplace_back("optimizer", e.optimizer);
  all.emplace_back("activations", evaluates ? e.evaluation : e.training);
  all.emplace_back("data", e.data);
  if (e.teacher > 0) all.emplace_back("teacher", e.teacher);
  if (e.checkpoint > 0) all.emplace_back("checkpoint", e.checkpoint);
  all.emplace_back("program", program_memory);
  return all;
}

}  // namespace

std::string memory_line(const MemoryEstimate& e, const MemoryLimit& limit) {
  std::string parts;
  for (const auto& [name, bytes] : parts_of(e))
    parts += concat_message(parts.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  return concat_message("memory: about ", bytes_text(e.total() + program_memory), " of ",
                        bytes_text(limit.bytes), " (", parts, ")");
}

std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& e,
                                                         const MemoryLimit& limit) {
  std::vector<std::pair<std::string, double>> all = parts_of(e);
  all.emplace_back("total", e.total() + program_memory);
  all.emplace_back("available", limit.bytes);
  return all;
}

}  // namespace longhand::train
