#include "longhand/train/step/gradients.h"

#include <cmath>

#include "longhand/core/random.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using test::normal;

/// A contribution that shows in which order it was added.
Contribution number(int64_t i) {
  return {{normal({2, 3}, DType::f32, i), Tensor()}, {1 / static_cast<double>(3 + i), i}};
}

Contribution plus(Contribution a, Contribution b) {
  merge(a, std::move(b));
  return a;
}

}  // namespace

TEST_CASE("the global norm is that of all numbers together") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const Gradients gradients = {normal({7, 9}, dtype, 1), Tensor(), normal({}, dtype, 2),
                               normal({0, 4}, dtype, 3), normal({70001}, dtype, 4)};
  double squares = 0;
  for (const Tensor& g : gradients)
    if (g)
      for (const double x : g.to_vector<double>()) squares += x * x;
  CHECK(std::abs(global_norm(gradients) - std::sqrt(squares)) <= 1e-10 * std::sqrt(squares));
  CHECK(global_norm({}) == 0);

  std::vector<double> norms;
  for (const int n : {1, 3}) {
    const WithThreads with(n);
    norms.push_back(global_norm(gradients));
  }
  CHECK(norms[0] == norms[1]);

  Tensor bad = normal({19}, dtype, 5);
  bad.slice(0, 17, 18).fill(NAN);
  CHECK(std::isnan(global_norm({bad})));
}

TEST_CASE("clipping scales gradients above the limit, and no others") {
  CHECK(clip_scale(2, 0) == 1);
  CHECK(clip_scale(2, 5) == 1);
  CHECK(clip_scale(2, 1) == 1 / (2 + 1e-6));
  CHECK(clip_scale(1, 1) == 1 / (1 + 1e-6));
  CHECK(clip_scale(0, 1) == 1);
}

TEST_CASE("contributions are added by a fixed tree") {
  const auto tree = [](int64_t n) {
    TreeSum sum;
    for (int64_t i = 1; i <= n; ++i) sum.add(number(i));
    return sum.finish();
  };
  const auto N = number;
  const std::vector<Contribution> expected = {
      N(1),
      plus(N(1), N(2)),
      plus(plus(N(1), N(2)), N(3)),
      plus(plus(N(1), N(2)), plus(N(3), N(4))),
      plus(plus(plus(N(1), N(2)), plus(N(3), N(4))), N(5)),
      plus(plus(plus(N(1), N(2)), plus(N(3), N(4))), plus(N(5), N(6))),
      plus(plus(plus(N(1), N(2)), plus(N(3), N(4))), plus(plus(N(5), N(6)), N(7))),
  };
  bool order_matters = false;
  for (size_t n = 1; n <= expected.size(); ++n) {
    INFO(n << " contributions");
    const Contribution found = tree(static_cast<int64_t>(n));
    CHECK(identical(found.gradients[0], expected[n - 1].gradients[0]));
    CHECK_FALSE(found.gradients[1].defined());
    CHECK(found.sums.loss == expected[n - 1].sums.loss);
    CHECK(found.sums.correct == static_cast<int64_t>(n * (n + 1) / 2));

    Contribution in_a_row = N(1);
    for (size_t i = 2; i <= n; ++i) merge(in_a_row, N(static_cast<int64_t>(i)));
    order_matters = order_matters || !identical(found.gradients[0], in_a_row.gradients[0]);
  }
  CHECK(order_matters);  // otherwise this test would detect nothing
  CHECK_THROWS_AS(TreeSum().finish(), Error);
}

TEST_CASE("adding neither writes into shared memory nor loses a gradient") {
  const Tensor shared = normal({4}, DType::f64, 1), before = shared.clone();
  Contribution a{{shared, shared, Tensor()}}, b{{normal({4}, DType::f64, 2), Tensor(), shared}};
  merge(a, std::move(b));
  CHECK(identical(shared, before));
  CHECK(identical(a.gradients[1], before));
  CHECK(identical(a.gradients[2], before));
  CHECK(a.gradients[0].at({3}) == before.at({3}) + normal({4}, DType::f64, 2).at({3}));
  CHECK_THROWS_AS(merge(a, Contribution{}), ShapeError);
}

TEST_CASE("taken gradients lie in memory like their parameters") {
  const Tensor value = normal({3, 4}, DType::f64, 1);
  Parameters parameters = {{"a", Variable(value, true)}, {"b", Variable(value, true)}};
  const Tensor seed = normal({4, 3}, DType::f64, 2).transpose(0, 1);
  backward(record("same", value.clone(), {parameters[0].second},
                  [](const Tensor& grad, std::span<GradSlot> in) { in[0].take(grad); }),
           seed);
  const Gradients gradients = take_gradients(parameters);
  REQUIRE(gradients.size() == 2);
  CHECK(gradients[0].is_contiguous());
  CHECK(gradients[0].to_vector<double>() == seed.to_vector<double>());
  CHECK_FALSE(gradients[1].defined());
  CHECK_FALSE(parameters[0].second.grad().defined());
}

}  // namespace longhand::train
