// Attention-free Transformer. Zhai et al. 2021 (arXiv 2105.14103), eq. 2: for each channel c, an
// average over keys that no query chooses, multiplied by a gate of the query,
//
//   o_i = sigmoid(q_i) ∘ y_i,   y_ic = Σ_j e^(k_jc + w_ij) v_jc / Σ_j e^(k_jc + w_ij)
//
// with biases w of positions, the same for all channels, and
//   full    w (L, L) learned, L = max_length, or of rank r: w = U Vᵀ
//   local   w_ij learned where |i - j| < window, otherwise 0
//   simple  w = 0
//
// Terms are relative to the largest of each (i, c), so nothing overflows or underflows together. Those
// with w = 0 enter as sums over the tokens before and after the window, so local takes N window D and
// simple N D exponentials; full takes N² D. Memory is O(N D) in all of them.
//
// For the gradients, with L = log Σ_j e^(k_j + w_ij), p_ij = e^(k_j + w_ij - L_i) and g_ij = p_ij dy_i
// (v_j - y_i) of each channel:
//
//   dv_j = Σ_i p_ij dy_i,   dk_j = Σ_i g_ij,   dw_ij = Σ_c g_ij
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

// The exponent of a sum that is empty. Finite: differences of two of them are numbers.
constexpr double nothing = -1e300;
constexpr int64_t lanes = 32;  // channels of a task
constexpr int64_t run = 64;    // terms that are added in T before they are added in double

// Σ e^t v and Σ e^t of some channels, relative to e^most.
struct Sums {
  double most[lanes], value[lanes], total[lanes];

  void clear(int64_t n) {
    std::fill_n(most, n, nothing);
    std::fill_n(value, n, 0.0);
    std::fill_n(total, n, 0.0);
  }
  template <class T>
  void add(const T* t, const T* v, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const double x = static_cast<double>(t[c]), e = math::exp(-std::abs(x - most[c])),
                   a = static_cast<double>(v[c]);
      value[c] = x > most[c] ? value[c] * e + a : value[c] + e * a;
      total[c] = x > most[c] ? total[c] * e + 1 : total[c] + e;
      most[c] = std::max(x, most[c]);
    }
  }
  void add(const Sums& other, int64_t n) {
    for (int64_t c = 0; c < n; ++c) {
      const double x = std::max(most[c], other.most[c]), own = math::exp(most[c] - x),
                   others = math::exp(other.most[c] - x);
      value[c] = value[c] * own + other.value[c] * others;
      total[c] = total[c] * own + other.total[c] * others;
      most[c] = x;
    }
  }
};

// Biases w_ij for |i - j| < window, others 0: element (i, j) of full biases, (i, window - 1 + j - i) of
// a band (N, 2 window - 1). Without biases, window is 0.
struct Biases {
  Tensor values;
  int64_t window = 0;
  bool band = false;

  template <class T>
  const T* row(int64_t i) const {  // of j
    return values.data<T>() + i * values.size(1) + (band ? window - 1 - i : 0);
  }
};

// What tasks have in common.
struct Sizes {
  int64_t B, N, C;  // C = H D channels
  bool causal;
  std::vector<int32_t> lengths;
  int64_t window;

  int64_t parts() const { return (C + lanes - 1) / lanes; }
  int64_t first(int64_t i) const { return std::max<int64_t>(0, i - window + 1); }
  // The keys of the window of query i are first(i) … end(i) - 1.
  int64_t end(int64_t i, int64_t n) const {
    return window == 0 ? first(i) : causal ? i + 1 : std::min(n, i + window);
  }
  // Outside of it are keys up to i - window and, unless causal, from i + gap() on.
  int64_t gap() const { return std::max<int64_t>(window, 1); }
};

