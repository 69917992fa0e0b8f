#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

const Op conv = [](const Variables& in) { return depthwise_conv1d(in[0], in[1]); };

Tensor by_definition(const Tensor& x, const Tensor& w) {
  Tensor y = Tensor::zeros(x.shape(), DType::f64);
  const int64_t T = x.size(1), width = w.size(1), g = x.size(2) / w.size(0);
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t t = 0; t < T; ++t)
      for (int64_t c = 0; c < x.size(2); ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = t + j - width / 2;
          if (0 <= from && from < T) sum += w.at({c / g, j}) * x.at({b, from, c});
        }
        y.select(0, b).select(0, t).select(0, c).fill(sum);
      }
  return y;
}

}  // namespace

TEST_CASE("depthwise_conv1d: values") {
  const Variable x(Tensor::from<double>({1, 10, 2, 20, 3, 30}, {1, 3, 2}));
  const Variable w(Tensor::from<double>({1, 2, 3, 0, 0, 1}, {2, 3}));
  CHECK(depthwise_conv1d(x, w).value().to_vector<double>() ==
        std::vector<double>{8, 20, 14, 30, 8, 0});
  for (int64_t T : {1, 5, 40})
    for (int64_t width : {1, 3, 9})
      for (int64_t shared : {1, 2, 70}) {
        const Tensor a = random({2, T, 70}), f = random({70 / shared, width});
        INFO("T " << T << " width " << width << " shared " << shared);
        CHECK(
            close(depthwise_conv1d(Variable(a), Variable(f)).value(), by_definition(a, f), 1e-13));
      }
}

TEST_CASE("depthwise_conv1d: gradients") {
  check_op(conv, {{{1, 1, 1}, {1, 1}},
                  {{1, 1, 1}, {1, 5}},
                  {{2, 5, 3}, {3, 3}},
                  {{2, 5, 4}, {2, 3}},
                  {{2, 3, 4}, {1, 9}},
                  {{1, 9, 2}, {2, 5}},
                  {{0, 3, 2}, {2, 3}},
                  {{2, 0, 2}, {2, 3}},
                  {{2, 3, 0}, {1, 3}},
                  {{2, 3, 0}, {0, 3}}});
  check_op(
      [](const Variables& in) {
        return conv({transpose(in[0], 0, 1), in[1]});
      },
      {{{3, 2, 4}, {2, 3}}});
  check_op([](const Variables& in) { return conv(in) + square(transpose(conv(in), 1, 2)); },
           {{{2, 3, 3}, {3, 3}}});
  // A slice of a wider tensor is read in place.
  check_op(
      [](const Variables& in) {
        return conv({slice(in[0], 2, 2, 4), in[1]});
      },
      {{{2, 5, 6}, {1, 3}}});
}

TEST_CASE("depthwise_conv1d: sizes that are split into tasks") {
  check_threads(conv, {{3, 1500, 70}, {35, 35}});
  // The gradient of the filters is a sum over many chunks of time.
  const Tensor longer = random({1, 90000, 1}, DType::f32, 0, 1);
  const Variable filter(Tensor::full({1, 13}, 1), true);
  backward(depthwise_conv1d(Variable(longer), filter), Tensor::full({1, 90000, 1}, 1));
  const double total = sum(Variable(longer)).value().item();
  CHECK(filter.grad().at({0, 6}) == Approx(total).epsilon(1e-6));
  CHECK(filter.grad().at({0, 0}) == Approx(total).margin(7));
}

TEST_CASE("depthwise_conv1d: errors") {
  const Variable x(random({2, 5, 4}));
  CHECK_THROWS_WITH(conv({x, Variable(random({4, 2}))}),
                    Catch::Contains("depthwise_conv1d") && Catch::Contains("[4, 2]"));
  CHECK_THROWS_AS(conv({x, Variable(random({3, 3}))}), ShapeError);
  CHECK_THROWS_AS(conv({x, Variable(random({4}))}), ShapeError);
  CHECK_THROWS_AS(conv({Variable(random({5, 4})), Variable(random({4, 3}))}), ShapeError);
  CHECK_THROWS_AS(conv({x, Variable(random({4, 3}, DType::f32))}), ShapeError);
}
