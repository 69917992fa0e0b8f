// Operations on views with any strides, compared with loops over indices. The values are small
// integers, so that sums and products are exact in any order.
#include "longhand/autograd/ops.h"
#include "tests/core/random_view.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::test;

namespace {

/// A view of a shape, with holes and repeated elements, that holds integers from -8 to 8.
Tensor any_view(const Shape& shape) {
  RandomStream random(Generator(static_cast<uint64_t>(any_of(0, 1 << 30))));
  const DType dtype = any_of(0, 1) ? DType::f64 : DType::f32;
  const Tensor whole = random_view(shape, dtype, random,
                                   {.holes = any_of(0, 1) == 1, .broadcast = any_of(0, 1) == 1});
  return whole;
}

double at(const Tensor& t, const Shape& index) {
  const auto i = static_cast<size_t>(offset_of(index, t.strides()));
  return t.dtype() == DType::f64 ? t.data<double>()[i] : double{t.data<float>()[i]};
}

/// The index in a shape that is broadcast to that of `index`.
Shape broadcast_index(const Shape& shape, const Shape& index) {
  Shape out = shape;
  for (int i = 1; i <= shape.rank(); ++i) out[-i] = shape[-i] == 1 ? 0 : index[-i];
  return out;
}

/// A shape that broadcasts with `shape`.
Shape any_partner(const Shape& shape) {
  Shape out;
  for (int i = static_cast<int>(any_of(0, shape.rank())); i < shape.rank(); ++i)
    out.push_back(any_of(0, 2) ? shape[i] : 1);
  return out;
}

template <class F>
void expect(const Variable& got, const Shape& shape, F value) {
  RC_ASSERT(got.shape() == shape);
  for_each_index(shape,
                 [&](const Shape& index) { RC_ASSERT(at(got.value(), index) == value(index)); });
}

}  // namespace

TEST_CASE("property: arithmetic on views of any strides") {
  require_always(
      "arithmetic",
      [] {
        Shape shape = any_shape(4, 5);
        Shape other = any_partner(shape);
        if (any_of(0, 1)) std::swap(shape, other);
        const Tensor a = any_view(shape), b = any_view(other).to(a.dtype());
        const Shape both = broadcast_shape(shape, other);
        const auto of = [&](const Tensor& t, const Shape& i) {
          return at(t, broadcast_index(t.shape(), i));
        };
        expect(add(Variable(a), Variable(b)), both,
               [&](const Shape& i) { return of(a, i) + of(b, i); });
        expect(sub(Variable(a), Variable(b)), both,
               [&](const Shape& i) { return of(a, i) - of(b, i); });
        expect(mul(Variable(a), Variable(b)), both,
               [&](const Shape& i) { return of(a, i) * of(b, i); });
        expect(affine(Variable(a), 2, -3), shape, [&](const Shape& i) { return 2 * at(a, i) - 3; });
        expect(square(Variable(a)), shape, [&](const Shape& i) { return at(a, i) * at(a, i); });
      },
      1500);
}

TEST_CASE("property: reductions of views of any strides") {
  require_always(
      "reductions",
      [] {
        const Shape shape = any_shape(4, 5);
        const Tensor x = any_view(shape);
        ShortVector<int> axes;
        Shape kept = shape, left;
        for (int axis = 0; axis < shape.rank(); ++axis) {
          if (any_of(0, 1)) {
            axes.push_back(any_of(0, 1) ? axis : axis - shape.rank());
            kept[axis] = 1;
          } else {
            left.push_back(shape[axis]);
          }
        }
        if (axes.empty()) {  // over all
          left = {};
          for (int axis = 0; axis < shape.rank(); ++axis) kept[axis] = 1;
        }
        std::vector<double> sums(static_cast<size_t>(kept.numel()));
        const Strides strides = contiguous_strides(kept);
        for_each_index(shape, [&](const Shape& i) {
          sums[static_cast<size_t>(offset_of(broadcast_index(kept, i), strides))] += at(x, i);
        });
        const auto sum_at = [&](const Shape& i) {
          return sums[static_cast<size_t>(offset_of(i, strides))];
        };
        expect(sum(Variable(x), axes, true), kept, sum_at);
        RC_ASSERT(sum(Variable(x), axes).value().to_vector<double>() == sums);
        RC_ASSERT(sum(Variable(x), axes).shape() == left);

        if (shape.rank() == 0 || shape.numel() == 0) return;
        const int axis = static_cast<int>(any_of(0, shape.rank() - 1));
        const auto along = [&](const Shape& i, int64_t to, auto join) {
          Shape from = i;
          from[axis] = 0;
          double value = at(x, from);
          for (from[axis] = 1; from[axis] <= to; ++from[axis]) value = join(value, at(x, from));
          return value;
        };
        Shape one = shape;
        one[axis] = 1;
        expect(max(Variable(x), axis, true), one, [&](const Shape& i) {
          return along(i, shape[axis] - 1, [](double a, double b) { return std::max(a, b); });
        });
        expect(cumsum(Variable(x), axis), shape,
               [&](const Shape& i) { return along(i, i[axis], std::plus<double>()); });
      },
      1500);
}