// Adds the terms of keys [begin, end) with biases w[j] to sums.
template <class T>
void add_window(const T* k, const T* v, const T* w, int64_t begin, int64_t end, int64_t step,
                int64_t n, Sums& sums) {
  T most[lanes];
  for (int64_t c = 0; c < n; ++c) most[c] = k[begin * step + c] + w[begin];
  for (int64_t j = begin + 1; j < end; ++j)
    for (int64_t c = 0; c < n; ++c) most[c] = std::max(most[c], k[j * step + c] + w[j]);
  Sums window;
  window.clear(n);
  for (int64_t c = 0; c < n; ++c) window.most[c] = static_cast<double>(most[c]);
  for (int64_t j = begin; j < end; j += run) {
    T value[lanes] = {}, total[lanes] = {};
    for (int64_t l = j; l < std::min(end, j + run); ++l)
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        const T e = math::exp(k[l * step + c] + w[l] - most[c]);
        total[c] += e;
        value[c] += e * v[l * step + c];
      }
    for (int64_t c = 0; c < n; ++c) {
      window.value[c] += static_cast<double>(value[c]);
      window.total[c] += static_cast<double>(total[c]);
    }
  }
  sums.add(window, n);
}

// y and L of one part of the channels of one sequence of n tokens.
template <class T>
void forward_part(const T* k, const T* v, const Biases& w, const Sizes& z, int64_t n,
                  int64_t channels, T* y, T* L) {
  std::vector<Sums> after;  // of keys from i + gap on
  const int64_t step = z.C, gap = z.gap();
  Sums sums;
  if (!z.causal && n > gap) {
    after.resize(static_cast<size_t>(n - gap));
    sums.clear(channels);
    simd([=, &sums, to = after.data()] {
      for (int64_t i = n - gap - 1; i >= 0; --i) {
        sums.add(k + (i + gap) * step, v + (i + gap) * step, channels);
        to[i] = sums;
      }
    });
  }
  Sums before;  // of keys up to i - window
  before.clear(channels);
  for (int64_t i = 0; i < n; ++i) {
    simd([&, i] {
      if (i >= z.window) before.add(k + (i - z.window) * step, v + (i - z.window) * step, channels);
      sums = before;
      if (static_cast<size_t>(i) < after.size()) sums.add(after[static_cast<size_t>(i)], channels);
      if (const int64_t begin = z.first(i), end = z.end(i, n); begin < end)
        add_window(k, v, w.row<T>(i), begin, end, step, channels, sums);
    });
    for (int64_t c = 0; c < channels; ++c) {
      y[i * step + c] = static_cast<T>(sums.value[c] / sums.total[c]);
      L[i * step + c] = static_cast<T>(sums.most[c] + std::log(sums.total[c]));
    }
  }
}

// Σ e^-L_i dy_i and Σ e^-L_i dy_i y_i over some queries, relative to e^-least.
struct BackSums {
  double least[lanes], dy[lanes], dyy[lanes];

  void clear(int64_t n) {
    std::fill_n(least, n, -nothing);
    std::fill_n(dy, n, 0.0);
    std::fill_n(dyy, n, 0.0);
  }
  template <class T>
  void add(const T* L, const T* d, const T* y, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const double x = static_cast<double>(L[c]), e = math::exp(-std::abs(x - least[c])),
                   a = static_cast<double>(d[c]), b = a * static_cast<double>(y[c]);
      dy[c] = x < least[c] ? dy[c] * e + a : dy[c] + e * a;
      dyy[c] = x < least[c] ? dyy[c] * e + b : dyy[c] + e * b;
      least[c] = std::min(x, least[c]);
    }
  }
  // The gradients of a key that all these queries average with w = 0.
  template <class T>
  void give(const T* k, const T* v, int64_t n, double* dk, double* dv) const {
    for (int64_t c = 0; c < n; ++c) {
      const double e = math::exp(static_cast<double>(k[c]) - least[c]);
      dv[c] += e * dy[c];
      dk[c] += e * (static_cast<double>(v[c]) * dy[c] - dyy[c]);
    }
  }
};

// The operands of the gradients: k, v, y, L and dy at a token and channel.
template <class T>
struct Back {
  const T *k, *v, *y, *L, *dy;
  Back at(int64_t offset) const {
    return {k + offset, v + offset, y + offset, L + offset, dy + offset};
  }
};

