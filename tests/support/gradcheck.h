// One-line tests of operations: gradients for unusual shapes and layouts, f32 against f64, and
// identical bits with one and three threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "longhand/autograd/gradcheck.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

namespace longhand::test {

using Op = std::function<Variable(const Variables&)>;
/// The shapes of the inputs of an operation.
using Case = std::vector<Shape>;

/// Returns shapes for operations of one input of any shape: scalars, sizes of 0 and 1, odd sizes.
inline std::vector<Case> awkward_shapes() {
  return {{{}},     {{0}},    {{1}},    {{7}},       {{3, 0, 2}},
          {{1, 5}}, {{5, 1}}, {{3, 4}}, {{2, 3, 5}}, {{2, 1, 3, 2}}};
}
/// Returns awkward_shapes() without the scalar, for operations along an axis.
inline std::vector<Case> awkward_rows() {
  std::vector<Case> cases = awkward_shapes();
  cases.erase(cases.begin());
  return cases;
}

struct CheckOptions {
  double low = -2, high = 2;    // range of the random inputs
  bool expanded = true;         // also try inputs with stride 0, whose values repeat (ties)
  bool f32 = true;              // compare f32 with f64: the op must work for both
  double f32_tolerance = 1e-5;  // |a - b| <= tolerance * (1 + |b|), for values and gradients
  GradcheckOptions gradcheck = {};
  uint64_t seed = 1;
};

inline Tensor random(const Shape& shape, DType dtype = DType::f64, double low = -2, double high = 2,
                     uint64_t seed = 1) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_uniform(t, Generator(seed), low, high);
  return t;
}

/// Returns whether |a - b| <= tolerance (1 + |b|) for all elements; false if any is NaN.
inline bool close(const Tensor& a, const Tensor& b, double tolerance) {
  if (!(a.shape() == b.shape())) return false;
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(y[i])))) return false;
  return true;
}

/// Returns the value of op and the gradients of all inputs (zeros if undefined) for a cotangent
/// that depends on the seed only.
inline std::vector<Tensor> run(const Op& op, const std::vector<Tensor>& inputs, uint64_t seed = 1) {
  Variables leaves;
  for (const Tensor& input : inputs) leaves.emplace_back(input, true);
  const Variable out = op(leaves);
  Tensor cotangent = Tensor::empty(out.shape(), out.dtype());
  fill_normal(cotangent, Generator(seed).fork("cotangent"));
  if (out.requires_grad()) backward(out, cotangent);
  std::vector<Tensor> result{out.value()};
  for (const Variable& leaf : leaves)
    result.push_back(leaf.grad().defined() ? leaf.grad()
                                           : Tensor::zeros(leaf.shape(), leaf.dtype()));
  return result;
}

/// For every case: gradcheck in f64 with random inputs in every memory layout, and values and
/// gradients in f32 against f64.
inline void check_op(const Op& op, const std::vector<Case>& cases,
                     const CheckOptions& options = {}) {
  const auto layouts = all_layouts();
  const size_t rounds = layouts.size();
  for (const Case& shapes : cases) {
    // First all inputs in the same layout, then each in a different one.
    for (size_t round = 0; round < (shapes.size() == 1 ? rounds : 2 * rounds); ++round) {
      std::vector<Tensor> inputs, inputs_f32, rounded;
      std::ostringstream what;
      bool expanded = false;
      for (size_t i = 0; i < shapes.size(); ++i) {
        const Layout layout = layouts[(round < rounds ? round : round + 5 * i) % rounds];
        expanded = expanded || repeats_elements(layout);
        Tensor values = Tensor::empty(shapes[i], DType::f64);
        fill_uniform(values, Generator(options.seed).fork(i), options.low, options.high);
        inputs.push_back(with_layout(values, layout));
        inputs_f32.push_back(with_layout(values.to(DType::f32), layout));
        rounded.push_back(with_layout(values.to(DType::f32).to(DType::f64), layout));
        what << shapes[i] << " " << to_string(layout) << "; ";
      }
      if (expanded && !options.expanded) continue;
      INFO(what.str());
      const GradcheckReport report = gradcheck(op, inputs, options.gradcheck);
      INFO(report);
      CHECK(report.ok);
      if (!options.f32) continue;
      const auto narrow = run(op, inputs_f32), wide = run(op, rounded);
      for (size_t i = 0; i < narrow.size(); ++i) {
        INFO((i ? "f32 gradient of input " + std::to_string(i - 1) : "f32 value"));
        CHECK(narrow[i].dtype() == DType::f32);
        CHECK(close(narrow[i], wide[i], options.f32_tolerance));
      }
    }
  }
}

/// Checks that value and gradients of op have the same bits with one thread and with three, in f32,
/// for inputs of these shapes, which must be large enough to be split into tasks
/// (kernels::elements_per_task).
inline void check_threads(const Op& op, const Case& shapes, const CheckOptions& options = {}) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < shapes.size(); ++i)
    inputs.push_back(random(shapes[i], DType::f32, options.low, options.high, options.seed + i));
  const int before = threads();
  set_threads(1);
  const auto one = run(op, inputs);
  set_threads(3);
  const auto three = run(op, inputs);
  set_threads(before);
  for (size_t i = 0; i < one.size(); ++i) {
    INFO((i ? "gradient of input " + std::to_string(i - 1) : "value"));
    CHECK(identical(one[i], three[i]));
  }
}

}  // namespace longhand::test
