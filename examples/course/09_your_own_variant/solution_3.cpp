// Exercise 3: the normaliser of causal linear attention is summed over heads instead of tokens.
// The result of a token has the right direction and the wrong length: it is still causal, independent of padding and
// differentiable. But the weights of a query do not sum to 1, which only the average of equal values shows.
#include "exercise.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

Variable broken(const attention::Inputs& in, const attention::Mask&, bool) {
  const Variable phi_q = elu_plus_one(in.q), phi_k = elu_plus_one(in.k);   // (B, N, H, D)
  const Variable S = cumsum(unsqueeze(phi_k, 4) * unsqueeze(in.v, 3), 1);  // (B, N, H, D, D)
  const Variable z = cumsum(phi_k, 2);
  return sum(unsqueeze(phi_q, 4) * S, {3}) / (sum(phi_q * z, {3}, true) + 1e-12);
}

Variable repaired(const attention::Inputs& in, const attention::Mask&, bool) {
  const Variable phi_q = elu_plus_one(in.q), phi_k = elu_plus_one(in.k);   // (B, N, H, D)
  const Variable S = cumsum(unsqueeze(phi_k, 4) * unsqueeze(in.v, 3), 1);  // (B, N, H, D, D)
  const Variable z = cumsum(phi_k, 1);
  return sum(unsqueeze(phi_q, 4) * S, {3}) / (sum(phi_q * z, {3}, true) + 1e-12);
}

int main() {
  const bool found = failing<CausalLinear, broken>("broken").contains("values");
  return found && failing<CausalLinear, repaired>("repaired").empty() ? 0 : 1;
}