template <class T>
void backward_part(const Back<T>& x, const Biases& w, const Sizes& z, int64_t n, int64_t channels,
                   T* dk, T* dv) {
  const int64_t step = z.C, gap = z.gap(), width = z.window ? w.values.size(1) : 0;
  std::vector<double> sums(static_cast<size_t>(2 * n * lanes), 0.0);  // dk and dv of each key
  const auto row = [&](int64_t j) { return sums.data() + 2 * j * lanes; };
  simd([&] {
    BackSums later;
    later.clear(channels);
    for (int64_t j = n - 1 - z.window; j >= 0; --j) {  // queries from j + window on
      const Back<T> i = x.at((j + z.window) * step);
      later.add(i.L, i.dy, i.y, channels);
      later.give(x.k + j * step, x.v + j * step, channels, row(j), row(j) + lanes);
    }
    if (!z.causal) {
      BackSums earlier;
      earlier.clear(channels);
      for (int64_t j = gap; j < n; ++j) {  // queries up to j - gap
        const Back<T> i = x.at((j - gap) * step);
        earlier.add(i.L, i.dy, i.y, channels);
        earlier.give(x.k + j * step, x.v + j * step, channels, row(j), row(j) + lanes);
      }
    }
    for (int64_t j = 0; j < n && z.window; ++j) {
      const int64_t begin = z.causal ? j : z.first(j), end = std::min(n, j + z.window);
      const T *const k = x.k + j * step, *const v = x.v + j * step;
      for (int64_t from = begin; from < end; from += run) {
        T a[lanes] = {}, b[lanes] = {};
        for (int64_t i = from; i < std::min(end, from + run); ++i) {
          const T bias = w.values.data<T>()[i * width + (w.band ? z.window - 1 + j - i : j)];
          const Back<T> q = x.at(i * step);
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) {
            const T p = math::exp(k[c] + bias - q.L[c]) * q.dy[c];
            b[c] += p;
            a[c] += p * (v[c] - q.y[c]);
          }
        }
        for (int64_t c = 0; c < channels; ++c) {
          row(j)[c] += static_cast<double>(a[c]);
          row(j)[lanes + c] += static_cast<double>(b[c]);
        }
      }
    }
  });
  for (int64_t j = 0; j < n; ++j)
    for (int64_t c = 0; c < channels; ++c) {
      dk[j * step + c] = static_cast<T>(row(j)[c]);
      dv[j * step + c] = static_cast<T>(row(j)[lanes + c]);
    }
}

// dw of row i.
template <class T>
void backward_biases(const Back<T>& x, const Biases& w, const Sizes& z, int64_t i, T* dw) {
  std::vector<double> sums(static_cast<size_t>(2 * z.window), 0.0);
  const int64_t first = z.first(i), C = z.C;
  for (int64_t b = 0; b < z.B; ++b) {
    const int64_t n = z.lengths[static_cast<size_t>(b)], end = z.end(i, n);
    if (i >= n) continue;
    simd([&, first, end] {
      const Back<T> q = x.at((b * z.N + i) * C);
      for (int64_t j = first; j < end; ++j) {
        const T bias = w.row<T>(i)[j];
        const Back<T> key = x.at((b * z.N + j) * C);
        T parts[lanes] = {};  // of channels that are equal modulo `lanes`
        for (int64_t from = 0; from < C; from += lanes) {
          const Back<T> one = q.at(from), other = key.at(from);
          const int64_t channels = std::min(lanes, C - from);
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c)
            parts[c] +=
                math::exp(other.k[c] + bias - one.L[c]) * one.dy[c] * (other.v[c] - one.y[c]);
        }
        double sum = 0;
        for (const T part : parts) sum += static_cast<double>(part);
        sums[static_cast<size_t>(j - first)] += sum;
      }
    });
  }
  T* const to = dw + i * w.values.size(1) + (w.band ? w.window - 1 - i : 0);
  for (int64_t j = first; j < z.end(i, z.N); ++j)
    to[j] = static_cast<T>(sums[static_cast<size_t>(j - first)]);
}

