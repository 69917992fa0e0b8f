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
using attention::conformance::lengths;
using attention::conformance::Made;
using attention::conformance::normal;
using attention::conformance::one;
using attention::conformance::Outcome;
using attention::conformance::with_padding;

/// The variants of the library, without those that tests add.
inline const std::vector<std::string> library = attention::names();

/// Options that make a variant small; others keep their defaults.
inline Options small_options(const std::string& name) {
  Options options("attention");
  for (const auto& [key, value] : attention::spec(name).cases.front()) options.set(key, value);
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
  return attention::conformance::run(variant, q, k, v, mask, cotangent, pass);
}

/// max |a - b| <= tolerance (1 + max |b|); NaN fails.
inline bool near(const Tensor& a, const Tensor& b, double tolerance) {
  return distance(a, b) <= tolerance;
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

/// Attention with the weights kernel(q_i, k_j) / sum_j kernel(q_i, k_j), over j < length, and j <=
/// i if causal, as plain loops: the reference for all kernel variants. With `features`, the kernel
/// is the inner product of features(q_i) and features(k_j).
using PairKernel = std::function<double(const Row& q, const Row& k)>;
using Features = std::function<Row(const Row& x)>;
inline Tensor naive_kernel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const PairKernel& kernel, bool causal = false,
                                     const Mask& mask = {}, const Features& features = {}) {
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
        double sum = 0;
        for (int64_t j = 0; j < limits[b] && (!causal || j <= i); ++j) {
          const double w = kernel(qs[(b * N + i) * H + h], ks[(b * M + j) * H + h]);
          sum += w;
          for (int64_t d = 0; d < D; ++d) o[d] += w * vs[(b * M + j) * H + h][d];
        }
        for (int64_t d = 0; d < D; ++d) o[d] /= sum;
      }
  return out;
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

/// The results and gradients of op(q, k, v), for q, k, v (2, N, 2, 5) and an incoming gradient of
/// every memory layout, are those for contiguous ones.
template <class Op>
void check_layouts(Op op) {
  const auto layouts = all_layouts();
  const auto run = [&](const std::vector<Tensor>& x, const Tensor& cotangent) {
    const Variable q(x[0], true), k(x[1], true), v(x[2], true);
    const Variable y = op(q, k, v);
    backward(y, cotangent);
    return std::vector<Tensor>{y.value(), q.grad(), k.grad(), v.grad()};
  };
  for (const int64_t N : {1, 7, 131}) {
    const Shape shape{2, N, 2, 5};
    const Variable x(normal(shape, 1));
    const Shape result = op(x, x, x).shape();
    // All operands in one layout, then mixtures of them.
    for (size_t round = 0; round < 2 * layouts.size(); ++round) {
      const auto layout = [&](size_t i) {
        return layouts[(round < layouts.size() ? round : round + i) % layouts.size()];
      };
      INFO(N << " tokens, " << to_string(layout(0)) << " " << to_string(layout(5)) << " "
             << to_string(layout(7)));
      const Tensor q = with_layout(normal(shape, 1), layout(0)),
                   k = with_layout(normal(shape, 2), layout(5)),
                   v = with_layout(normal(shape, 3), layout(7)),
                   seed = with_layout(normal(result, 4), layout(3));
      const auto strided = run({q, k, v}, seed);
      const auto dense = run({q.contiguous(), k.contiguous(), v.contiguous()}, seed.contiguous());
      for (size_t i = 0; i < dense.size(); ++i) CHECK(near(strided[i], dense[i], 1e-10));
    }
  }
}

/// The same for 65,536 tokens in f32, of which two out of three places in memory are gaps.
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
