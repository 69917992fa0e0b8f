#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("add: values") {
  const Variable a(Tensor::from<double>({1, -2, 3, 4, 5, -6}, {2, 3}));
  const Variable b(Tensor::from<double>({2, -4, 8}, {3})), c(Tensor::from<double>({2, -1}, {2, 1}));
  CHECK(add(a, a).value().to_vector<double>() == std::vector<double>{2, -4, 6, 8, 10, -12});
  CHECK(add(a, b).value().to_vector<double>() == std::vector<double>{3, -6, 11, 6, 1, 2});
  CHECK(add(c, a).value().to_vector<double>() == std::vector<double>{3, 0, 5, 3, 4, -7});
  CHECK(add(c, b).value().to_vector<double>() == std::vector<double>{4, -2, 10, 1, -5, 7});
  CHECK(identical((a + b).value(), add(a, b).value()));
}

TEST_CASE("add: gradients for equal and broadcast shapes") {
  const auto op = [](const Variables& in) { return add(in[0], in[1]); };
  std::vector<Case> cases;
  for (const Case& shape : awkward_shapes()) cases.push_back({shape[0], shape[0]});
  for (const Case& pair : std::vector<Case>{{{3, 4}, {4}},
                                            {{4}, {3, 4}},
                                            {{3, 1}, {1, 4}},
                                            {{}, {2, 3}},
                                            {{2, 3}, {}},
                                            {{2, 1, 3}, {4, 1}},
                                            {{0}, {1}},
                                            {{1}, {0}},
                                            {{2, 0, 3}, {3}},
                                            {{5, 1, 7}, {1, 3, 1}}})
    cases.push_back(pair);
  check_op(op, cases);
  check_threads(op, {{3, 40001}, {40001}});
  check_threads(op, {{200, 1}, {3, 200, 301}});
}

TEST_CASE("add: a variable with itself, and with constants") {
  const auto itself = [](const Variables& in) { return add(in[0], in[0]); };
  check_op(itself, {{{3, 4}}});
  const Variable constant(random({3, 1}, DType::f64, 0.5, 2));
  CheckOptions options;
  options.f32 = false;
  options.low = 0.5;
  check_op([&](const Variables& in) { return add(in[0], constant); }, {{{3, 4}}}, options);
  check_op([&](const Variables& in) { return add(constant, in[0]); }, {{{3, 4}}}, options);
  CHECK_FALSE(add(constant, constant).requires_grad());
}

TEST_CASE("add: the order of axes is that of the first input that is not broadcast") {
  const Variable row_major(random({3, 4})), permuted(random({4, 3}).transpose(0, 1)),
      row(random({1, 4})), column(random({3, 1}));
  CHECK(add(row_major, permuted).value().strides() == Strides{4, 1});
  CHECK(add(permuted, row_major).value().strides() == Strides{1, 3});
  CHECK(add(row, permuted).value().strides() == Strides{1, 3});
  CHECK(add(column, row_major).value().strides() == Strides{4, 1});
  CHECK(add(row, column).value().is_dense());
}

TEST_CASE("add: errors name the operation, shapes and dtypes") {
  const Variable a(random({2, 3}));
  CHECK_THROWS_WITH(add(a, Variable(random({2}))),
                    Catch::Contains("add") && Catch::Contains("[2, 3]") && Catch::Contains("[2]"));
  CHECK_THROWS_WITH(add(a, Variable(random({2, 3}, DType::f32))),
                    Catch::Contains("add") && Catch::Contains("f64") && Catch::Contains("f32"));
  CHECK_THROWS_AS(add(a, Variable()), ShapeError);
  CHECK_THROWS_AS(
      add(Variable(Tensor::zeros({2}, DType::i32)), Variable(Tensor::zeros({2}, DType::i32))),
      ShapeError);
}

TEST_CASE("add: saves nothing") {
  const Variable x(Tensor::full({1 << 17}, 1, DType::f64), true);
  const size_t before = memory_stats().in_use;
  const Variable y = add(add(x, x), x);
  CHECK(memory_stats().in_use - before == size_t{1} << 20);
}
