// Lesson 4: an attention variant of your own is a class, its options, and one call of
// attention::add().
//
// "Squared ReLU" attention: kernel(q, k) = relu(q·k / sqrt D)², each row divided by its sum. It
// has no softmax, and a query may match no key at all.
#include <cmath>
#include <iostream>

#include "longhand/attention/conformance/conformance.h"
#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

namespace {

// The options of [attention] besides the type. One declaration reads, checks and documents them.
struct SquaredReluOptions {
  bool squared = true;

  void describe(OptionVisitor& v) {
    v.boolean("squared", squared, "whether relu(q·k / sqrt D) is squared");
  }
  attention::Capabilities capabilities() const {
    return {.averages = false,  // rows that match nothing give 0
            .causal_reason = "the example does not mask later keys",
            .time = "N^2 D",
            .memory = "N^2"};
  }
};

class SquaredRelu : public attention::Variant {
 public:
  SquaredRelu(const nn::Scope& scope_, const attention::Config& config,
              const SquaredReluOptions& options)
      : Variant(scope_, config), squared_(options.squared) {}

  // Two products forward, two for the gradients of each; no exponentials. For `longhand bench`.
  attention::Work work(int64_t queries, int64_t keys) const override {
    const auto pairs = static_cast<double>(config().heads * queries * keys);
    const double flops = 4 * pairs * static_cast<double>(config().head_dim);
    return {{flops}, {2 * flops}, 2 * sizeof(float) * pairs};
  }

 protected:
  // q, k, v (B, N, H, D); out = A V with A = relu(Q Kᵀ / sqrt D)² / row sums. Padding of v is
  // already zero, and a zero key has the kernel value 0, so padded keys need no special handling.
  Variable attend(const attention::Inputs& in, const attention::Mask&, const nn::Pass&) override {
    const auto heads_first = [](const Variable& x) { return permute(x, {0, 2, 1, 3}); };
    const double scale = 1 / std::sqrt(static_cast<double>(in.q.size(3)));
    const Variable scores = matmul(heads_first(in.q), transpose(heads_first(in.k), 2, 3), scale);
    const Variable weights = squared_ ? square(relu(scores)) : relu(scores);  // (B, H, N, N)
    const Variable row_sums = sum(weights, {3}, /*keep_axes=*/true);          // (B, H, N, 1)
    // A row that matches nothing gives 0: the small number only prevents 0 / 0.
    const Variable out = matmul(weights, heads_first(in.v)) / (row_sums + 1e-9);
    return permute(out, {0, 2, 1, 3});
  }

 private:
  bool squared_;
};

}  // namespace

int main() {
  attention::add("squared_relu", attention::make_spec<SquaredReluOptions, SquaredRelu>(
                                     {.summary = "relu(q·k)² attention, an example",
                                      .paper = "-",
                                      .cases = {{}, {{"squared", false}}}}));

  // From here on it is available by name, in models and configurations.
  attention::TransformerConfig config;
  config.vocabulary = config.classes = 10;
  config.max_length = 6;
  config.d_model = 8;
  config.attention = "squared_relu";
  attention::Transformer model(nn::root(DType::f64), config);
  const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6});
  std::cout << "a model with it has " << model.parameter_count() << " parameters; logits "
            << model.forward(tokens, {}, {}).shape() << '\n';

  // The conformance suite runs the same checks as for the library's variants: padding and other
  // samples have no effect, gradients are correct, any number of threads gives the same bits, ...
  bool ok = true;
  for (const auto& result : attention::check_conformance("squared_relu")) {
    ok = ok && result.passed();
    for (const auto& failure : result.failures)
      std::cout << result.check << " fails: " << failure << '\n';
  }
  std::cout << "conformance: " << (ok ? "every check holds" : "see above") << '\n';

  // Unsupported settings are refused with the reason.
  try {
    attention::make("squared_relu", nn::root(), {.heads = 1, .head_dim = 4, .causal = true});
    return 1;
  } catch (const ConfigError& e) {
    std::cout << "refused: " << e.what() << '\n';
  }
  return ok ? 0 : 1;
}
