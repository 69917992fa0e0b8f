// h is the number of steps before t that the filter reaches, f = c / g the filter of channel c, n
// the lengths; x is zero outside 0 … n[b]-1:
// y[b,t,c] = sum_j w[f,j] x[b, t + j - h, c], for t < n[b], else 0
// dx[b,t,c] = sum_j w[f, width - 1 - j] dy[b, t + j - (width - 1 - h), c]: the filters reversed
// dw[f,j] = sum over b, t < n[b] and the channels c of f of dy[b,t,c] x[b, t + j - h, c]
#include <algorithm>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {
using namespace ops;
namespace {

// Work is split into chunks of time steps, and blocks of channels of which a few dozen time steps
// fit in the L1 cache.
constexpr int64_t channel_block = 64, time_block = 32, time_chunk = 512;

struct Sizes {
  int64_t B, T, C, width;
  int64_t before;          // h
  const int32_t* lengths;  // null: all are T

  int64_t length(int64_t b) const { return lengths ? lengths[b] : T; }
  int64_t blocks() const { return (C + channel_block - 1) / channel_block; }
  int64_t chunks() const { return (T + time_chunk - 1) / time_chunk; }
};

// A tensor (B, T, C) with stride 1 along C.
template <class T>
struct Signal {
  T* data;
  int64_t batch_stride, time_stride;

  T* at(int64_t b, int64_t t, int64_t c) const {
    return data + b * batch_stride + t * time_stride + c;
  }
};

template <class T>
Signal<const T> signal(const Tensor& t) {
  return {t.data<T>(), t.strides()[0], t.strides()[1]};
}
template <class T>
Signal<T> signal(Tensor& t) {
  return {t.data<T>(), t.strides()[0], t.strides()[1]};
}

Tensor with_unit_channels(const Tensor& x) { return x.strides()[-1] == 1 ? x : x.contiguous(); }

// to[c] += a[c] x[c] for one pair of rows, or for four: `to` is then loaded and stored once for
// four products.
template <class T>
void add_products(T* __restrict to, int64_t n, const T* a, const T* x) {
  for (int64_t c = 0; c < n; ++c) to[c] += a[c] * x[c];
}
template <class T>
void add_4_products(T* __restrict to, int64_t n, const T* a, int64_t a_stride, const T* x,
                    int64_t x_stride) {
  const T *a1 = a + a_stride, *a2 = a1 + a_stride, *a3 = a2 + a_stride;
  const T *x1 = x + x_stride, *x2 = x1 + x_stride, *x3 = x2 + x_stride;
  for (int64_t c = 0; c < n; ++c)
    to[c] += (a[c] * x[c] + a1[c] * x1[c]) + (a2[c] * x2[c] + a3[c] * x3[c]);
}

// to[c] += sum over i < count of (a + i a_stride)[c] (x + i x_stride)[c]
template <class T>
void add_all_products(T* to, int64_t n, int64_t count, const T* a, int64_t a_stride, const T* x,
                      int64_t x_stride) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    add_4_products(to, n, a + i * a_stride, a_stride, x + i * x_stride, x_stride);
  for (; i < count; ++i) add_products(to, n, a + i * a_stride, x + i * x_stride);
}

// Calls f(b, chunk, first time, last time + 1, first channel, channels) for each chunk and block.
template <class F>
void for_chunks(const Sizes& s, F f) {
  const int64_t work = s.width * std::min(s.C, channel_block) * std::min(s.T, time_chunk);
  const int64_t grain = (int64_t{1} << 20) / std::max<int64_t>(1, work);  // about 50 µs
  parallel_for(s.B * s.chunks() * s.blocks(), grain, [&](int64_t begin, int64_t end) {
    simd([&] {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t c = i % s.blocks() * channel_block, chunk = i / s.blocks() % s.chunks();
        const int64_t t = chunk * time_chunk;
        f(i / s.blocks() / s.chunks(), chunk, t, std::min(s.T, t + time_chunk), c,
          std::min(channel_block, s.C - c));
      }
    });
  });
}

// y = beta y + x filtered, for filters (width, C), one per channel, that reach h steps back.
template <class T>
void filter(const Sizes& s, int64_t h, Signal<const T> x, const T* filters, Signal<T> y, T beta) {
  for_chunks(s, [=](int64_t b, int64_t, int64_t begin, int64_t end, int64_t c, int64_t n) {
    const int64_t length = s.length(b);
    for (int64_t t = begin; t < end; ++t) {
      T* const to = y.at(b, t, c);
      kernels::row_accumulate(to, n, beta, [](int64_t) { return T{0}; });
      if (t >= length) continue;
      const int64_t first = std::max<int64_t>(0, h - t), last = std::min(s.width, length + h - t);
      add_all_products(to, n, last - first, filters + first * s.C + c, s.C,
                       x.at(b, t + first - h, c), x.time_stride);
    }
  });
}

