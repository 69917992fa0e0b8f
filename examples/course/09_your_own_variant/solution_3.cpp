// Exercise 3: the normaliser of causal linear attention is summed over heads instead of tokens.
// The result of a token has the right direction and the wrong length: it is still causal, independent of padding and
// differentiable. But the weights of a query do not sum to 1, which only the average of equal values shows.
#include <cstdio>
#include <set>

#include "longhand/attention/conformance/conformance.h"
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

struct NoOptions {
  void describe(OptionVisitor&) {}
  attention::Capabilities capabilities() const {
    return {.causal = true,
            .causal_only = true,
            .cross_lengths = false,
            .time = "N D^2",
            .memory = "N D^2"};
  }
};

template <auto attention_of>
class Exercise : public attention::Variant {
 public:
  Exercise(const nn::Scope& scope_, const attention::Config& config, const NoOptions&)
      : Variant(scope_, config) {}
  attention::Work work(int64_t queries, int64_t keys) const override {
    const Sizes n = sizes(queries, keys);
    const double states = n.H * n.N * n.D * n.D;
    return {{4 * states}, {8 * states}, 2 * n.bytes * states};
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
                           {.summary = "causal linear attention", .paper = "-"}));
  std::set<std::string> checks;
  for (const auto& result : attention::check_conformance(name))
    if (!result.passed()) checks.insert(result.check);
  std::printf("%s:", name);
  for (const std::string& check : checks) std::printf(" %s", check.c_str());
  std::puts(checks.empty() ? " every check passes" : " fail");
  return checks;
}

int main() {
  const bool found = failing<broken>("broken").contains("values");
  return found && failing<repaired>("repaired").empty() ? 0 : 1;
}
