#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

const Op product = [](const Variables& in) { return matmul(in[0], in[1], 0.5); };

// The heads of (B, N, H, D) memory, as attention uses them.
Variable heads(const Variable& x) { return transpose(x, 1, 2); }

}  // namespace

TEST_CASE("matmul: values") {
  const Variable a(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const Variable b(Tensor::from<double>({1, 0, 0, 1, 2, -1}, {3, 2}));
  CHECK(matmul(a, b, 10).value().to_vector<double>() == std::vector<double>{70, -10, 160, -10});
  CHECK(matmul(Variable(Tensor::zeros({2, 0}, DType::f64)),
               Variable(Tensor::zeros({0, 3}, DType::f64)))
            .value()
            .to_vector<double>() == std::vector<double>(6, 0.0));
}

TEST_CASE("matmul: gradients") {
  check_op(product, {{{1, 1}, {1, 1}},
                     {{2, 3}, {3, 5}},
                     {{1, 3}, {3, 1}},
                     {{3, 1}, {1, 4}},
                     {{0, 3}, {3, 2}},
                     {{2, 0}, {0, 3}},
                     {{2, 3}, {3, 0}},
                     {{2, 2, 3}, {2, 3, 4}},
                     {{2, 3, 2, 3}, {2, 3, 3, 1}},
                     {{0, 2, 3}, {0, 3, 4}}});
}

TEST_CASE("matmul: gradients of broadcast batch axes are summed") {
  check_op(product, {{{4, 2, 3}, {3, 2}},
                     {{2, 3, 2, 3}, {3, 2}},
                     {{2, 3}, {4, 3, 2}},
                     {{2, 3}, {2, 3, 3, 2}},
                     {{2, 1, 2, 3}, {1, 3, 3, 2}},
                     {{1, 3, 2, 3}, {2, 1, 3, 2}},
                     {{3, 2, 3}, {2, 1, 3, 2}},
                     {{1, 2, 3}, {1, 3, 2}},
                     {{1, 2, 3}, {0, 3, 2}}});
  // More than one block of rows, with the batch as one product.
  check_op(product, {{{3, 50, 4}, {4, 2}}});
}

TEST_CASE("matmul: heads are multiplied without copies and keep their memory order") {
  const auto scores = [](const Variables& in) {
    return matmul(heads(in[0]), transpose(heads(in[1]), 2, 3));
  };
  check_op(scores, {{{2, 3, 2, 4}, {2, 5, 2, 4}}});
  check_op([&](const Variables& in) { return matmul(scores(in), heads(in[1])); },
           {{{2, 3, 2, 4}, {2, 5, 2, 4}}});
  // A projection of the sequence, as in Linformer.
  check_op([](const Variables& in) { return matmul(in[0], heads(in[1])); },
           {{{3, 5}, {2, 5, 2, 4}}, {{2, 3, 5}, {2, 5, 2, 4}}});

  const Variable q(random({2, 5, 3, 4}), true), k(random({2, 7, 3, 4}), true);
  const Variable p = matmul(heads(q), transpose(heads(k), 2, 3));
  CHECK(p.shape() == Shape{2, 3, 5, 7});
  CHECK(p.value().strides() == Strides{105, 7, 21, 1});
  const Variable out = matmul(p, heads(k));
  CHECK(transpose(out, 1, 2).value().is_contiguous());
  backward(out, random({2, 3, 5, 4}));
  CHECK(q.grad().is_contiguous());
}

TEST_CASE("matmul: gradients are added to existing ones") {
  check_op([](const Variables& in) { return matmul(in[0], in[0]); }, {{{3, 3}}, {{2, 3, 3}}});
  check_op(
      [](const Variables& in) {
        return matmul(in[0], in[1]) + 2 * transpose(matmul(transpose(in[1], 0, 1), in[0]), 0, 1);
      },
      {{{3, 3}, {3, 3}}});
}

TEST_CASE("matmul: threads") {
  check_threads(product, {{3000, 64}, {64, 64}});
  check_threads(product, {{5, 300, 64}, {5, 64, 200}});
  check_threads(product, {{5, 300, 64}, {64, 200}});
  check_threads(product, {{64, 500}, {6, 500, 100}});
}

TEST_CASE("matmul: errors") {
  const Variable a(random({2, 3}));
  CHECK_THROWS_WITH(matmul(a, a), Catch::Contains("matmul") && Catch::Contains("[2, 3]"));
  CHECK_THROWS_AS(matmul(a, Variable(random({3}))), ShapeError);
  CHECK_THROWS_AS(matmul(Variable(random({2, 2, 3})), Variable(random({3, 3, 2}))), ShapeError);
  CHECK_THROWS_WITH(matmul(a, Variable(random({3, 2}, DType::f32))), Catch::Contains("f32"));
}
