#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("arithmetic: values, and the operators") {
  const Variable a(Tensor::from<double>({1, -2, 3, 4, 5, -6}, {2, 3}));
  const Variable b(Tensor::from<double>({2, -4, 8}, {3})), c(Tensor::from<double>({2, -1}, {2, 1}));
  const auto is = [](const Variable& got, const std::vector<double>& expected) {
    CHECK(got.value().to_vector<double>() == expected);
  };
  is(add(a, b), {3, -6, 11, 6, 1, 2});
  is(sub(c, a), {1, 4, -1, -5, -6, 5});
  is(mul(c, b), {4, -8, 16, -2, 4, -8});
  is(div(a, b), {0.5, 0.5, 0.375, 2, -1.25, -0.75});
  CHECK(identical((a + b).value(), add(a, b).value()));
  CHECK(identical((a - b).value(), sub(a, b).value()));
  CHECK(identical((a * b).value(), mul(a, b).value()));
  CHECK(identical((a / b).value(), div(a, b).value()));
}

TEST_CASE("arithmetic: the order of axes is that of the first input that is not broadcast") {
  const Variable row_major(random({3, 4})), permuted(random({4, 3}).transpose(0, 1)),
      row(random({1, 4})), column(random({3, 1}));
  for (const auto op : {add, sub, mul, div}) {
    CHECK(op(row, permuted).value().strides() == Strides{1, 3});
    CHECK(op(column, row_major).value().strides() == Strides{4, 1});
    CHECK(op(row, column).value().is_dense());
    CHECK_THROWS_WITH(op(Variable(random({2, 3})), Variable(random({2}))),
                      Catch::Contains("[2, 3]") && Catch::Contains("[2]"));
  }
}

TEST_CASE("add: saves nothing") {
  const Variable x(Tensor::full({1 << 17}, 1, DType::f64), true);
  const size_t before = memory_stats().in_use;
  const Variable y = add(add(x, x), x);
  CHECK(memory_stats().in_use - before == size_t{1} << 20);
}

TEST_CASE("mul: keeps only what a needed gradient needs") {
  const Shape shape{1 << 17};
  const Variable x(Tensor::full(shape, 1, DType::f64), true);
  const size_t megabyte = size_t{1} << 20, before = memory_stats().in_use;
  {
    Variable y = x;
    for (int i = 0; i < 5; ++i) {
      const Variable constant(Tensor::full(shape, 2, DType::f64));
      y = mul(y, constant);
    }
    // The five constants and the result, but not the intermediate products.
    CHECK(memory_stats().in_use - before == 6 * megabyte);
  }
  CHECK(memory_stats().in_use == before);
}