TEST_CASE("property: products of views of any strides") {
  require_always(
      "products",
      [] {
        const Shape batch = any_shape(2, 3), other = any_partner(batch);
        const int64_t m = any_of(0, 9), k = any_of(0, 20), n = any_of(0, 9);
        Shape left = batch, right = other;
        for (const int64_t size : {m, k}) left.push_back(size);
        for (const int64_t size : {k, n}) right.push_back(size);
        const Tensor a = any_view(left), b = any_view(right).to(a.dtype());
        Shape product = batch;
        for (const int64_t size : {m, n}) product.push_back(size);
        expect(matmul(Variable(a), Variable(b)), product, [&](const Shape& i) {
          Shape in_a = i, in_b = broadcast_index(right, i);
          double value = 0;
          in_b[-1] = right[-1] == 1 ? 0 : i[-1];
          for (int64_t j = 0; j < k; ++j) {
            in_a[-1] = j;
            in_b[-2] = j;
            value += at(a, in_a) * at(b, in_b);
          }
          return value;
        });
      },
      1500);
}

TEST_CASE("property: gradients of views of any strides") {
  // The gradient of sum(view(x) * c) is c at the places that the view shows, summed if it repeats them.
  require_always(
      "gradients",
      [] {
        const Shape shape = any_shape(3, 4);
        const Variable x(any_view(shape).to(DType::f64), true);
        Variable view = x;
        Tensor shown = Tensor::empty(shape, DType::f64);  // which element of x is at each place
        for (int64_t i = 0; i < shown.numel(); ++i)
          shown.data<double>()[i] = static_cast<double>(i);
        for (int64_t steps = any_of(0, 4); steps > 0; --steps) {
          const int rank = view.value().rank();
          if (any_of(0, 1)) {
            const auto order = any_order(rank);
            view = permute(view, {order.begin(), order.end()});
            shown = shown.permute(order);
          } else if (rank > 0 && any_of(0, 1)) {
            const int axis = static_cast<int>(any_of(0, rank - 1));
            const int64_t n = shown.size(axis), begin = any_of(0, n), end = any_of(begin, n),
                          by = any_of(1, 3);
            view = slice(view, axis, begin, end, by);
            shown = shown.slice(axis, begin, end, by);
          } else if (rank < 4) {
            const int axis = static_cast<int>(any_of(0, rank));
            view = unsqueeze(view, axis);
            Shape wide = view.shape();
            wide[axis] = any_of(1, 3);
            view = broadcast_to(view, wide);
            shown = shown.unsqueeze(axis).expand(wide);
          }
        }
        const Tensor c = any_view(view.shape()).to(DType::f64);
        backward(sum(mul(view, Variable(c))));
        std::vector<double> expected(static_cast<size_t>(shape.numel()));
        for_each_index(c.shape(), [&](const Shape& i) {
          expected[static_cast<size_t>(at(shown, i))] += at(c, i);
        });
        RC_ASSERT(x.grad().to_vector<double>() == expected);
      },
      1500);
}
