#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("transpose: value and gradient are views") {
  const Variable x(random({2, 3, 4}), true);
  const Variable y = transpose(x, 0, -1);
  CHECK(y.shape() == Shape{4, 3, 2});
  CHECK(y.value().shares_memory_with(x.value()));
  CHECK(y.value().at({3, 1, 0}) == x.value().at({0, 1, 3}));
  Tensor seen;
  const Variable probe =
      record("probe", x.value(), {x}, [&](const Tensor& dy, std::span<GradSlot> dx) {
        seen = dy;
        dx[0].take(dy);
      });
  const Tensor seed = random({4, 3, 2});
  backward(transpose(probe, 0, 2), seed);
  CHECK(seen.shares_memory_with(seed));
  CHECK(identical(seen, seed.transpose(0, 2)));
}
