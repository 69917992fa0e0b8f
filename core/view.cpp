#include "longhand/core/view.h"

namespace longhand {
namespace {

bool is_row_dense(const Tensor& t) {
  if (t.rank() == 0 || t.is_contiguous()) return true;
  return (t.size(-1) == 1 || t.strides()[-1] == 1) && t.is_dense();
}

}  // namespace

Tensor row_dense(const Tensor& t) { return is_row_dense(t) ? t : t.contiguous(); }

void detail::check_row_dense(const Tensor& t) {
  check<ShapeError>(is_row_dense(t), "rows: expected rows without holes between them, got strides ",
                    t.strides(), " for shape ", t.shape());
}

bool has_strides(const Tensor& t, const Strides& strides) {
  check<ShapeError>(t.rank() == strides.rank(), "strides: ", strides, " and shape ", t.shape(),
                    " differ in rank");
  for (int i = 0; i < t.rank(); ++i)
    if (t.size(i) != 1 && t.strides()[i] != strides[i]) return false;
  return true;
}

Tensor with_strides(const Tensor& t, const Strides& strides) {
  if (has_strides(t, strides)) return t;
  Tensor out = Tensor::empty_ordered(t.shape(), t.dtype(), strides);
  copy_into(out, t);
  return out;
}

Tensor with_strides_of(const Tensor& t, const Tensor& like) {
  check<ShapeError>(t.shape() == like.shape(), "expected equal shapes, got ", t.shape(), " and ",
                    like.shape());
  return with_strides(t, like.strides());
}

}  // namespace longhand
