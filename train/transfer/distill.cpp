#include "longhand/train/transfer/distill.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/attention/analysis/weights.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/train/step/cross_entropy.h"
#include "longhand/train/transfer/loaded_run.h"

namespace longhand::train {
namespace {

using attention::Transformer;
using attention::TransformerConfig;

/// The input and output of one layer's attention.
struct Attended {
  attention::Inputs inputs;
  attention::Mask mask;
  Variable out;
};

/// Returns the predictions of a model and, unless null, what each of its layers attended to.
Prediction observed(Transformer& model, const data::Batch& part, const nn::Pass& pass,
                    std::vector<Attended>* layers) {
  std::optional<attention::analysis::ObservedLayers> observer;
  if (layers) {
    layers->resize(static_cast<size_t>(model.config().layers));
    observer.emplace(model, [layers](int64_t i, const attention::Inputs& inputs,
                                     const attention::Mask& mask, const Variable& out) {
      (*layers)[static_cast<size_t>(i)] = {inputs, mask, out};
    });
  }
  return predict(logits_of(model), part, pass);
}

void check_same(const char* option, const char* what, int64_t teacher, int64_t student) {
  check<ConfigError>(teacher == student, "train.", option, ": the teacher has ", what, " = ",
                     teacher, ", the student ", student, "; expected the same");
}

/// Checks that both models' attention can be compared.
void check_layers(Transformer& teacher, Transformer& student, const DistillOptions& options) {
  const TransformerConfig &t = teacher.config(), &s = student.config();
  const char* const option = options.outputs > 0 ? "distill_outputs" : "distill_weights";
  check_same(option, "model.layers", t.layers, s.layers);
  check_same(option, "model.heads", t.heads, s.heads);
  if (options.outputs > 0) check_same(option, "model.d_model", t.d_model, s.d_model);
  check<ConfigError>(t.has_class_token() == s.has_class_token(), "train.", option, ": only the ",
                     t.has_class_token() ? "teacher" : "student",
                     " has model.pooling = \"cls\", so the sequences differ by the class token");
  if (options.weights == 0) return;
  for (const auto& [who, model] : {std::pair{"student", &student}, {"teacher", &teacher}})
    for (int64_t i = 0; i < s.layers; ++i) {
      const attention::Capabilities& can = model->kernel(i).capabilities();
      check<ConfigError>(can.linear && can.averages && !can.signed_weights && !can.shortens,
                         "train.distill_weights: the attention of layer ", i, " of the ", who, ", ",
                         model->config().attention_of(i),
                         " with these options, has no N x N weights that are positive and sum to 1 "
                         "for each query; use train.distill_outputs instead");
    }
}

/// Returns 1 where a weight is at least `least`. Throws ConfigError for negative weights.
Tensor at_least(const Tensor& weights, double least, const std::string& who) {
  const Tensor dense = weights.contiguous();
  Tensor out = Tensor::empty(dense.shape(), DType::u8);
  dispatch_float(dense.dtype(), [&]<class T>() {
    const T* const w = dense.data<T>();
    uint8_t* const to = out.data<uint8_t>();
    for (int64_t i = 0; i < dense.numel(); ++i) {
      // Rounding may leave weights slightly below 0.
      check<ConfigError>(!(w[i] < T(-1e-4)), "train.distill_weights: the attention of ", who,
                         " has a weight of ", w[i],
                         "; expected weights of at least 0; use train.distill_outputs instead");
      to[i] = w[i] >= static_cast<T>(least);
    }
  });
  return out;
}

/// Returns the sum of KL(teacher || student) over the rows of attention maps.
Variable divergence_of_maps(const Variable& student, const Tensor& teacher) {
  constexpr double least = 1e-12;
  const auto log_of = [&](const Variable& weights, const char* who) {
    return log(where(at_least(weights.value(), least, who), weights, least));
  };
  const Variable constant(teacher);
  return sum(constant * (log_of(constant, "the teacher") - log_of(student, "the student")));
}

}  // namespace

Distillation::Distillation(std::unique_ptr<Transformer> teacher, Transformer& student,
                           const data::TaskInfo& task, const DistillOptions& options,
                           double label_smoothing)
    : teacher_(std::move(teacher)),
      student_(student),
      options_(options),
      label_smoothing_(label_smoothing) {
  const TransformerConfig &t = teacher_->config(), &s = student_.config();
  check_same("distill_from", "model.vocabulary", t.vocabulary, s.vocabulary);
  check_same("distill_from", "model.classes", t.classes, s.classes);
  check<ConfigError>(t.per_token == s.per_token,
                     "train.distill_from: the teacher predicts one target per ",
                     t.per_token ? "token" : "sequence", ", the student one per ",
                     s.per_token ? "token" : "sequence", "; expected the same");
  check<ConfigError>(t.max_length >= task.max_length,
                     "train.distill_from: the teacher has model.max_length = ", t.max_length,
                     ", but the data has sequences of up to ", task.max_length, " tokens");
  check<ConfigError>(t.causal || !task.causal,
                     "train.distill_from: the teacher is not causal, but the targets of this task "
                     "are later tokens");
  if (options_.outputs > 0 || options_.weights > 0) check_layers(*teacher_, student_, options_);
}

Loss Distillation::loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass) {
  const DistillOptions& o = options_;
  const bool attended = o.outputs > 0 || o.weights > 0;
  if (o.logits == 0 && !attended)
    return cross_entropy_loss(logits_of(student_), label_smoothing_)(part, whole, pass);

  std::vector<Attended> layers, taught_layers;
  const Prediction predicted = observed(student_, part, pass, attended ? &layers : nullptr);
  const Prediction taught = [&] {
    const NoGrad no_grad;
    return observed(*teacher_, part, nn::Pass::evaluate(), attended ? &taught_layers : nullptr);
  }();

  Loss out;
  measure_into(out, predicted, whole, label_smoothing_);
  const std::optional<double> of_data = out.unsmoothed;
  if (of_data) out.unsmoothed = 0;
  const auto add = [&](const char* name, double weight, const Variable& term) {
    const bool smoothed = of_data && name == std::string_view("cross_entropy");
    out.terms[name] = smoothed ? *of_data : term.value().item();
    if (out.unsmoothed) *out.unsmoothed += weight * out.terms[name];
    if (weight == 0) return;
    const Variable weighted = weight == 1 ? term : term * weight;
    out.value = out.value.defined() ? out.value + weighted : weighted;
  };
  const CrossEntropyOptions options = cross_entropy_options(whole, label_smoothing_);
  add("cross_entropy", 1 - o.logits, cross_entropy(predicted.logits, predicted.targets, options));
  if (o.logits > 0)
    add("distill_logits", o.logits,
        kl_divergence(predicted.logits, taught.logits.value(),
                      {.temperature = o.temperature,
                       .targets = predicted.targets,
                       .ignore_index = data::ignore_index,
                       .normalizer = options.normalizer}));
  if (!attended) return out;

  // At padding, attention outputs and the weights of its queries are 0 in both models.
  const TransformerConfig& config = student_.config();
  const auto add_over_layers = [&](const char* name, double weight, double size,
                                   const std::function<Variable(size_t)>& of_layer) {
    Variable total;
    for (size_t i = 0; i < layers.size(); ++i) {
      const Variable one = of_layer(i);
      total = total.defined() ? total + one : one;
    }
    add(name, weight, total / (size * static_cast<double>(layers.size())));
  };
  const double tokens =
      static_cast<double>(whole.tokens + (config.has_class_token() ? whole.sequences : 0));
  if (o.outputs > 0)
    add_over_layers("distill_outputs", o.outputs, tokens * static_cast<double>(config.d_model),
                    [&](size_t i) { return sum(square(layers[i].out - taught_layers[i].out)); });
  if (o.weights > 0)
    add_over_layers("distill_weights", o.weights, tokens * static_cast<double>(config.heads),
                    [&](size_t i) {
                      const auto maps = [i](Transformer& model, const Attended& layer) {
                        return attention::analysis::differentiable_weights(
                            model.kernel(static_cast<int64_t>(i)), layer.inputs, layer.mask);
                      };
                      const Tensor constant = [&] {
                        const NoGrad no_grad;
                        return maps(*teacher_, taught_layers[i]).value();
                      }();
                      return divergence_of_maps(maps(student_, layers[i]), constant);
                    });
  return out;
}

Teacher load_teacher(const DistillOptions& options) {
  if (options.from.empty()) return {};
  const SavedModel saved = load_model(find_checkpoint(options.from, options.checkpoint));
  return {saved.source(), model_of(saved)};
}

LossFn distilled_loss(Experiment& e, Teacher teacher) {
  if (!teacher.model) return {};
  const auto distillation =
      std::make_shared<Distillation>(std::move(teacher.model), e.model, e.task.info,
                                     e.plan.train.distill, e.options.label_smoothing);
  return [distillation](const data::Batch& part, const BatchSize& whole, const nn::Pass& pass) {
    return distillation->loss(part, whole, pass);
  };
}

}  // namespace longhand::train
