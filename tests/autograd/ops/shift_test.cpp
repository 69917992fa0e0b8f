#include "longhand/autograd/ops.h"
#include "tests/support/ranks_gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("shift: from the rank before, cyclically") {
  run_ranks(3, [](Communicator& ranks) {
    const Variable x(Tensor::full({2}, ranks.rank(), DType::f64));
    const auto from = [&](int distance) {
      return shift(x, ranks, distance).value().to_vector<double>()[0];
    };
    check(from(1) == (ranks.rank() + 2) % 3 && from(-1) == (ranks.rank() + 1) % 3, "shift");
  });
}

TEST_CASE("shift: gradients of the losses of all ranks") {
  for (const int distance : {1, -1, 2})
    check_rank_op(
        [=](const Variable& x, Communicator& ranks) { return square(shift(x, ranks, distance)); },
        [](int) {
          return Shape{2, 3};
        });
}
