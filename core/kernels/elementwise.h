// The loop that all element-wise operations share: any strides, any number of inputs.
#pragma once

#include <algorithm>
#include <array>
#include <tuple>

#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/tensor.h"

namespace longhand::kernels {

/// An input of elementwise(): a tensor and the type its elements are read as.
template <class T>
struct In {
  const Tensor& tensor;
};
template <class T>
In<T> in(const Tensor& tensor) {
  return {tensor};
}

/// Elements of a task: about 20 µs of work.
inline constexpr int64_t elements_per_task = 1 << 15;

/// Calls visit(offset, done, count) for each stretch along the last axis of elements begin … begin
/// + n of a tensor, with the memory offset of its first element, the number of elements before it
/// and the number in it.
template <class F>
void for_stretches(const Shape& shape, const Strides& strides, int64_t begin, int64_t n, F visit) {
  const int last = shape.rank() - 1;
  std::array<int64_t, Shape::max_rank> index{};
  int64_t offset = 0, rest = begin;
  for (int axis = last; axis >= 0; --axis) {
    index[axis] = rest % shape[axis];
    rest /= shape[axis];
    offset += index[axis] * strides[axis];
  }
  for (int64_t done = 0;;) {
    const int64_t count = std::min(n - done, shape[last] - index[last]);
    visit(offset, done, count);
    done += count;
    if (done == n) return;
    // To the start of the next stretch; the index advances like an odometer.
    offset -= index[last] * strides[last];
    index[last] = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= shape[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

namespace detail {

/// The axes of operands of the same shape, merged where all operands allow it, with the output's
/// innermost axis last.
template <size_t N>
struct Loop {
  Shape shape;
  std::array<Strides, N> strides;
  std::array<bool, N> dense;  // row-major in this shape
};

template <size_t N>
Loop<N> plan(const std::array<const Tensor*, N>& operands) {
  const Tensor& out = *operands[0];
  // Axes in the memory order of the output, without those of size 1.
  std::array<int, Shape::max_rank> order{};
  int rank = 0;
  for (int i = 0; i < out.rank(); ++i) {
    if (out.size(i) == 1) continue;
    int at = rank++;
    for (; at > 0 && out.strides()[order[at - 1]] < out.strides()[i]; --at)
      order[at] = order[at - 1];
    order[at] = i;
  }
  Loop<N> loop;
  for (int k = 0; k < rank; ++k) {
    const int axis = order[k], last = loop.shape.rank() - 1;
    bool merge = last >= 0;
    for (size_t n = 0; merge && n < N; ++n)
      merge = loop.strides[n][last] == operands[n]->strides()[axis] * out.size(axis);
    if (merge) {
      loop.shape[last] *= out.size(axis);
      for (size_t n = 0; n < N; ++n) loop.strides[n][last] = operands[n]->strides()[axis];
    } else {
      loop.shape.push_back(out.size(axis));
      for (size_t n = 0; n < N; ++n) loop.strides[n].push_back(operands[n]->strides()[axis]);
    }
  }
  if (loop.shape.rank() == 0) {
    loop.shape.push_back(1);
    for (auto& s : loop.strides) s.push_back(1);
  }
  const Strides row_major = contiguous_strides(loop.shape);
  for (size_t n = 0; n < N; ++n) loop.dense[n] = loop.strides[n] == row_major;
  return loop;
}

/// Elements that one inner loop processes. If they are not contiguous in memory, they pass through
/// a buffer in the L1 cache.
inline constexpr int64_t piece_size = 512;

template <class T>
struct Buffer {
  Buffer() {}  // keeps a tuple from zero-initialising it
  alignas(64) T data[piece_size];
};

/// Returns elements begin … begin + n of the loop as a contiguous run: in place if they already are
/// one, otherwise in the buffer, to which they are copied if `copy`.
template <class T, class U>
T* piece_of(T* data, const Shape& shape, const Strides& strides, bool dense, int64_t begin,
            int64_t n, Buffer<U>& buffer, bool copy) {
  if (dense) return data + begin;
  T* piece = buffer.data;
  const int64_t step = strides[-1];
  for_stretches(shape, strides, begin, n, [&](int64_t offset, int64_t done, int64_t count) {
    T* const from = data + offset;
    U* const to = buffer.data + done;
    if (step == 1 && count == n)
      piece = from;
    else if (!copy)
      return;
    else if (step == 1)
      std::copy(from, from + count, to);
    else if (step == 0)
      std::fill(to, to + count, *from);
    else
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  });
  return piece;
}

}  // namespace detail

/// out = beta * out + f(in...), element by element; beta = 0 never reads out. All operands have the
/// shape of out (expand() broadcasts). T is the element type of out, and f takes the elements of
/// the inputs. out may be one of the inputs, but must not overlap them in any other way.
template <class T, class F, class... Ts>
void elementwise_accumulate(Tensor& out, double beta, F f, const In<Ts>... inputs) {
  constexpr size_t N = 1 + sizeof...(Ts);
  (check<ShapeError>(inputs.tensor.shape() == out.shape(), "elementwise: shapes ",
                     inputs.tensor.shape(), " and ", out.shape(), " must be equal"),
   ...);
  if (out.numel() == 0) return;
  const auto loop = detail::plan<N>({&out, &inputs.tensor...});
  const Shape& shape = loop.shape;
  T* const out_data = out.data<T>();
  const std::tuple<const Ts*...> in_data{inputs.tensor.template data<Ts>()...};

  // A piece is no longer than a buffer unless none is needed, and does not extend past the end of a
  // long stretch, so that it need not be copied.
  const int64_t stretch = shape[-1];
  bool in_place = stretch >= detail::piece_size / 2;
  for (const Strides& s : loop.strides) in_place = in_place && s[-1] == 1;
  const int64_t limit = in_place ? stretch : detail::piece_size;

  // Arguments, not captures, so the compiler may assume that writes to y change none of them.
  const auto apply = [](F g, T b, int64_t n, T* y, const Ts*... x) {
    if (b == 0)
      for (int64_t i = 0; i < n; ++i) y[i] = g(x[i]...);
    else
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(b * y[i] + g(x[i]...));
  };
  const auto run = [&]<size_t... I>(std::index_sequence<I...>, int64_t begin, int64_t end) {
    detail::Buffer<T> out_buffer;
    std::tuple<detail::Buffer<Ts>...> buffers;
    for (int64_t n; begin < end; begin += n) {
      n = std::min(limit, end - begin);
      if (stretch >= detail::piece_size / 2) n = std::min(n, stretch - begin % stretch);
      T* const y = detail::piece_of(out_data, shape, loop.strides[0], loop.dense[0], begin, n,
                                    out_buffer, beta != 0);
      const std::tuple<const Ts*...> x{detail::piece_of(std::get<I>(in_data), shape,
                                                        loop.strides[I + 1], loop.dense[I + 1],
                                                        begin, n, std::get<I>(buffers), true)...};
      simd([&] { apply(f, static_cast<T>(beta), n, y, std::get<I>(x)...); });
      if (y == out_buffer.data)
        for_stretches(shape, loop.strides[0], begin, n,
                      [&](int64_t offset, int64_t done, int64_t count) {
                        const int64_t step = loop.strides[0][-1];
                        T* const to = out_data + offset;
                        if (step == 1)
                          std::copy(y + done, y + done + count, to);
                        else
                          for (int64_t i = 0; i < count; ++i) to[i * step] = y[done + i];
                      });
    }
  };
  parallel_for(out.numel(), elements_per_task, [&](int64_t begin, int64_t end) {
    run(std::index_sequence_for<Ts...>{}, begin, end);
  });
}

/// out = f(in...); see elementwise_accumulate.
template <class T, class F, class... Ts>
void elementwise(Tensor& out, F f, const In<Ts>... inputs) {
  elementwise_accumulate<T>(out, 0.0, f, inputs...);
}

}  // namespace longhand::kernels
