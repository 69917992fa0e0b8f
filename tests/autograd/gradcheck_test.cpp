#include "longhand/autograd/gradcheck.h"

#include <limits>
#include <sstream>

#include "longhand/core/kernels/elementwise.h"
#include "tests/support/op_check.h"

using namespace longhand;
using longhand::test::random;

namespace {

// x² with a backward function given by the caller: df(dy, x, i) for row-major element i, accumulated
// with beta unless `forgets_beta`.
using Derivative = std::function<double(double dy, double x, int64_t i)>;
Variable square_with(const Variable& x, Derivative df, bool forgets_beta = false) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  kernels::elementwise<double>(
      out, [](double v) { return v * v; }, kernels::in<double>(x.value()));
  return record("square_with", out, {x},
                [x = x.value(), df, forgets_beta](const Tensor& dy, std::span<GradSlot> dx) {
                  const auto v = x.to_vector<double>();
                  auto d = dy.to_vector<double>();
                  for (size_t i = 0; i < v.size(); ++i)
                    d[i] = df(d[i], v[i], static_cast<int64_t>(i));
                  const auto to = dx[0].accumulate();
                  kernels::elementwise_accumulate<double>(
                      to.grad, forgets_beta ? 0.0 : to.beta, [](double g) { return g; },
                      kernels::in<double>(Tensor::from(d, x.shape())));
                });
}

GradcheckReport check_rule(Derivative df, bool forgets_beta = false) {
  return gradcheck([&](const Variables& in) { return square_with(in[0], df, forgets_beta); },
                   {random({3, 4}, DType::f64, 0.5, 2)});
}

std::string text(const GradcheckReport& report) {
  std::ostringstream out;
  out << report;
  return out.str();
}

}  // namespace

TEST_CASE("gradcheck: a correct rule passes") {
  const auto report = check_rule([](double dy, double x, int64_t) { return 2 * x * dy; });
  INFO(report);
  CHECK(report.ok);
  CHECK(report.checked == 12);
  CHECK(report.differing == 0);
  CHECK(report.problem.empty());
  CHECK_THAT(text(report), Catch::StartsWith("worst at input 0 element ") &&
                               Catch::EndsWith("(0 of 12 elements differ)"));
}

TEST_CASE("gradcheck: wrong rules fail, and the report names the worst element") {
  auto report = check_rule([](double dy, double x, int64_t i) {
    return (i == 3 ? 2.1 : i == 7 ? 2.9 : 2.0) * x * dy;
  });
  CHECK_FALSE(report.ok);
  CHECK(report.input == 0);
  CHECK(report.element == 7);
  CHECK(report.analytic == Approx(report.numeric * 1.45));
  CHECK(report.differing == 2);
  CHECK_THAT(text(report), Catch::Contains("element 7: analytic ") &&
                               Catch::Contains("(2 of 12 elements differ)"));

  CHECK_FALSE(check_rule([](double, double, int64_t) { return 0.0; }).ok);
  CHECK_FALSE(check_rule([](double dy, double x, int64_t) { return 2 * x * dy * (1 + 1e-3); }).ok);
}

TEST_CASE("gradcheck: one NaN or infinity anywhere fails") {
  for (double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()})
    for (int64_t where : {0, 5, 11}) {
      const auto report =
          check_rule([&](double dy, double x, int64_t i) { return i == where ? bad : 2 * x * dy; });
      CHECK_FALSE(report.ok);
      CHECK(report.element == where);
      CHECK(report.differing == 1);
    }
}

TEST_CASE("gradcheck: a rule that ignores beta fails") {
  const auto report = check_rule([](double dy, double x, int64_t) { return 2 * x * dy; }, true);
  CHECK_FALSE(report.ok);
  CHECK(report.differing == 0);
  CHECK_THAT(report.problem, Catch::Contains("expected twice the first"));
}

