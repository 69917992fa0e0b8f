#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("rms_norm: values") {
  const Variable x(Tensor::from<double>({3, 4, 0, 0}, {2, 2}));
  const Variable w(Tensor::from<double>({10, 1}, {2}));
  const double r = 1 / std::sqrt(12.5 + 0.5);
  CHECK(close(rms_norm(x, w, 0.5).value(), Tensor::from<double>({30 * r, 4 * r, 0, 0}, {2, 2}),
              1e-15));
}

TEST_CASE("rms_norm: gradients") {
  const auto op = [](const Variables& in) { return rms_norm(in[0], in[1], 0.1); };
  check_op(op, {{{7}, {7}},
                {{0}, {0}},
                {{1}, {1}},
                {{5, 1}, {1}},
                {{3, 0}, {0}},
                {{0, 3}, {3}},
                {{1, 5}, {5}},
                {{3, 4}, {4}},
                {{2, 3, 5}, {5}}});
  check_op([](const Variables& in) { return rms_norm(in[0], {}, 0.1); }, {{{2, 3, 5}}});
  check_op([](const Variables& in) { return rms_norm(transpose(in[0], 1, 2), in[1], 0.1); },
           {{{2, 3, 4, 5}, {5}}});
  check_op([&](const Variables& in) { return op(in) + square(transpose(op(in), 0, 1)); },
           {{{4, 4}, {4}}});
  check_threads(op, {{3000, 65}, {65}});
}

TEST_CASE("rms_norm: errors") {
  CHECK_THROWS_WITH(rms_norm(Variable(random({2, 3})), Variable(random({2}))),
                    Catch::Contains("rms_norm"));
}