// y (B, N, H, D) as above, 0 at padding, for k and v (B, N, H, D) and biases, which are undefined, (N,
// N) or, for a band of `window`, (N, 2 window - 1).
Variable aft(const Variable& k, const Variable& v, const Variable& biases, int64_t window,
             bool band, bool causal, const Tensor& lengths) {
  const int64_t B = k.size(0), N = k.size(1);
  Biases w{biases.defined() ? biases.value().contiguous() : Tensor(), window, band};
  Sizes z{B, N, k.size(2) * k.size(3), causal, {}, window};
  z.lengths = lengths.defined()
                  ? lengths.to_vector<int32_t>()
                  : std::vector<int32_t>(static_cast<size_t>(B), static_cast<int32_t>(N));
  const Tensor keys = k.value().contiguous(), values = v.value().contiguous();
  Tensor y = Tensor::zeros(k.shape(), k.dtype()), L = Tensor::zeros(k.shape(), k.dtype());
  // Calls f(n, channels, offset) for each sequence and part of its channels.
  const auto for_parts = [](const Sizes& sizes, auto f) {
    parallel_for(sizes.B * sizes.parts(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t b = task / sizes.parts(), c = task % sizes.parts() * lanes;
        f(int64_t{sizes.lengths[static_cast<size_t>(b)]}, std::min(lanes, sizes.C - c),
          b * sizes.N * sizes.C + c);
      }
    });
  };
  dispatch_float(k.dtype(), [&]<class T>() {
    T *const to_y = y.data<T>(), *const to_L = L.data<T>();
    for_parts(z, [&](int64_t n, int64_t channels, int64_t at) {
      forward_part(keys.data<T>() + at, values.data<T>() + at, w, z, n, channels, to_y + at,
                   to_L + at);
    });
  });
  Variables operands{k, v};
  if (biases.defined()) operands.push_back(biases);
  return record("aft", y, operands, [=](const Tensor& grad_out, std::span<GradSlot> slots) {
    const Tensor dy = grad_out.contiguous();
    Tensor dk = Tensor::zeros(keys.shape(), keys.dtype()),
           dv = Tensor::zeros(keys.shape(), keys.dtype());
    Tensor dw = w.values ? Tensor::zeros(w.values.shape(), keys.dtype()) : Tensor();
    dispatch_float(keys.dtype(), [&]<class T>() {
      const Back<T> x{keys.data<T>(), values.data<T>(), y.data<T>(), L.data<T>(), dy.data<T>()};
      T *const to_k = dk.data<T>(), *const to_v = dv.data<T>();
      for_parts(z, [&](int64_t n, int64_t channels, int64_t at) {
        backward_part(x.at(at), w, z, n, channels, to_k + at, to_v + at);
      });
      if (!dw || !slots[2]) return;
      T* const to_w = dw.data<T>();
      parallel_for(z.N, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) backward_biases(x, w, z, i, to_w);
      });
    });
    slots[0].take(dk);
    slots[1].take(dv);
    if (dw && slots[2]) slots[2].take(dw);
  });
}

struct AftOptions {
  std::string kind = "local";
  int64_t window = 32, rank = 0;

  static AftOptions defaults(const Config& config) {
    AftOptions options;
    options.window = std::min<int64_t>(32, config.max_length);
    return options;
  }

  void describe(OptionVisitor& v) {
    v.choice("kind", kind, {"full", "local", "simple"},
             "biases of positions: of all pairs, of pairs less than `window` apart, or none");
    v.when(kind == "local", "kind = \"local\"", [&] {
      v.integer("window", window, {1, 1 << 24}, "biases are learned for |i - j| < window",
                "32, at most max_length");
    });
    v.when(kind == "full", "kind = \"full\"", [&] {
      v.integer("rank", rank, {0, 1 << 20}, "rank of the biases U Vᵀ; 0: a full matrix");
    });
  }
  // The biases w_ij of a sequence of N tokens are learned for |i - j| < this.
  int64_t reach(int64_t N) const { return kind == "full" ? N : kind == "local" ? window : 0; }

  // Weights differ between channels, so there is no matrix of them: `linear` is false although the
  // result is linear in v.
  Capabilities capabilities() const {
    const bool simple = kind == "simple";
    return {.averages = false,
            .linear = false,
            .positional = !simple,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .fixed_length = !simple,
            .time = simple            ? "N D"
                    : kind == "local" ? "N w D"
                                      : "N^2 D",
            .memory = "N D"};
  }
  // y, L and the gate, instead of q; in the backward pass, the gradient of the biases.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double L = static_cast<double>(config.max_length), r = static_cast<double>(rank);
    Memory out{.kept = 2 * z.values, .backward = -2 * z.values};
    if (kind == "full") {
      out.parameters = rank ? 2 * L * r : L * L;
      if (rank) out.kept += e.queries * e.keys;
      out.backward += e.queries * e.keys;
    }
    if (kind == "local") out.parameters = L * (2 * static_cast<double>(window) - 1);
    return out;
  }
};

