// Views by any sequence of operations, compared with a list of values that is rearranged one by one.
#include "longhand/core/view.h"

#include <numeric>

#include "tests/core/random_view.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::test;

namespace {

/// A tensor as its values in row-major order.
struct Model {
  Shape shape;
  std::vector<int64_t> values;

  int64_t at(const Shape& index) const {
    return values[static_cast<size_t>(offset_of(index, contiguous_strides(shape)))];
  }
  /// The model of `to`, whose element at an index is that of this model at source(index).
  template <class F>
  Model rearranged(const Shape& to, F source) const {
    Model out{to, {}};
    for_each_index(to, [&](const Shape& index) { out.values.push_back(at(source(index))); });
    return out;
  }
};

Shape permuted(const Shape& shape, const std::vector<int>& order) {
  Shape out;
  for (const int axis : order) out.push_back(shape[axis]);
  return out;
}

/// Another shape of the same number of elements: axes are merged, split, or of size 1.
Shape any_reshape(const Shape& shape) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  for (int64_t n = any_of(0, 3); n > 0; --n) {
    const auto at = static_cast<size_t>(any_of(0, static_cast<int64_t>(sizes.size())));
    const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(at);
    if (any_of(0, 1) && at + 1 < sizes.size()) {
      sizes[at + 1] *= sizes[at];
      sizes.erase(place);
    } else if (at < sizes.size() && sizes.size() < Shape::max_rank) {
      const int64_t divisor = any_of(1, 4);
      if (sizes[at] % divisor != 0) continue;
      sizes[at] /= divisor;
      sizes.insert(place, divisor);
    }
  }
  return Shape(sizes);
}

/// Applies one operation to a tensor and to its model.
void step(Tensor& t, Model& m) {
  const int rank = t.rank();
  const auto any_axis = [&] { return static_cast<int>(any_of(0, rank - 1)); };
  switch (any_of(0, 9)) {
    case 0: {
      const auto order = any_order(rank);
      t = t.permute(order);
      m = m.rearranged(permuted(m.shape, order), [&](const Shape& index) {
        Shape from = index;
        for (int i = 0; i < rank; ++i) from[order[i]] = index[i];
        return from;
      });
      return;
    }
    case 1: {
      if (rank == 0) return;
      const int axis = any_axis();
      const int64_t n = t.size(axis), begin = any_of(0, n), end = any_of(begin, n),
                    stride = any_of(0, 9) == 9 ? INT64_MAX : any_of(1, 3);
      // The end itself cannot be written as a negative number.
      const bool negative = end < n && any_of(0, 1);
      t = t.slice(negative ? axis - rank : axis, negative ? begin - n : begin,
                  negative ? end - n : end, stride);
      Shape to = m.shape;
      to[axis] = end > begin ? (end - begin - 1) / stride + 1 : 0;
      m = m.rearranged(to, [&](const Shape& index) {
        Shape from = index;
        from[axis] = begin + index[axis] * stride;
        return from;
      });
      return;
    }
    case 2: {
      const int axis = rank ? any_axis() : 0;
      if (rank == 0 || t.size(axis) == 0) return;
      const int64_t at = any_of(0, t.size(axis) - 1);
      t = t.select(axis, at);
      m = m.rearranged(m.shape.without_axis(axis),
                       [&](const Shape& index) { return index.with_axis(axis, at); });
      return;
    }
    case 3: {
      if (rank == Shape::max_rank) return;
      const int axis = static_cast<int>(any_of(0, rank));
      t = t.unsqueeze(axis);
      m.shape = m.shape.with_axis(axis, 1);
      return;
    }
    case 4: {
      const int axis = rank ? any_axis() : 0;
      if (rank == 0 || t.size(axis) != 1) return;
      t = t.squeeze(axis);
      m.shape = m.shape.without_axis(axis);
      return;
    }
    case 5: {  // repeats axes of size 1, and adds some before
      Shape to;
      const int added = static_cast<int>(any_of(0, std::min(2, Shape::max_rank - rank)));
      for (int i = 0; i < added; ++i) to.push_back(any_of(1, 3));
      for (const int64_t size : m.shape) to.push_back(size == 1 ? any_of(0, 3) : size);
      if (to.numel() > 4096) return;
      t = t.expand(to);
      m = m.rearranged(to, [&](const Shape& index) {
        Shape from = m.shape;
        for (int i = 0; i < rank; ++i) from[i] = m.shape[i] == 1 ? 0 : index[added + i];
        return from;
      });
      return;
    }
    case 6: {
      const Shape to = any_reshape(m.shape);
      const Tensor view = t.try_reshape(to);
      RC_ASSERT(view.defined() || !t.is_contiguous());
      if (!view.defined()) RC_ASSERT_THROWS_AS(t.reshape(to), ShapeError);
      t = view.defined() ? view : t.contiguous().reshape(to);
      m.shape = to;
      return;
    }
    case 7: {
      const Tensor ordered = t.in_memory_order();
      int64_t above = INT64_MAX;  // the stride before; axes of size 1, and repeated ones, stay
      for (int i = 0; i < rank && ordered.numel() > 0; ++i) {
        if (ordered.size(i) == 1 || ordered.strides()[i] == 0) continue;
        RC_ASSERT(ordered.strides()[i] <= above);
        above = ordered.strides()[i];
      }
      if (t.is_dense()) RC_ASSERT(ordered.is_contiguous());
      return;
    }
    case 8:
      t = any_of(0, 1) ? t.contiguous() : t.clone();
      return;
    default:
      t = row_dense(t);
      return;
  }
}

