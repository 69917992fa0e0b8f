#include "longhand/attention/analysis/probe.h"

#include <cmath>

#include "longhand/autograd/grad_mode.h"
#include "longhand/core/error.h"

namespace longhand::attention::analysis {
namespace {

Tensor random_tokens(int64_t length, int64_t dim, double std, double correlation,
                     const Generator& generator) {
  Tensor out = Tensor::empty({1, length, 1, dim}, DType::f64);
  fill_normal(out, generator, 0, std);
  double* const x = out.data<double>();
  const double innovation = std::sqrt(1 - correlation * correlation);
  for (int64_t i = dim; i < length * dim; ++i) x[i] = correlation * x[i - dim] + innovation * x[i];
  return out;
}

}  // namespace

HeadInputs random_head(const RandomInputs& what, const Generator& generator) {
  check<ConfigError>(what.length >= 1 && what.dim >= 1,
                     "random inputs: expected a length and a dimension of at least 1, got ",
                     what.length, " and ", what.dim);
  check<ConfigError>(what.norm >= 0, "random inputs: expected a norm of at least 0, got ",
                     what.norm);
  check<ConfigError>(what.correlation >= 0 && what.correlation < 1,
                     "random inputs: expected a correlation in [0, 1), got ", what.correlation);
  const double std = what.norm / std::sqrt(static_cast<double>(what.dim));
  const auto tokens = [&](const char* name, double each) {
    return random_tokens(what.length, what.dim, each, what.correlation, generator.fork(name));
  };
  return {tokens("q", std), tokens(what.same_keys ? "q" : "k", std), tokens("v", 1)};
}

ObservedLayers::ObservedLayers(Transformer& model, const See& see) : model_(model) {
  for (int64_t i = 0; i < model.config().layers; ++i)
    model.kernel(i).observe([see, i](const Inputs& in, const Mask& mask, const Variable& result) {
      see(i, in, mask, result);
    });
}
ObservedLayers::~ObservedLayers() {
  for (int64_t i = 0; i < model_.config().layers; ++i) model_.kernel(i).observe({});
}

std::vector<LayerInputs> probe(Transformer& model, const Tensor& tokens, const Tensor& lengths) {
  std::vector<LayerInputs> layers(static_cast<size_t>(model.config().layers));
  const ObservedLayers observed(
      model, [&](int64_t i, const Inputs& in, const Mask& mask, const Variable&) {
        LayerInputs& layer = layers[static_cast<size_t>(i)];
        layer = {i, model.config().attention_of(i), in};
        if (!model.kernel(i).capabilities().uses_queries_and_keys) layer.in.q = layer.in.k = {};
        layer.lengths.assign(static_cast<size_t>(in.q.size(0)), in.q.size(1));
        if (mask.lengths.defined()) layer.lengths = mask.lengths.to_vector<int64_t>();
      });
  const NoGrad no_grad;
  model.forward(tokens, lengths, nn::Pass::evaluate());
  return layers;
}

std::vector<HeadInputs> heads_of(const std::vector<LayerInputs>& layers) {
  std::vector<HeadInputs> out;
  for (const LayerInputs& layer : layers) {
    const auto& [q, k, v, x] = layer.in;
    const bool mixed = q.defined() && k.size(1) != q.size(1);
    check<ConfigError>(q.defined() && !mixed, "layer ", layer.layer, ": the variant \"",
                       layer.variant, "\" has no ",
                       mixed ? "keys of single tokens, but of mixtures"
                             : "queries and keys: its weights do not depend on them",
                       "; analyse a model of another variant");
    const int64_t H = q.size(2);
    for (int64_t h = 0; h < H; ++h)
      for (int64_t b = 0; b < q.size(0); ++b) {
        const auto one = [&](const Variable& of_all) {
          const int64_t at = h * of_all.size(2) / H;
          return of_all.value()
              .slice(0, b, b + 1)
              .slice(1, 0, layer.lengths[static_cast<size_t>(b)])
              .slice(2, at, at + 1)
              .to(DType::f64)
              .contiguous();
        };
        out.push_back({one(q), one(k), one(v), layer.layer, h, b});
      }
  }
  return out;
}

}  // namespace longhand::attention::analysis
