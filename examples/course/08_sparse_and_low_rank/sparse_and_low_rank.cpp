// Chapter 8: what sparse and low-rank attention reach, next to what sparse and low-rank matrices can reach.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;
constexpr int64_t N = 128, D = 16;

double norm(const Variable& x) { return std::sqrt(sum(square(x)).value().item()); }

// The least error of a matrix of rank r: the singular values from r on are left out.
double rank_bound(const Variable& P, int64_t r) {
  const std::vector<double> s = svd(P.value().reshape({N, N})).s.to_vector<double>();
  return std::sqrt(std::inner_product(s.begin() + r, s.end(), s.begin() + r, 0.0)) / norm(P);
}

// The least error of a matrix with b entries in each row: all but the b largest are left out.
double sparse_bound(const Variable& P, int64_t b) {
  std::vector<double> p = P.value().to_vector<double>();
  double left_out = 0;
  for (auto row = p.begin(); row != p.end(); row += N) {
    std::sort(row, row + N, std::greater<>());
    left_out += std::inner_product(row + b, row + N, row + b, 0.0);
  }
  return std::sqrt(left_out) / norm(P);
}

// E (m, N): the means of m segments of equal length are the rows of E X.
Variable segment_means(int64_t m) {
  std::vector<double> E(m * N);
  for (int64_t j = 0; j < N; ++j) E[j * m / N * N + j] = static_cast<double>(m) / N;
  return Variable(Tensor::from(E, {m, N}));
}

// Errors of the weights of each method, relative to P, for queries and keys x (1, N, 1, D).
void compare(const char* name, const Variable& x) {
  const Tensor all = definitions::visible(N, N, {});
  const Variable P = definitions::softmax(x, x, all);
  const auto error = [&](const Variable& W) { return norm(W - P) / norm(P); };
  std::printf("%s, budget  low rank  landmarks  projections  sparse  window\n", name);
  for (int64_t b = 2; b < N; b *= 2) {
    const Variable E = segment_means(b);
    const Tensor near = definitions::visible(N, N, {.window = b / 2});
    std::printf("%-*d  %8.3f  %9.3f  %11.3f  %6.3f  %6.3f\n",
                static_cast<int>(std::strlen(name)) + 8, static_cast<int>(b), rank_bound(P, b),
                error(definitions::nystrom(x, x, b, 6)), error(definitions::linformer(x, x, E, E)),
                sparse_bound(P, b), error(definitions::softmax(x, x, near)));
  }
  std::printf("equal weights err by %.3f\n\n", error(definitions::mean(all, DType::f64)));
}

int main() {
  // Tokens that resemble their neighbours: x_i = 0.9 x_(i-1) + noise. Queries and keys are the same.
  const auto tokens = [](double size) {
    return Variable(attention::analysis::random_head({N, D, size, 0.9}, Generator(8)).k);
  };
  compare("flat", tokens(2));
  compare("peaked", tokens(6));
  std::vector<int32_t> order(N);
  std::iota(order.begin(), order.end(), 0);
  RandomStream(Generator(9)).shuffle(order);
  const Variable shuffled = embedding(reshape(tokens(6), {N, D}), Tensor::from(order, {1, N, 1}));
  compare("shuffled", shuffled);
}
