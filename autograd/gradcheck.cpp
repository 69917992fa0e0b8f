#include "longhand/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>

#include "longhand/core/random.h"

namespace longhand {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Infinities fail as NaN does: inf <= relative * inf would let them pass.
bool agree(double a, double b, const GradcheckOptions& options) {
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <=
             options.absolute + options.relative * std::max(std::abs(a), std::abs(b));
}

Tensor row_major_copy(const Tensor& t) {
  Tensor copy = Tensor::empty(t.shape(), t.dtype());
  copy_into(copy, t);
  return copy;
}

// The same values with the axes reversed in memory and a NaN after each element.
Tensor scattered_copy(const Tensor& t) {
  const int rank = t.rank();
  if (rank == 0) return row_major_copy(t);
  Shape reversed;
  std::vector<int> order;
  for (int i = rank - 1; i >= 0; --i) {
    reversed.push_back(t.size(i));
    order.push_back(i);
  }
  reversed[0] *= 2;
  Tensor copy =
      Tensor::full(reversed, nan, t.dtype()).permute(order).slice(-1, 0, 2 * t.size(-1), 2);
  copy_into(copy, t);
  return copy;
}

// Fills the blocks that the pool returns next with NaN, to detect reads of uninitialised memory.
void poison_free_memory(const std::vector<Tensor>& sizes) {
  std::vector<Tensor> blocks;
  for (const Tensor& t : sizes) blocks.push_back(Tensor::full(t.shape(), nan, t.dtype()));
}

std::vector<int64_t> elements_to_try(int64_t n, const GradcheckOptions& options,
                                     const Generator& generator) {
  std::vector<int64_t> elements(n);
  std::iota(elements.begin(), elements.end(), 0);
  if (options.max_elements > 0 && n > options.max_elements) {
    RandomStream(generator).shuffle(elements);
    elements.resize(options.max_elements);
  }
  return elements;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) {
  if (report.input >= 0)
    out << "worst at input " << report.input << " element " << report.element << ": analytic "
        << report.analytic << " numeric " << report.numeric << " (" << report.differing << " of "
        << report.checked << " elements differ)";
  else
    out << "no elements to check";
  if (!report.problem.empty()) out << "; " << report.problem;
  return out;
}

GradcheckReport gradcheck(const std::function<Variable(const Variables&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check<ShapeError>(inputs[i].defined() && inputs[i].dtype() == DType::f64,
                      "gradcheck: expected f64 for input ", i, ", got ",
                      inputs[i].defined() ? name_of(inputs[i].dtype()) : "an undefined tensor");
  GradcheckReport report;
  const auto problem = [&](const auto&... parts) {
    report.ok = false;
    if (report.problem.empty()) report.problem = concat_message(parts...);
  };

  // Analytic gradients, twice.
  const Generator generator(options.seed);
  Variables leaves;
  std::vector<Tensor> copies;
  for (const Tensor& input : inputs) {
    leaves.emplace_back(input, true);
    copies.push_back(row_major_copy(input));
  }
  const EnableGrad enable;
  poison_free_memory(inputs);
  const Variable out = f(leaves);
  check<ShapeError>(out.dtype() == DType::f64, "gradcheck: expected a result of f64, got ",
                    out.dtype());
  Tensor cotangent = Tensor::empty(out.shape(), DType::f64);
  fill_normal(cotangent, generator.fork("cotangent"));
  const Tensor scattered = scattered_copy(cotangent);
  const std::vector<double> c = cotangent.to_vector<double>();

  const auto gradients = [&] {
    std::vector<std::vector<double>> result;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& grad = leaves[i].grad();
      const bool fits = !grad.defined() ||
                        (grad.shape() == inputs[i].shape() && grad.dtype() == inputs[i].dtype());
      if (!fits)
        problem("expected a gradient ", inputs[i].shape(), " of f64 for input ", i, ", got ",
                grad.shape(), " of ", grad.dtype());
      result.push_back(grad.defined() && fits ? grad.to_vector<double>()
                                              : std::vector<double>(inputs[i].numel()));
    }
    return result;
  };
  poison_free_memory(inputs);
  if (out.requires_grad()) backward(out, cotangent);
  const auto analytic = gradients();
  if (out.requires_grad()) backward(f(leaves), scattered);
  const auto doubled = gradients();
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t e = 0; e < analytic[i].size(); ++e)
      if (!agree(2 * analytic[i][e], doubled[i][e], options))
        problem("the gradient of input ", i, " element ", e, " is ", analytic[i][e],
                " after one backward pass and ", doubled[i][e],
                " after a second one with a cotangent of other strides; expected twice the first");
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!identical(inputs[i], copies[i])) problem("input ", i, " was written to");
  if (cotangent.to_vector<double>() != c || scattered.to_vector<double>() != c)
    problem("grad_out was written to");

  // Numeric ones, at row-major copies.
  const auto evaluate = [&] {
    const NoGrad no_grad;
    Variables at;
    for (const Tensor& copy : copies) at.emplace_back(copy);
    const Variable y = f(at);
    check<ShapeError>(y.shape() == out.shape(), "gradcheck: expected the result ", out.shape(),
                      " again, got ", y.shape());
    return y.value().to_vector<double>();
  };
  const std::vector<double> strided = out.value().to_vector<double>(), row_major = evaluate();
  for (size_t k = 0; k < strided.size(); ++k)
    if (!agree(strided[k], row_major[k], options))
      problem("element ", k, " of the result is ", strided[k], ", but ", row_major[k],
              " for row-major copies of the inputs");

  double worst = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    double* const x = copies[i].data<double>();
    for (int64_t e : elements_to_try(inputs[i].numel(), options, generator.fork(i))) {
      const double middle = x[e], high = middle + options.step, low = middle - options.step;
      x[e] = high;
      const std::vector<double> above = evaluate();
      x[e] = low;
      const std::vector<double> below = evaluate();
      x[e] = middle;
      double numeric = 0;
      for (size_t k = 0; k < c.size(); ++k) numeric += c[k] * (above[k] - below[k]);
      numeric /= high - low;

      const double a = analytic[i][e], error = std::abs(a - numeric);
      const bool right = agree(a, numeric, options);
      ++report.checked;
      if (!right) ++report.differing;
      const double badness =
          std::isfinite(error)
              ? error /
                    (options.absolute + options.relative * std::max(std::abs(a), std::abs(numeric)))
              : std::numeric_limits<double>::infinity();
      if (badness > worst) {
        worst = badness;
        report.input = static_cast<int>(i);
        report.element = e;
        report.analytic = a;
        report.numeric = numeric;
      }
    }
  }
  report.ok = report.ok && report.differing == 0;
  return report;
}

}  // namespace longhand
