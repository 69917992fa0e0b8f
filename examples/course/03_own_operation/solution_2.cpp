// Exercise 2: squared distances of all pairs, an operation of two inputs.
//
// y_ij = |a_i - b_j|²         da_i = 2 Σ_j dy_ij (a_i - b_j)         db_j = 2 Σ_i dy_ij (b_j - a_i)
#include <iostream>

#include "longhand/autograd/gradcheck.h"
#include "longhand/core/random.h"

using namespace longhand;

Variable squared_distances(const Variable& a, const Variable& b) {
  check<ShapeError>(a.rank() == 2 && b.rank() == 2 && a.size(1) == b.size(1),
                    "squared_distances: expected (N, D) and (M, D), got ", a.shape(), " and ",
                    b.shape());
  const Tensor x = a.value().contiguous(), y = b.value().contiguous();
  const int64_t N = x.size(0), M = y.size(0), D = x.size(1);
  Tensor out = Tensor::zeros({N, M}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < M; ++j)
        for (int64_t d = 0; d < D; ++d) {
          const T difference = x.data<T>()[i * D + d] - y.data<T>()[j * D + d];
          out.data<T>()[i * M + j] += difference * difference;
        }
  });
  return record("squared_distances", out, {a, b}, [=](const Tensor& dout, std::span<GradSlot> to) {
    const Tensor given = dout.contiguous();
    Tensor dx = Tensor::zeros(x.shape(), x.dtype()), dy = Tensor::zeros(y.shape(), y.dtype());
    dispatch_float(x.dtype(), [&]<class T>() {
      for (int64_t i = 0; i < N; ++i)
        for (int64_t j = 0; j < M; ++j)
          for (int64_t d = 0; d < D; ++d) {
            const T slope =
                2 * given.data<T>()[i * M + j] * (x.data<T>()[i * D + d] - y.data<T>()[j * D + d]);
            dx.data<T>()[i * D + d] += slope;
            dy.data<T>()[j * D + d] -= slope;
          }
    });
    if (to[0]) to[0].take(dx);  // a false slot belongs to an input without gradient
    if (to[1]) to[1].take(dy);
  });
}

int main() {
  Tensor a = Tensor::empty({4, 3}, DType::f64), b = Tensor::empty({5, 3}, DType::f64);
  fill_normal(a, Generator(1));
  fill_normal(b, Generator(2));
  const auto both =
      gradcheck([](const Variables& in) { return squared_distances(in[0], in[1]); }, {a, b});
  const auto one =
      gradcheck([&](const Variables& in) { return squared_distances(Variable(a), in[0]); }, {b});
  std::cout << (both.ok && one.ok ? "both gradients are right\n" : "a gradient is wrong\n");
  return both.ok && one.ok ? 0 : 1;
}
