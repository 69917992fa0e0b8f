// Long sums in f32: every operation that adds many numbers, against the same in f64 on the same
// values. Equal terms are the worst case, since roundings then all go the same way.
#include <cstdlib>
#include <iostream>
#include <set>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

constexpr int64_t many = int64_t{1} << 20;
constexpr double limit = 1e-5;

// The value and the gradients for a cotangent of one number throughout.
std::vector<Tensor> outcome(const Op& op, const std::vector<Tensor>& inputs) {
  Variables leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input, true);
  const Variable out = op(leaves);
  backward(out, Tensor::full(out.shape(), 0.3f, out.dtype()));
  std::vector<Tensor> all{out.value()};
  for (const Variable& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

// max |a - b| / max |b|
double relative_error(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = std::abs(x[i] - y[i]);
    if (!(error <= worst)) worst = error;
    largest = std::max(largest, std::abs(y[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

// Inputs of these shapes, of one number each, or in [0, 1).
std::vector<Tensor> inputs(const std::vector<Shape>& shapes, bool equal) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < shapes.size(); ++i)
    all.push_back(equal ? Tensor::full(shapes[i], 0.1f + 0.3f * static_cast<float>(i), DType::f32)
                        : random(shapes[i], DType::f32, 0, 1, i + 1));
  return all;
}

// `cancels`: the output (0 the value, 1 … the gradients) that is a difference of equal numbers
// where all terms are equal.
void check_precision(const std::string& name, const Op& op, const std::vector<Shape>& shapes,
                     const std::set<size_t>& cancel = {}) {
  for (const bool equal : {true, false}) {
    const std::vector<Tensor> narrow = inputs(shapes, equal);
    std::vector<Tensor> wide;
    for (const Tensor& t : narrow) wide.push_back(t.to(DType::f64));
    const auto found = outcome(op, narrow), expected = outcome(op, wide);
    for (size_t i = 0; i < found.size(); ++i) {
      if (cancel.count(i) && equal) continue;
      const double error = relative_error(found[i], expected[i]);
      INFO(name << (equal ? ", equal terms: " : ", random terms: ")
                << (i ? "gradient of input " + std::to_string(i - 1) : "value"));
      CHECK(error <= limit);
      if (std::getenv("LONGHAND_FIGURES"))
        std::cout << name << (equal ? " | equal" : " | random") << " | " << i << " | " << error
                  << "\n";
    }
  }
}

}  // namespace

TEST_CASE("precision: gradients of linear's parameters over 2^20 rows") {
  check_precision("linear", [](const Variables& in) { return linear(in[0], in[1], in[2]); },
                  {{many, 8}, {8, 8}, {8}});
  check_precision("linear of many columns",
                  [](const Variables& in) { return linear(in[0], in[1], in[2]); },
                  {{many / 8, 96}, {80, 96}, {80}});
  check_precision("linear with a norm",
                  [](const Variables& in) {
                    return linear(
                        in[0], in[1], {},
                        {.norm = NormOptions{.weight = in[2], .bias = in[3], .centred = false}});
                  },
                  {{many, 8}, {8, 8}, {8}, {8}}, {1});
}

TEST_CASE("precision: gradients of a norm's parameters over 2^20 rows") {
  for (const int64_t width : {1, 8, 64})
    check_precision("rms_norm", [](const Variables& in) { return rms_norm(in[0], in[1]); },
                    {{many * 8 / std::max<int64_t>(8, width), width}, {width}}, {1});
  check_precision("layer_norm", [](const Variables& in) { return layer_norm(in[0], in[1], in[2]); },
                  {{many, 7}, {7}, {7}}, {1, 2});
}

TEST_CASE("precision: gradients of a frequent token") {
  Tensor tokens = Tensor::full({many}, 2, DType::i32);
  for (int64_t i = 0; i < many; i += 1000) tokens.data<int32_t>()[i] = 1;
  check_precision("embedding", [&](const Variables& in) { return embedding(in[0], tokens); },
                  {{4, 3}});
  check_precision("gather", [&](const Variables& in) { return gather(in[0], 0, tokens); }, {{4}});
}

TEST_CASE("precision: sums over 2^20 elements and rows") {
  check_precision("sum of all", [](const Variables& in) { return sum(in[0]); }, {{many}});
  for (const int64_t width : {1, 3, 64})
    check_precision("mean over rows", [](const Variables& in) { return mean(in[0], {0}); },
                    {{many / width * 3, width}});
  check_precision("sum over a middle axis", [](const Variables& in) { return sum(in[0], {1}); },
                  {{2, many, 3}});
  check_precision("cumsum", [](const Variables& in) { return cumsum(in[0], 0); }, {{many, 2}});
  check_precision("broadcast",
                  [](const Variables& in) {
                    return broadcast_to(in[0], {many, 5});
                  },
                  {{5}});
}

TEST_CASE("precision: rows of 2^20 elements") {
  check_precision("softmax", [](const Variables& in) { return softmax(in[0]) * in[1]; },
                  {{many}, {many}}, {1});
  check_precision("log_softmax", [](const Variables& in) { return log_softmax(in[0]) * in[1]; },
                  {{many}, {many}}, {1});
  check_precision("rms_norm of a long row", [](const Variables& in) { return rms_norm(in[0], {}); },
                  {{many}}, {1});
  check_precision("cross_entropy",
                  [](const Variables& in) {
                    return cross_entropy(in[0], Tensor::full({1}, 7, DType::i32),
                                         {.label_smoothing = 0.1});
                  },
                  {{1, many}});
  check_precision(
      "cross_entropy of many rows",
      [](const Variables& in) { return cross_entropy(in[0], Tensor::full({many}, 1, DType::i32)); },
      {{many, 3}});
}

TEST_CASE("precision: long inner products") {
  check_precision("matmul", [](const Variables& in) { return matmul(in[0], in[1]); },
                  {{3, many}, {many, 2}});
  check_precision("matmul, transposed",
                  [](const Variables& in) { return matmul(transpose(in[0], 0, 1), in[1]); },
                  {{many / 4, 70}, {many / 4, 40}});
  check_precision("depthwise_conv1d",
                  [](const Variables& in) { return depthwise_conv1d(in[0], in[1]); },
                  {{2, many / 2, 3}, {3, 5}});
}