std::pair<Tensor, Model> any_tensor() {
  const Shape shape = any_shape(4, 4);
  Model m{shape, std::vector<int64_t>(static_cast<size_t>(shape.numel()))};
  std::iota(m.values.begin(), m.values.end(), 0);
  return {Tensor::from(m.values, shape), m};
}

}  // namespace

TEST_CASE("property: views show the elements that an index map names") {
  require_always(
      "views",
      [] {
        auto [t, m] = any_tensor();
        for (int64_t n = any_of(0, 8); n > 0; --n) {
          step(t, m);
          RC_ASSERT(t.shape() == m.shape);
          RC_ASSERT(values_of<int64_t>(t) == m.values);
        }
        RC_ASSERT(t.to_vector<int64_t>() == m.values);
        RC_ASSERT(identical(t.clone(), t));
        const bool contiguous = has_strides(t, contiguous_strides(t.shape()));
        if (t.numel() > 0) RC_ASSERT(t.is_contiguous() == contiguous);
        RC_ASSERT(t.contiguous().is_contiguous());
        RC_ASSERT(values_of<int64_t>(t.contiguous()) == m.values);
      },
      500);
}

TEST_CASE("property: writing to a view changes the elements that it shows, and no other") {
  require_always(
      "writes",
      [] {
        auto [whole, all] = any_tensor();
        Tensor t = whole;
        Model m = all;
        for (int64_t n = any_of(0, 5); n > 0; --n) {
          step(t, m);
          if (!t.shares_memory_with(whole)) return;
        }
        // Elements that several indices show are set to the same value.
        Tensor negative = Tensor::empty(t.shape(), DType::i64);
        for (size_t i = 0; i < m.values.size(); ++i) negative.data<int64_t>()[i] = -1 - m.values[i];
        copy_into(t, negative);
        for (const int64_t shown : m.values) all.values[static_cast<size_t>(shown)] = -1 - shown;
        RC_ASSERT(values_of<int64_t>(whole) == all.values);
      },
      300);
}

TEST_CASE("property: arguments out of range are refused, and the tensor stays as it was") {
  require_always("refusals", [] {
    auto [t, m] = any_tensor();
    step(t, m);
    const int rank = t.rank(), beyond = any_of(0, 1) ? rank : -rank - 1;
    RC_ASSERT_THROWS_AS(t.slice(beyond, 0, 0), ShapeError);
    RC_ASSERT_THROWS_AS(t.select(beyond, 0), ShapeError);
    RC_ASSERT_THROWS_AS(t.squeeze(beyond), ShapeError);
    RC_ASSERT_THROWS_AS(t.transpose(beyond, 0), ShapeError);
    Shape other = m.shape;
    if (rank < Shape::max_rank) other.push_back(2);
    if (rank < Shape::max_rank && m.shape.numel() > 0) {
      RC_ASSERT_THROWS_AS(t.reshape(other), ShapeError);
      RC_ASSERT_THROWS_AS(t.contiguous().try_reshape(other), ShapeError);
    }
    std::vector<int> order = any_order(rank);
    order.push_back(rank);
    RC_ASSERT_THROWS_AS(t.permute(order), ShapeError);
    if (rank == 0) return;
    const int axis = static_cast<int>(any_of(0, rank - 1));
    const int64_t n = t.size(axis);
    RC_ASSERT_THROWS_AS(t.select(axis, any_of(0, 1) ? n : -n - 1), ShapeError);
    RC_ASSERT_THROWS_AS(t.slice(axis, 0, n + 1), ShapeError);
    RC_ASSERT_THROWS_AS(t.slice(axis, 0, n, any_of(-1, 0)), ShapeError);
    if (rank > 1) {
      std::vector<int> twice(static_cast<size_t>(rank), axis);
      RC_ASSERT_THROWS_AS(t.permute(twice), ShapeError);
    }
    if (n > 1) {
      Shape wide = m.shape;
      wide[axis] = n + 1;
      RC_ASSERT_THROWS_AS(t.expand(wide), ShapeError);
    }
    RC_ASSERT(values_of<int64_t>(t) == m.values);
  });
}
