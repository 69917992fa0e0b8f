// Gradients of operations that several ranks compute together, against central differences.
#pragma once

#include <functional>
#include <vector>

#include "longhand/autograd/ops.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"

namespace longhand::test {

/// f(x, ranks) on one rank, for x of the given shape.
using RankOp = std::function<Variable(const Variable&, Communicator&)>;

/// Compares, on 1 to 4 ranks, the gradient of the sum over the ranks r of <c_r, f(x_r)>, where x_r and
/// c_r are random and differ between ranks, with central differences with respect to every x_r. x is
/// given in row-major order and transposed.
inline void check_rank_op(const RankOp& f, const std::function<Shape(int ranks)>& shape) {
  for (const int size : {1, 2, 3, 4}) {
    std::vector<std::vector<double>> analytic(size), numeric(size);
    run_ranks(size, [&](Communicator& ranks) {
      const auto own = static_cast<size_t>(ranks.rank());
      Tensor x = Tensor::empty(shape(size), DType::f64);
      fill_uniform(x, Generator(1).fork(own), -1, 1);
      if (x.rank() >= 2) x = x.transpose(-2, -1).contiguous().transpose(-2, -1);
      const Variable leaf(x, true);
      const Variable y = f(leaf, ranks);
      Tensor c = Tensor::empty(y.shape(), DType::f64);
      fill_uniform(c, Generator(2).fork(own), -1, 1);
      backward(y, c);
      analytic[own] = leaf.grad().to_vector<double>();
      const auto loss = [&](const Tensor& at) {
        const NoGrad no_grad;
        Tensor part = sum(f(Variable(at), ranks) * Variable(c)).value().contiguous().clone();
        ranks.sum(part);
        return part.item();
      };
      for (int p = 0; p < size; ++p)
        for (int64_t i = 0; i < x.numel(); ++i) {
          const auto moved = [&](double by) {
            std::vector<double> values = x.to_vector<double>();
            if (ranks.rank() == p) values[static_cast<size_t>(i)] += by;
            return Tensor::from<double>(values, x.shape());
          };
          const double d = (loss(moved(1e-5)) - loss(moved(-1e-5))) / 2e-5;
          if (ranks.rank() == p) numeric[own].push_back(d);
        }
    });
    for (size_t r = 0; r < analytic.size(); ++r)
      for (size_t i = 0; i < analytic[r].size(); ++i) {
        INFO(size << " ranks, rank " << r << ", element " << i);
        CHECK(std::abs(analytic[r][i] - numeric[r][i]) < 1e-7);
      }
  }
}

}  // namespace longhand::test
