#include "longhand/autograd/recompute.h"

#include "longhand/autograd/ops.h"
#include "longhand/core/storage.h"
#include "tests/support/op_check.h"

using namespace longhand;
using longhand::test::random;

namespace {

Variable small_leaf(const Shape& shape, uint64_t seed = 1) {
  return Variable(random(shape, DType::f64, -1, 1, seed), true);
}

}  // namespace

TEST_CASE("recompute: the bits of the plain function, values and gradients") {
  const Variable w = small_leaf({4}, 9);
  const auto f = [&](const Variables& in) { return tanh(in[0] * w + in[1]) * sigmoid(in[0]); };
  const Tensor a = random({3, 4}, DType::f64, -1, 1, 1), b = random({3, 4}, DType::f64, -1, 1, 2);
  const auto plain = test::run(f, {a, b});
  const Tensor plain_w = Variable(w).take_grad();
  int calls = 0;
  const auto counted = [&](const Variables& in) {
    ++calls;
    return f(in);
  };
  const auto again = test::run([&](const Variables& in) { return recompute(counted, in); }, {a, b});
  CHECK(calls == 2);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(identical(plain[i], again[i]));
  CHECK(identical(plain_w, w.grad()));
}

TEST_CASE("recompute: gradcheck, in the middle of a graph and nested") {
  const auto inner = [](const Variables& in) { return exp(in[0]) * in[1]; };
  const auto outer = [&](const Variables& in) {
    return square(recompute(inner, {in[0] + in[1], in[1]}));
  };
  const auto whole = [&](const Variables& in) {
    return recompute(outer, {tanh(in[0]), in[1]}) + in[0];
  };
  const auto report = gradcheck(whole, {random({3, 2}), random({2})});
  INFO(report);
  CHECK(report.ok);
  CHECK(report.checked == 8);
}

TEST_CASE("recompute: a variable given twice, one that f ignores, one that needs no gradient") {
  const auto f = [](const Variables& in) { return in[0] * in[1] * in[3]; };
  const auto whole = [&](const Variables& in) {
    return recompute(f, {in[0], in[0], in[1], Variable(random({3}))});
  };
  const auto report = gradcheck(whole, {random({3}), random({2})});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("recompute: results that are inputs, views of inputs, or constants") {
  const auto identity = [](const Variables& in) {
    return recompute([](const Variables& x) { return x[0]; }, in);
  };
  CHECK(gradcheck(identity, {random({3})}).ok);
  const auto view = [](const Variables& in) {
    return recompute([](const Variables& x) { return transpose(x[0], 0, 1); }, in);
  };
  CHECK(gradcheck(view, {random({3, 2})}).ok);
  const auto constant = [](const Variables& in) {
    return recompute([](const Variables& x) { return x[0].detach() + 1; }, in);
  };
  const Variable x = small_leaf({3});
  backward(constant({x}), random({3}));
  CHECK(identical(x.grad(), Tensor::zeros({3}, DType::f64)));
}

TEST_CASE("recompute: captured leaves get gradients even if no input needs one") {
  const Variable w = small_leaf({3});
  const Variable x(random({3}, DType::f64, -1, 1, 5));
  const Variable y = recompute([&](const Variables& in) { return in[0] * w; }, {x});
  CHECK(y.requires_grad());
  backward(y, Tensor::full({3}, 1, DType::f64));
  CHECK(identical(w.grad(), x.value()));
  // Also without any input.
  const Variable z = recompute([&](const Variables&) { return w * 2.0; }, {});
  backward(z, Tensor::full({3}, 1, DType::f64));
  CHECK(test::close(w.grad(), (x + 2).value(), 1e-15));
}

TEST_CASE("recompute: other captured results are errors") {
  const Variable x = small_leaf({3});
  const Variable h = exp(x);
  const Variable y = recompute([&](const Variables& in) { return in[0] * h; }, {x});
  CHECK_THROWS_WITH(backward(y, random({3})), Catch::Contains("must be an input"));
}

TEST_CASE("recompute: grad modes") {
  const Variable x = small_leaf({3});
  int calls = 0;
  const auto f = [&](const Variables& in) {
    ++calls;
    return exp(in[0]);
  };
  {
    const NoGrad no_grad;
    CHECK_FALSE(recompute(f, {x}).requires_grad());
  }
  CHECK(calls == 1);
  const Variable y = recompute(f, {x});
  {
    const NoGrad no_grad;
    backward(y, Tensor::full({3}, 1, DType::f64));
  }
  CHECK(calls == 3);
  CHECK(identical(x.grad(), y.value()));
  CHECK(grad_enabled());
}

TEST_CASE("recompute: an exception in f passes through") {
  const Variable x = small_leaf({3});
  CHECK_THROWS_WITH(recompute([](const Variables&) -> Variable { throw Error("first"); }, {x}),
                    "first");
  CHECK(grad_enabled());
  int calls = 0;
  const Variable y = recompute(
      [&](const Variables& in) {
        if (++calls == 2) throw Error("second");
        return exp(in[0]);
      },
      {x});
  CHECK_THROWS_WITH(backward(y, random({3})), "second");
  CHECK(grad_enabled());
}

TEST_CASE("recompute: activations are freed between the passes") {
  const size_t megabyte = size_t{1} << 20;
  const Variable x(Tensor::full({1 << 17}, 0.1, DType::f64), true);
  const auto f = [](const Variables& in) {
    Variable y = in[0];
    for (int i = 0; i < 8; ++i) y = tanh(y);
    return y;
  };
  const size_t start = memory_stats().in_use;
  const Variable plain = f({x});
  CHECK(memory_stats().in_use - start == 8 * megabyte);
  const Variable y = recompute(f, {x});
  CHECK(memory_stats().in_use - start <= 9 * megabyte + 4096);
}

TEST_CASE("recompute: the forward pass keeps nothing for captured leaves either") {
  const size_t megabyte = size_t{1} << 20;
  const Variable x(Tensor::full({1 << 17}, 0.1, DType::f64)), w = small_leaf({1});
  std::vector<size_t> used;
  const auto f = [&](const Variables& in) {
    const size_t start = memory_stats().in_use;
    Variable y = in[0];
    for (int i = 0; i < 8; ++i) y = y * w;  // keeps y for the gradient of w
    used.push_back(memory_stats().in_use - start);
    return y;
  };
  backward(recompute(f, {x}), x.value());
  REQUIRE(used.size() == 2);
  CHECK(used[0] == megabyte);
  CHECK(used[1] == 8 * megabyte);
}
