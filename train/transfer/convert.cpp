#include "longhand/train/transfer/convert.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/analysis/spectrum.h"
#include "longhand/core/error.h"
#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/nn/low_rank_linear.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/toml.h"
#include "longhand/train/step/gradients.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {
namespace {

/// Returns |weight - out in| / |weight|; 0 for a zero weight.
double relative_error(const Tensor& weight, const nn::LowRankFactors& factors) {
  Tensor difference = weight.clone();
  matmul_into(difference, factors.out.to(weight.dtype()), factors.in.to(weight.dtype()), -1, 1);
  const double size = global_norm({weight});
  return size > 0 ? global_norm({difference}) / size : 0;
}

/// Converts one layer in `state` if that makes it smaller.
ConvertedLayer convert_layer(const attention::LinearLayer& layer, const LowRankRule& rule,
                             nn::StateDict& state) {
  const std::string name = layer.name + ".weight";
  const Tensor stored = state.at(name);
  const Tensor weight = stored.to(DType::f64).contiguous();
  const std::vector<double> numbers = weight.to_vector<double>();
  check<DataError>(std::ranges::all_of(numbers, [](double each) { return std::isfinite(each); }),
                   name, " has values that are not finite");
  const Svd d = svd(weight);
  const std::vector<double> values = d.s.to_vector<double>();
  ConvertedLayer out{.layer = layer};
  out.chosen = rule.rank ? std::min(rule.rank, d.s.numel())
                         : attention::analysis::energy_rank(values, rule.energy, true);
  if (layer.weights_of_rank(out.chosen) >= layer.weights()) return out;
  nn::LowRankFactors factors = nn::low_rank_factors(d, out.chosen);
  factors = {factors.in.to(stored.dtype()), factors.out.to(stored.dtype())};
  out.layer.rank = out.chosen;
  out.energy = attention::analysis::cumulative_energy(values, true)[out.chosen - 1];
  out.error = relative_error(weight, factors);
  state.erase(name);
  state[name + "_in"] = factors.in;
  state[name + "_out"] = factors.out;
  return out;
}

/// Returns model.low_rank for these layers: one number if all have the same rank.
OptionValue low_rank_of(const std::vector<ConvertedLayer>& layers,
                        const attention::TransformerConfig& model) {
  std::vector<int64_t> ranks(model.layers * model.linears_per_block(), 0);
  for (const ConvertedLayer& each : layers) ranks[each.layer.index] = each.layer.rank;
  if (ranks == std::vector(ranks.size(), ranks.front())) return ranks.front();
  return ranks;
}

/// Throws ConfigError if every layer is full.
void check_smaller(const std::vector<ConvertedLayer>& layers, const LowRankRule& rule) {
  if (!std::ranges::all_of(layers, [](const auto& each) { return each.is_full(); })) return;
  // The largest rank r with r (in + out) < in · out.
  const auto largest = [](const attention::LinearLayer& layer) {
    return (layer.in * layer.out - 1) / (layer.in + layer.out);
  };
  const ConvertedLayer& most = *std::ranges::max_element(
      layers, [&](const auto& a, const auto& b) { return largest(a.layer) < largest(b.layer); });
  throw ConfigError(concat_message(
      "--low-rank ", to_string(rule.rank ? OptionValue(rule.rank) : OptionValue(rule.energy)),
      ": no layer becomes smaller; ",
      rule.rank ? "expected a rank of at most "
                : "expected an energy that takes a rank of at most ",
      largest(most.layer), ", for ", most.layer.name, " (", most.layer.out, " x ", most.layer.in,
      ")"));
}

}  // namespace

LowRankRule LowRankRule::parse(const std::string& text) {
  const OptionValue value = parse_option(text);
  if (const int64_t* const rank = std::get_if<int64_t>(&value); rank && *rank >= 1)
    return {.rank = *rank};
  if (const double* const energy = std::get_if<double>(&value);
      energy && *energy > 0 && *energy <= 1)
    return {.energy = *energy};
  throw ConfigError("--low-rank " + text +
                    ": expected a rank, an integer of at least 1, or the energy to keep, a number "
                    "with a decimal point above 0 and at most 1");
}

Conversion convert_to_low_rank(const SavedModel& model, const LowRankRule& rule) {
  Conversion out;
  out.before = read_model(model.config, nullptr);
  check<ConfigError>(out.before.low_rank == std::vector<int64_t>(out.before.low_rank.size(), 0),
                     model.file, " has layers of low rank already: model.low_rank = ",
                     to_string(OptionValue(out.before.low_rank)),
                     "; convert the run that it was made from");
  attention::Transformer whole(nn::root(), out.before);
  nn::StateDict& state = out.checkpoint.model;
  state = model.checkpoint.weights();
  with_file_name(model.file, [&] {
    nn::check_state(whole.state_dict(), state, "the model");
    for (const attention::LinearLayer& layer : out.before.linear_layers())
      out.layers.push_back(convert_layer(layer, rule, state));
  });
  check_smaller(out.layers, rule);

  Config config = model.config;
  config.assign("model", "low_rank", low_rank_of(out.layers, out.before), "--low-rank");
  out.after = read_model(config, nullptr);
  out.checkpoint.config = effective_config(config, nullptr);
  out.checkpoint.data = model.checkpoint.data;
  out.checkpoint.training.step = model.checkpoint.training.step;
  out.checkpoint.training.seed = model.checkpoint.training.seed;
  attention::Transformer converted(nn::root(), out.after);
  load_weights(converted, out.checkpoint);
  out.parameters_before = whole.parameter_count();
  out.parameters_after = converted.parameter_count();
  return out;
}

}  // namespace longhand::train