// Keeps the sums before the window, in f64, and the keys and values of the window.
class AftDecoder final : public Decoder {
 public:
  // row(i, first) gives the biases of query i, from that of key `first` on.
  using Row = std::function<Tensor(int64_t i, int64_t first)>;
  AftDecoder(const Config& config, int64_t window, Row row)
      : heads_(config.heads), window_(window), row_(std::move(row)) {}

  Tensor step(const Token& token) override {
    append(keys_, token.k);
    append(values_, token.v);
    ++tokens_;
    const int64_t n = keys_.size(1);
    if (!before_) {
      before_ = Tensor::zeros({3, n}, DType::f64);
      before_.slice(0, 0, 1).fill(nothing);
    }
    if (window_ == 0) forget();
    const int64_t near = keys_ ? keys_.size(0) : 0;
    const Tensor biases = near ? row_(tokens_ - 1, tokens_ - near) : Tensor();
    Tensor y = Tensor::empty(token.q.shape(), token.q.dtype());
    dispatch_float(y.dtype(), [&]<class T>() {
      for (int64_t first = 0; first < n; first += lanes) {
        const int64_t count = std::min(lanes, n - first);
        Sums sums = sums_before(first, count);
        for (int64_t j = 0; j < near; ++j) {
          T t[lanes];
          for (int64_t c = 0; c < count; ++c)
            t[c] = keys_.data<T>()[j * n + first + c] + biases.data<T>()[j];
          sums.add(t, values_.data<T>() + j * n + first, count);
        }
        for (int64_t c = 0; c < count; ++c)
          y.data<T>()[first + c] = static_cast<T>(sums.value[c] / sums.total[c]);
      }
    });
    if (near == window_ && near > 0) forget();
    return (sigmoid(Variable(token.q)) * Variable(y)).value();
  }
  int64_t bytes() const override {
    int64_t out = before_ ? before_.numel() * 8 : 0;
    if (keys_) out += 2 * keys_.numel() * size_of(keys_.dtype());
    return out;
  }

 private:
  void append(Tensor& to, const Tensor& x) const {
    const Tensor all = repeat_groups(x, heads_).contiguous();
    const Tensor row = all.reshape({1, all.numel()});
    to = to ? concat({Variable(to), Variable(row)}, 0).value() : row.clone();
  }

  Sums sums_before(int64_t first, int64_t count) const {
    Sums sums;
    const double* const from = before_.data<double>() + first;
    const int64_t n = before_.size(1);
    std::copy_n(from, count, sums.most);
    std::copy_n(from + n, count, sums.value);
    std::copy_n(from + 2 * n, count, sums.total);
    return sums;
  }

  // Moves the oldest token of the window to the sums before it.
  void forget() {
    const int64_t n = keys_.size(1), near = keys_.size(0);
    dispatch_float(keys_.dtype(), [&]<class T>() {
      for (int64_t first = 0; first < n; first += lanes) {
        const int64_t count = std::min(lanes, n - first);
        Sums sums = sums_before(first, count);
        sums.add(keys_.data<T>() + first, values_.data<T>() + first, count);
        double* const to = before_.data<double>() + first;
        std::copy_n(sums.most, count, to);
        std::copy_n(sums.value, count, to + n);
        std::copy_n(sums.total, count, to + 2 * n);
      }
    });
    for (Tensor* const t : {&keys_, &values_})
      *t = near > 1 ? t->slice(0, 1, near).clone() : Tensor();
  }

  int64_t heads_, window_;
  Row row_;
  int64_t tokens_ = 0;
  Tensor before_;         // (3, C): of each channel the largest exponent, and both sums
  Tensor keys_, values_;  // (tokens, C)
};

