#include "longhand/autograd/ops.h"
#include "tests/support/ranks_gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("all_gather: x of all ranks, in order") {
  run_ranks(3, [](Communicator& ranks) {
    const Variable x(Tensor::full({2}, ranks.rank() + 1, DType::f64));
    check(all_gather(x, ranks).value().to_vector<double>() == std::vector<double>{1, 1, 2, 2, 3, 3},
          "all_gather");
  });
}

TEST_CASE("all_gather: gradients of the losses of all ranks") {
  check_rank_op([](const Variable& x, Communicator& ranks) { return square(all_gather(x, ranks)); },
                [](int) {
                  return Shape{2, 3};
                });
}
