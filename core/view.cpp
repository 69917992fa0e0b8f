#include "longhand/core/view.h"

namespace longhand {
namespace {

bool is_row_dense(const Tensor& t) {
  if (t.rank() == 0 || t.is_contiguous()) return true;
  return (t.size(-1) == 1 || t.strides()[-1] == 1) && t.is_dense();
}

bool same_strides(const Tensor& a, const Tensor& b) {
  for (int i = 0; i < a.rank(); ++i)
    if (a.size(i) != 1 && a.strides()[i] != b.strides()[i]) return false;
  return true;
}

}  // namespace

Tensor row_dense(const Tensor& t) { return is_row_dense(t) ? t : t.contiguous(); }

void detail::check_row_dense(const Tensor& t) {
  check<ShapeError>(is_row_dense(t), "rows: strides ", t.strides(), " of ", t.shape(),
                    " leave holes between the rows");
}

Tensor with_strides_of(const Tensor& t, const Tensor& like) {
  check<ShapeError>(t.shape() == like.shape(), "shapes ", t.shape(), " and ", like.shape(),
                    " must be equal");
  if (same_strides(t, like)) return t;
  Tensor out = Tensor::empty_ordered(t.shape(), t.dtype(), like.strides());
  copy_into(out, t);
  return out;
}

}  // namespace longhand
