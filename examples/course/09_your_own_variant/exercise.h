// What the exercises share: a variant without parameters from a function, run through the conformance suite.
#pragma once

#include <cstdio>
#include <set>
#include <string>

#include "longhand/attention/conformance/conformance.h"

// What the functions of the three exercises support, and what they cost.
struct Linear {
  longhand::attention::Capabilities capabilities() const {
    return {.causal_reason = "it sums over all keys", .time = "N D^2", .memory = "D^2"};
  }
  static longhand::attention::Work work(const auto& n) {
    const double flops = 2 * n.H * n.D * n.D * (n.N + n.M);
    return {{flops}, {2 * flops}, n.bytes * n.H * n.D * (n.D + 1)};
  }
};
struct Softmax {
  longhand::attention::Capabilities capabilities() const {
    return {.exact = true, .any_mask = true, .causal = true, .time = "N^2 D", .memory = "N^2"};
  }
  static longhand::attention::Work work(const auto& n) {
    const double pairs = n.H * n.N * n.M;
    return {{4 * pairs * n.D, pairs}, {8 * pairs * n.D}, n.bytes * pairs};
  }
};
struct CausalLinear {
  longhand::attention::Capabilities capabilities() const {
    return {.causal = true,
            .causal_only = true,
            .cross_lengths = false,
            .time = "N D^2",
            .memory = "N D^2"};
  }
  static longhand::attention::Work work(const auto& n) {
    const double states = n.H * n.N * n.D * n.D;
    return {{4 * states}, {8 * states}, 2 * n.bytes * states};
  }
};

// attention_of(inputs, mask, causal) is the result; Claims is one of these.
template <class Claims, auto attention_of>
class Exercise : public longhand::attention::Variant {
 public:
  struct Options : Claims {
    void describe(longhand::OptionVisitor&) {}
  };
  Exercise(const longhand::nn::Scope& scope_, const longhand::attention::Config& config,
           const Options&)
      : Variant(scope_, config) {}
  longhand::attention::Work work(int64_t queries, int64_t keys) const override {
    return Claims::work(sizes(queries, keys));
  }

 protected:
  longhand::Variable attend(const longhand::attention::Inputs& in,
                            const longhand::attention::Mask& mask,
                            const longhand::nn::Pass&) override {
    return attention_of(in, mask, config().causal);
  }
};

// Runs the suite on a variant and returns the checks that fail.
template <class Claims, auto attention_of>
std::set<std::string> failing(const char* name) {
  using Variant = Exercise<Claims, attention_of>;
  longhand::attention::add(name, longhand::attention::make_spec<typename Variant::Options, Variant>(
                                     {.summary = "an exercise", .paper = "-"}));
  std::set<std::string> checks;
  for (const auto& result : longhand::attention::check_conformance(name))
    if (!result.passed()) checks.insert(result.check);
  std::printf("%s:", name);
  for (const std::string& check : checks) std::printf(" %s", check.c_str());
  std::puts(checks.empty() ? " every check passes" : " fail");
  return checks;
}
