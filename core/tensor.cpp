#include "longhand/core/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/memory/recycled.h"

namespace longhand {
namespace {

// The axes in descending order of their strides. Axes of size 1 and broadcast axes (stride 0) do
// not affect the memory order and keep their positions.
using Order = std::array<int, Shape::max_rank>;
Order memory_order(const Shape& shape, const Strides& strides) {
  Order order{}, places{}, sorted{};
  int count = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    order[i] = i;
    if (shape[i] == 1 || strides[i] == 0) continue;
    int at = count;
    places[count++] = i;
    for (; at > 0 && strides[sorted[at - 1]] < strides[i]; --at) sorted[at] = sorted[at - 1];
    sorted[at] = i;
  }
  for (int i = 0; i < count; ++i) order[places[i]] = sorted[i];
  return order;
}

// Whether a dry run needs the values, as for lengths, on which the sizes of other tensors depend.
bool is_of_dry_run(const Tensor& t) {
  return is_dry() && t.dtype() == DType::i32 && t.numel() <= 1 << 15 && t.is_contiguous();
}

bool is_row_major(const Shape& shape, const Strides& strides) {
  int64_t step = 1;
  bool row_major = true;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    row_major = row_major && (shape[i] == 1 || strides[i] == step);
    step *= shape[i];
  }
  return row_major || step == 0;  // without elements, any order is row-major
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool too_large = false;
  for (int64_t size : shape) {
    check<ShapeError>(size >= 0, "tensor: negative size in shape ", shape);
    too_large |= __builtin_mul_overflow(bytes, size, &bytes);
  }
  check<ShapeError>(!too_large, "tensor: the bytes of shape ", shape, " exceed 64-bit integers");
  Tensor out;
  out.storage_ = make_recycled<Storage>(static_cast<size_t>(bytes));
  out.shape_ = shape;
  out.strides_ = contiguous_strides(shape);
  out.dtype_ = dtype;
  return out;
}

Tensor Tensor::empty_ordered(const Shape& shape, DType dtype, const Strides& like) {
  Tensor out = empty(shape, dtype);
  out.strides_ = dense_strides(shape, like);
  return out;
}

Tensor Tensor::borrow(const void* data, const Shape& shape, const Strides& strides, DType dtype,
                      std::shared_ptr<const void> owner) {
  check<ShapeError>(strides.rank() == shape.rank(),
                    "tensor: expected as many strides as sizes, got ", strides, " for shape ",
                    shape);
  int64_t last = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    check<ShapeError>(shape[i] >= 0 && strides[i] >= 0,
                      "tensor: expected sizes and strides of at least 0, got shape ", shape,
                      " and strides ", strides);
    last += (shape[i] - 1) * strides[i];
  }
  const size_t bytes = shape.numel() ? (last + 1) * size_of(dtype) : 0;
  Tensor out;
  out.storage_ = make_recycled<Storage>(static_cast<std::byte*>(const_cast<void*>(data)), bytes,
                                        std::move(owner));
  out.shape_ = shape;
  out.strides_ = strides;
  out.dtype_ = dtype;
  return out;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype) {
  Tensor out = empty(shape, dtype);
  if (out.numel() && !is_dry()) std::memset(out.storage_->data(), 0, out.storage_->bytes());
  return out;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype) {
  Tensor out = empty(shape, dtype);
  out.fill(value);
  return out;
}

const void* Tensor::address() const {
  return dispatch_any(dtype_, [this]<class T>() -> const void* { return data<T>(); });
}

bool Tensor::is_contiguous() const { return is_row_major(shape_, strides_); }

bool Tensor::is_dense() const { return in_memory_order().is_contiguous(); }

Tensor Tensor::view(const Shape& shape, const Strides& strides, int64_t offset) const {
  check<ShapeError>(defined(), "tensor: an undefined tensor has no views");
  Tensor out = *this;
  out.shape_ = shape;
  out.strides_ = strides;
  out.offset_ = offset;
  return out;
}

