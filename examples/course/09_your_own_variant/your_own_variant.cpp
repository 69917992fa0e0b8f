// Chapter 9: an attention variant of your own, and what the conformance suite says of it.
#include <cmath>
#include <cstdio>
#include <map>

#include "longhand/attention/analysis/weights.h"
#include "longhand/attention/conformance/conformance.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/definitions/definitions.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;
namespace conformance = longhand::attention::conformance;

struct PowermaxOptions {
  int64_t squarings = 1;
  void describe(OptionVisitor& v) {
    v.integer("squarings", squarings, {0, 30}, "m: scores are raised to the power n = 2^m");
  }
  attention::Capabilities capabilities() const {
    // Not averages: all weights of a query may be 0.
    return {.averages = false, .causal = true, .time = "N^2 D", .memory = "N^2"};
  }
};

// Weights relu(1 + s/n)^n divided by their sum, s = q·k / √D, n = 2^m. With `planted`, a mistake: D for √D.
template <bool planted>
class Powermax : public attention::Variant {
 public:
  Powermax(const nn::Scope& scope_, const attention::Config& config, const PowermaxOptions& options)
      : Variant(scope_, config), squarings_(options.squarings) {}

  // Two products forward, four for the gradients; and the bytes of the weights.
  attention::Work work(int64_t queries, int64_t keys) const override {
    const auto pairs = static_cast<double>(config().heads * queries * keys);
    const double flops = 4 * pairs * static_cast<double>(config().head_dim);
    return {{flops}, {2 * flops}, 2 * sizeof(float) * pairs};
  }

 protected:
  Variable attend(const attention::Inputs& in, const attention::Mask& mask,
                  const nn::Pass&) override {
    const Variable q = transpose(in.q, 1, 2), k = transpose(in.k, 1, 2), v = transpose(in.v, 1, 2);
    const auto D = static_cast<double>(q.size(3)), scale = 1 / (planted ? D : std::sqrt(D));
    const Variable s = matmul(q, transpose(k, 2, 3), scale);  // (B, H, N, M)
    const Tensor seen = definitions::visible(s.size(2), s.size(3),
                                             {.causal = config().causal, .lengths = mask.lengths});
    Variable w = where(seen, relu(1 + s * std::exp2(-squarings_)), 0.0);
    w = w / (max(w, 3, true) + 1e-12);  // cancels; without it, powers overflow
    for (int64_t i = 0; i < squarings_; ++i) w = square(w);
    return transpose(matmul(w, v) / (sum(w, {3}, true) + 1e-12), 1, 2);
  }

 private:
  int64_t squarings_;
};

// What only the author knows: for large n, the weights are those of softmax attention.
void limit(conformance::Findings& f, const char* name) {
  const auto softmax = [](auto&... in) { return definitions::softmax(in...); };
  conformance::has_weights(f, "n = 2^20", name, {{"squarings", 20}}, softmax, 1e-4);
}

// The weights of eight tokens.
void show(const char* name) {
  const auto variant = conformance::make_variant(name, {}, {.heads = 1, .causal = true});
  const Variable q(conformance::normal({1, 8, 1, 4}, 1, DType::f64, 1)),
      k(conformance::normal({1, 8, 1, 4}, 2, DType::f64, 1));
  std::puts(name);
  const Tensor W = attention::analysis::weights(*variant, {q, k, k});
  for (int64_t i = 0; i < 8; ++i, std::puts(""))
    for (int64_t j = 0; j < 8; ++j) std::printf(j ? "  %.2f" : "%.2f", W.at({0, 0, i, j}));
  std::puts("");
}

int main() {
  attention::Spec spec{.summary = "relu(1 + s/n)^n in place of e^s",
                       .paper = "-",
                       .cases = {{}, {{"squarings", 0}}, {{"squarings", 3}}}};
  spec.evidence = {{"limit", "softmax for large n", [](auto& f) { limit(f, "powermax"); }}};
  attention::add("powermax", attention::make_spec<PowermaxOptions, Powermax<false>>(spec));
  spec.evidence[0].run = [](auto& f) { limit(f, "planted"); };
  attention::add("planted", attention::make_spec<PowermaxOptions, Powermax<true>>(spec));
  show("softmax");
  show("powermax");

  std::map<std::string, int> runs[2], failed[2];
  std::string message;
  for (const int planted : {0, 1})
    for (const auto& result : attention::check_conformance(planted ? "planted" : "powermax")) {
      ++runs[planted][result.check];
      failed[planted][result.check] += !result.passed();
      if (!result.passed()) message = result.check + ": " + result.failures[0];
    }
  std::puts("check              runs  failures  with the mistake");
  for (const auto& [check, count] : runs[0])
    std::printf("%-17s  %4d  %8d  %16d\n", check.c_str(), count, failed[0][check],
                failed[1][check]);
  std::printf("\n%s\n", message.c_str());
}
