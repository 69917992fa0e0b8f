#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

const Op conv = [](const Variables& in) { return depthwise_conv1d(in[0], in[1]); };

Tensor by_definition(const Tensor& x, const Tensor& w, bool causal = false,
                     const std::vector<int32_t>& lengths = {}) {
  Tensor y = Tensor::zeros(x.shape(), DType::f64);
  const int64_t width = w.size(1), g = x.size(2) / w.size(0), h = causal ? width - 1 : width / 2;
  for (int64_t b = 0; b < x.size(0); ++b) {
    const int64_t T = lengths.empty() ? x.size(1) : lengths[static_cast<size_t>(b)];
    for (int64_t t = 0; t < T; ++t)
      for (int64_t c = 0; c < x.size(2); ++c) {
        double sum = 0;
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = t + j - h;
          if (0 <= from && from < T) sum += w.at({c / g, j}) * x.at({b, from, c});
        }
        y.select(0, b).select(0, t).select(0, c).fill(sum);
      }
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

TEST_CASE("depthwise_conv1d: causal filters, even widths and lengths") {
  const Variable x(Tensor::from<double>({1, 2, 3}, {1, 3, 1}));
  const Variable w(Tensor::from<double>({10, 1}, {1, 2}));
  CHECK(depthwise_conv1d(x, w, {.causal = true}).value().to_vector<double>() ==
        std::vector<double>{1, 12, 23});
  for (const bool causal : {false, true})
    for (int64_t width : {1, 2, 4, 9})
      for (int64_t shared : {1, 35}) {
        CAPTURE(causal, width, shared);
        const Tensor a = random({3, 20, 70}), f = random({70 / shared, width});
        const std::vector<int32_t> n{20, 7, 0};
        CHECK(close(depthwise_conv1d(Variable(a), Variable(f), {.causal = causal}).value(),
                    by_definition(a, f, causal), 1e-13));
        const Tensor lengths = Tensor::from<int32_t>(n, {3});
        CHECK(close(depthwise_conv1d(Variable(a), Variable(f), {causal, lengths}).value(),
                    by_definition(a, f, causal, n), 1e-13));
      }
  // Later steps change no bit of a causal result; nor does anything after the lengths.
  Tensor a = random({1, 90, 3}, DType::f32);
  const Variable f(random({3, 4}, DType::f32));
  const auto first = [&](const Tensor& lengths) {
    return depthwise_conv1d(Variable(a), f, {true, lengths}).value().slice(1, 0, 61).clone();
  };
  const Tensor before = first({});
  a.slice(1, 61, 90).fill(NAN);
  CHECK(identical(first({}), before));
  CHECK(identical(first(Tensor::full({1}, 61, DType::i32)), before));
}

TEST_CASE("depthwise_conv1d: the gradient of the filters is a sum over many chunks of time") {
  const Tensor longer = random({1, 90000, 1}, DType::f32, 0, 1);
  const Variable filter(Tensor::full({1, 13}, 1), true);
  backward(depthwise_conv1d(Variable(longer), filter), Tensor::full({1, 90000, 1}, 1));
  const double total = sum(Variable(longer)).value().item();
  CHECK(filter.grad().at({0, 6}) == Approx(total).epsilon(1e-6));
  CHECK(filter.grad().at({0, 0}) == Approx(total).margin(7));
}

TEST_CASE("depthwise_conv1d: errors") {
  const Variable x(random({2, 5, 4}));
  CHECK_THROWS_WITH(conv({x, Variable(random({4, 0}))}),
                    Catch::Contains("depthwise_conv1d") && Catch::Contains("[4, 0]"));
  CHECK_THROWS_WITH(
      depthwise_conv1d(x, Variable(random({4, 3})), {true, Tensor::zeros({3}, DType::i32)}),
      Catch::Contains("lengths") && Catch::Contains("[3]"));
  CHECK_THROWS_WITH(
      depthwise_conv1d(x, Variable(random({4, 3})), {true, Tensor::full({2}, 6, DType::i32)}),
      Catch::Contains("[0, 5]") && Catch::Contains("6"));
  CHECK_THROWS_AS(conv({x, Variable(random({3, 3}))}), ShapeError);
  CHECK_THROWS_AS(conv({x, Variable(random({4}))}), ShapeError);
  CHECK_THROWS_AS(conv({Variable(random({5, 4})), Variable(random({4, 3}))}), ShapeError);
}
