#include "longhand/nn/short_conv.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/layouts.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::nn;
using namespace longhand::test;

TEST_CASE("short_conv: the SiLU of a depthwise convolution, centred unless causal") {
  const Tensor x = test::random({2, 7, 3});
  for (const bool causal : {false, true}) {
    const ShortConv conv(root(DType::f64, 1), 3, 4, causal);
    CHECK(conv.named_parameters().size() == 1);
    CHECK(conv.weight.shape() == Shape{3, 4});
    const Tensor y = conv.forward(Variable(x), {}).value(), w = conv.weight.value();
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t t = 0; t < 7; ++t)
        for (int64_t c = 0; c < 3; ++c) {
          double sum = 0;
          for (int64_t j = 0; j < 4; ++j) {
            const int64_t from = t + j - (causal ? 3 : 2);
            if (0 <= from && from < 7) sum += w.at({c, j}) * x.at({b, from, c});
          }
          CHECK(y.at({b, t, c}) == Approx(sum / (1 + std::exp(-sum))).margin(1e-14));
        }
  }
}

TEST_CASE("short_conv: token by token gives the rows of the whole sequence") {
  const int64_t width = GENERATE(1, 2, 4, 9);
  CAPTURE(width);
  const ShortConv conv(root(DType::f64, 1), 5, width, true);
  const Tensor x = test::random({2, 12, 5});
  const Tensor whole = conv.forward(Variable(x), {}).value();
  for (const Layout layout : all_layouts()) {
    if (repeats_elements(layout)) continue;
    ConvState state;
    CHECK(state.bytes() == 0);
    for (int64_t t = 0; t < 12; ++t) {
      const Tensor token = with_layout(x.select(1, t), layout);
      CHECK(close(conv.step(token, state), whole.select(1, t), 1e-14));
    }
    CHECK(state.bytes() == 2 * (width - 1) * 5 * 8);
  }
}

TEST_CASE("short_conv: errors") {
  const ShortConv conv(root(DType::f64, 1), 5, 4, true);
  ConvState state;
  CHECK_THROWS_AS(conv.step(test::random({2, 4}), state), ShapeError);
  CHECK_THROWS_AS(conv.step(test::random({2, 5}, DType::f32), state), ShapeError);
  conv.step(test::random({2, 5}), state);
  CHECK_THROWS_WITH(conv.step(test::random({3, 5}), state), Catch::Contains("[3, 5]"));
}
