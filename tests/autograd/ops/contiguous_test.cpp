#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("contiguous: row-major memory from any strides") {
  const Tensor values = random({2, 3, 4, 5});
  for (const Layout layout : all_layouts()) {
    INFO(to_string(layout));
    const Tensor x = with_layout(values, layout);
    const Tensor y = contiguous(Variable(x)).value();
    CHECK(y.is_contiguous());
    CHECK(identical(y, x));
    CHECK(y.shares_memory_with(x) == (layout == Layout::row_major));
  }
}

TEST_CASE("contiguous: gradients") {
  check_op([](const Variables& in) { return contiguous(in[0]); }, awkward_shapes());
  check_op([](const Variables& in) { return contiguous(transpose(in[0], 0, 1)) + in[1]; },
           {{{3, 4}, {4, 3}}});
}

TEST_CASE("contiguous: a tensor without memory is refused") {
  CHECK_THROWS_AS(contiguous(Variable()), ShapeError);
}
