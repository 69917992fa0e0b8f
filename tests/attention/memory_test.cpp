// The memory that variants declare, against what their passes take.
#include "longhand/attention/memory.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/measure/memory_peak.h"
#include "longhand/core/storage.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::attention;

// Under sanitizers, operations take memory of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

struct Case {
  std::string variant;
  OptionSet options{};
  int64_t length = 512;
};

std::string name_of(const Case& c) {
  std::string name = c.variant;
  for (const auto& [key, value] : c.options) name += " " + key + "=" + to_string(value);
  return name;
}

// Sizes at which every option of consequence shows.
const std::vector<Case> cases = {
    {"softmax"},
    {"softmax", {{"impl", "naive"}}},
    {"softmax", {{"impl", "naive"}, {"dropout", 0.1}}},
    {"linformer", {{"k", int64_t{64}}}},
    {"linformer", {{"k", int64_t{64}}, {"sharing", "none"}}},
    {"linformer", {{"k", int64_t{64}}, {"projection", "mean_pool"}}},
    {"linformer", {{"k", int64_t{64}}, {"projection", "max_pool"}}},
    {"linformer", {{"k", int64_t{64}}, {"projection", "conv"}}},
    {"linformer", {{"k", int64_t{16}}, {"projection", "mean_pool"}, {"local", true}}},
    {"linformer", {{"k", int64_t{16}}, {"projection", "conv"}, {"local", true}, {"dropout", 0.1}}},
    {"performer"},
    {"performer", {{"kernel", "hyperbolic"}, {"features", int64_t{64}}}},
    {"performer", {{"kernel", "trigonometric"}, {"features", int64_t{64}}}},
    {"performer", {{"kernel", "trigonometric_bias"}, {"features", int64_t{64}}}},
    {"performer", {{"kernel", "relu"}, {"features", int64_t{64}}}},
    {"performer", {{"kernel", "gelu"}, {"features", int64_t{64}}}},
    {"performer", {{"kernel", "exp"}, {"features", int64_t{64}}, {"eps", 1e-3}}},
    {"performer", {{"features", int64_t{64}}, {"eps", 1e-4}}},
    {"performer", {{"kernel", "optimal"}}},
    {"performer", {{"balance", true}}},
    {"performer", {{"kernel", "trigonometric"}, {"balance", true}, {"features", int64_t{64}}}},
    {"performer", {{"features", int64_t{64}}, {"draw", "learned"}}},
    {"performer", {{"features", int64_t{64}}, {"draw", "learned"}, {"kernel", "optimal"}}},
    {"performer", {{"features", int64_t{64}}, {"draw", "learned"}, {"kernel", "hyperbolic"}}},
    {"efficient"},
    {"nystrom"},
    {"nystrom", {{"landmarks", int64_t{32}}, {"pinv", "svd"}}},
    {"nystrom", {{"landmarks", int64_t{32}}, {"landmark_kind", "stride"}}},
    {"nystrom", {{"landmarks", int64_t{32}}, {"landmark_kind", "learned"}}},
    {"nystrom", {{"landmarks", int64_t{32}}, {"conv_kernel", int64_t{5}}}},
    {"nystrom", {{"landmarks", int64_t{1024}}}},
    {"linear"},
    {"linear", {{"feature_map", "squared_relu"}}},
    {"linear", {{"feature_map", "exp"}}},
    {"linear", {{"feature_map", "cosformer"}}},
    {"linear", {{"feature_map", "hedgehog"}}},
    {"linear", {{"feature_map", "taylor2"}}, 128},
    {"linear", {{"feature_map", "dpfp"}, {"nu", int64_t{2}}}},
    {"linear", {{"feature_map", "rebased"}}, 128},
    {"linear", {{"feature_map", "t2r"}, {"features", int64_t{64}}}},
    {"rff", {{"features", int64_t{64}}}},
    {"rff", {{"features", int64_t{64}}, {"waves", "cos_bias"}}},
    {"rff", {{"features", int64_t{64}}, {"draw", "learned"}}},
    {"rff", {{"features", int64_t{64}}, {"kernel", "gaussian"}}},
    {"rff", {{"features", int64_t{64}}, {"kernel", "rfa"}}},
    {"rff", {{"features", int64_t{64}}, {"kernel", "rfa"}, {"gate", true}}},
    {"retnet"},
    {"retnet", {{"gate", false}}},
    {"retnet", {{"norm", false}, {"gate", false}}},
    {"gla"},
    {"gla", {{"norm", false}, {"gate", false}}},
    {"mamba2"},
    {"mamba2", {{"skip", false}, {"norm", false}, {"gate", false}}},
    {"gaussian"},
    {"gaussian", {{"normalized", false}, {"dropout", 0.1}}},
    {"skyformer", {{"landmarks", int64_t{32}}}},
    {"skyformer", {{"landmarks", int64_t{32}}, {"inverse", "exact"}}},
    {"deltanet"},
    {"deltanet", {{"silu", false}, {"norm", false}}},
    {"deltanet", {{"negative", true}}},
    {"gated_deltanet"},
    {"gated_deltanet", {{"norm", false}, {"gate", false}}},
    {"kda"},
    {"kda", {{"rank", int64_t{4}}, {"norm", false}, {"gate", false}}},
    {"rwkv7"},
    {"rwkv7", {{"rank", int64_t{4}}, {"norm", false}, {"bonus", false}, {"gate", false}}},
    {"window"},
    {"window", {{"window", int64_t{16}}, {"dropout", 0.1}}},
    {"window", {{"window", int64_t{16}}, {"global_tokens", int64_t{8}}}},
    {"window", {{"window", int64_t{16}}, {"dilation", int64_t{4}}}},
    {"bigbird", {{"block", int64_t{16}}}},
    {"scatterbrain"},
    {"scatterbrain", {{"features", int64_t{64}}}},
    {"scatterbrain", {{"features", int64_t{64}}, {"window", int64_t{0}}}},
    {"reformer"},
    {"reformer", {{"buckets", int64_t{64}}, {"rounds", int64_t{4}}, {"window", int64_t{8}}}},
    {"eva"},
    {"eva", {{"window", int64_t{16}}, {"chunk", int64_t{8}}}},
    {"eva", {{"window", int64_t{512}}}},
    {"forgetting"},
    {"forgetting", {{"impl", "naive"}, {"dropout", 0.1}}},
    {"lowrank"},
    {"lowrank", {{"rank", int64_t{32}}}},
    {"lowrank", {{"softmax", true}}},
    {"lowrank", {{"softmax", true}, {"dropout", 0.1}}},
    {"latent"},
    {"clustered"},
    {"clustered", {{"clusters", int64_t{32}}, {"topk", int64_t{0}}}},
    {"lara"},
    {"lara", {{"landmarks", int64_t{32}}, {"weights", "balance"}, {"samples", int64_t{2}}}},
    {"topk"},
    {"topk", {{"dropout", 0.1}}},
    {"conv"},
    {"parallel"},
    {"svd", {}, 64},
    {"none"},
    {"mean"},
    {"random"},
    {"random", {{"dropout", 0.1}}},
    {"synthesizer"},
    {"synthesizer", {{"dropout", 0.1}}},
    {"synthesizer", {{"kind", "random"}}},
    {"synthesizer", {{"kind", "random"}, {"dropout", 0.1}}},
    {"aft"},
    {"aft", {{"kind", "full"}}},
    {"aft", {{"kind", "full"}, {"rank", int64_t{8}}}},
    {"aft", {{"kind", "simple"}}},
    {"fnet"},
};

