#include "longhand/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>

#include "longhand/core/layouts.h"
#include "longhand/core/random.h"

namespace longhand {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Infinities fail, like NaN: inf <= relative * inf would let them pass.
bool agree(double a, double b, const GradcheckOptions& options) {
  return std::isfinite(a) && std::isfinite(b) &&
         std::abs(a - b) <=
             options.absolute + options.relative * std::max(std::abs(a), std::abs(b));
}

// The same values with the axes reversed in memory and a NaN before each element.
Tensor scattered_copy(const Tensor& t) {
  std::vector<int> reversed(t.rank());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return with_layout(t.permute(reversed), Layout::stride_2).permute(reversed);
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

namespace {

using Gradients = std::vector<std::vector<double>>;  // of each input, row-major

// The steps of gradcheck(), which share f, its inputs and the report.
class Gradcheck {
 public:
  Gradcheck(const std::function<Variable(const Variables&)>& f, const std::vector<Tensor>& inputs,
            const GradcheckOptions& options)
      : f_(f), inputs_(inputs), options_(options) {
    for (const Tensor& input : inputs) {
      leaves_.emplace_back(input, true);
      copies_.push_back(with_layout(input, Layout::row_major));
    }
  }

  GradcheckReport run() {
    const EnableGrad enable;
    poison_free_memory(inputs_);
    const Variable out = f_(leaves_);
    check<ShapeError>(out.dtype() == DType::f64, "gradcheck: expected a result of f64, got ",
                      out.dtype());
    Tensor cotangent = Tensor::empty(out.shape(), DType::f64);
    fill_normal(cotangent, generator_.fork("cotangent"));
    const std::vector<double> c = cotangent.to_vector<double>();
    const Gradients analytic = analytic_gradients(out, cotangent);
    check_row_major(out.value());
    compare(analytic, c);
    report_.ok = report_.ok && report_.differing == 0;
    return report_;
  }

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    report_.ok = false;
    if (report_.problem.empty()) report_.problem = concat_message(parts...);
  }

  // The gradients accumulated in the leaves.
  Gradients accumulated() {
    Gradients result;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& grad = leaves_[i].grad();
      const bool fits = !grad.defined() ||
                        (grad.shape() == inputs_[i].shape() && grad.dtype() == inputs_[i].dtype());
      if (!fits)
        problem("expected a gradient ", inputs_[i].shape(), " of f64 for input ", i, ", got ",
                grad.shape(), " of ", grad.dtype());
      result.push_back(grad.defined() && fits ? grad.to_vector<double>()
                                              : std::vector<double>(inputs_[i].numel()));
    }
    return result;
  }

  // Runs two backward passes, the second with other strides of the cotangent; neither may write to
  // the inputs or the cotangents.
  Gradients analytic_gradients(const Variable& out, const Tensor& cotangent) {
    const Tensor scattered = scattered_copy(cotangent);
    const std::vector<double> c = cotangent.to_vector<double>();
    poison_free_memory(inputs_);
    if (out.requires_grad()) backward(out, cotangent);
    Gradients analytic = accumulated();
    if (out.requires_grad()) backward(f_(leaves_), scattered);
    const Gradients doubled = accumulated();
    for (size_t i = 0; i < inputs_.size(); ++i)
      for (size_t e = 0; e < analytic[i].size(); ++e)
        if (!agree(2 * analytic[i][e], doubled[i][e], options_))
          problem("the gradient of input ", i, " element ", e, " is ", analytic[i][e],
                  " after one backward pass and ", doubled[i][e],
                  " after a second one with a cotangent of other strides; expected twice the "
                  "first");
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (!identical(inputs_[i], copies_[i])) problem("input ", i, " was written to");
    if (cotangent.to_vector<double>() != c || scattered.to_vector<double>() != c)
      problem("grad_out was written to");
    return analytic;
  }

  // Evaluates f at the row-major copies.
  Tensor evaluate() const {
    const NoGrad no_grad;
    Variables at;
    for (const Tensor& copy : copies_) at.emplace_back(copy);
    return f_(at).value();
  }

  void check_row_major(const Tensor& out) {
    const Tensor again = evaluate();
    check<ShapeError>(again.shape() == out.shape(), "gradcheck: expected the result ", out.shape(),
                      " again, got ", again.shape());
    const std::vector<double> strided = out.to_vector<double>();
    const std::vector<double> row_major = again.to_vector<double>();
    for (size_t k = 0; k < strided.size(); ++k)
      if (!agree(strided[k], row_major[k], options_))
        problem("element ", k, " of the result is ", strided[k], ", but ", row_major[k],
                " for row-major copies of the inputs");
  }

  // The central difference of <c, f> with respect to the element x of a copy.
  double numeric_gradient(double& x, const std::vector<double>& c) const {
    const double middle = x, high = middle + options_.step, low = middle - options_.step;
    x = high;
    const std::vector<double> above = evaluate().to_vector<double>();
    x = low;
    const std::vector<double> below = evaluate().to_vector<double>();
    x = middle;
    check<ShapeError>(above.size() == c.size() && below.size() == c.size(),
                      "gradcheck: expected a result of ", c.size(), " elements again, got ",
                      above.size(), " and ", below.size());
    double difference = 0;
    for (size_t k = 0; k < c.size(); ++k) difference += c[k] * (above[k] - below[k]);
    return difference / (high - low);
  }

  void compare(const Gradients& analytic, const std::vector<double>& c) {
    double worst = -1;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      double* const x = copies_[i].data<double>();
      for (const int64_t e : elements_to_try(inputs_[i].numel(), options_, generator_.fork(i))) {
        const double a = analytic[i][e], numeric = numeric_gradient(x[e], c);
        ++report_.checked;
        if (!agree(a, numeric, options_)) ++report_.differing;
        const double allowed =
            options_.absolute + options_.relative * std::max(std::abs(a), std::abs(numeric));
        const double error = std::abs(a - numeric);
        const double badness =
            std::isfinite(error) ? error / allowed : std::numeric_limits<double>::infinity();
        if (badness <= worst) continue;
        worst = badness;
        report_.input = static_cast<int>(i);
        report_.element = e;
        report_.analytic = a;
        report_.numeric = numeric;
      }
    }
  }

  const std::function<Variable(const Variables&)>& f_;
  const std::vector<Tensor>& inputs_;
  const GradcheckOptions& options_;
  const Generator generator_{options_.seed};
  Variables leaves_;
  std::vector<Tensor> copies_;  // of the inputs, row-major
  GradcheckReport report_;
};

}  // namespace

GradcheckReport gradcheck(const std::function<Variable(const Variables&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check<ShapeError>(inputs[i].defined() && inputs[i].dtype() == DType::f64,
                      "gradcheck: expected f64 for input ", i, ", got ",
                      inputs[i].defined() ? name_of(inputs[i].dtype()) : "an undefined tensor");
  return Gradcheck(f, inputs, options).run();
}

}  // namespace longhand
