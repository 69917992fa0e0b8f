// Shared by the checks of the conformance suite.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/conformance/conformance.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"

namespace longhand::attention::conformance {

/// Collects the failures of a check.
class Findings {
 public:
  /// Records a failure unless ok, and returns ok. The first few are kept, the others counted.
  template <class... Parts>
  bool expect(bool ok, const Parts&... parts) {
    if (!ok && ++failed_ <= kept) failures_.push_back(concat_message(context_, parts...));
    return ok;
  }
  /// Fails unless f() throws E.
  template <class E, class F>
  void expect_throws(F&& f, const std::string& what) {
    try {
      f();
    } catch (const E&) {
      return;
    }
    expect(false, "expected an exception for ", what);
  }
  /// Sets a prefix for the failures that follow.
  void context(const std::string& text) { context_ = text.empty() ? "" : text + ": "; }
  /// Adds a figure to the report.
  template <class... Parts>
  void measured(const Parts&... parts) {
    measured_ += (measured_.empty() ? "" : ", ") + concat_message(parts...);
  }

  std::vector<std::string> failures() const;
  const std::string& measured_text() const { return measured_; }

 private:
  static constexpr int64_t kept = 4;
  std::string context_, measured_;
  std::vector<std::string> failures_;
  int64_t failed_ = 0;
};

/// Shapes, dtype and seed of a variant to make.
struct Made {
  int64_t heads = 2, dim = 4, max_length = 16, kv_heads = 0;
  bool causal = false;
  DType dtype = DType::f64;
  uint64_t seed = 7;
};

/// Makes a variant. Throws ConfigError for an option that it does not have.
std::unique_ptr<Variant> make_variant(const std::string& name, const OptionSet& options,
                                      const Made& made = {});

/// While it exists, make_variant() on this thread passes each variant of this name to `on_made`,
/// which may replace its results by those of a function (Variant::substitute()): the suite then
/// checks that function. Comparisons use at least `tolerance`, for functions in f32.
class Substitution {
 public:
  using OnMade = std::function<void(Variant&)>;
  Substitution(std::string name, OnMade on_made, double tolerance);
  ~Substitution();
  Substitution(const Substitution&) = delete;
  Substitution& operator=(const Substitution&) = delete;

  std::string name;
  OnMade on_made;
  double tolerance;
};

/// Returns the capabilities of a variant with these options.
Capabilities capabilities_of(const std::string& name, const OptionSet& options);

/// The subject of the invariants: a variant with options, causal or not.
struct Subject {
  std::string name;
  OptionSet options;
  bool causal = false;

  std::unique_ptr<Variant> make(Made made = {}) const {
    made.causal = causal;
    return make_variant(name, options, made);
  }
  Capabilities capabilities() const { return capabilities_of(name, options); }
};

struct Check {
  CheckDescription description;
  void (*run)(const Subject&, Findings&);
};
/// suite.cpp: returns the result of one check; an exception counts as a failure.
CheckResult timed(const std::string& variant, const std::string& check,
                  const std::function<void(Findings&)>& body);
/// evidence.cpp: compares a variant with Spec::weights, which must be defined.
void definition(const Subject& subject, Findings& f);
/// invariants.cpp
const std::vector<Check>& invariant_checks();

/// Returns N(0, std²) elements. The default is small enough to keep normalisers of signed features
/// away from 0.
Tensor normal(const Shape& shape, uint64_t seed, DType dtype = DType::f64, double std = 0.7);

Mask lengths(const std::vector<int32_t>& values);

/// Returns inputs of q, k and v and, if the variant reads tokens, x with the elements of q, as if
/// projections were the identity. Checks of q then cover x too.
attention::Inputs inputs_of(const Variant& variant, const Variable& q, const Variable& k,
                            const Variable& v);
/// Does the same for one token, for a decoder.
Token token_of(const Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v);

/// The sizes in most variant checks: 24 tokens, 2 heads of width 4.
namespace sizes {
inline constexpr int64_t N = 24, H = 2, D = 4;
}
/// q, k, v and the gradient of the result; by default of these sizes, q, k and v of unit variance.
struct Sample {
  Tensor q = of(1, 1), k = of(2, 1), v = of(3, 1), cotangent = of(4, 0.7);

  template <class F>
  Sample each(F f) const {
    return {f(q), f(k), f(v), f(cotangent)};
  }

 private:
  static Tensor of(uint64_t seed, double std) {
    return normal({2, sizes::N, sizes::H, sizes::D}, seed, DType::f64, std);
  }
};
/// q and k are N(0, std²), v and the gradient N(0, 1).
Sample sample(const Shape& shape, DType dtype = DType::f64, uint64_t seed = 1, double std = 0.7);

/// Returns the result of a variant, without gradients.
Tensor forward(Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v,
               const Mask& mask = {}, const nn::Pass& pass = {});
inline Tensor forward(Variant& variant, const Sample& x, const Mask& mask = {},
                      const nn::Pass& pass = {}) {
  return forward(variant, x.q, x.k, x.v, mask, pass);
}

/// Result and gradients of a variant.
struct Outcome {
  Tensor out, dq, dk, dv;
  std::map<std::string, Tensor> parameters{};  // gradients

  static constexpr std::array names{"the result", "dq", "dk", "dv"};
  std::array<Tensor, names.size()> tensors() const { return {out, dq, dk, dv}; }
  /// Applies f to the result and to the gradients of q, k and v; omits parameters.
  template <class F>
  Outcome each(F f) const {
    return {f(out), f(dq), f(dk), f(dv)};
  }
};
Outcome run(Variant& variant, const Sample& x, const Mask& mask = {}, const nn::Pass& pass = {});

/// Returns the weights (N, M) of head 0 of sample 0 of a variant whose result is linear in v.
Tensor weights(Variant& variant, const Tensor& q, const Tensor& k, const nn::Pass& pass = {});

/// Returns max |a - b| / (1 + max |b|); infinite if shapes differ, NaN if any element is.
double distance(const Tensor& a, const Tensor& b);
/// Expects a distance of at most `tolerance` (or a Substitution's, if larger), and returns it.
double near(Findings& f, const std::string& what, const Tensor& a, const Tensor& b,
            double tolerance);
/// Does the same for results and gradients of q, k and v; returns the largest distance.
double each_near(Findings& f, const std::string& what, const Outcome& a, const Outcome& b,
                 double tolerance);
using analysis::dot;
using analysis::gradient_or_zeros;
using analysis::relative_error;
bool all_zero(const Tensor& t);
bool all_finite(const Tensor& t);

/// Returns a copy of x (B, N, …) with `value` in the tokens from lengths[b] on.
Tensor with_padding(const Tensor& x, const Mask& mask, double value);
/// Returns the first tokens of one sequence, as a batch of one.
inline Tensor one(const Tensor& x, int64_t b, int64_t length) {
  return x.slice(0, b, b + 1).slice(1, 0, length);
}

}  // namespace longhand::attention::conformance
