#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

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
