#include "longhand/train/config/memory.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/storage.h"
#include "longhand/train/step/cross_entropy.h"
#include "longhand/train/step/ema.h"
#include "longhand/train/step/evaluation.h"
#include "longhand/train/step/step.h"

namespace longhand::train {
namespace {

using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// Examples of which only the sizes matter.
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
    if (request_.model.targets != "classes")
      out.targets = Tensor::empty({B, request_.model.classes},
                                  request_.model.targets == "labels" ? DType::u8 : DType::f32);
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

/// Like logits_of(), for the targets that count.
LogitsFn shapes_of_logits(attention::Transformer& model, double counted) {
  return [&model, counted](const data::Batch& batch, const nn::Pass& pass) {
    if (!batch.per_token() || counted > 0.5)
      return Prediction{model.forward(batch.tokens, batch.lengths, pass), batch.targets};
    const auto count = static_cast<int64_t>(counted * number(batch.targets.numel()));
    const Tensor rows = Tensor::empty({std::max<int64_t>(1, count)}, DType::i32);
    return Prediction{model.forward(batch.tokens, batch.lengths, pass, rows),
                      Tensor::empty(rows.shape(), DType::i32)};
  };
}

/// The cross entropy, plus the KL divergence from a teacher's logits.
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

/// A run of one step, one evaluation batch and one checkpoint, without computing values.
class Rehearsal {
 public:
  Rehearsal(const MemoryRequest& request, const RanksOfEstimate& ranks)
      : r_(request), ranks_(ranks), most_(8 * memory_limit(request).bytes) {}

  MemoryEstimate run() {
    try {
      rehearse();
      return out_;
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // from a vector
    } catch (const ShapeError& error) {
      if (!std::string_view(error.what()).ends_with("exceed 64-bit integers")) throw;
    }
    *part_ = most_;
    out_.exceeds = true;
    return out_;
  }

 private:
  void rehearse() {
    const DryRun dry(most_);
    attention::Transformer model(nn::root(), r_.model);
    const Parameters parameters = model.named_parameters();
    for (const auto& [name, parameter] : parameters)
      out_.parameter_count += number(parameter.value().numel());
    const double P = out_.parameter_count * number(r_.model.element_bytes());
    out_.parameters = in_use();
    part_ = &out_.optimizer;
    const auto optimizer = make_optimizer(r_.optimizer.optimizer, parameters);
    if (options_.shard_optimizer) ranks_.reducer.divide(*optimizer);
    std::optional<Ema> average;
    if (options_.ema_decay > 0) average.emplace(parameters, 0.5);
    out_.optimizer = in_use() - out_.parameters;
    part_ = &out_.teacher;
    std::optional<attention::Transformer> teacher;
    if (!r_.train.distill.from.empty()) teacher.emplace(nn::root(), r_.model);
    out_.teacher = in_use() - out_.parameters - out_.optimizer;
    const double state = in_use();
    const LogitsFn logits = shapes_of_logits(model, r_.counted);
    if (r_.trains) {
      part_ = &out_.training;
      LossFn loss = cross_entropy_loss(logits, 0);
      if (teacher) loss = taught_loss(logits, shapes_of_logits(*teacher, r_.counted));
      train(model, *optimizer, std::move(loss), average, P);
      out_.training = std::max(0.0, reserved() - state - out_.gradients);
    }
    const int64_t evaluated = options_.eval_batch_size;
    if (evaluated > 0) {
      part_ = &out_.evaluation;
      const double before = reserved();
      reset_memory_peak();
      const Shapes examples(r_, evaluated);
      evaluate(logits, examples, {.batch_size = evaluated, .reducer = &ranks_.reducer});
      const double peak =
          reserved() > before ? reserved() : number(static_cast<int64_t>(memory_stats().peak));
      out_.evaluation = std::max(0.0, peak - state);
    }
    part_ = &out_.checkpoint;
    if (r_.saves) {
      const double before = reserved();
      double image = bytes_of(model.state_dict()) + bytes_of(optimizer->state_dict());
      if (average) image += bytes_of(average->state_dict());
      out_.checkpoint = 2 * image + reserved() - before;
    }
    const double B = number(std::max(r_.trains ? batch_size_ : 0, evaluated));
    out_.data = r_.data.bytes + 8 * r_.data.examples;
    // Batches that have not been made.
    if (r_.trains) out_.data += 8 * (B - number(trained_)) * number(r_.model.max_length);
  }

  /// Runs only some of very many micro-batches: more would add only sums of gradients.
  void train(nn::Module& model, Optimizer& optimizer, LossFn loss, std::optional<Ema>& average,
             double P) {
    constexpr int64_t fewer = 8;
    const int64_t of = ranks_.reducer.share().of, parts = r_.micro_batches(of),
                  shards = std::min(parts, std::max(fewer, of));
    trained_ = parts > shards ? r_.micro_batch_size(of) * shards : batch_size_;
    const StepOptions options{.shards = shards, .recompute = options_.step.recompute};
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
               .options = options,
               .after_update = [&](int64_t done) {
                 if (average) average->update(done);
               }});
    step.join(ranks_.reducer);
    TrainingState state;
    if (ranks_.sent) out_.sent = ranks_.sent();
    step.take(state);
    for (size_t i = 0; i < out_.sent.size(); ++i) out_.sent[i] = ranks_.sent()[i] - out_.sent[i];
    out_.repeats = number(parts) / number(shards);
    out_.gradients += P * (levels(parts) - levels(shards));
  }

