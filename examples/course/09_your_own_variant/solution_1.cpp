// Exercise 1: padded keys keep their features, φ(0) = 1, and enter the normaliser.
#include "exercise.h"
#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

// Linear attention with φ(x) = elu(x) + 1, for q, k and v (B, N, H, D).
Variable linear_attention(const Variable& phi_q, const Variable& phi_k, const Variable& v) {
  const Variable q = transpose(phi_q, 1, 2), k_T = permute(phi_k, {0, 2, 3, 1});
  const Variable S = matmul(k_T, transpose(v, 1, 2)), z = sum(k_T, {3}, true);
  return transpose(matmul(q, S) / (matmul(q, z) + 1e-12), 1, 2);
}

Variable broken(const attention::Inputs& in, const attention::Mask&, bool) {
  const Variable phi_q = elu_plus_one(in.q), phi_k = elu_plus_one(in.k);
  return linear_attention(phi_q, phi_k, in.v);
}

Variable repaired(const attention::Inputs& in, const attention::Mask& mask, bool) {
  const Variable phi_q = elu_plus_one(in.q), phi_k = elu_plus_one(in.k);
  if (!mask.lengths.defined()) return linear_attention(phi_q, phi_k, in.v);
  const Tensor real = attention::real_tokens(mask.lengths, in.k.size(1));
  return linear_attention(phi_q, where(real, phi_k, 0.0), in.v);
}

int main() {
  const bool found = failing<Linear, broken>("broken").contains("padding");
  return found && failing<Linear, repaired>("repaired").empty() ? 0 : 1;
}
