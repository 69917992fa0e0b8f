// A plugin: an attention variant and a task of your own for the program longhand, without changing it.
//
//   cmake -S examples/plugin -B build/plugin && cmake --build build/plugin
//   longhand train examples/plugin/config.toml --plugin build/plugin/example_plugin.so
#include "longhand/train/plugin/plugin.h"

#include <algorithm>
#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/data/tasks/generated.h"

using namespace longhand;

namespace {

// ---- an attention variant: sigmoid attention (Ramapuram et al. 2024, arXiv 2409.04431)

struct SigmoidOptions {
  double bias = 0;

  static SigmoidOptions defaults(const attention::Config& config) {
    return {.bias = -std::log(static_cast<double>(config.max_length))};
  }
  void describe(OptionVisitor& v) {
    v.number("bias", bias, {-100, 100}, "added to the scores", "-log(max_length)");
  }
  attention::Capabilities capabilities() const {
    return {.averages = false,  // the weights of a query do not sum to 1
            .causal_reason = "the example does not mask later keys",
            .time = "N^2 D",
            .memory = "N^2"};
  }
};

// The definition, as the N x N weights of the formula, with which longhand check attention compares the class
// below.
Variable sigmoid_weights(const attention::DefinitionInputs& in) {
  const auto heads_first = [](const Variable& x) { return permute(x, {0, 2, 1, 3}); };
  const double bias = attention::read_variant_options<SigmoidOptions>(in.config).bias;
  const Variable scores = matmul(heads_first(in.q), permute(in.k, {0, 2, 3, 1}));
  const Variable weights =
      sigmoid(scores / std::sqrt(static_cast<double>(in.config.head_dim)) + bias);
  return weights * Variable(in.visible.to(weights.dtype()));
}

class SigmoidAttention : public attention::Variant {
 public:
  SigmoidAttention(const nn::Scope& scope_, const attention::Config& config,
                   const SigmoidOptions& options)
      : Variant(scope_, config), bias_(options.bias) {}

  // Two products forward, two for the gradients of each; one exponential for each weight.
  attention::Work work(int64_t queries, int64_t keys) const override {
    const auto pairs = static_cast<double>(config().heads * queries * keys);
    const double flops = 4 * pairs * static_cast<double>(config().head_dim);
    return {{flops, pairs}, {2 * flops}, 2 * sizeof(float) * pairs};
  }

 protected:
  // q, k, v (B, N, H, D); out = sigmoid(Q Kᵀ / sqrt D + bias) V. The padding of v is zero already, so
  // that padded keys add nothing.
  Variable attend(const attention::Inputs& in, const attention::Mask&, const nn::Pass&) override {
    const auto heads_first = [](const Variable& x) { return permute(x, {0, 2, 1, 3}); };
    const double scale = 1 / std::sqrt(static_cast<double>(in.q.size(3)));
    const Variable scores = matmul(heads_first(in.q), transpose(heads_first(in.k), 2, 3), scale);
    return permute(matmul(sigmoid(affine(scores, 1, bias_)), heads_first(in.v)), {0, 2, 1, 3});
  }

 private:
  double bias_;
};

// ---- a task: which of two symbols occurs more often? The answer is the target of the last token.

struct MajorityOptions {
  int64_t length = 33;
  data::SplitSizes sizes{.train = 20000, .validation = 1000, .test = 1000};

  void describe(OptionVisitor& v) {
    v.integer("length", length, {3, 1 << 20}, "tokens per example; odd");
    v.require(length % 2 == 1, "length", "expected an odd number, so that there is a majority");
    sizes.describe(v);
  }
};

std::optional<data::TaskInfo> majority_info(const MajorityOptions& o) {
  return data::TaskInfo{.vocabulary = 2, .classes = 2, .per_token = true, .max_length = o.length};
}

data::Task make_majority(const MajorityOptions& o, uint64_t seed, const data::Splits&) {
  const auto draw = [](RandomStream& random, std::span<int32_t> tokens,
                       std::span<int32_t> targets) {
    size_t ones = 0;
    for (int32_t& token : tokens) ones += token = static_cast<int32_t>(random.below(2));
    std::fill(targets.begin(), targets.end(), data::ignore_index);
    targets.back() = 2 * ones > tokens.size() ? 1 : 0;
  };
  return data::make_generated(*majority_info(o), {{"majority", o.length, o.sizes, draw}}, seed);
}

}  // namespace

LONGHAND_PLUGIN("example", "1.0") {
  attention::add("logistic", attention::make_spec<SigmoidOptions, SigmoidAttention>(
                                 {.summary = "sigmoid(Q K^T / sqrt D + bias) V, an example",
                                  .paper = "Ramapuram et al. 2024, arXiv 2409.04431",
                                  .cases = {{}, {{"bias", -1.0}}},
                                  .weights = sigmoid_weights}));
  data::add("majority",
            data::make_spec<MajorityOptions>("which of two symbols is more frequent, an example",
                                             majority_info, make_majority));
}
