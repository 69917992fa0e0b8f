#include "longhand/autograd/variable.h"

#include <limits>

#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/elementwise.h"
#include "tests/support/op_check.h"

using namespace longhand;
using longhand::test::random;

namespace {

Variable leaf(const Shape& shape, uint64_t seed = 1) {
  return Variable(random(shape, DType::f64, -2, 2, seed), true);
}

// factor * x, whose rule uses accumulate().
Variable scaled(const Variable& x, double factor) {
  Tensor out = x.value().clone();
  kernels::elementwise<double>(
      out, [factor](double v) { return factor * v; }, kernels::in<double>(x.value()));
  return record("scaled", out, {x}, [factor](const Tensor& dy, std::span<GradSlot> dx) {
    const auto to = dx[0].accumulate();
    kernels::elementwise_accumulate<double>(
        to.grad, to.beta, [factor](double d) { return factor * d; }, kernels::in<double>(dy));
  });
}

// x, whose rule uses take(): the gradient is the same tensor.
Variable passed(const Variable& x) {
  return record("passed", x.value(), {x},
                [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
}

Variable both(const Variable& a, const Variable& b, Backward rule) {
  Tensor out = a.value().clone();
  kernels::elementwise<double>(
      out, [](double u, double v) { return u + v; }, kernels::in<double>(a.value()),
      kernels::in<double>(b.value()));
  return record("both", out, {a, b}, std::move(rule));
}

void take_both(const Tensor& dy, std::span<GradSlot> dx) {
  for (GradSlot& slot : dx)
    if (slot) slot.take(dy);
}

bool all_equal(const Tensor& t, double value) {
  for (double v : t.to_vector<double>())
    if (!(v == value)) return false;
  return true;
}

}  // namespace

TEST_CASE("a leaf accumulates gradients over several passes") {
  Variable x = leaf({2, 3});
  CHECK(x.requires_grad());
  CHECK_FALSE(x.grad().defined());
  const Tensor ones = Tensor::full({2, 3}, 1, DType::f64);
  backward(scaled(x, 3), ones);
  CHECK(all_equal(x.grad(), 3));
  const Tensor first = x.grad();  // another owner while the next pass adds
  backward(scaled(x, 4), ones);
  CHECK(all_equal(x.grad(), 7));
  CHECK(all_equal(first, 3));
  CHECK(all_equal(x.take_grad(), 7));
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(Variable().take_grad().defined());
  CHECK_FALSE(scaled(x, 3).take_grad().defined());
  backward(scaled(x, 5), ones);
  CHECK(all_equal(x.grad(), 5));
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  // The root itself may be a leaf.
  backward(x, ones);
  backward(x, ones);
  CHECK(all_equal(x.grad(), 2));
  CHECK(all_equal(ones, 1));
}

TEST_CASE("what needs no gradient is not recorded") {
  const Variable constant(random({3})), x = leaf({3});
  CHECK_FALSE(constant.requires_grad());
  CHECK_FALSE(scaled(constant, 2).requires_grad());
  CHECK(scaled(x, 2).requires_grad());
  CHECK_FALSE(scaled(x, 2).detach().requires_grad());
  CHECK_FALSE(scaled(x, 2).grad().defined());
  {
    const NoGrad no_grad;
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE(scaled(x, 2).requires_grad());
    {
      const EnableGrad enable;
      CHECK(scaled(x, 2).requires_grad());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
  CHECK_THROWS_AS(Variable(Tensor::zeros({2}, DType::i32), true), ShapeError);
  CHECK_THROWS_AS(Variable(Tensor(), true), ShapeError);
}

TEST_CASE("rules run without recording, and grad_out keeps its strides") {
  const Variable x = leaf({2, 3});
  bool recorded = true;
  Strides strides;
  const Variable y = record("probe", x.value(), {x}, [&](const Tensor& dy, std::span<GradSlot> dx) {
    recorded = grad_enabled();
    strides = dy.strides();
    dx[0].take(dy);
  });
  backward(y, Tensor::full({}, 1, DType::f64).expand({2, 3}));
  CHECK_FALSE(recorded);
  CHECK(strides == Strides{0, 0});
  CHECK(grad_enabled());
}

TEST_CASE("a value used several times gets the sum, and no gradient overwrites another") {
  const Tensor seed = random({4, 5}, DType::f64, -1, 1, 7), before = seed.clone();
  // z = x + x + 3 x + 5 y: take() puts one tensor in several slots, to which accumulate() adds.
  const Variable x = leaf({4, 5}, 1), y = leaf({4, 5}, 2);
  const Variable h = passed(x);
  const Variable z =
      both(both(h, scaled(h, 3), take_both), both(x, scaled(y, 5), take_both), take_both);
  backward(z, seed);
  const auto c = seed.to_vector<double>(), dx = x.grad().to_vector<double>(),
             dy = y.grad().to_vector<double>();
  for (size_t i = 0; i < c.size(); ++i) {
    CHECK(dx[i] == Approx(5 * c[i]));
    CHECK(dy[i] == Approx(5 * c[i]));
  }
  CHECK(identical(seed, before));
}

TEST_CASE("gradients of leaves share no memory and have the strides of the leaf") {
  const Variable a = leaf({3, 4}, 1), b(random({4, 3}).transpose(0, 1), true),
                 c(random({3, 8}).slice(1, 0, 8, 2), true);
  const Tensor seed = random({3, 4});
  backward(both(both(a, b, take_both), c, take_both), seed);
  for (const Variable* v : {&a, &b, &c}) {
    CHECK(identical(v->grad(), seed));
    CHECK(v->grad().is_dense());
    CHECK(v->grad().unique());
    CHECK_FALSE(v->grad().shares_memory_with(seed));
  }
  CHECK(a.grad().strides() == Strides{4, 1});
  CHECK(b.grad().strides() == Strides{1, 3});
  CHECK(c.grad().strides() == Strides{4, 1});
  // A gradient without another owner, but in another order.
  const Variable e(random({4, 3}).transpose(0, 1), true);
  backward(record("fresh", e.value(), {e},
                  [](const Tensor&, std::span<GradSlot> dx) {
                    dx[0].take(Tensor::full({3, 4}, 1, DType::f64));
                  }),
           seed);
  CHECK(e.grad().strides() == Strides{1, 3});
  // A broadcast gradient is materialised.
  const Variable d = leaf({3, 4});
  backward(passed(d), Tensor::full({1, 4}, 2, DType::f64).expand({3, 4}));
  CHECK(d.grad().is_dense());
  CHECK(all_equal(d.grad(), 2));
}

TEST_CASE("accumulate() returns memory in the input's order, even after take()") {
  const Variable x(random({4, 3}).transpose(0, 1), true);  // (3, 4)
  const Variable h = scaled(x, 1);                         // dense, axes in x's order
  std::vector<Strides> strides;
  const auto observe = [&](const Tensor& dy, std::span<GradSlot> dx) {
    const auto to = dx[0].accumulate();
    strides.push_back(to.grad.strides());
    kernels::elementwise_accumulate<double>(
        to.grad, to.beta, [](double d) { return d; }, kernels::in<double>(dy));
  };
  // The later child runs first: it leaves a row-major gradient without another owner.
  const Variable accumulated = record("observe", h.value(), {h}, observe);
  const Variable taken = record("fresh", h.value(), {h}, [](const Tensor&, std::span<GradSlot> dx) {
    dx[0].take(Tensor::full({3, 4}, 1, DType::f64));
  });
  backward(both(accumulated, taken, take_both), Tensor::full({3, 4}, 1, DType::f64));
  REQUIRE(strides.size() == 1);
  CHECK(strides[0] == Strides{1, 3});
  CHECK(all_equal(x.grad(), 2));
}

TEST_CASE("the slots of one variable given twice are independent") {
  // A fused rule obtains both accumulators before it writes to either, in any order.
  const Backward fused = [](const Tensor& dy, std::span<GradSlot> dx) {
    const auto a = dx[0].accumulate(), b = dx[1].accumulate();
    kernels::elementwise_accumulate<double>(
        b.grad, b.beta, [](double d) { return 3 * d; }, kernels::in<double>(dy));
    kernels::elementwise_accumulate<double>(
        a.grad, a.beta, [](double d) { return 2 * d; }, kernels::in<double>(dy));
  };
  const Tensor ones = Tensor::full({6}, 1, DType::f64);
  const Variable x = leaf({6});
  backward(both(x, x, fused), ones);
  CHECK(all_equal(x.grad(), 5));
  backward(both(x, x, fused), ones);
  CHECK(all_equal(x.grad(), 10));
  const Variable h = scaled(x, 1);
  backward(both(both(h, h, take_both), h, take_both), ones);
  CHECK(all_equal(x.grad(), 13));
}

TEST_CASE("slots: mistakes in rules are errors that name the operation and the input") {
  const Variable x = leaf({3}), y = leaf({3}, 2);
  const Tensor seed = random({3});
  const auto run = [&](Backward rule) { backward(both(x, y, std::move(rule)), seed); };
  CHECK_THROWS_WITH(run([](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); }),
                    Catch::Contains("both") && Catch::Contains("input 1"));
  CHECK_THROWS_WITH(run([](const Tensor& dy, std::span<GradSlot> dx) {
                      dx[0].take(dy);
                      dx[0].take(dy);
                    }),
                    Catch::Contains("twice"));
  CHECK_THROWS_AS(
      run([](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy.slice(0, 0, 2)); }),
      ShapeError);
  CHECK_THROWS_AS(
      run([](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy.to(DType::f32)); }),
      ShapeError);
  CHECK_THROWS_AS(run([](const Tensor&, std::span<GradSlot> dx) { dx[0].take({}); }), ShapeError);
  const Variable constant(random({3}));
  CHECK_THROWS_WITH(backward(both(x, constant,
                                  [](const Tensor& dy, std::span<GradSlot> dx) {
                                    dx[0].take(dy);
                                    dx[1].take(dy);
                                  }),
                             seed),
                    Catch::Contains("needs none"));
  CHECK_THROWS_AS(record("bytes", Tensor::zeros({3}, DType::u8), {x}, take_both), ShapeError);
}

TEST_CASE("an exception in a rule passes through and leaves no partial sums") {
  const Variable x = leaf({3});
  const Tensor ones = Tensor::full({3}, 1, DType::f64);
  const Variable h = scaled(x, 2);
  bool fail = true;
  const Variable bad = record("bad", h.value(), {h}, [&](const Tensor& dy, std::span<GradSlot> dx) {
    if (fail) throw Error("on purpose");
    dx[0].take(dy);
  });
  const Variable good = passed(h);  // runs before `bad`
  CHECK_THROWS_WITH(backward(both(bad, good, take_both), ones), "on purpose");
  CHECK(grad_enabled());
  CHECK_FALSE(x.grad().defined());
  // The rule of h has not run, so h can be used again; the gradient from `good` is discarded.
  backward(scaled(h, 10), ones);
  CHECK(all_equal(x.grad(), 20));
}

TEST_CASE("backward: roots, seeds and graphs that have been freed") {
  const Variable x = leaf({2});
  CHECK_THROWS_AS(backward(Variable(random({2})), random({2})), Error);
  CHECK_THROWS_AS(backward(scaled(x, 1)), ShapeError);
  CHECK_THROWS_AS(backward(scaled(x, 1), random({3})), ShapeError);
  CHECK_THROWS_AS(backward(scaled(x, 1), random({2}, DType::f32)), ShapeError);
  const Variable one = leaf({1, 1});
  backward(scaled(one, 3));
  CHECK(all_equal(one.grad(), 3));

  const Variable h = scaled(x, 1), y = scaled(h, 1);
  backward(y, random({2}));
  const Tensor before = x.grad().clone();
  CHECK_THROWS_WITH(backward(y, random({2})),
                    Catch::Contains("freed") && Catch::Contains("scaled"));
  CHECK_THROWS_WITH(backward(scaled(h, 2), random({2})), Catch::Contains("freed"));
  CHECK(identical(x.grad(), before));
  // Leaves remain usable.
  backward(scaled(x, 1), random({2}));
  CHECK_FALSE(identical(x.grad(), before));
}

TEST_CASE("a backward pass inside a rule may not reach the graph outside of it") {
  const Variable x = leaf({2});
  const Variable h = scaled(x, 1);
  const Variable y =
      record("nested", h.value(), {h}, [&](const Tensor& dy, std::span<GradSlot> dx) {
        const EnableGrad enable;
        backward(scaled(h, 2), dy);
        dx[0].take(dy);
      });
  CHECK_THROWS_WITH(backward(y, random({2})), Catch::Contains("must be an input"));
}

TEST_CASE("an operation with several results: its rule runs once, with zeros for unused results") {
  const Variable x(Tensor::from<double>({1, 2}, {2}), true);
  int runs = 0;
  const Variables out =
      record_all("two", {x.value().clone(), Tensor::from<double>({3}, {1})}, {&x, 1},
                 [&](std::span<const Tensor> grads, std::span<GradSlot> slots) {
                   ++runs;
                   REQUIRE(grads.size() == 2);
                   CHECK(grads[1].to_vector<double>() == std::vector<double>{0});
                   slots[0].take(grads[0]);
                 });
  backward(sum(out[0] * 3.0));
  CHECK(runs == 1);
  CHECK(x.grad().to_vector<double>() == std::vector<double>{3, 3});
  // The graph is freed, whichever result is asked for.
  CHECK_THROWS_AS(backward(sum(out[0])), Error);
  CHECK_THROWS_AS(backward(out[1]), Error);
  const NoGrad no_grad;
  CHECK(!record_all("two", {x.value(), x.value()}, {&x, 1}, {})[1].requires_grad());
}

TEST_CASE("chains of 200,000 operations are built, run and dropped without recursion") {
  const int n = 200000;
  const Variable x = leaf({1});
  {
    Variable y = x;
    for (int i = 0; i < n; ++i) y = passed(y);
    backward(y);
    CHECK(all_equal(x.grad(), 1));
  }
  {
    Variable y = x;
    for (int i = 0; i < n; ++i) y = passed(y);  // dropped without a backward pass
  }
  {
    // Handles held by captures only.
    Variable y = x;
    for (int i = 0; i < n; ++i)
      y = record("holds", x.value(), {x},
                 [y](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
  }
  {
    // Each value used twice: 2^40 paths, 40 nodes.
    Variable y = x;
    for (int i = 0; i < 40; ++i) y = both(y, y, take_both);
    Variable(x).zero_grad();
    backward(y);
    CHECK(all_equal(x.grad(), 0x1p40));
  }
}

TEST_CASE("memory: values that no rule captured are freed, and a pass frees captures") {
  const size_t megabyte = size_t{1} << 20;
  const Shape shape{1 << 17};  // of f64: 1 MB
  const auto used = [] { return memory_stats().in_use; };
  const auto keeps = [](const Variable& x) {
    const Tensor out = x.value().clone();
    return record("keeps", out, {x},
                  [out](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
  };
  const Variable x(Tensor::full(shape, 1, DType::f64), true);
  const size_t start = used();
  {
    Variable y = x;
    for (int i = 0; i < 10; ++i) y = scaled(y, 1);
    CHECK(used() - start == megabyte);  // only the last value
    Variable z = x;
    for (int i = 0; i < 10; ++i) z = keeps(z);
    CHECK(used() - start == 11 * megabyte);
    backward(z, x.value());
    CHECK(used() - start == 3 * megabyte);  // y, z, and x.grad()
  }
  CHECK(used() - start == megabyte);
  {
    // Captures of rules are freed at once, even if the intermediate values have other owners.
    const auto holds_more = [](const Variable& v, std::function<void()> note) {
      const Tensor more = Tensor::full({1 << 17}, 1, DType::f64);
      return record("holds_more", v.value(), {v},
                    [more, note](const Tensor& dy, std::span<GradSlot> dx) {
                      note();
                      dx[0].take(dy);
                    });
    };
    std::vector<size_t> in_rules;
    Variables between{Variable(random({1}), true)};
    for (int i = 0; i < 4; ++i)
      between.push_back(holds_more(between.back(), [&] { in_rules.push_back(used()); }));
    const size_t before = used();
    backward(between.back());
    REQUIRE(in_rules.size() == 4);
    for (size_t i = 1; i < 4; ++i) CHECK(in_rules[i - 1] - in_rules[i] == megabyte);
    CHECK(before - used() >= 4 * megabyte - 4096);
  }
  CHECK(used() - start == megabyte);
  {
    const NoGrad no_grad;
    Variable z = x;
    for (int i = 0; i < 10; ++i) z = keeps(z);
    CHECK(used() - start == 2 * megabyte);
  }
}