struct Peaks {
  double parameters, kept, forward, training;  // bytes; forward: of an evaluation
};

double in_use() { return static_cast<double>(memory_stats().in_use); }
double peak() { return static_cast<double>(memory_stats().peak); }

/// What passes take, with q, k, v, x, the result and, in training, the gradients of all of these.
Peaks measured(const Case& c, Config config, int64_t batch) {
  const auto variant = make(c.variant, nn::root(DType::f32, 1), config);
  const Shape shape{batch, c.length, config.heads, config.head_dim};
  const Variable leaf(Tensor::full(shape, 0.1), true);
  const Capabilities& can = variant->capabilities();
  // Like projections, these keep neither their results nor, for the gradient, anything else.
  const auto inputs = [&] {
    const auto projection = [&] { return affine(leaf, 0.5, 0); };
    Inputs in;
    if (can.uses_queries_and_keys) in.q = projection(), in.k = projection();
    in.v = projection();
    if (can.uses_x) in.x = reshape(projection(), {batch, c.length, config.heads * config.head_dim});
    return in;
  };
  Peaks out{.parameters = static_cast<double>(variant->parameter_count()),
            .kept = 0,
            .forward = 0,
            .training = 0};
  const nn::Pass pass = nn::Pass::train(Generator(5));
  const Tensor seed = Tensor::full(shape, 1);
  double before = in_use();
  {
    const NoGrad no_grad;
    reset_memory_peak();
    variant->forward(inputs(), {}, nn::Pass::evaluate());
    out.forward = peak() - before;
  }
  reset_memory_peak();
  Variable result = variant->forward(inputs(), {}, pass);
  out.kept = in_use() - before;
  out.training = peak() - before;
  Variable after = affine(result, 0.5, 0);
  result = Variable();
  backward(after, seed);
  const double without_after = peak() - before - 4 * static_cast<double>(seed.numel());
  out.training = std::max(out.training, without_after);
  return out;
}

}  // namespace

