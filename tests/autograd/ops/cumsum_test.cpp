#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("cumsum: values") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(cumsum(x, 1).value().to_vector<double>() == std::vector<double>{1, 3, 6, 4, 9, 15});
  CHECK(cumsum(x, -2).value().to_vector<double>() == std::vector<double>{1, 2, 3, 5, 7, 9});
  const Variable permuted(random({2, 4, 3, 70}).transpose(1, 2));
  CHECK(cumsum(permuted, 2).value().strides() == permuted.value().strides());
}

TEST_CASE("cumsum: gradients") {
  for (int axis : {0, 1, -1})
    check_op([&](const Variables& in) { return cumsum(in[0], axis); },
             {{{1, 5}}, {{5, 1}}, {{3, 4}}, {{2, 3, 5}}, {{3, 0, 2}}, {{2, 3, 1, 2}}});
  check_op([](const Variables& in) { return cumsum(in[0], 0); }, {{{0}}, {{1}}, {{7}}});
  check_op([](const Variables& in) { return cumsum(in[0], 1); }, {{{2, 3, 67}}});
  check_op([](const Variables& in) { return cumsum(in[0], 0) + 2 * cumsum(in[0], 1); }, {{{3, 4}}});
  check_op([](const Variables& in) { return square(transpose(cumsum(in[0], 0), 0, 1)); },
           {{{3, 4}}});
  check_threads([](const Variables& in) { return cumsum(in[0], 1); }, {{3, 301, 150}},
                {.f32_tolerance = 1e-4});
}

TEST_CASE("cumsum: f32 keeps its digits") {
  const Variable x(Tensor::full({100000}, 0.1), true);
  const Variable y = cumsum(x, 0);
  CHECK(y.value().at({99999}) == Approx(1e4).epsilon(1e-6));
}

TEST_CASE("cumsum: errors") { CHECK_THROWS_AS(cumsum(Variable(random({3})), 1), ShapeError); }
