#include "longhand/attention/analysis/measures.h"

#include <cmath>
#include <numeric>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"

namespace longhand::attention::analysis {

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double square_norm(const Tensor& a) {
  double sum = 0;
  for (const double x : a.to_vector<double>()) sum += x * x;
  return sum;
}

double relative_error(const Tensor& a, const Tensor& b) {
  check<ShapeError>(a.shape() == b.shape(), "relative_error: expected equal shapes, got ",
                    a.shape(), " and ", b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty({a.size(0), b.size(1)}, a.dtype());
  matmul_into(out, a, b);
  return out;
}

Tensor rows_of(const Tensor& x, const std::vector<int64_t>& which) {
  Tensor out = Tensor::empty({std::ssize(which), x.size(1)}, x.dtype());
  for (int64_t i = 0; i < out.size(0); ++i) copy_into(out.select(0, i), x.select(0, which[i]));
  return out;
}

Tensor gradient_or_zeros(const Variable& x) {
  return x.grad().defined() ? x.grad() : Tensor::zeros(x.shape(), x.dtype());
}

}  // namespace longhand::attention::analysis
