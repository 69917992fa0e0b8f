#include "longhand/autograd/ops.h"
#include "tests/support/ranks_gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("all_to_all: row p is the row of this rank that rank p has") {
  run_ranks(3, [](Communicator& ranks) {
    const double r = ranks.rank();
    const Variable x(Tensor::from<double>({10 * r, 10 * r + 1, 10 * r + 2}, {3}));
    check(
        all_to_all(x, ranks).value().to_vector<double>() == std::vector<double>{r, 10 + r, 20 + r},
        "all_to_all");
  });
}

TEST_CASE("all_to_all: gradients of the losses of all ranks") {
  check_rank_op([](const Variable& x, Communicator& ranks) { return square(all_to_all(x, ranks)); },
                [](int ranks) {
                  return Shape{ranks, 2, 3};
                });
}

TEST_CASE("all_to_all: expects a row for each rank") {
  CHECK_THROWS_AS(all_to_all(Variable(Tensor::zeros({2, 3})), alone()), ShapeError);
}