// partial (B, chunks, width, C): partial sums of the gradient of each channel's own filter.
template <class T>
void filter_gradients(const Sizes& s, Signal<const T> x, Signal<const T> dy, T* partial) {
  for_chunks(s, [=, h = s.before, chunks = s.chunks()](int64_t b, int64_t chunk, int64_t begin,
                                                       int64_t end, int64_t c, int64_t n) {
    const int64_t length = s.length(b), stop = std::min(end, length);
    T* const sums = partial + (b * chunks + chunk) * s.width * s.C + c;
    for (int64_t j = 0; j < s.width; ++j) std::fill_n(sums + j * s.C, n, T{0});
    for (int64_t t = begin; t < stop; t += time_block) {
      for (int64_t j = 0; j < s.width; ++j) {
        const int64_t first = std::max(t, h - j);
        const int64_t last = std::min({t + time_block, stop, length + h - j});
        add_all_products(sums + j * s.C, n, last - first, dy.at(b, first, c), dy.time_stride,
                         x.at(b, first + j - h, c), x.time_stride);
      }
    }
  });
}

// Returns (width, C) for weights (C / g, width): one filter per channel, possibly reversed.
template <class T>
Tensor filters_of(const Tensor& weight, int64_t channels, bool reversed) {
  const int64_t width = weight.size(1), shared = channels / std::max<int64_t>(1, weight.size(0));
  Tensor filters = Tensor::empty({width, channels}, weight.dtype());
  const T* const w = weight.data<T>();
  T* const to = filters.data<T>();
  for (int64_t j = 0; j < width; ++j)
    for (int64_t c = 0; c < channels; ++c)
      to[(reversed ? width - 1 - j : j) * channels + c] =
          w[c / shared * weight.strides()[0] + j * weight.strides()[1]];
  return filters;
}

// Returns a copy of the lengths, for the gradient; undefined: all of x.
Tensor checked_lengths(const Tensor& lengths, const Tensor& x) {
  if (!lengths.defined()) return {};
  check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{x.size(0)},
                    "depthwise_conv1d: expected lengths i32 of shape ", Shape{x.size(0)}, ", got ",
                    lengths.dtype(), " of shape ", lengths.shape());
  for (const int32_t n : lengths.to_vector<int32_t>())
    check<ShapeError>(n >= 0 && n <= x.size(1), "depthwise_conv1d: expected lengths in [0, ",
                      x.size(1), "], got ", n);
  return lengths.clone();
}

}  // namespace

Variable depthwise_conv1d(const Variable& x, const Variable& weight,
                          const DepthwiseConvOptions& options) {
  check_float_pair("depthwise_conv1d", x, weight);
  check<ShapeError>(x.rank() == 3 && weight.rank() == 2 && weight.size(1) >= 1 &&
                        (weight.size(0) == 0 ? x.size(2) == 0 : x.size(2) % weight.size(0) == 0),
                    "depthwise_conv1d: expected x (B, T, C) and a weight (C/g, width), got x ",
                    x.shape(), " and a weight ", weight.shape());
  const Tensor lengths = checked_lengths(options.lengths, x.value());
  const int64_t width = weight.size(1);
  const Sizes s{x.size(0),
                x.size(1),
                x.size(2),
                width,
                options.causal ? width - 1 : width / 2,
                lengths.defined() ? lengths.data<int32_t>() : nullptr};
  const Tensor in = with_unit_channels(x.value());
  Tensor out = empty_rows_like(in, s.C);
  dispatch_float(in.dtype(), [&]<class T>() {
    const Tensor filters = filters_of<T>(weight.value(), s.C, false);
    filter<T>(s, s.before, signal<T>(in), filters.data<T>(), signal<T>(out), T{0});
  });
  return record(
      "depthwise_conv1d", out, {x, weight},
      [x = in, weight = weight.value(), lengths, strides = out.strides(), s](
          const Tensor& grad_out, std::span<GradSlot> grad_in) {
        const Tensor dy = with_unit_channels(grad_out);
        dispatch_float(x.dtype(), [&]<class T>() {
          if (grad_in[0])
            accumulate_with_strides(grad_in[0], strides, [&](Tensor& dx, double beta) {
              const Tensor filters = filters_of<T>(weight, s.C, true);
              filter<T>(s, s.width - 1 - s.before, signal<T>(dy), filters.data<T>(), signal<T>(dx),
                        static_cast<T>(beta));
            });
          if (!grad_in[1]) return;
          const int64_t parts = s.B * s.chunks(),
                        shared = s.C / std::max<int64_t>(1, weight.size(0));
          Tensor partial = Tensor::empty({parts, s.width, s.C}, x.dtype());
          Tensor own = Tensor::empty({s.width, s.C}, x.dtype());
          filter_gradients<T>(s, signal<T>(x), signal<T>(dy), partial.data<T>());
          kernels::sum_middle<T>(partial.data<T>(), 1, parts, s.width * s.C, own.data<T>());
          // Channels that share a filter.
          const Tensor shares = own.reshape({s.width, weight.size(0), shared}).permute({1, 0, 2});
          const GradSlot::Accumulator dw = grad_in[1].accumulate();
          Tensor grad = dw.grad.unsqueeze(2);
          kernels::sum_axes_into(grad, shares, {2}, 1, dw.beta);
        });
      });
}

}  // namespace longhand
