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
inline void check_near(const Outcome& a, const Outcome& b, double tolerance) {
  CHECK(near(a.out, b.out, tolerance));
  CHECK(near(a.dq, b.dq, tolerance));
  CHECK(near(a.dk, b.dk, tolerance));
  CHECK(near(a.dv, b.dv, tolerance));
}

/// Checks that each sample of a batch gives what it gives alone, and that the contents of padding do
/// not matter: `tokens` are the lengths.
inline void check_samples(attention::Variant& variant, const Operands& x,
                          const std::vector<int32_t>& tokens, double tolerance,
                          double of_gradients) {
  const Mask mask = lengths(tokens);
  const Outcome all = run_variant(variant, x, mask);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const int64_t b = static_cast<int64_t>(i), n = tokens[i];
    if (n == 0) continue;
    INFO("sample " << b << " of " << n << " tokens");
    const Outcome alone = run_variant(variant, one(x.q, b, n), one(x.k, b, n), one(x.v, b, n), {},
                                      one(x.cotangent, b, n));
    CHECK(near(one(all.out, b, n), alone.out, tolerance));
    CHECK(near(one(all.dk, b, n), alone.dk, of_gradients));
    CHECK(near(one(all.dv, b, n), alone.dv, of_gradients));
  }
  const Outcome poisoned =
      run_variant(variant, with_padding(x.q, mask, NAN), with_padding(x.k, mask, NAN),
                  with_padding(x.v, mask, NAN), mask, with_padding(x.cotangent, mask, NAN));
  CHECK(identical(poisoned.out, all.out));
  CHECK(identical(poisoned.dk, all.dk));
}

/// Gradients of every parameter of a module by central differences of <cotangent, f()>.
inline void check_parameters(nn::Module& module, const std::function<Variable()>& f) {
  if (module.named_parameters().empty()) return;
  module.zero_grad();
  const Variable out = f();
  const Tensor cotangent = normal(out.shape(), 99, out.dtype(), 1);
  backward(out, cotangent);
  const auto weights = cotangent.to_vector<double>();
  const auto value = [&] {
    const auto y = f().value().to_vector<double>();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  for (auto& [name, parameter] : module.named_parameters()) {
    REQUIRE(parameter.grad().defined());
    const auto analytic = parameter.grad().to_vector<double>();
    double* x = parameter.mutable_value().data<double>();
    for (size_t i = 0; i < analytic.size(); ++i) {
      constexpr double step = 1e-5;
      const double before = x[i];
      x[i] = before + step;
      const double above = value();
      x[i] = before - step;
      const double below = value();
      x[i] = before;
      const double numeric = (above - below) / (2 * step);
      INFO(name << " element " << i << ": analytic " << analytic[i] << " numeric " << numeric);
      CHECK(std::abs(analytic[i] - numeric) <= 1e-7 + 1e-5 * std::abs(numeric));
    }
  }
}

using Row = std::vector<double>;

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The rows of x (B, N, H, D), at [(b N + n) H + h].
inline std::vector<Row> rows_of(const Tensor& x) {
  const auto all = x.to_vector<double>();
  std::vector<Row> rows;
  for (auto it = all.begin(); it != all.end(); it += x.size(3))
    rows.emplace_back(it, it + x.size(3));
  return rows;
}

/// Attention as plain loops: attend(query, keys, values, out) adds the result of one query to `out`,
/// D zeros. The keys are those with j < length, and j <= i if causal; padded queries give 0. With
/// `features`, queries and keys are replaced by their features.
using Features = std::function<Row(const Row& x)>;
template <class Attend>
Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, Attend attend,
                       bool causal = false, const Mask& mask = {}, const Features& features = {}) {
  const int64_t B = q.size(0), N = q.size(1), M = k.size(1), H = q.size(2), D = v.size(3);
  std::vector<Row> qs = rows_of(q), ks = rows_of(k), vs = rows_of(v);
  if (features)
    for (auto* rows : {&qs, &ks})
      for (Row& row : *rows) row = features(row);
  const auto limits = mask.lengths.defined() ? mask.lengths.to_vector<int32_t>()
                                             : std::vector<int32_t>(B, static_cast<int32_t>(M));
  Tensor out = Tensor::zeros({B, N, H, D}, DType::f64);
  double* o = out.data<double>();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < N; ++i)
      for (int64_t h = 0; h < H; ++h, o += D) {
        if (i >= limits[b] && mask.lengths.defined()) continue;
        std::vector<Row> keys, values;
        for (int64_t j = 0; j < limits[b] && (!causal || j <= i); ++j) {
          keys.push_back(ks[(b * M + j) * H + h]);
          values.push_back(vs[(b * M + j) * H + h]);
        }
        attend(qs[(b * N + i) * H + h], keys, values, o);
      }
  return out;
}

/// Adds Σ_j kernel(q, k_j) v_j to `out` and returns Σ_j kernel(q, k_j).
using PairKernel = std::function<double(const Row& q, const Row& k)>;
inline double add_weighted(const PairKernel& kernel, const Row& query, const std::vector<Row>& keys,
                           const std::vector<Row>& values, double* out) {
  double sum = 0;
  for (size_t j = 0; j < keys.size(); ++j) {
    const double w = kernel(query, keys[j]);
    sum += w;
    for (size_t d = 0; d < values[j].size(); ++d) out[d] += w * values[j][d];
  }
  return sum;
}

/// naive_attention() with the weights kernel(q_i, k_j) / Σ_j kernel(q_i, k_j): the reference for all
/// kernel variants.
inline Tensor naive_kernel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const PairKernel& kernel, bool causal = false,
                                     const Mask& mask = {}, const Features& features = {}) {
  const auto attend = [&](const Row& query, const std::vector<Row>& keys,
                          const std::vector<Row>& values, double* out) {
    const double sum = add_weighted(kernel, query, keys, values, out);
    for (int64_t d = 0; d < v.size(3); ++d) out[d] /= sum;
  };
  return naive_attention(q, k, v, attend, causal, mask, features);
}

/// exp(q·k / sqrt(D))
inline double softmax_kernel(const Row& q, const Row& k) {
  return std::exp(dot(q, k) / std::sqrt(static_cast<double>(q.size())));
}

/// W x D^(-1/4), for W (m, D).
inline Row project(const Tensor& W, const Row& x) {
  const double* w = W.data<double>();
  Row u;
  for (int64_t l = 0; l < W.size(0); ++l, w += W.size(1))
    u.push_back(dot(Row(w, w + W.size(1)), x) * std::pow(static_cast<double>(x.size()), -0.25));
  return u;
}

/// |x|² / (2 sqrt(D))
inline double half_square(const Row& x) {
  return dot(x, x) / (2 * std::sqrt(static_cast<double>(x.size())));
}

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
