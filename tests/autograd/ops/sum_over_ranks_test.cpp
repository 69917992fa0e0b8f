#include "longhand/autograd/ops.h"
#include "tests/support/ranks_gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("sum_over_ranks: the sum, on every rank; the operand is unchanged") {
  run_ranks(3, [](Communicator& ranks) {
    const Variable x(Tensor::full({2}, ranks.rank() + 1, DType::f64));
    check(sum_over_ranks(x, ranks).value().to_vector<double>() == std::vector<double>{6, 6},
          "sum_over_ranks");
    check(x.value().to_vector<double>()[0] == ranks.rank() + 1, "the operand has changed");
  });
}

TEST_CASE("sum_over_ranks: gradients of the losses of all ranks") {
  check_rank_op(
      [](const Variable& x, Communicator& ranks) { return square(sum_over_ranks(x, ranks)); },
      [](int) {
        return Shape{2, 3};
      });
}