Tensor Tensor::reshape(Shape shape) const {
  const Tensor view = try_reshape(shape);
  check<ShapeError>(view.defined(), "reshape: ", shape_, " with strides ", strides_,
                    " cannot be viewed as ", shape, "; call contiguous() first");
  return view;
}

Tensor Tensor::try_reshape(Shape shape) const {
  int64_t known = 1, unknown = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) {
      known *= shape[i];
    } else {
      check<ShapeError>(shape[i] == -1 && unknown < 0,
                        "reshape: expected sizes of at least 0 and at most one -1, got ", shape);
      unknown = i;
    }
  }
  if (unknown >= 0) shape[static_cast<int>(unknown)] = known ? numel() / known : 0;
  check<ShapeError>(shape.numel() == numel(), "reshape: ", shape_, " and ", shape,
                    " differ in the number of elements");
  if (numel() == 0 || is_contiguous()) return view(shape, contiguous_strides(shape), offset_);

  // Axes of size 1 are dropped. Then groups of old axes are matched with groups of new axes that
  // have the same number of elements; each old group must merge into one axis of constant stride.
  Shape old_sizes;
  Strides old_strides;
  for (int i = 0; i < rank(); ++i) {
    if (shape_[i] == 1) continue;
    old_sizes.push_back(shape_[i]);
    old_strides.push_back(strides_[i]);
  }
  Strides strides = shape;
  int new_begin = 0, old_begin = 0;
  while (new_begin < shape.rank() && old_begin < old_sizes.rank()) {
    int new_end = new_begin + 1, old_end = old_begin + 1;
    int64_t new_count = shape[new_begin], old_count = old_sizes[old_begin];
    while (new_count != old_count) {
      if (new_count < old_count)
        new_count *= shape[new_end++];
      else
        old_count *= old_sizes[old_end++];
    }
    for (int i = old_begin; i + 1 < old_end; ++i)
      if (old_strides[i] != old_sizes[i + 1] * old_strides[i + 1]) return {};
    int64_t stride = old_strides[old_end - 1];
    for (int i = new_end - 1; i >= new_begin; --i) {
      strides[i] = stride;
      stride *= shape[i];
    }
    new_begin = new_end;
    old_begin = old_end;
  }
  for (; new_begin < shape.rank(); ++new_begin) strides[new_begin] = 1;  // only sizes of 1 remain
  return view(shape, strides, offset_);
}

Tensor Tensor::transpose(int a, int b) const {
  Shape shape = shape_;
  Strides strides = strides_;
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return view(shape, strides, offset_);
}

Tensor Tensor::permute(std::span<const int> order) const {
  check<ShapeError>(static_cast<int>(order.size()) == rank(), "permute: expected ", rank(),
                    " axes for shape ", shape_, ", got ", order.size());
  Shape shape = shape_;
  Strides strides = strides_;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int from = shape_.index(order[i]);
    check<ShapeError>(!(seen >> from & 1), "permute: axis ", from, " is given twice");
    seen |= 1u << from;
    shape[i] = shape_[from];
    strides[i] = strides_[from];
  }
  return view(shape, strides, offset_);
}

Tensor Tensor::slice(int axis, int64_t begin, int64_t end, int64_t step) const {
  const int64_t n = size(axis);
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  check<ShapeError>(0 <= begin && begin <= end && end <= n && step >= 1,
                    "slice: expected 0 <= begin <= end <= ", n, " and step >= 1 along axis ", axis,
                    " of ", shape_, ", got begin ", begin, ", end ", end, " and step ", step);
  step = std::min(step, std::max<int64_t>(n, 1));  // gives the same elements, and cannot overflow
  Shape shape = shape_;
  Strides strides = strides_;
  shape[axis] = (end - begin + step - 1) / step;
  strides[axis] *= step;
  return view(shape, strides, offset_ + begin * strides_[axis]);
}

Tensor Tensor::select(int axis, int64_t index) const {
  const int64_t n = size(axis);
  if (index < 0) index += n;
  check<ShapeError>(0 <= index && index < n, "select: index ", index,
                    " is out of range along axis ", axis, " of ", shape_);
  return view(shape_.without_axis(axis), strides_.without_axis(axis),
              offset_ + index * strides_[axis]);
}

