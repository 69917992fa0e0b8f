// Shared by the tests of attention variants: small variants, random inputs, checks of all
// gradients.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhand/attention/conformance/tools.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/layouts.h"
#include "tests/support/catch.h"

namespace longhand::test {

using attention::Mask;
using attention::conformance::all_finite;
using attention::conformance::all_zero;
using attention::conformance::distance;
using attention::conformance::forward;
using attention::conformance::lengths;
using attention::conformance::Made;
using attention::conformance::normal;
using attention::conformance::one;
using attention::conformance::Outcome;
using attention::conformance::with_padding;

/// The variants of the library, without those that tests add.
inline const std::vector<std::string> library = attention::names();

/// Tokens (B, N) below 11.
inline Tensor random_tokens(int64_t B, int64_t N, uint64_t seed) {
  Tensor t = Tensor::empty({B, N}, DType::i32);
  RandomStream random{Generator(seed)};
  for (int64_t i = 0; i < B * N; ++i) t.data<int32_t>()[i] = static_cast<int32_t>(random.below(11));
  return t;
}

/// Options that make a variant small; others keep their defaults.
inline Options small_options(const std::string& name) {
  Options options("attention");
  for (const auto& [key, value] : attention::spec(name).cases.front()) options.set(key, value);
  return options;
}

/// Options of [attention], by name.
using Settings = std::map<std::string, OptionValue>;
inline Options options_of(const Settings& settings) {
  Options options("attention");
  for (const auto& [key, value] : settings) options.set(key, value);
  return options;
}

inline std::unique_ptr<attention::Variant> make_variant(const std::string& name, const Made& made,
                                                        const Options& options) {
  attention::Config config;
  config.heads = made.heads;
  config.head_dim = made.dim;
  config.kv_heads = made.kv_heads;
  config.max_length = made.max_length;
  config.causal = made.causal;
  config.options = options;
  return attention::make(name, nn::root(made.dtype, made.seed), config);
}
inline std::unique_ptr<attention::Variant> make_variant(const std::string& name,
                                                        const Made& made = {}) {
  return make_variant(name, made, small_options(name));
}

inline Outcome run_variant(attention::Variant& variant, const Tensor& q, const Tensor& k,
                           const Tensor& v, const Mask& mask, const Tensor& cotangent,
                           const nn::Pass& pass = {}) {
  return attention::conformance::run(variant, {q, k, v, cotangent}, mask, pass);
}

/// max |a - b| <= tolerance (1 + max |b|); NaN fails.
inline bool near(const Tensor& a, const Tensor& b, double tolerance) {
  return distance(a, b) <= tolerance;
}

/// Random q, k, v and a cotangent of the result, all of one shape, in f64; q and k with a standard
/// deviation of `std`.
struct Operands {
  Tensor q, k, v, cotangent;
  explicit Operands(const Shape& shape, double std = 0.7)
      : q(normal(shape, 1, DType::f64, std)),
        k(normal(shape, 2, DType::f64, std)),
        v(normal(shape, 3)),
        cotangent(normal(shape, 4)) {}
};

inline Outcome run_variant(attention::Variant& variant, const Operands& x, const Mask& mask = {}) {
  return run_variant(variant, x.q, x.k, x.v, mask, x.cotangent);
}

/// Checks that results and gradients of q, k and v are near each other.
void check_near(const Outcome& a, const Outcome& b, double tolerance);

/// Checks that each sample of a batch gives what it gives alone, and that the contents of padding do
/// not matter: `tokens` are the lengths.
void check_samples(attention::Variant& variant, const Operands& x,
                   const std::vector<int32_t>& tokens, double tolerance, double of_gradients);

/// Gradients of every parameter of a module, of some 60 elements each, by central differences of <cotangent, f()>.
void check_parameters(nn::Module& module, const std::function<Variable()>& f);

using Row = std::vector<double>;

double dot(const Row& a, const Row& b);

/// The rows of x (B, N, H, D), at [(b N + n) H + h].
std::vector<Row> rows_of(const Tensor& x);

/// Attention as plain loops: attend(query, keys, values, out) adds the result of one query to `out`,
/// D zeros. The keys are those with j < length, and j <= i if causal; padded queries give 0. With
/// `features`, queries and keys are replaced by their features.
using Features = std::function<Row(const Row& x)>;
using AttendOne = std::function<void(const Row& query, const std::vector<Row>& keys,
                                     const std::vector<Row>& values, double* out)>;
Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttendOne& attend,
                       bool causal = false, const Mask& mask = {}, const Features& features = {});

/// Adds Σ_j kernel(q, k_j) v_j to `out` and returns Σ_j kernel(q, k_j).
using PairKernel = std::function<double(const Row& q, const Row& k)>;
double add_weighted(const PairKernel& kernel, const Row& query, const std::vector<Row>& keys,
                    const std::vector<Row>& values, double* out);

/// naive_attention() with the weights kernel(q_i, k_j) / Σ_j kernel(q_i, k_j): the reference for all
/// kernel variants.
Tensor naive_kernel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const PairKernel& kernel, bool causal = false, const Mask& mask = {},
                              const Features& features = {});

/// exp(q·k / sqrt(D))
double softmax_kernel(const Row& q, const Row& k);

/// W x D^(-1/4), for W (m, D).
Row project(const Tensor& W, const Row& x);

/// |x|² / (2 sqrt(D))
double half_square(const Row& x);

/// The results and gradients of op(q, k, v) for 65,536 tokens in f32, of which two out of three places in
/// memory are gaps, are those for contiguous ones.
template <class Op>
void check_long_layout(Op op) {
  const auto run = [&](Layout layout) {
    const auto input = [&](uint64_t seed) {
      return Variable(with_layout(normal({1, 65536, 1, 4}, seed, DType::f32), layout), true);
    };
    const Variable q = input(1), k = input(2), v = input(3);
    const Variable y = op(q, k, v);
    backward(y, normal(y.shape(), 4, DType::f32));
    return std::vector<Tensor>{y.value(), q.grad(), k.grad(), v.grad()};
  };
  const auto strided = run(Layout::stride_3), dense = run(Layout::row_major);
  for (size_t i = 0; i < dense.size(); ++i) CHECK(near(strided[i], dense[i], 1e-5));
}

}  // namespace longhand::test
