// Chapter 3: sparsemax as an operation of one's own, its gradient, and how a wrong gradient is found.
#include <algorithm>
#include <functional>
#include <iomanip>
#include <iostream>
#include <vector>

#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

using namespace longhand;

// The τ with Σ_j max(x_j - τ, 0) = 1, from the sorted scores.
template <class T>
T threshold(const T* x, int64_t n) {
  std::vector<T> sorted(x, x + n);
  std::ranges::sort(sorted, std::greater());
  T sum = 0, tau = 0;
  for (int64_t k = 1; k <= n; ++k) {
    sum += sorted[k - 1];
    const T candidate = (sum - 1) / static_cast<T>(k);
    if (sorted[k - 1] > candidate) tau = candidate;  // the k largest stay above it
  }
  return tau;
}

enum class Rule { correct, mean_of_the_row, everywhere };

// p_j = max(x_j - τ, 0) for each row.         dx_j = dp_j - mean of dp over the support, where p_j > 0
Variable sparsemax(const Variable& x, Rule rule = Rule::correct) {
  const Tensor in = x.value().contiguous();  // row-major: a copy unless it is already
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t n = x.size(-1), rows = in.numel() / n;
  dispatch_float(x.dtype(), [&]<class T>() {
    T* const p = out.data<T>();
    parallel_for(rows, /*grain=*/64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const scores = in.data<T>() + row * n;
        const T tau = threshold(scores, n);
        for (int64_t j = 0; j < n; ++j) p[row * n + j] = std::max(scores[j] - tau, T{0});
      }
    });
  });
  // The capture list is what the operation keeps for its gradient: the result, not the input.
  return record("sparsemax", out, {x}, [=](const Tensor& dout, std::span<GradSlot> grad_in) {
    if (!grad_in[0]) return;                 // x needs no gradient
    const Tensor given = dout.contiguous();  // it may have any strides, also 0
    Tensor dx = Tensor::zeros(out.shape(), out.dtype());
    dispatch_float(out.dtype(), [&]<class T>() {
      for (int64_t row = 0; row < rows; ++row) {
        const T* const p = out.data<T>() + row * n;
        const T* const dp = given.data<T>() + row * n;
        T sum = 0, support = 0;
        for (int64_t j = 0; j < n; ++j)
          if (p[j] > 0 || rule == Rule::mean_of_the_row) sum += dp[j], ++support;
        for (int64_t j = 0; j < n; ++j)
          if (p[j] > 0 || rule == Rule::everywhere)
            dx.data<T>()[row * n + j] = dp[j] - sum / support;
      }
    });
    grad_in[0].take(dx);
  });
}

int main() {
  std::cout << std::fixed << std::setprecision(2) << "score t  softmax  sparsemax\n";
  for (double t = -3; t <= 3; t += 0.5) {
    const Variable scores(Tensor::from<double>({t, 0}, {2}));
    std::cout << std::setw(5) << t << "    " << softmax(scores).value().at({0}) << "     "
              << sparsemax(scores).value().at({0}) << '\n';
  }

  Tensor scores = Tensor::empty({1, 8}, DType::f64);
  fill_normal(scores, Generator(3));
  for (const auto& [name, p] : {std::pair("\nsoftmax  ", softmax(Variable(scores))),
                                std::pair("\nsparsemax", sparsemax(Variable(scores)))}) {
    std::cout << name;
    for (int64_t j = 0; j < 8; ++j) std::cout << "  " << p.value().at({0, j});
  }

  Tensor x = Tensor::empty({5, 7}, DType::f64);
  fill_normal(x, Generator(1));
  std::cout << "\n\nbackward function          random weights  plain sum\n";
  for (const auto& [name, rule] : {std::pair("correct", Rule::correct),
                                   std::pair("mean over the whole row", Rule::mean_of_the_row),
                                   std::pair("also outside the support", Rule::everywhere)}) {
    const Rule r = rule;
    const auto random = gradcheck([r](const Variables& in) { return sparsemax(in[0], r); }, {x});
    const auto plain =
        gradcheck([r](const Variables& in) { return sum(sparsemax(in[0], r)); }, {x});
    std::cout << std::left << std::setw(26) << name << (random.ok ? "passes" : "fails ")
              << "          " << (plain.ok ? "passes" : "fails") << '\n';
  }
}
