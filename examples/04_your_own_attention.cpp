// Lesson 4: an attention variant of your own is a class and one call of attention::add().
//
// "Squared ReLU" attention: kernel(q, k) = relu(q·k / sqrt D)², each row divided by its sum. It has
// no softmax, and queries may match nothing at all.
#include <cmath>
#include <iostream>

#include "longhand/attention/transformer.h"
#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

namespace {

class SquaredRelu : public attention::Variant {
 public:
  using Variant::Variant;

 protected:
  // q, k, v (B, N, H, D); out = A V with A = relu(Q Kᵀ / sqrt D)² / row sums. Padding of v holds
  // zeros already, and a zero key has the kernel value 0, so padded keys need no more care.
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const attention::Mask&,
                  const nn::Pass&) override {
    const auto heads_first = [](const Variable& x) { return permute(x, {0, 2, 1, 3}); };
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Variable scores = matmul(heads_first(q), transpose(heads_first(k), 2, 3), scale);
    const Variable weights = square(relu(scores));                    // (B, H, N, N)
    const Variable row_sums = sum(weights, {3}, /*keep_axes=*/true);  // (B, H, N, 1)
    // A row that matches nothing gives 0: the small number only keeps 0 / 0 away.
    const Variable out = matmul(weights, heads_first(v)) / (row_sums + 1e-9);
    return permute(out, {0, 2, 1, 3});
  }
};

std::unique_ptr<attention::Variant> make_squared_relu(const nn::Scope& scope,
                                                      const attention::Config& config) {
  return std::make_unique<SquaredRelu>(scope, config);
}

}  // namespace

int main() {
  attention::Traits traits;
  traits.summary = "relu(q·k)² attention, an example";
  traits.causal_reason = "the example does not mask later keys";
  traits.time = "N^2 D";
  traits.memory = "N^2";
  attention::add("squared_relu", {traits, make_squared_relu});

  // From here on it works by name, in models and configurations.
  attention::TransformerConfig config;
  config.vocabulary = config.classes = 10;
  config.max_length = 6;
  config.d_model = 8;
  config.attention = "squared_relu";
  attention::Transformer model(nn::root(DType::f64), config);
  const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6});
  std::cout << "a model with it has " << model.parameter_count() << " parameters; logits "
            << model.forward(tokens, {}, {}).shape() << '\n';

  // Its gradient comes from the operations it is made of. Check it all the same.
  const auto variant =
      attention::make("squared_relu", nn::root(DType::f64), {.heads = 2, .head_dim = 3});
  Tensor q = Tensor::empty({2, 4, 2, 3}, DType::f64), k = q.clone(), v = q.clone();
  fill_normal(q, Generator(1));
  fill_normal(k, Generator(2));
  fill_normal(v, Generator(3));
  const auto report =
      gradcheck([&](const Variables& in) { return variant->forward(in[0], in[1], in[2], {}, {}); },
                {q, k, v});
  std::cout << "gradcheck: " << report << '\n';

  // What it cannot do is refused with the reason.
  try {
    attention::make("squared_relu", nn::root(), {.heads = 1, .head_dim = 4, .causal = true});
    return 1;
  } catch (const ConfigError& e) {
    std::cout << "refused: " << e.what() << '\n';
  }
  return report.ok ? 0 : 1;
}