TEST_CASE("gradcheck: a rule that reads uninitialised memory fails") {
  const auto report = gradcheck(
      [](const Variables& in) {
        return record("reads", in[0].value().clone(), {in[0]},
                      [](const Tensor& dy, std::span<GradSlot> dx) {
                        const auto to = dx[0].accumulate();
                        kernels::elementwise<double>(
                            to.grad, [b = to.beta](double g, double d) { return b * g + d; },
                            kernels::in<double>(to.grad), kernels::in<double>(dy));
                      });
      },
      {random({100})});
#ifndef __SANITIZE_ADDRESS__  // under which freed blocks are not reused
  CHECK_FALSE(report.ok);
  CHECK(report.differing > 0);
#endif
}

TEST_CASE("gradcheck: a missing gradient counts as zero") {
  const auto constant = [](const Variables& in) { return in[0].detach(); };
  CHECK_FALSE(gradcheck(constant, {random({3})}).ok);
  const auto unused = [](const Variables& in) {
    return record("first", in[0].value(), {in[0]},
                  [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
  };
  const auto report = gradcheck(unused, {random({3}), random({2, 2})});
  CHECK(report.ok);
  CHECK(report.checked == 7);
}

TEST_CASE("gradcheck: writing to grad_out or to an input fails") {
  const auto writes_grad_out = [](const Variables& in) {
    return record("writes", in[0].value(), {in[0]}, [](const Tensor& dy, std::span<GradSlot> dx) {
      dx[0].take(dy.clone());
      Tensor(dy).fill(7);
    });
  };
  CHECK_THAT(gradcheck(writes_grad_out, {random({3})}).problem, Catch::Contains("grad_out"));
  const auto writes_input = [](const Variables& in) {
    const Tensor out = in[0].value().clone();
    if (in[0].requires_grad()) Tensor(in[0].value()).fill(7);
    return record("writes", out, {in[0]},
                  [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
  };
  const auto report = gradcheck(writes_input, {random({3})});
  CHECK_FALSE(report.ok);
  CHECK_THAT(text(report), Catch::Contains("written to") || Catch::Contains("row-major copies"));
}

TEST_CASE("gradcheck: a result that depends on strides fails") {
  // Reads memory as if it were row-major.
  const auto careless = [](const Variables& in) {
    const double* p = in[0].value().data<double>();
    const Tensor out =
        Tensor::from(std::vector<double>(p, p + in[0].value().numel()), in[0].shape());
    return record("careless", out, {in[0]},
                  [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
  };
  CHECK(gradcheck(careless, {random({3, 4})}).ok);
  CHECK_THAT(gradcheck(careless, {random({3, 4}).transpose(0, 1)}).problem,
             Catch::Contains("row-major"));
}

TEST_CASE("gradcheck: inputs of any strides, options, and invalid arguments") {
  const auto f = [](const Variables& in) {
    return square_with(in[0], [](double dy, double x, int64_t) { return 2 * x * dy; });
  };
  for (const Tensor& t :
       {random({3, 4}).transpose(0, 1), random({3, 8}).slice(1, 1, 8, 3),
        random({1, 4}).expand({3, 4}), random({}), random({0}), random({2, 0, 3})}) {
    const Tensor before = t.clone();
    const auto report = gradcheck(f, {t});
    INFO(report);
    CHECK(report.ok);
    CHECK(report.checked == t.numel());
    CHECK(identical(t, before));
  }
  CHECK(text(gradcheck(f, {random({0})})) == "no elements to check");
  CHECK(gradcheck(f, {random({100})}, {.max_elements = 7}).checked == 7);
  CHECK_THROWS_AS(gradcheck(f, {random({3}, DType::f32)}), ShapeError);
  CHECK_THROWS_AS(gradcheck(f, {Tensor()}), ShapeError);
  const auto narrows = [](const Variables& in) { return Variable(in[0].value().to(DType::f32)); };
  CHECK_THROWS_AS(gradcheck(narrows, {random({3})}), ShapeError);
  // Under NoGrad too.
  const NoGrad no_grad;
  CHECK(gradcheck(f, {random({3})}).ok);
}
