#include "tests/attention/attention_check.h"

#include <algorithm>

namespace longhand::test {

void check_near(const Outcome& a, const Outcome& b, double tolerance) {
  CHECK(near(a.out, b.out, tolerance));
  CHECK(near(a.dq, b.dq, tolerance));
  CHECK(near(a.dk, b.dk, tolerance));
  CHECK(near(a.dv, b.dv, tolerance));
}

void check_samples(attention::Variant& variant, const Operands& x,
                   const std::vector<int32_t>& tokens, double tolerance, double of_gradients) {
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

void check_parameters(nn::Module& module, const std::function<Variable()>& f) {
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
    for (size_t i = 0; i < analytic.size(); i += std::max<size_t>(1, analytic.size() / 60)) {
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

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<Row> rows_of(const Tensor& x) {
  const auto all = x.to_vector<double>();
  std::vector<Row> rows;
  for (auto it = all.begin(); it != all.end(); it += x.size(3))
    rows.emplace_back(it, it + x.size(3));
  return rows;
}

Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttendOne& attend,
                       bool causal, const Mask& mask, const Features& features) {
  const int64_t B = q.size(0), N = q.size(1), M = k.size(1), H = q.size(2), D = v.size(3);
  std::vector<Row> qs = rows_of(q), ks = rows_of(k), vs = rows_of(v);
  if (features)
    for (auto* rows : {&qs, &ks})
      for (Row& row : *rows) row = features(row);
  const auto limits = mask.lengths.defined() ? mask.lengths.to_vector<int32_t>()
                                             : std::vector<int32_t>(B, static_cast<int32_t>(M));
  Tensor out = Tensor::zeros({B, N, H, D}, DType::f64);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h) {
      std::vector<Row> keys, values;
      for (int64_t i = 0, j = 0; i < N; ++i) {
        if (i >= limits[b] && mask.lengths.defined()) break;
        for (; j < limits[b] && (!causal || j <= i); ++j) {
          keys.push_back(ks[(b * M + j) * H + h]);
          values.push_back(vs[(b * M + j) * H + h]);
        }
        const int64_t row = (b * N + i) * H + h;
        attend(qs[row], keys, values, out.data<double>() + row * D);
      }
    }
  return out;
}

double add_weighted(const PairKernel& kernel, const Row& query, const std::vector<Row>& keys,
                    const std::vector<Row>& values, double* out) {
  double sum = 0;
  for (size_t j = 0; j < keys.size(); ++j) {
    const double w = kernel(query, keys[j]);
    sum += w;
    for (size_t d = 0; d < values[j].size(); ++d) out[d] += w * values[j][d];
  }
  return sum;
}

Tensor naive_kernel_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const PairKernel& kernel, bool causal, const Mask& mask,
                              const Features& features) {
  const auto attend = [&](const Row& query, const std::vector<Row>& keys,
                          const std::vector<Row>& values, double* out) {
    const double sum = add_weighted(kernel, query, keys, values, out);
    for (int64_t d = 0; d < v.size(3); ++d) out[d] /= sum;
  };
  return naive_attention(q, k, v, attend, causal, mask, features);
}

double softmax_kernel(const Row& q, const Row& k) {
  return std::exp(dot(q, k) / std::sqrt(static_cast<double>(q.size())));
}

Row project(const Tensor& W, const Row& x) {
  const double* w = W.data<double>();
  Row u;
  for (int64_t l = 0; l < W.size(0); ++l, w += W.size(1))
    u.push_back(dot(Row(w, w + W.size(1)), x) * std::pow(static_cast<double>(x.size()), -0.25));
  return u;
}

double half_square(const Row& x) {
  return dot(x, x) / (2 * std::sqrt(static_cast<double>(x.size())));
}

}  // namespace longhand::test
