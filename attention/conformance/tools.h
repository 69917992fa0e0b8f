// What the checks of conformance.h share.
#pragma once

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhand/attention/conformance/conformance.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"

namespace longhand::attention::conformance {

/// Collects what a check finds wrong.
class Findings {
 public:
  /// Notes a failure unless ok; the first few are kept, the others counted.
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
    expect(false, what, " is not refused");
  }
  /// What the following failures begin with.
  void context(const std::string& text) { context_ = text.empty() ? "" : text + ": "; }
  /// A figure to be shown.
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

/// The shapes around a variant.
struct Made {
  int64_t heads = 2, dim = 4, max_length = 16, kv_heads = 0;
  bool causal = false;
  DType dtype = DType::f64;
  uint64_t seed = 7;
};

/// Makes a variant; an option that it does not know is an error.
std::unique_ptr<Variant> make_variant(const std::string& name, const OptionSet& options,
                                      const Made& made = {});

/// What it can do with these options.
Capabilities capabilities_of(const std::string& name, const OptionSet& options);

/// A variant with options, causal or not: what the invariants are about.
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
/// invariants.cpp
const std::vector<Check>& invariant_checks();

/// N(0, std²) numbers. The default is small enough that normalisers of signed features stay away
/// from 0.
Tensor normal(const Shape& shape, uint64_t seed, DType dtype = DType::f64, double std = 0.7);

Mask lengths(const std::vector<int32_t>& values);

/// Of q, k and v and, where the variant reads tokens, x: the numbers of q, as if projections were
/// the identity. What is checked of q then holds of x too.
attention::Inputs inputs_of(const Variant& variant, const Variable& q, const Variable& k,
                            const Variable& v);
/// The same of one token, for a decoder.
Token token_of(const Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v);

/// The result of a variant, without gradients.
Tensor forward(Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v,
               const Mask& mask = {}, const nn::Pass& pass = {});

/// The result and all gradients of a variant.
struct Outcome {
  Tensor out, dq, dk, dv;
  std::map<std::string, Tensor> parameters;  // gradients
};
Outcome run(Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v, const Mask& mask,
            const Tensor& cotangent, const nn::Pass& pass = {});

/// The weights (N, M) of head 0 of sample 0 of a variant whose result is linear in v, which tells
/// them by its results for unit vectors.
Tensor weights(Variant& variant, const Tensor& q, const Tensor& k, const nn::Pass& pass = {});

/// max |a - b| / (1 + max |b|); infinite for other shapes, NaN if there is one.
double distance(const Tensor& a, const Tensor& b);
/// |a - b| / |b|, over all elements.
double relative_error(const Tensor& a, const Tensor& b);
bool all_zero(const Tensor& t);
bool all_finite(const Tensor& t);

/// A copy of x (B, N, …) where the tokens from lengths[b] on hold `value`.
Tensor with_padding(const Tensor& x, const Mask& mask, double value);
/// The first tokens of one sequence, as a batch of one.
inline Tensor one(const Tensor& x, int64_t b, int64_t length) {
  return x.slice(0, b, b + 1).slice(1, 0, length);
}

}  // namespace longhand::attention::conformance
