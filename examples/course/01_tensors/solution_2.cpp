// Exercise 2: a matrix product for any strides, in three loops.
#include <cmath>
#include <iostream>

#include "longhand/core/gemm.h"
#include "longhand/core/random.h"
#include "longhand/core/tensor.h"

using namespace longhand;

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor c = Tensor::zeros({a.size(0), b.size(1)}, DType::f64);
  for (int64_t i = 0; i < c.size(0); ++i)
    for (int64_t l = 0; l < a.size(1); ++l)    // in this order the innermost loop
      for (int64_t j = 0; j < c.size(1); ++j)  // walks along rows of b and c
        c.data<double>()[i * c.strides()[0] + j * c.strides()[1]] +=
            a.data<double>()[i * a.strides()[0] + l * a.strides()[1]] *
            b.data<double>()[l * b.strides()[0] + j * b.strides()[1]];
  return c;
}

int main() {
  Tensor a = Tensor::empty({5, 7}, DType::f64), b = Tensor::empty({5, 6}, DType::f64);
  fill_normal(a, Generator(1));
  fill_normal(b, Generator(2));
  const Tensor mine = product(a.transpose(0, 1), b);
  Tensor theirs = Tensor::empty({7, 6}, DType::f64);
  matmul_into(theirs, a.transpose(0, 1), b);
  double worst = 0;
  for (int64_t i = 0; i < mine.numel(); ++i)
    worst = std::max(worst, std::abs(mine.data<double>()[i] - theirs.data<double>()[i]));
  std::cout << (worst < 1e-12 ? "the products agree\n" : "the products differ\n");
  return worst < 1e-12 ? 0 : 1;
}