class Aft final : public Variant {
 public:
  Aft(const nn::Scope& scope_, const Config& config, const AftOptions& options)
      : Variant(scope_, config), options_(options) {
    const int64_t L = config.max_length, r = options.rank;
    const nn::Init small = nn::init::normal(0.01);
    if (options.kind == "local")
      biases_.emplace(scope("biases"), Shape{L, 2 * options.window - 1}, small);
    if (options.kind == "full" && r == 0) biases_.emplace(scope("biases"), Shape{L, L}, small);
    if (options.kind == "full" && r > 0) {
      const nn::Init factor = nn::init::normal(0.1 / std::pow(static_cast<double>(r), 0.25));
      u_.emplace(scope("u"), Shape{L, r}, factor);
      v_.emplace(scope("v"), Shape{L, r}, factor);
    }
  }

  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    const int64_t L = config().max_length, w = options_.reach(L);
    const auto row = [this, L, w](int64_t i, int64_t first) {
      check<ShapeError>(i < L, "aft: expected at most max_length = ", L, " tokens to decode");
      if (u_) {
        const NoGrad no_grad;
        const Variable all =
            matmul(slice(*u_, 0, i, i + 1), transpose(slice(*v_, 0, first, i + 1), 0, 1));
        return all.value().contiguous();
      }
      const Tensor& all = biases_->value();
      const int64_t at = options_.kind == "local" ? first + w - 1 - i : first;
      return all.slice(0, i, i + 1).slice(1, at, at + i + 1 - first).contiguous();
    };
    // A window that no sequence fills keeps all tokens.
    return std::make_unique<AftDecoder>(config(), options_.kind == "full" ? L + 1 : w, row);
  }
  int64_t state_bytes(int64_t tokens) const override {
    if (!decodes() || tokens == 0) return 0;
    const int64_t near = options_.kind == "simple"  ? 0
                         : options_.kind == "local" ? std::min(tokens, options_.window - 1)
                                                    : tokens;
    return config().heads * config().head_dim * (3 * 8 + 2 * near * size_of(parameter_dtype()));
  }
  // For each pair in the window an exponential, two sums and a maximum; in the backward pass twice an
  // exponential and six operations.
  Work work(int64_t queries, int64_t) const override {
    const double N = static_cast<double>(queries),
                 D = static_cast<double>(config().head_dim * config().heads),
                 reach = static_cast<double>(std::min(options_.reach(queries), queries)),
                 each = config().causal ? 1 : 2;
    const double pairs = options_.kind == "full" ? N * N * each / 2 : N * reach * each;
    const double products = 2 * N * N * static_cast<double>(options_.rank);
    const double own = (each + 2) * N * D;  // of the sums outside and the gate
    return {{(5 * pairs + 8 * N) * D + products, pairs * D + own},
            {(14 * pairs + 12 * N) * D + 2 * products, 2 * pairs * D + 2 * own},
            static_cast<double>(size_of(parameter_dtype())) *
                (3 * N * D + (options_.rank ? N * N : 0))};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const int64_t N = inputs.q.size(1);
    check<ShapeError>(inputs.k.size(1) == N, "aft: expected as many queries as keys, got ", N,
                      " queries and ", inputs.k.size(1), " keys");
    const bool simple = options_.kind == "simple";
    check<ShapeError>(simple || N <= config().max_length,
                      "aft: expected at most max_length = ", config().max_length, " tokens, got ",
                      N);
    Variable w;
    if (u_) w = matmul(slice(*u_, 0, 0, N), transpose(slice(*v_, 0, 0, N), 0, 1));
    if (biases_) {
      w = slice(*biases_, 0, 0, N);
      if (options_.kind == "full") w = slice(w, 1, 0, N);
    }
    const Variable y = aft(inputs.k, inputs.v, w, options_.reach(N), options_.kind == "local",
                           config().causal, mask.lengths);
    return sigmoid(inputs.q) * y;
  }

  AftOptions options_;
  std::optional<nn::Parameter> biases_;  // (L, L), or (L, 2 window - 1)
  std::optional<nn::Parameter> u_, v_;   // (L, r)
};

}  // namespace

Spec aft_variant() {
  return make_spec<AftOptions, Aft>(
      {.summary = "gated averages of values, weighted by keys and biases of positions",
       .paper = "Zhai et al. 2021, arXiv 2105.14103",
       .cases = {{},
                 {{"window", 3}},
                 {{"kind", "full"}},
                 {{"kind", "full"}, {"rank", 3}},
                 {{"kind", "simple"}}},
       .evidence = {{"limits",
                     "keys of 0 give half the mean without gates; biases of 0 make full, local and "
                     "simple the same; a window of all tokens makes local full",
                     conformance::aft_limits}}});
}

}  // namespace longhand::attention
