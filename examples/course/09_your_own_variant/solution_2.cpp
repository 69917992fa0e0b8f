// Exercise 2: hidden keys get the score -10,000 instead of minus infinity.
#include <cmath>
#include <cstdio>
#include <set>

#include "longhand/attention/conformance/conformance.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/mask.h"

using namespace longhand;

Variable broken(const attention::Inputs& in, const attention::Mask& mask, bool causal) {
  const Variable q = transpose(in.q, 1, 2), k = transpose(in.k, 1, 2), v = transpose(in.v, 1, 2);
  const Tensor seen = attention::definitions::visible(q.size(2), k.size(2), {causal, mask.lengths});
  Variable scores = matmul(q, transpose(k, 2, 3), 1 / std::sqrt(q.size(3)));
  if (mask.bias.defined()) scores = scores + mask.bias;
  scores = where(seen, scores, -1e4);
  if (mask.keep.defined()) scores = where(mask.keep, scores, -1e4);
  return transpose(matmul(softmax(scores), v), 1, 2);
}

// softmax() gives 0 for a row of which all scores are -inf.
Variable repaired(const attention::Inputs& in, const attention::Mask& mask, bool causal) {
  const Variable q = transpose(in.q, 1, 2), k = transpose(in.k, 1, 2), v = transpose(in.v, 1, 2);
  const Tensor seen = attention::definitions::visible(q.size(2), k.size(2), {causal, mask.lengths});
  Variable scores = matmul(q, transpose(k, 2, 3), 1 / std::sqrt(q.size(3)));
  if (mask.bias.defined()) scores = scores + mask.bias;
  scores = where(seen, scores, attention::never);
  if (mask.keep.defined()) scores = where(mask.keep, scores, attention::never);
  return transpose(matmul(softmax(scores), v), 1, 2);
}

struct NoOptions {
  void describe(OptionVisitor&) {}
  attention::Capabilities capabilities() const {
    return {.exact = true, .any_mask = true, .causal = true, .time = "N^2 D", .memory = "N^2"};
  }
};

template <auto attention_of>
class Exercise : public attention::Variant {
 public:
  Exercise(const nn::Scope& scope_, const attention::Config& config, const NoOptions&)
      : Variant(scope_, config) {}
  attention::Work work(int64_t queries, int64_t keys) const override {
    const Sizes n = sizes(queries, keys);
    const double pairs = n.H * n.N * n.M;
    return {{4 * pairs * n.D, pairs}, {8 * pairs * n.D}, n.bytes * pairs};
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
                           {.summary = "softmax attention", .paper = "-"}));
  std::set<std::string> checks;
  for (const auto& result : attention::check_conformance(name))
    if (!result.passed()) checks.insert(result.check);
  std::printf("%s:", name);
  for (const std::string& check : checks) std::printf(" %s", check.c_str());
  std::puts(checks.empty() ? " every check passes" : " fail");
  return checks;
}

int main() {
  const bool found = failing<broken>("broken").contains("nothing-to-attend");
  return found && failing<repaired>("repaired").empty() ? 0 : 1;
}
