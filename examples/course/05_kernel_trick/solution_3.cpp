// Exercise 3: the kernel (q·k)² has the exact features x_a x_b, D² of them.
#include <cstdio>

#include "longhand/autograd/ops.h"

using namespace longhand;

int main() {
  const int64_t N = 50, D = 6;
  Variable x[3];
  for (uint64_t a = 0; a < 3; ++a) {
    Tensor t = Tensor::empty({N, D}, DType::f64);
    fill_normal(t, Generator(5).fork(a));
    x[a] = Variable(t);
  }
  const auto& [q, k, v] = x;
  // By the N x N kernel matrix, and by features.
  const Variable A = square(matmul(q, transpose(k, 0, 1)));
  const Variable slow = matmul(A, v) / sum(A, {1}, true);
  const auto features = [&](const Variable& y) {
    return reshape(unsqueeze(y, 2) * unsqueeze(y, 1), {N, D * D});
  };
  const Variable S = matmul(transpose(features(k), 0, 1), v);
  const Variable z = transpose(sum(features(k), {0}, true), 0, 1);
  const Variable fast = matmul(features(q), S) / matmul(features(q), z);
  const double difference = max(reshape(square(slow - fast), {N * D}), 0).value().item();
  const int64_t by_matrix = 2 * N * N * D, by_features = 2 * N * D * D * D;
  std::printf("%s; %ld multiplications by the matrix, %ld by features\n",
              difference < 1e-20 ? "the same result" : "different results", long(by_matrix),
              long(by_features));  // features pay off from N > D² on
  return difference < 1e-20 ? 0 : 1;
}
