// Helpers for variant checks: each variant checks its exact limits and its statistics in its own
// file, and lists these checks in its Spec.
#pragma once

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "longhand/attention/conformance/tools.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/registry.h"
#include "longhand/core/statistics.h"

namespace longhand::attention::conformance {

using namespace sizes;

inline Made made(bool causal = false) { return {.max_length = N, .causal = causal}; }

/// Checks that results and gradients of q, k and v are the same.
void equal(Findings& f, const std::string& what, Variant& a, Variant& b, double tolerance,
           const Sample& x = {}, const Mask& mask = {});
/// Checks that a result is the expected one.
void equal(Findings& f, const std::string& what, const Tensor& found, const Tensor& expected,
           double tolerance);
/// Overwrites parameters and buffers by name.
void set(Variant& variant, const nn::StateDict& values);
Tensor identity(int64_t n);

/// Returns `options` followed by `more`; the last option with a name applies.
OptionSet extended(OptionSet options, const OptionSet& more);

using Row = std::vector<double>;
/// The weights (B or 1, H or 1, N, N) of a formula in definitions.h.
using Formula =
    std::function<Variable(const Variable& q, const Variable& k, const Tensor& visible)>;
/// Checks that the weights of a variant are those of the formula, without and with a causal mask.
void has_weights(Findings& f, const std::string& what, const std::string& name,
                 const OptionSet& options, const Formula& formula, double tolerance = 1e-11);

/// retnet without norm and gate, whose result is linear in v, and the decays of its heads.
inline const OptionSet plain_retnet{{"norm", false}, {"gate", false}};
inline double decay_of_head(int64_t h) { return 1 - std::exp2(-5 - static_cast<double>(h)); }

/// Checks that a variant of one head of width 2 with these parameters tracks the parity of bits:
/// each read of the state is the previous one, negated at bit 1. Tokens x are (1, 0) for bit 1 and
/// (0, 1) for 0, q and k are (1e6, 0), and only the first token, of bit 1, has a value.
void follows_parity(Findings& f, const std::string& name, const OptionSet& options,
                    const nn::StateDict& parameters);

/// Tokens of one head with the results of softmax attention and of uniform attention.
struct Case {
  Tensor q, k, v, exact, uniform;
};
Case small_case(double std, uint64_t seed, int64_t N = 128, int64_t D = 16);
/// Returns the root mean square relative error of attention over draws of m features.
double attention_error(const std::string& name, OptionSet options, int64_t m, const Case& c);
/// Checks that error(m) decreases as m^-0.5 over these `sizes` m, numbers of `what`.
void rate(Findings& f, const Case& c, const Row& sizes, const std::string& what, double tolerance,
          const std::function<double(int64_t m)>& error);
/// Checks that the error of a variant with m features decreases as m^-0.5.
void rate(Findings& f, const std::string& name, const OptionSet& options);

/// The evidence of performer: the mean and the error of random features as estimators of the
/// softmax kernel, and of attention with them.
std::vector<Evidence> performer_evidence();

}  // namespace longhand::attention::conformance
