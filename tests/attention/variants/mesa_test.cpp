// mesa and the regressions that it solves; the suite of conformance/ tests what holds for every variant.
#include "longhand/attention/ops/ridge_scan.h"
#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// k of length 1, beta in 0 … 1, g < 0 and lambda > 0 of numbers of any size.
Variable ridge(const Variables& in, const attention::RidgeOptions& options) {
  const Variable k = in[1] / sqrt(sum(square(in[1]), {3}, true));
  return attention::ridge_scan({in[0], k, in[2], sigmoid(in[3]), -square(in[4])}, exp(in[5]),
                               options);
}
std::vector<Tensor> operands(int64_t N, DType dtype = DType::f64) {
  return {normal({2, N, 2, 4}, 1, dtype),   normal({2, N, 2, 4}, 2, dtype),
          normal({2, N, 2, 3}, 3, dtype),   normal({2, N, 2}, 4, dtype),
          normal({2, N, 2}, 5, dtype, 0.1), normal({2, 4}, 6, dtype)};
}

}  // namespace

TEST_CASE("ridge_scan: gradients with respect to every operand") {
  const bool exact = GENERATE(false, true);
  const auto report =
      gradcheck([&](const Variables& in) { return ridge(in, {.exact = exact}); }, operands(7));
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("ridge_scan: conjugate gradients and inverses agree over many blocks") {
  const auto outcome = [](bool exact) {
    Variables in;
    for (const Tensor& x : operands(150)) in.emplace_back(x, true);
    const Variable out = ridge(in, {.exact = exact});
    backward(out, normal(out.shape(), 7));
    std::vector<Tensor> all{out.value()};
    for (const Variable& x : in) all.push_back(x.grad());
    return all;
  };
  const auto found = outcome(false), expected = outcome(true);
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(i);
    CHECK(near(found[i], expected[i], 1e-11));
  }
}

TEST_CASE("conjugate_gradients: every row has a matrix of its own, and ends where it is solved") {
  // Diagonal matrices: D steps solve each, 0 stays 0, and further steps change no bit.
  Tensor y = normal({5, 4}, 1);
  y.slice(0, 3, 4).fill(0);
  const Tensor diagonal = exp(Variable(normal({5, 4}, 2))).value();
  const auto solved = [&](int64_t steps) {
    return attention::conjugate_gradients(
        [&](const Tensor& p) { return (Variable(p) * Variable(diagonal)).value(); }, y, steps);
  };
  const Tensor x = solved(20);
  CHECK(near(x, (Variable(y) / Variable(diagonal)).value(), 1e-14));
  CHECK(identical(x, solved(200)));
  CHECK(all_zero(x.select(0, 3)));
  CHECK(near(solved(4), x, 1e-12));
  CHECK_FALSE(near(solved(2), x, 1e-6));
  y.data<double>()[0] = NAN;
  CHECK(std::isnan(solved(4).at({0, 0})));
}

TEST_CASE("mesa: a decoder keeps two matrices a head") {
  const auto variant =
      make_variant("mesa", {.heads = 3, .dim = 8, .max_length = 100, .causal = true});
  CHECK(variant->state_bytes(1) == 2 * 3 * 8 * 8 * 8);
  CHECK(variant->state_bytes(100000) == variant->state_bytes(1));
}
