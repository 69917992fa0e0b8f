#include "longhand/nn/embedding.h"

#include "longhand/autograd/ops.h"

namespace longhand::nn {

Embedding::Embedding(const Scope& scope_, int64_t count, int64_t width)
    : Module(scope_), weight(scope("weight"), {count, width}, init::normal(0.02)) {}

Variable Embedding::forward(const Tensor& tokens) const { return embedding(weight, tokens); }

}  // namespace longhand::nn
