#include "longhand/attention/kernel_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// v with a column of ones, whose weighted sum is the normaliser: one product gives both.
Variable with_ones(const Variable& v) {
  Shape shape = v.shape();
  shape[3] = 1;
  return concat({v, Variable(Tensor::full(shape, 1, v.dtype()))}, 3);
}

// Zeros up to `tokens` along axis 1.
Variable pad_tokens(const Variable& x, int64_t tokens) {
  if (x.size(1) == tokens) return x;
  Shape shape = x.shape();
  shape[1] = tokens - x.size(1);
  return concat({x, Variable(Tensor::zeros(shape, x.dtype()))}, 1);
}

// (B, G C, H, x) to (B, H, G, C, x): a view.
Variable chunked(const Variable& x, int64_t chunk) {
  const int64_t chunks = x.size(1) / chunk;
  return permute(reshape(x, {x.size(0), chunks, chunk, x.size(2), x.size(3)}), {0, 3, 1, 2, 4});
}

constexpr int64_t block = 4096;  // elements of a state that are one task

// For each batch and head, over chunks g: y_0 = 0, y_g = a_g y_(g-1) + x_(g-1). x (B, H, G, …), a
// constant a (B, H, G) f64 (a_0 and a_1 do not matter).
//
//   dx_(g-1) = Dy_g,  Dy_g = dy_g + a_(g+1) Dy_(g+1)
Variable prefix_states(const Variable& x, const Tensor& a) {
  const int64_t sequences = x.size(0) * x.size(1), chunks = x.size(2);
  const int64_t width = x.value().numel() / (sequences * chunks);
  const int64_t blocks = (width + block - 1) / block;
  const Tensor in = x.value().contiguous();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const T* const px = in.data<T>();
    T* const py = out.data<T>();
    const double* const pa = a.data<double>();
    parallel_for(sequences * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task / blocks * chunks, from = task % blocks * block;
        const int64_t n = std::min(block, width - from);
        std::fill_n(py + first * width + from, n, T{0});
        for (int64_t g = 1; g < chunks; ++g) {
          const T* const before = py + (first + g - 1) * width + from;
          const T* const add = px + (first + g - 1) * width + from;
          T* const y = py + (first + g) * width + from;
          const T decay = static_cast<T>(pa[first + g]);
          simd([&] {
            for (int64_t i = 0; i < n; ++i) y[i] = decay * before[i] + add[i];
          });
        }
      }
    });
  });
  return record("prefix_states", out, {x}, [=](const Tensor& grad_out, std::span<GradSlot> slots) {
    const Tensor dy = grad_out.contiguous();
    Tensor dx = Tensor::empty(dy.shape(), dy.dtype());
    dispatch_float(dy.dtype(), [&]<class T>() {
      const T* const pdy = dy.data<T>();
      T* const pdx = dx.data<T>();
      const double* const pa = a.data<double>();
      parallel_for(sequences * blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t first = task / blocks * chunks, from = task % blocks * block;
          const int64_t n = std::min(block, width - from);
          std::fill_n(pdx + (first + chunks - 1) * width + from, n, T{0});
          for (int64_t g = chunks - 1; g >= 1; --g) {
            const T* const after = pdx + (first + g) * width + from;  // Dy_(g+1), or 0 at the end
            const T* const add = pdy + (first + g) * width + from;
            T* const d = pdx + (first + g - 1) * width + from;
            const T decay = g + 1 < chunks ? static_cast<T>(pa[first + g + 1]) : T{0};
            simd([&] {
              for (int64_t i = 0; i < n; ++i) d[i] = decay * after[i] + add[i];
            });
          }
        }
      });
    });
    slots[0].take(dx);
  });
}

// What a log_scale c (B, N, H) becomes: the factors between tokens and chunk borders. C_g is c at
// the last token of chunk g. All are constants.
struct Scales {
  Tensor within;       // (B, H, G, C, C): e^(c_j - c_i) for j <= i, else 0
  Tensor to_end;       // (B, H, G, C, 1): e^(c_j - C_g)
  Tensor from_before;  // (B, H, G, C, 1): e^(C_(g-1) - c_i), 1 in the first chunk
  Tensor between;      // (B, H, G) f64: e^(C_(g-2) - C_(g-1)), 1 in the first two
};

Scales make_scales(const Tensor& log_scale, int64_t chunks, int64_t chunk) {
  const int64_t B = log_scale.size(0), N = log_scale.size(1), H = log_scale.size(2);
  const DType dtype = log_scale.dtype();
  Scales s{Tensor::empty({B, H, chunks, chunk, chunk}, dtype),
           Tensor::empty({B, H, chunks, chunk, 1}, dtype),
           Tensor::empty({B, H, chunks, chunk, 1}, dtype),
           Tensor::full({B, H, chunks}, 1, DType::f64)};
  const Tensor by_head = log_scale.transpose(1, 2).contiguous();  // (B, H, N)
  dispatch_float(dtype, [&]<class T>() {
    const T* const pc = by_head.data<T>();
    T *const within = s.within.data<T>(), *const to_end = s.to_end.data<T>();
    T* const from_before = s.from_before.data<T>();
    double* const between = s.between.data<double>();
    parallel_for(B * H * chunks, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> c(chunk);
      for (int64_t index = begin; index < end; ++index) {
        const T* const row = pc + index / chunks * N;
        const int64_t g = index % chunks;
        // Beyond the last token c stays as it is.
        for (int64_t i = 0; i < chunk; ++i) c[i] = row[std::min(g * chunk + i, N - 1)];
        const T before = row[std::max<int64_t>(g * chunk - 1, 0)], last = c[chunk - 1];
        if (g >= 2) between[index] = std::exp(row[(g - 1) * chunk - 1] - before);
        simd([&] {
          for (int64_t i = 0; i < chunk; ++i) {
            T* const w = within + (index * chunk + i) * chunk;
            const T ci = c[i];
            for (int64_t j = 0; j < chunk; ++j) w[j] = j <= i ? math::exp(c[j] - ci) : T{0};
          }
          for (int64_t i = 0; i < chunk; ++i) {
            to_end[index * chunk + i] = math::exp(c[i] - last);
            from_before[index * chunk + i] = g ? math::exp(before - c[i]) : T{1};
          }
        });
      }
    });
  });
  return s;
}

