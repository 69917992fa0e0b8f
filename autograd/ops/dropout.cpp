// y_i = keep_i x_i / (1 - p)          dx_i = keep_i dy_i / (1 - p)
// keep_i: 32 random bits, word i mod 4 of the generator's block i / 4, are at least p 2^32,
// rounded: p counts as a multiple of 2^-32. The backward pass computes them again, nothing is
// stored.
#include <algorithm>
#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/kernels/philox.h"

namespace longhand {
namespace {

constexpr int64_t piece = 1024;  // elements whose random words lie in the first cache

struct Mask {
  Generator::State state;
  uint32_t threshold;

  Mask(const Generator& generator, double p)
      : state(generator.state()),
        threshold(static_cast<uint32_t>(std::min(std::nearbyint(p * 0x1p32), 0x1p32 - 1))) {}
};

// Calls f(first element, their number, words), for the pieces of n elements, in parallel.
template <class F>
void for_pieces(Mask mask, int64_t n, F f) {
  parallel_for(n, kernels::elements_per_task, [&](int64_t begin, int64_t end) {
    uint32_t words[piece];
    for (int64_t i = begin; i < end; i += piece) {
      const int64_t count = std::min(piece, end - i);
      kernels::philox_words(mask.state, static_cast<uint64_t>(i / 4), (count + 3) / 4, words);
      simd([&] { f(i, count, words); });
    }
  });
}

// to = beta to + keep from scale, for tensors of one shape.
void drop(const Tensor& from, Tensor& to, Mask mask, double scale, double beta) {
  const int64_t n = to.numel();
  const uint32_t threshold = mask.threshold;
  dispatch_float(to.dtype(), [&]<class T>() {
    const T s = static_cast<T>(scale), b = static_cast<T>(beta);
    if (from.is_contiguous() && to.is_contiguous()) {
      for_pieces(mask, n,
                 [=, x = from.data<T>(), y = to.data<T>()](int64_t i, int64_t count,
                                                           const uint32_t* words) {
                   kernels::row_accumulate(y + i, count, b, [=, x = x + i](int64_t j) {
                     const T kept = x[j] * s;
                     return words[j] >= threshold ? kept : T{0};
                   });
                 });
      return;
    }
    // The mask has the row-major order; the loop over tensors in other orders is elementwise()'s.
    Tensor keep = Tensor::empty(to.shape(), DType::u8);
    for_pieces(mask, n,
               [=, k = keep.data<uint8_t>()](int64_t i, int64_t count, const uint32_t* words) {
                 for (int64_t j = 0; j < count; ++j) k[i + j] = words[j] >= threshold;
               });
    kernels::elementwise_accumulate<T>(
        to, beta, [s](T x, uint8_t k) { return k ? x * s : T{0}; }, kernels::in<T>(from),
        kernels::in<uint8_t>(keep));
  });
}

}  // namespace

Variable dropout(const Variable& x, double p, const Generator& generator) {
  check<ConfigError>(0 <= p && p < 1, "dropout: probability ", p, " is not in [0, 1)");
  if (p == 0) return x;
  const Mask mask(generator, p);
  const double scale = 1 / (1 - p);
  Tensor out = Tensor::empty_ordered(x.shape(), x.dtype(), x.value().strides());
  drop(x.value(), out, mask, scale, 0);
  return record("dropout", out, {x},
                [mask, scale](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const GradSlot::Accumulator dx = grad_in[0].accumulate();
                  drop(grad_out, dx.grad, mask, scale, dx.beta);
                });
}

}  // namespace longhand
