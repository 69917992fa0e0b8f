// c = alpha a b          da = alpha dc bᵀ,  db = alpha aᵀ dc, summed over batch axes that were
// broadcast
#include <algorithm>

#include "longhand/autograd/ops.h"
#include "longhand/core/gemm.h"

namespace longhand {
namespace {

// Uninitialised memory, with batch axes and rows in a's memory order: the heads of a (B, H, N, D)
// that is a view of (B, N, H, D) stay adjacent, so that concatenating them is again a view.
Tensor empty_product(const Tensor& a, const Shape& shape) {
  Strides order = shape;
  for (int i = 1; i <= shape.rank(); ++i)
    order[-i] = i > 1 && i <= a.rank() && a.size(-i) == shape[-i] ? a.strides()[-i] : 0;
  return Tensor::empty_ordered(shape, a.dtype(), order);
}

// Merges axes first … last-1 into one: a view if strides allow.
Tensor merge_axes(const Tensor& t, int first, int last) {
  Shape shape;
  for (int i = 0; i < t.rank(); ++i) {
    if (i <= first || i >= last)
      shape.push_back(t.size(i));
    else
      shape[first] *= t.size(i);
  }
  bool even = true;
  int64_t stride = -1;  // required of the next outer axis
  for (int i = last - 1; i >= first; --i) {
    if (t.size(i) == 1) continue;
    even = even && (stride < 0 || t.strides()[i] == stride);
    stride = t.strides()[i] * t.size(i);
  }
  if (even) return t.reshape(shape);
  if (t.strides()[last - 1] != 1) return t.contiguous().reshape(shape);
  // The innermost axis stays innermost, so that whole rows are copied rather than transposed.
  ShortVector<int> inward, back;
  Shape permuted;
  for (int i = 0; i < t.rank(); ++i)
    if (i < first || i >= last) inward.push_back(i), permuted.push_back(t.size(i));
  for (int i = first; i < last; ++i) inward.push_back(i);
  permuted.push_back(shape[first]);
  for (int i = 0; i < shape.rank(); ++i)
    back.push_back(i < first ? i : i == first ? shape.rank() - 1 : i - 1);
  return t.permute(inward).contiguous().reshape(permuted).permute(back);
}

Tensor with_rank(Tensor t, int rank) {
  while (t.rank() < rank) t = t.unsqueeze(0);
  return t;
}

// out = alpha x y + beta out, for out with any strides.
void product_into(Tensor& out, const Tensor& x, const Tensor& y, double alpha, double beta) {
  const auto unit = [&](int axis) { return out.size(axis) == 1 || out.strides()[axis] == 1; };
  if (unit(-1)) return matmul_into(out, x, y, alpha, beta);
  if (unit(-2)) {
    Tensor transposed = out.transpose(-2, -1);
    return matmul_into(transposed, y.transpose(-2, -1), x.transpose(-2, -1), alpha, beta);
  }
  Tensor product = Tensor::empty(out.shape(), out.dtype());
  matmul_into(product, x, y, alpha);
  accumulate_into(out, beta, product);
}

// Adds alpha x y to the gradient: x (batch, p, c), y (batch, c, q), gradient (…, p, q). Batch axes
// S along which the input was broadcast join the summed axis: (…, p, S c) times (…, S c, q).
void accumulate_product(GradSlot& slot, const Tensor& x, const Tensor& y, double alpha) {
  const GradSlot::Accumulator to = slot.accumulate();
  const int rank = std::max({x.rank(), y.rank(), to.grad.rank()});
  Tensor grad = with_rank(to.grad, rank);
  const Tensor left = with_rank(x, rank), right = with_rank(y, rank);

  ShortVector<int> kept, repeated;
  for (int i = 0; i < rank - 2; ++i) {
    const bool one = left.size(i) == 1 && right.size(i) == 1;
    (grad.size(i) == 1 && !one ? repeated : kept).push_back(i);
  }
  const int batch = static_cast<int>(kept.size());
  ShortVector<int> left_order = kept, right_order = kept;
  left_order.push_back(-2);
  for (int i : repeated) left_order.push_back(i), right_order.push_back(i);
  left_order.push_back(-1);
  right_order.push_back(-2), right_order.push_back(-1);
  for (size_t i = repeated.size(); i-- > 0;) grad = grad.squeeze(repeated[i]);
  product_into(grad, merge_axes(left.permute(left_order), batch + 1, rank),
               merge_axes(right.permute(right_order), batch, rank - 1), alpha, to.beta);
}

// Whether b is one matrix for the whole batch of a, whose rows also form a single matrix. Without
// elements, a may be contiguous while the product, which has the order of its strides, is not.
bool is_one_product(const Tensor& a, const Tensor& b) {
  return a.numel() != 0 && a.is_contiguous() && b.numel() == b.size(-2) * b.size(-1) &&
         b.rank() <= a.rank();
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b, double alpha) {
  check<ShapeError>(a.dtype() == b.dtype(), "matmul: expected equal dtypes, got ", a.dtype(),
                    " and ", b.dtype());
  const Shape shape = matmul_shape(a.shape(), b.shape());
  Tensor out = empty_product(a.value(), shape);
  if (is_one_product(a.value(), b.value()) && out.numel() != 0) {
    const int64_t k = b.size(-2), n = b.size(-1);
    Tensor c = out.reshape({-1, n});
    matmul_into(c, a.value().reshape({c.size(0), k}), b.value().reshape({k, n}), alpha);
  } else {
    matmul_into(out, a.value(), b.value(), alpha);
  }
  return record(
      "matmul", out, {a, b},
      [a = a.value(), b = b.value(), alpha](const Tensor& grad_out, std::span<GradSlot> grad_in) {
        if (grad_in[0]) accumulate_product(grad_in[0], grad_out, b.transpose(-2, -1), alpha);
        if (grad_in[1]) accumulate_product(grad_in[1], a.transpose(-2, -1), grad_out, alpha);
      });
}

}  // namespace longhand
