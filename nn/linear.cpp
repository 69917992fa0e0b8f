#include "longhand/nn/linear.h"

namespace longhand::nn {

Linear::Linear(const Scope& scope_, int64_t in, int64_t out, bool with_bias,
               const Init& weight_init)
    : Module(scope_), weight(scope("weight"), {out, in}, weight_init) {
  if (with_bias) bias.emplace(scope("bias"), Shape{out}, init::zeros());
}

Lazy Linear::forward(const Lazy& x) const { return linear(x, weight, parameters().bias); }

}  // namespace longhand::nn