TEST_CASE("the memory that a variant declares is what its passes take") {
  constexpr int64_t batch = 16, heads = 2;
  for (const Case& c : cases)
    for (const bool causal : {false, true}) {
      CAPTURE(name_of(c), causal);
      Config config;
      config.heads = heads;
      config.head_dim = c.length == 128 ? 16 : 32;
      config.max_length = c.length;
      config.causal = causal;
      for (const auto& [key, value] : c.options) config.options.set(key, value);
      const Capabilities can = capabilities(c.variant, config);
      if (causal ? !can.causal : can.causal_only) continue;
      Extent extent{.batch = batch, .queries = static_cast<double>(c.length)};
      extent.keys = extent.queries;
      const Memory training = memory(c.variant, config, extent);
      extent.training = false;
      const Memory evaluation = memory(c.variant, config, extent);
      Peaks real = measured(c, config, batch);

      const double tensor =
          static_cast<double>(batch * c.length * heads * config.head_dim) * sizeof(float);
      const double inputs = (can.uses_queries_and_keys ? 3 : 1) + (can.uses_x ? 1 : 0);
      const auto bytes = [](double numbers) { return numbers * sizeof(float); };
      const double base = (inputs + 1) * tensor;
      const double kept = base + bytes(training.kept);
      const double peak = kept + std::max(bytes(training.forward),
                                          (inputs + 1) * tensor + bytes(training.backward));
      CHECK(training.parameters == real.parameters);
      // A quarter of a tensor for partial sums and the memory of tasks.
      const auto near = [&](double estimate, double found, double share) {
        return std::abs(estimate - found) <= share * found + 0.25 * tensor;
      };
      // A pass whose threads did not run at the same time takes less.
      for (int again = 0; again < 3 && !near(peak, real.training, 0.15); ++again)
        real.training = std::max(real.training, measured(c, config, batch).training);
      CAPTURE(tensor, kept / tensor, real.kept / tensor, peak / tensor, real.training / tensor,
              real.forward / tensor);
      CHECK(near(kept, real.kept, 0.05));
      CHECK(near(peak, real.training, 0.15));
      // An evaluation keeps nothing, so its estimate is an upper bound.
      const double forward = base + bytes(evaluation.kept + evaluation.forward);
      CHECK(forward >= 0.8 * real.forward - 0.25 * tensor);
      CHECK(forward <= 2.5 * real.forward);
    }
}
#endif
