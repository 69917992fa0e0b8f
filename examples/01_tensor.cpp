// Lesson 1: tensors are handles of shared memory.
//
// Views (reshape, permute, slice, expand) cost nothing and share memory; clone() copies. This is
// why attention heads need not be split: a head is a view with larger strides.
#include <iostream>

#include "longhand/core/gemm.h"
#include "longhand/core/random.h"
#include "longhand/core/tensor.h"

using namespace longhand;

int main() {
  // Random numbers come from (seed, index): the same on every machine and any number of threads.
  const int64_t B = 2, T = 5, H = 3, D = 4;
  Tensor x = Tensor::empty({B, T, H * D});
  fill_normal(x, Generator(42));

  // The heads of x, without a copy: (B, T, H·D) seen as (B, H, T, D).
  const Tensor heads = x.reshape({B, T, H, D}).permute({0, 2, 1, 3});
  std::cout << "heads: shape " << heads.shape() << ", strides " << heads.strides() << ", "
            << (heads.shares_memory_with(x) ? "shared memory" : "copied") << '\n';

  // Scores of every head in one batched product. The transposed view is multiplied without a copy.
  Tensor scores = Tensor::empty({B, H, T, T});
  matmul_into(scores, heads, heads.transpose(2, 3));

  // One score by hand, from the formula: s_ij = sum_d q_id k_jd.
  double s = 0;
  for (int64_t d = 0; d < D; ++d) s += heads.at({1, 2, 3, d}) * heads.at({1, 2, 4, d});
  std::cout << "score by matmul " << scores.at({1, 2, 3, 4}) << ", by hand " << s << '\n';

  // Mismatched shapes are an error that names both.
  try {
    matmul_into(scores, heads, heads);
    return 1;
  } catch (const ShapeError& e) {
    std::cout << "refused: " << e.what() << '\n';
  }
  return std::abs(scores.at({1, 2, 3, 4}) - s) < 1e-5 && heads.shares_memory_with(x) ? 0 : 1;
}
