// Transforms of any length n take O(n log n): directly for powers of 2, otherwise by Bluestein's
// algorithm (1970), a convolution with e^(iπ k²/n) of length at least 2n - 1. Phases are reduced
// modulo 2n as integers.
#include "longhand/attention/ops/fourier_mix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <map>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

constexpr int64_t lanes = 16;  // transforms computed side by side

// A complex sequence for each lane.
template <class T>
struct Complex {
  std::vector<T> re, im;
  explicit Complex(int64_t n)
      : re(static_cast<size_t>(n * lanes)), im(static_cast<size_t>(n * lanes)) {}
};

// cos and sin of 2π k / n for k < n / 2.
struct Table {
  std::vector<double> cos, sin;
  explicit Table(int64_t n) : cos(static_cast<size_t>(std::max<int64_t>(n / 2, 1))), sin(cos) {
    parallel_for_each(std::ssize(cos), 1 << 10, [&](int64_t k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
      cos[static_cast<size_t>(k)] = std::cos(angle);
      sin[static_cast<size_t>(k)] = std::sin(angle);
    });
  }
};

// (a, b) = (a + w b, a - w b)
template <class T>
[[gnu::always_inline]] inline void butterfly(std::complex<T> w, T& ar, T& ai, T& br, T& bi) {
  const T r = br * w.real() - bi * w.imag(), i = br * w.imag() + bi * w.real();
  br = ar - r;
  bi = ai - i;
  ar += r;
  ai += i;
}

// The stage that joins transforms of size `half` into transforms of size 2 half, for `count`
// elements; if 4 half <= count, also the next one in the same pass over memory. The table is for n.
template <class T>
void stages(T* re, T* im, int64_t count, int64_t half, int64_t n, const Table& table, int sign) {
  const auto root = [&](int64_t k) -> std::complex<T> {
    const auto at = static_cast<size_t>(k);
    return {static_cast<T>(table.cos[at]), static_cast<T>(sign * table.sin[at])};
  };
  const bool two = 4 * half <= count;
  const int64_t size = (two ? 4 : 2) * half, step = half * lanes;
  for (int64_t k = 0; k < half; ++k) {
    const int64_t at = k * (n / (2 * half));
    const std::complex<T> w = root(at), even = root(two ? at / 2 : 0),
                          odd = root(two ? at / 2 + n / 4 : 0);
    for (int64_t first = k; first < count; first += size) {
      T *const r = re + first * lanes, *const i = im + first * lanes;
      if (!two)
#pragma GCC ivdep
#pragma GCC unroll 1
        for (int64_t l = 0; l < lanes; ++l) butterfly(w, r[l], i[l], r[step + l], i[step + l]);
      else
#pragma GCC ivdep
#pragma GCC unroll 1
        for (int64_t l = 0; l < lanes; ++l) {
          T ar = r[l], br = r[step + l], cr = r[2 * step + l], dr = r[3 * step + l];
          T ai = i[l], bi = i[step + l], ci = i[2 * step + l], di = i[3 * step + l];
          butterfly(w, ar, ai, br, bi);
          butterfly(w, cr, ci, dr, di);
          butterfly(even, ar, ai, cr, ci);
          butterfly(odd, br, bi, dr, di);
          r[l] = ar, r[step + l] = br, r[2 * step + l] = cr, r[3 * step + l] = dr;
          i[l] = ai, i[step + l] = bi, i[2 * step + l] = ci, i[3 * step + l] = di;
        }
    }
  }
}

// x_k = Σ_j x_j e^(-2πi jk / n) in place, n a power of 2; with sign = 1, e^(+2πi jk / n).
template <class T>
void transform_power(T* re, T* im, int64_t n, const Table& table, int sign) {
  for (int64_t i = 1, j = 0; i < n; ++i) {  // in bit-reversed order
    int64_t bit = n / 2;
    for (; j & bit; bit /= 2) j ^= bit;
    j ^= bit;
    if (i < j) {
      std::swap_ranges(re + i * lanes, re + (i + 1) * lanes, re + j * lanes);
      std::swap_ranges(im + i * lanes, im + (i + 1) * lanes, im + j * lanes);
    }
  }
  // Blocks that fit into the L1 cache are transformed first; then each pass does two stages.
  constexpr int64_t cached = 256;
  const int64_t block = std::min(n, cached);
  for (int64_t first = 0; first < n; first += block)
    for (int64_t half = 1; half < block; half *= half * 4 <= block ? 4 : 2)
      stages(re + first * lanes, im + first * lanes, block, half, n, table, sign);
  for (int64_t half = block; half < n; half *= half * 4 <= n ? 4 : 2)
    stages(re, im, n, half, n, table, sign);
}

