// Joins parts along an axis; the gradient of each is its part of dy, a view.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable concat(const Variables& parts, int axis) {
  check<ShapeError>(!parts.empty(), "concat: expected at least one tensor, got none");
  const Variable& first = parts[0];
  const int at = first.shape().index(axis);
  Shape shape = first.shape();
  ShortVector<int64_t> ends;
  for (const Variable& part : parts) {
    check_same_dtype("concat", first.dtype(), part.dtype());
    bool fits = part.rank() == first.rank();
    for (int i = 0; fits && i < first.rank(); ++i) fits = i == at || part.size(i) == first.size(i);
    check<ShapeError>(fits, "concat: expected equal sizes except along axis ", axis, ", got ",
                      first.shape(), " and ", part.shape());
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.size(at));
  }
  shape[at] = ends.back();
  const Tensor out = Tensor::empty_ordered(shape, first.dtype(), first.value().strides());
  const auto part_of = [at, ends](const Tensor& whole, size_t i) {
    return whole.slice(at, i ? ends[i - 1] : 0, ends[i]);
  };
  for (size_t i = 0; i < parts.size(); ++i) copy_into(part_of(out, i), parts[i].value());
  return record("concat", out, parts, [part_of](const Tensor& dy, std::span<GradSlot> dx) {
    for (size_t i = 0; i < dx.size(); ++i)
      if (dx[i]) dx[i].take(part_of(dy, i));
  });
}

}  // namespace longhand
