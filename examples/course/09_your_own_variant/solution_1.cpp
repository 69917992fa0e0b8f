// Exercise 1: padded keys keep their features, φ(0) = 1, and enter the normaliser.
#include <cstdio>
#include <set>

#include "longhand/attention/conformance/conformance.h"
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

struct NoOptions {
  void describe(OptionVisitor&) {}
  attention::Capabilities capabilities() const {
    return {.causal_reason = "it sums over all keys", .time = "N D^2", .memory = "D^2"};
  }
};

template <auto attention_of>
class Exercise : public attention::Variant {
 public:
  Exercise(const nn::Scope& scope_, const attention::Config& config, const NoOptions&)
      : Variant(scope_, config) {}
  attention::Work work(int64_t queries, int64_t keys) const override {
    const Sizes n = sizes(queries, keys);
    const double flops = 2 * n.H * n.D * n.D * (n.N + n.M);
    return {{flops}, {2 * flops}, n.bytes * n.H * n.D * (n.D + 1)};
  }

 protected:
  Variable attend(const attention::Inputs& in, const attention::Mask& mask,
                  const nn::Pass&) override {
    return attention_of(in, mask, config().causal);
  }
};

// Runs the suite on a variant and returns the checks that fail.
template <auto attention_of>
std::set<std::string> failing(const char* name) {
  attention::add(name, attention::make_spec<NoOptions, Exercise<attention_of>>(
                           {.summary = "linear attention", .paper = "-"}));
  std::set<std::string> checks;
  for (const auto& result : attention::check_conformance(name))
    if (!result.passed()) checks.insert(result.check);
  std::printf("%s:", name);
  for (const std::string& check : checks) std::printf(" %s", check.c_str());
  std::puts(checks.empty() ? " every check passes" : " fail");
  return checks;
}

int main() {
  const bool found = failing<broken>("broken").contains("padding");
  return found && failing<repaired>("repaired").empty() ? 0 : 1;
}
