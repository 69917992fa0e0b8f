// Trains one step of a tiny model: every layer is linked and runs.
#include <iostream>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/gemm.h"
#include "longhand/train/optimizer.h"

int main() {
  using namespace longhand;
  attention::TransformerConfig config;
  config.vocabulary = config.classes = 8;
  config.max_length = 4;
  config.d_model = 8;
  config.d_mlp = 16;
  config.attention = "linear";
  attention::Transformer model(nn::root(), config);
  const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 7, 0}, {2, 4});
  const Tensor targets = Tensor::from<int32_t>({1, 5}, {2});
  const Variable loss = cross_entropy(model.forward(tokens, {}, {}), targets);
  backward(loss);
  std::cout << "loss " << loss.value().item() << " with " << model.parameter_count()
            << " parameters on " << blas_description() << '\n';
  return loss.value().item() > 0 ? 0 : 1;
}
