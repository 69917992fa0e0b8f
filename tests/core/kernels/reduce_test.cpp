#include "longhand/core/kernels/reduce.h"

#include <limits>

#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

Tensor random(const Shape& shape, DType dtype = DType::f64) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_uniform(t, Generator(3), -1, 2);
  return t;
}

// Sums in row-major order in double, added to `to`, which is row-major.
std::vector<double> sums(const Tensor& x, const Shape& kept) {
  std::vector<double> out(kept.numel(), 0.0);
  const auto values = x.to_vector<double>();
  const Strides strides = contiguous_strides(kept);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      if (kept[axis] != 1) at += rest % x.size(axis) * strides[axis];
      rest /= x.size(axis);
    }
    out[at] += values[i];
  }
  return out;
}

void check_sums(const Tensor& x, const ShortVector<int>& axes, const Strides& out_order,
                double tolerance) {
  Shape kept = x.shape();
  for (int axis : axes) kept[axis] = 1;
  const auto expected = sums(x, kept);
  Tensor out = Tensor::empty_ordered(kept, x.dtype(), out_order);
  out.fill(std::numeric_limits<double>::quiet_NaN());
  kernels::sum_axes_into(out, x, axes, 4);
  kernels::sum_axes_into(out, x, axes, 2, 1);
  const auto found = out.to_vector<double>();
  bool ok = true;
  for (size_t i = 0; i < found.size(); ++i)
    ok = ok && std::abs(found[i] - 0.75 * expected[i]) <= tolerance;
  INFO(x.shape() << " strides " << x.strides() << " to " << out.strides());
  CHECK(ok);
}

}  // namespace

TEST_CASE("reduce: all sets of axes, inner and outer, in several memory orders") {
  for (const Shape& shape : {Shape{3, 1, 5, 4}, Shape{2, 0, 3, 1}, Shape{4, 3, 2, 6}}) {
    for (unsigned set = 0; set < 16; ++set) {
      ShortVector<int> axes;
      for (int i = 0; i < 4; ++i)
        if (set >> i & 1) axes.push_back(i);
      const Tensor x = random(shape);
      const Tensor permuted =
          random({shape[2], shape[0], shape[3], shape[1]}).permute({1, 3, 0, 2});
      const Tensor holes =
          random({shape[0], shape[1], shape[2] + 2, shape[3]}).slice(2, 1, shape[2] + 1);
      const Tensor repeated = random({shape[0], 1, 1, shape[3]}).expand(shape);
      for (const Tensor& t : {x, permuted, holes, repeated}) {
        check_sums(t, axes, t.strides(), 1e-13);
        check_sums(t, axes, Strides{1, 2, 3, 4}, 1e-13);
      }
    }
  }
  check_sums(Tensor::scalar(3, DType::f64), {}, {}, 0);
}

TEST_CASE("reduce: sizes that are split into tasks") {
  const Shape shape = GENERATE(Shape{1, 40000, 1}, Shape{3, 20000, 1}, Shape{1, 3000, 64},
                               Shape{2, 700, 65}, Shape{1, 130, 2500}, Shape{40000, 2, 1});
  for (DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = random(shape, dtype);
    const double tolerance = dtype == DType::f32 ? 1e-2 : 1e-9;
    check_sums(x, {1}, x.strides(), tolerance);
    check_sums(x, {0, 2}, x.strides(), tolerance);
    Tensor one = Tensor::empty({shape[0], 1, shape[2]}, dtype), many = one.clone();
    const int before = threads();
    set_threads(1);
    kernels::sum_axes_into(one, x, {1});
    set_threads(3);
    kernels::sum_axes_into(many, x, {1});
    set_threads(before);
    CHECK(identical(one, many));
  }
}

TEST_CASE("reduce: f32 sums keep their digits") {
  const Tensor x = Tensor::full({1000000, 2}, 0.1);
  for (const ShortVector<int>& axes : {ShortVector<int>{0}, {0, 1}}) {
    Tensor out = Tensor::empty({1, axes.size() == 2 ? 1 : 2});
    kernels::sum_axes_into(out, x, axes);
    CHECK(out.at({0, 0}) == Approx(1e5 * static_cast<double>(axes.size())).epsilon(3e-6));
  }
}

TEST_CASE("reduce: errors") {
  Tensor out = Tensor::empty({2, 1}, DType::f64);
  CHECK_THROWS_AS(kernels::sum_axes_into(out, random({2, 3}), {0}), ShapeError);
  CHECK_THROWS_AS(kernels::sum_axes_into(out, random({2, 3}, DType::f32), {1}), ShapeError);
  CHECK_THROWS_AS(kernels::sum_axes_into(out, random({2, 3}), {2}), ShapeError);
  Tensor sparse = Tensor::empty({4, 1}, DType::f64).slice(0, 0, 4, 2);
  CHECK_THROWS_AS(kernels::sum_axes_into(sparse, random({2, 3}), {1}), ShapeError);
}
