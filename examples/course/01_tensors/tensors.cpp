// Chapter 1: a tensor is a shape, strides and an offset into shared memory.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "longhand/core/gemm.h"
#include "longhand/core/random.h"
#include "longhand/core/tensor.h"

using namespace longhand;

// One line about a view: where each axis goes in memory, and whether the memory is that of x.
void describe(const std::string& name, const Tensor& view, const Tensor& x) {
  std::ostringstream shape, strides;
  shape << view.shape();
  strides << view.strides();
  std::cout << std::left << std::setw(33) << name << std::setw(9) << shape.str() << std::setw(9)
            << strides.str() << (view.shares_memory_with(x) ? "shared" : "its own") << '\n';
}

// The element at (i, j), found as every kernel finds it: from a pointer and two strides.
double element(const Tensor& t, int64_t i, int64_t j) {
  return t.data<double>()[i * t.strides()[0] + j * t.strides()[1]];
}

void views() {
  Tensor x = Tensor::empty({3, 4}, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = static_cast<double>(i);

  std::cout << "tensor                           shape    strides  memory\n";
  describe("x", x, x);
  describe("x.transpose(0, 1)", x.transpose(0, 1), x);
  describe("x.slice(1, 0, 4, 2)", x.slice(1, 0, 4, 2), x);
  describe("x.reshape({2, 6})", x.reshape({2, 6}), x);
  describe("x.slice(0, 1, 2).expand({3, 4})", x.slice(0, 1, 2).expand({3, 4}), x);
  describe("x.transpose(0, 1).contiguous()", x.transpose(0, 1).contiguous(), x);
  std::cout << "x(1, 2) = " << element(x, 1, 2)
            << ", and x.transpose(0, 1)(2, 1) = " << element(x.transpose(0, 1), 2, 1) << "\n\n";
}

void heads() {
  const int64_t B = 2, N = 5, H = 3, D = 4;
  Tensor x = Tensor::empty({B, N, H * D}, DType::f64);
  fill_normal(x, Generator(42));

  const Tensor q = x.reshape({B, N, H, D}).permute({0, 2, 1, 3});  // (B, H, N, D)
  Tensor scores = Tensor::empty({B, H, N, N}, DType::f64);
  matmul_into(scores, q, q.transpose(2, 3));

  double by_hand = 0;
  for (int64_t d = 0; d < D; ++d) by_hand += q.at({1, 2, 3, d}) * q.at({1, 2, 4, d});
  std::cout << "heads " << q.shape() << " with strides " << q.strides() << ", scores "
            << scores.shape() << '\n'
            << std::fixed << std::setprecision(4)
            << "scores(1, 2, 3, 4) = " << scores.at({1, 2, 3, 4}) << ", by hand " << by_hand
            << "\n\n"
            << std::defaultfloat;
}

// The sum of n numbers 0.1 in float: one after the other, and in blocks of 1,024 whose sums are added.
float one_after_the_other(int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += 0.1f;
  return sum;
}
float in_blocks(int64_t n) {
  float sum = 0;
  for (int64_t begin = 0; begin < n; begin += 1024)
    sum += one_after_the_other(std::min<int64_t>(1024, n - begin));
  return sum;
}

void sums() {
  std::cout << "n         one after the other  in blocks of 1,024\n"
            << std::scientific << std::setprecision(1);
  for (int64_t n = 1 << 8; n <= 1 << 24; n *= 4) {
    const double exact = static_cast<double>(n) * 0.1f;
    std::cout << std::setw(10) << n << std::setw(21) << std::abs(one_after_the_other(n) / exact - 1)
              << std::abs(in_blocks(n) / exact - 1) << '\n';
  }
}

int main() {
  views();
  heads();
  sums();
}