Tensor Tensor::expand(const Shape& shape) const {
  check<ShapeError>(shape.rank() >= rank(), "expand: ", shape_, " cannot be broadcast to ", shape);
  Strides strides = shape;
  for (int i = 1; i <= shape.rank(); ++i) {
    const int64_t from = i <= rank() ? shape_[-i] : 1;
    check<ShapeError>(from == shape[-i] || (from == 1 && shape[-i] >= 0), "expand: ", shape_,
                      " cannot be broadcast to ", shape);
    strides[-i] = i <= rank() && from == shape[-i] ? strides_[-i] : 0;
  }
  return view(shape, strides, offset_);
}

Tensor Tensor::unsqueeze(int axis) const {
  const Shape shape = shape_.with_axis(axis, 1);
  const int at = shape.index(axis);
  // The stride that the new axis would have in a row-major tensor, which keeps is_row_major simple.
  const int64_t stride = at < rank() ? strides_[at] * shape_[at] : 1;
  return view(shape, strides_.with_axis(at, stride), offset_);
}

Tensor Tensor::squeeze(int axis) const {
  check<ShapeError>(size(axis) == 1, "squeeze: expected size 1 along axis ", axis, " of ", shape_,
                    ", got ", size(axis));
  return view(shape_.without_axis(axis), strides_.without_axis(axis), offset_);
}

Tensor Tensor::in_memory_order() const {
  const Order order = memory_order(shape_, strides_);
  return permute(std::span(order.data(), static_cast<size_t>(rank())));
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  Tensor out = empty(shape_, dtype_);
  copy_into(out, *this);
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty_ordered(shape_, dtype_, strides_);
  copy_into(out, *this);
  return out;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out = empty_ordered(shape_, dtype, strides_);
  copy_into(out, *this);
  return out;
}

double Tensor::item() const {
  check<ShapeError>(numel() == 1, "item: expected one element, got shape ", shape_);
  return dispatch_any(dtype_, [&]<class T>() { return static_cast<double>(*data<T>()); });
}

double Tensor::at(std::initializer_list<int64_t> index) const {
  Tensor t = *this;
  for (int64_t i : index) t = t.select(0, i);
  return t.item();
}

void Tensor::fill(double value) {
  dispatch_any(dtype_, [&]<class T>() {
    const T v = static_cast<T>(value);
    if (is_of_dry_run(*this)) std::fill_n(data<T>(), numel(), v);
    kernels::elementwise<T>(*this, [v] { return v; });
  });
}

Strides dense_strides(const Shape& shape, const Strides& like) {
  check<ShapeError>(shape.rank() == like.rank(), "tensor: strides ", like, " and shape ", shape,
                    " differ in rank");
  const Order order = memory_order(shape, like);
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= shape[order[i]];
  }
  return strides;
}

void copy_into(Tensor& out, const Tensor& in) {
  check<ShapeError>(out.shape() == in.shape(), "copy: expected equal shapes, got a source ",
                    in.shape(), " and a destination ", out.shape());
  if (is_of_dry_run(in) && is_of_dry_run(out) && in.dtype() == out.dtype())
    std::memcpy(out.data<int32_t>(), in.data<int32_t>(),
                static_cast<size_t>(in.numel()) * sizeof(int32_t));
  dispatch_any(out.dtype(), [&]<class To>() {
    dispatch_any(in.dtype(), [&]<class From>() {
      kernels::elementwise<To>(
          out, [](From x) { return static_cast<To>(x); }, kernels::in<From>(in));
    });
  });
}

void accumulate_into(Tensor& out, double beta, const Tensor& in) {
  dispatch_float(out.dtype(), [&]<class T>() {
    kernels::elementwise_accumulate<T>(
        out, beta, [](T x) { return x; }, kernels::in<T>(in));
  });
}

bool identical(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.numel() == 0 ||
         std::memcmp(x.address(), y.address(), static_cast<size_t>(x.bytes())) == 0;
}

}  // namespace longhand
