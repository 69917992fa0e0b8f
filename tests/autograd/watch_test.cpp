// backward() with a callback for leaves whose gradients are complete.
#include "longhand/autograd/ops.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

Tensor numbers(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor out = Tensor::empty(shape, dtype);
  fill_normal(out, Generator(seed));
  return out;
}

}  // namespace

TEST_CASE("leaves are reported once, as soon as their gradients are complete") {
  const Variable a(numbers({3, 4}, DType::f64, 1), true), b(numbers({3, 4}, DType::f64, 2), true),
      c(numbers({3, 4}, DType::f64, 3), true), unused(numbers({2}, DType::f64, 4), true);
  const auto loss = [&] {
    const Variable first = exp(a * b) + a;  // before c is used
    return sum(first + (c - c) * b);
  };
  backward(loss());
  const Tensor da = Variable(a).take_grad(), db = Variable(b).take_grad(),
               dc = Variable(c).take_grad();

  const Variables watched = {a, unused, b, c, a};
  std::vector<size_t> order;
  backward(loss(), {}, watched, [&](size_t i) {
    order.push_back(i);
    const Tensor& expected = watched[i].value().shares_memory_with(a.value())   ? da
                             : watched[i].value().shares_memory_with(b.value()) ? db
                                                                                : dc;
    CHECK(identical(watched[i].grad(), expected));
  });
  std::vector<size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == std::vector<size_t>{0, 2, 3, 4});
  CHECK(order[0] == 3);  // c is used last, a and b first, by a * b
}

TEST_CASE("a gradient that a callback has taken is its own") {
  // The gradients of a + b are one tensor, until one of them is taken.
  Variable a(numbers({5}, DType::f32, 1), true), b(numbers({5}, DType::f32, 2), true);
  const Variables watched = {a, b};
  std::vector<Tensor> taken;
  backward(sum(a + b), {}, watched, [&](size_t i) {
    taken.push_back(Variable(watched[i]).take_grad());
    REQUIRE(taken.back().unique());
    taken.back().fill(7);
  });
  REQUIRE(taken.size() == 2);
  CHECK(!a.grad().defined());
  backward(sum(a + b));
  CHECK(a.grad().at({0}) == 1);
}