// (B, N, H, 1) u8: where f holds for the normaliser of (B, N, H, D + 1); undefined if nowhere.
template <class F>
Tensor where_normaliser(const Tensor& sums, F f) {
  const Tensor den = sums.slice(3, -1, sums.size(3)).contiguous();
  Tensor out = Tensor::empty(den.shape(), DType::u8);
  bool any = false;
  dispatch_float(den.dtype(), [&]<class T>() {
    const T* const d = den.data<T>();
    uint8_t* const o = out.data<uint8_t>();
    for (int64_t i = 0; i < den.numel(); ++i) any |= o[i] = f(d[i]);
  });
  return any ? out : Tensor();
}

}  // namespace

Variable causal_kernel_sums(const Variable& fq, const Variable& fk, const Variable& v,
                            const Tensor& log_scale, int64_t chunk) {
  const int64_t B = fq.size(0), N = fq.size(1), H = fq.size(2);
  const int64_t C = std::min(chunk, N), chunks = (N + C - 1) / C;
  const Variable q = chunked(pad_tokens(fq, chunks * C), C);
  const Variable k = chunked(pad_tokens(fk, chunks * C), C);
  const Variable v1 = chunked(pad_tokens(with_ones(v), chunks * C), C);
  Scales s;
  if (log_scale.defined()) {
    s = make_scales(log_scale, chunks, C);
  } else {
    s.within = Tensor::empty({C, C}, fq.dtype());
    for (int64_t i = 0; i < C; ++i) {
      s.within.slice(0, i, i + 1).slice(1, 0, i + 1).fill(1);
      s.within.slice(0, i, i + 1).slice(1, i + 1, C).fill(0);
    }
    s.between = Tensor::full({B, H, chunks}, 1, DType::f64);
  }
  Variable sums = matmul(matmul(q, transpose(k, 3, 4)) * Variable(s.within), v1);
  if (chunks > 1) {
    const Variable ends = log_scale.defined() ? v1 * Variable(s.to_end) : v1;
    const Variable states = prefix_states(matmul(transpose(k, 3, 4), ends), s.between);
    const Variable past = matmul(q, states);
    sums = sums + (log_scale.defined() ? past * Variable(s.from_before) : past);
  }
  // (B, H, G, C, D + 1) to (B, N, H, D + 1)
  sums = reshape(permute(sums, {0, 2, 3, 1, 4}), {B, chunks * C, H, v.size(3) + 1});
  return slice(sums, 1, 0, N);
}

Variable normalised(const Variable& sums, const Guard& guard) {
  const int64_t D = sums.size(3) - 1;
  const double eps = guard.eps;
  Variable den = slice(sums, 3, D, D + 1);
  const auto replace = [&](const Variable& by, auto f) {
    if (const Tensor at = where_normaliser(sums.value(), f); at.defined()) den = where(at, by, den);
  };
  const auto constant = [&](double x) { return Variable(Tensor::scalar(x, sums.dtype())); };
  if (guard.kind == Guard::Kind::add)
    replace(den + 2 * eps, [eps](auto d) { return std::abs(d) <= eps; });
  else if (guard.kind == Guard::Kind::clamp)
    replace(constant(eps), [eps](auto d) { return d < eps; });
  else
    replace(constant(std::numeric_limits<double>::infinity()), [](auto d) { return d == 0; });
  return slice(sums, 3, 0, D) / den;
}

int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths) {
  int64_t count = 0;
  for (int64_t b = 0; b < normalisers.size(0); ++b) {
    const int64_t n = lengths.defined() ? lengths.data<int32_t>()[b] : normalisers.size(1);
    const Tensor dens = normalisers.select(0, b).slice(0, 0, n).contiguous();
    dispatch_float(dens.dtype(), [&]<class T>() {
      const T* const d = dens.data<T>();
      count += std::count_if(d, d + dens.numel(), [](T den) { return den <= 0; });
    });
  }
  return count;
}

Tensor running_max(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  const int64_t N = x.size(1), H = x.size(2);
  dispatch_float(x.dtype(), [&]<class T>() {
    T* p = out.data<T>();
    for (int64_t b = 0; b < x.size(0); ++b, p += N * H)
      for (int64_t i = H; i < N * H; ++i) p[i] = std::max(p[i], p[i - H]);
  });
  return out;
}

}  // namespace longhand::attention
