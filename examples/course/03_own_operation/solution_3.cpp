// Exercise 3: 1.5-entmax, p_j = max(x_j / 2 - τ, 0)² with τ such that the p_j add up to 1; τ by bisection.
//
// With s_j = sqrt(p_j):   dx = s ∘ (dp - (s·dp) / Σ_j s_j)
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>

#include "longhand/autograd/gradcheck.h"
#include "longhand/core/random.h"

using namespace longhand;

Variable entmax(const Variable& x) {
  const Tensor in = x.value().to(DType::f64).contiguous();
  const int64_t n = in.size(-1), rows = in.numel() / n;
  Tensor out = Tensor::empty(in.shape(), DType::f64);
  for (int64_t row = 0; row < rows; ++row) {
    const double* const s = in.data<double>() + row * n;
    const auto p = [&](int64_t j, double tau) {
      return std::pow(std::max(s[j] / 2 - tau, 0.0), 2);
    };
    double high = *std::max_element(s, s + n) / 2, low = high - 1;  // the sum is 0, and at least 1
    for (int step = 0; step < 60; ++step) {
      const double middle = (low + high) / 2;
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += p(j, middle);
      (sum >= 1 ? low : high) = middle;
    }
    for (int64_t j = 0; j < n; ++j) out.data<double>()[row * n + j] = p(j, low);
  }
  return record("entmax", out, {x}, [=](const Tensor& dout, std::span<GradSlot> grad_in) {
    if (!grad_in[0]) return;
    const Tensor given = dout.contiguous();
    Tensor dx = Tensor::empty(out.shape(), DType::f64);
    for (int64_t row = 0; row < rows; ++row) {
      const double* const p = out.data<double>() + row * n;
      const double* const dp = given.data<double>() + row * n;
      double product = 0, sum = 0;
      for (int64_t j = 0; j < n; ++j) product += std::sqrt(p[j]) * dp[j], sum += std::sqrt(p[j]);
      for (int64_t j = 0; j < n; ++j)
        dx.data<double>()[row * n + j] = std::sqrt(p[j]) * (dp[j] - product / sum);
    }
    grad_in[0].take(dx);
  });
}

int main() {
  Tensor x = Tensor::empty({5, 7}, DType::f64);
  fill_normal(x, Generator(1), 0, 2);
  const auto report = gradcheck([](const Variables& in) { return entmax(in[0]); }, {x});
  const auto p = entmax(Variable(x)).value().to_vector<double>();
  const auto zeros = std::count(p.begin(), p.end(), 0.0);
  std::cout << zeros << " of 35 weights are 0; the gradient is "
            << (report.ok ? "right\n" : "wrong\n");
  return report.ok && zeros > 0 ? 0 : 1;
}