  const MemoryRequest& r_;
  const TrainerOptions& options_ = r_.train.trainer;
  const int64_t batch_size_ = r_.train.loading.batch_size;
  const RanksOfEstimate& ranks_;
  double most_;  // bytes beyond which it ends
  int64_t trained_ = 0;
  MemoryEstimate out_;
  double* part_ = &out_.parameters;  // the part that allocates memory now
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

/// Returns whether every layer must be constructed, because options or ranks differ.
bool layers_differ(const TransformerConfig& c) {
  const auto has_list = [&](const std::string& key) {
    const auto* const list =
        std::get_if<std::vector<int64_t>>(&c.attention_options.find(key)->value);
    return list && list->size() > 1;
  };
  const std::vector<std::string> keys = c.attention_options.keys();
  return !c.layer_attention.empty() || c.low_rank.size() > 1 || std::ranges::any_of(keys, has_list);
}

/// Sets what a few examples show: the share of targets that count, and whether some are padded.
void look_at(const data::Dataset& dataset, MemoryRequest& request) {
  request.counted = 1;
  const auto indices = data::indices_from(0, std::min<int64_t>(8, dataset.size()));
  if (indices.empty()) return;
  const data::Batch batch = dataset.collate(indices);
  request.padded = batch.lengths.defined();
  if (!batch.per_token()) return;
  request.counted = number(data::count_targets(batch.targets)) /
                    number(std::max<int64_t>(1, batch.targets.numel()));
}

}  // namespace

double MemoryEstimate::work() const { return std::max(gradients + training, evaluation); }

double MemoryEstimate::total() const {
  return parameters + optimizer + work() + data + teacher + checkpoint;
}

int64_t MemoryRequest::micro_batches(int64_t data_ranks) const {
  return std::min(train.loading.batch_size, std::max(train.trainer.step.shards, data_ranks) *
                                                train.trainer.step.micro_batches);
}

int64_t MemoryRequest::micro_batch_size(int64_t data_ranks) const {
  const int64_t parts = micro_batches(data_ranks);
  return (train.loading.batch_size + parts - 1) / parts;
}

MemoryRequest memory_request(const Plan& plan, const data::Task* task) {
  MemoryRequest out{plan};
  out.counted = 0;
  int64_t& batch_size = out.train.loading.batch_size;
  int64_t& eval_batch_size = out.train.trainer.eval_batch_size;
  if (!task) {
    if (out.data.examples > 0)
      batch_size = std::min(batch_size, static_cast<int64_t>(std::min(out.data.examples, 9e18)));
    return out;
  }
  out.trains = out.saves = task->train != nullptr;
  const data::Dataset* const some = task->train        ? task->train.get()
                                    : task->validation ? task->validation.get()
                                                       : task->test.get();
  if (some) look_at(*some, out);
  if (!task->train) {
    if (some) eval_batch_size = std::min(eval_batch_size, some->size());
    return out;
  }
  out.data.examples = number(task->train->size());
  batch_size = std::min(batch_size, task->train->size());
  eval_batch_size = task->validation ? std::min(eval_batch_size, task->validation->size()) : 0;
  return out;
}

// Beyond these sizes, everything repeats.
MemoryEstimate estimate_memory(const MemoryRequest& r, const RanksOfEstimate& ranks) {
  constexpr int64_t layers = 16, sequences = 2048;
  const int64_t of = ranks.reducer.share().of, parts = r.micro_batches(of);
  const auto between = [&](const auto& resize, int64_t size, int64_t enough) {
    const auto of_size = [&](int64_t n) {
      MemoryRequest other = r;
      resize(other, n);
      return estimate_memory(other, ranks);
    };
    const int64_t fewer = enough / 2;
    const MemoryEstimate a = of_size(fewer);
    return a.exceeds ? a : extrapolated(a, of_size(enough), number(size - fewer) / number(fewer));
  };
  if (r.model.layers > layers && !layers_differ(r.model))
    return between([](MemoryRequest& o, int64_t n) { o.model.layers = n; }, r.model.layers, layers);
  if (r.trains && r.micro_batch_size(of) > sequences)
    return between([&](MemoryRequest& o, int64_t n) { o.train.loading.batch_size = n * parts; },
                   r.micro_batch_size(of), sequences);
  if (const int64_t evaluated = r.train.trainer.eval_batch_size; evaluated > sequences)
    return between([](MemoryRequest& o, int64_t n) { o.train.trainer.eval_batch_size = n; },
                   evaluated, sequences);
  return Rehearsal(r, ranks).run();
}

}  // namespace longhand::train