// Transforms of one length.
template <class T>
class Plan {
 public:
  explicit Plan(int64_t n)
      : n_(n),
        size_(std::has_single_bit(static_cast<uint64_t>(n))
                  ? n
                  : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)))),
        table_(size_) {
    if (size_ == n_) return;
    // e^(-πi k²/n), and the transform of e^(πi k²/n), |k| < n, cyclic in size_. One lane is kept.
    Complex<double> chirp(size_);
    for (int64_t k = 0; k < n_; ++k) {
      const double angle =
          std::numbers::pi * static_cast<double>(k * k % (2 * n_)) / static_cast<double>(n_);
      cos_.push_back(static_cast<T>(std::cos(angle)));
      sin_.push_back(static_cast<T>(-std::sin(angle)));
      for (const int64_t at : {k, (size_ - k) % size_}) {
        chirp.re[static_cast<size_t>(at * lanes)] = std::cos(angle);
        chirp.im[static_cast<size_t>(at * lanes)] = std::sin(angle);
      }
    }
    transform_power(chirp.re.data(), chirp.im.data(), size_, table_, -1);
    for (int64_t k = 0; k < size_; ++k) {  // divided by size_, for the inverse
      const auto at = static_cast<size_t>(k * lanes);
      chirp_re_.push_back(static_cast<T>(chirp.re[at] / static_cast<double>(size_)));
      chirp_im_.push_back(static_cast<T>(chirp.im[at] / static_cast<double>(size_)));
    }
  }

  // Elements of memory that apply() needs.
  int64_t size() const { return size_; }

  // x_k = Σ_j x_j e^(-2πi jk / n) for k < n, in place, using size() elements of scratch memory.
  void apply(T* re, T* im) const {
    simd([=, this] {
      if (size_ == n_) return transform_power(re, im, n_, table_, -1);
      chirp(re, im);
      std::fill(re + n_ * lanes, re + size_ * lanes, T{0});
      std::fill(im + n_ * lanes, im + size_ * lanes, T{0});
      transform_power(re, im, size_, table_, -1);
      for (int64_t k = 0; k < size_; ++k)
        multiply(re + k * lanes, im + k * lanes, chirp_re_[static_cast<size_t>(k)],
                 chirp_im_[static_cast<size_t>(k)]);
      transform_power(re, im, size_, table_, 1);
      chirp(re, im);
    });
  }

 private:
  static void multiply(T* re, T* im, T c, T s) {
#pragma GCC ivdep
#pragma GCC unroll 1
    for (int64_t l = 0; l < lanes; ++l) {
      const T r = re[l] * c - im[l] * s;
      im[l] = re[l] * s + im[l] * c;
      re[l] = r;
    }
  }
  void chirp(T* re, T* im) const {
    for (int64_t k = 0; k < n_; ++k)
      multiply(re + k * lanes, im + k * lanes, cos_[static_cast<size_t>(k)],
               sin_[static_cast<size_t>(k)]);
  }

  int64_t n_, size_;
  Table table_;
  std::vector<T> cos_, sin_, chirp_re_, chirp_im_;
};

// Computes scale Re(F_n x F_C) for n rows of C elements; y must not be x.
template <class T>
void mix(const T* x, int64_t n, int64_t C, double scale, const Plan<T>& along,
         const Plan<T>& across, T* y) {
  // After the transform of rows: re and im (n, C).
  Tensor rows = Tensor::empty({2, n, C}, dtype_of<T>);
  T *const re = rows.data<T>(), *const im = re + n * C;
  parallel_for_each((n + lanes - 1) / lanes, 1, [&](int64_t block) {
    const int64_t first = block * lanes, count = std::min(lanes, n - first);
    Complex<T> work(across.size());  // zeros
    kernels::transpose_into<T>(count, C, x + first * C, C, T{1}, work.re.data(), lanes, false);
    across.apply(work.re.data(), work.im.data());
    for (const auto& [from, to] : {std::pair{&work.re, re}, std::pair{&work.im, im}})
      kernels::transpose_into<T>(C, count, from->data(), lanes, T{1}, to + first * C, C, false);
  });
  parallel_for_each((C + lanes - 1) / lanes, 1, [&](int64_t block) {
    const int64_t first = block * lanes, count = std::min(lanes, C - first);
    Complex<T> work(along.size());
    for (const auto& [from, to] : {std::pair{re, &work.re}, std::pair{im, &work.im}})
      for (int64_t i = 0; i < n; ++i)  // lanes from `count` on hold arbitrary values
        std::copy_n(from + i * C + first, count, to->data() + i * lanes);
    along.apply(work.re.data(), work.im.data());
    simd([=, factor = static_cast<T>(scale), from = work.re.data()] {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t l = 0; l < count; ++l) y[i * C + first + l] = factor * from[i * lanes + l];
    });
  });
}

// The transforms of the real tokens of each sequence of x (B, N, H, D); 0 at padding.
Tensor mixed(const Tensor& x, const std::vector<int32_t>& lengths, bool ortho) {
  const Tensor in = x.contiguous();
  const int64_t B = x.size(0), N = x.size(1), C = x.size(2) * x.size(3);
  Tensor out = Tensor::zeros(x.shape(), x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const Plan<T> across(C);
    std::map<int64_t, std::unique_ptr<Plan<T>>> along;
    for (const int32_t n : lengths)
      if (n > 0) along[n];
    std::vector<std::pair<const int64_t, std::unique_ptr<Plan<T>>>*> plans;
    for (auto& plan : along) plans.push_back(&plan);
    parallel_for_each(std::ssize(plans), 1, [&](int64_t p) {
      auto& [n, plan] = *plans[static_cast<size_t>(p)];
      plan = std::make_unique<Plan<T>>(n);
    });
    T* const to = out.data<T>();
    parallel_for_each(B, 1, [&](int64_t b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      if (n == 0) return;
      const double scale = ortho ? 1 / std::sqrt(static_cast<double>(n * C)) : 1;
      mix(in.data<T>() + b * N * C, n, C, scale, *along.at(n), across, to + b * N * C);
    });
  });
  return out;
}

}  // namespace

Variable fourier_mix(const Variable& v, const Tensor& lengths, bool ortho) {
  ops::check_float("fourier_mix", v);
  check<ShapeError>(v.rank() == 4, "fourier_mix: expected (B, N, H, D), got ", v.shape());
  const auto n = tile::lengths_or("fourier_mix: lengths", lengths, v.size(0), v.size(1));
  return record("fourier_mix", mixed(v.value(), n, ortho), {v},
                [n, ortho](const Tensor& grad_out, std::span<GradSlot> slots) {
                  slots[0].take(mixed(grad_out, n, ortho));
                });
}

}  // namespace longhand::attention
