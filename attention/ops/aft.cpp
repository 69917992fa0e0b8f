// For each channel, y_i = Σ_j e^(k_j + w_ij) v_j / Σ_j e^(k_j + w_ij).
//
// Terms with w = 0 enter as sums over the tokens before and after the window, relative to the
// largest term of each (i, c). Terms of the window are matrix products, tile by tile: with the
// maxima m_i of w and n_c of k in a tile of queries i and keys j,
//
//   Σ_j e^(k_jc + w_ij) v_jc = e^(m_i + n_c) Σ_j e^(w_ij - m_i) (e^(k_jc - n_c) v_jc)
//
// and the tiles are added relative to the largest m_i + n_c of each (i, c). If no key of the tile
// comes near both maxima, the sums on the right are too small to be exact; the sums of the row are
// then added term by term, relative to their largest term. So terms neither overflow nor all
// underflow. With full biases this takes N² exponentials, or N² D for such rows, and O(N D) memory.
//
// For the gradients, with L = log Σ_j e^(k_j + w_ij), p_ij = e^(k_j + w_ij - L_i) and, per channel,
// g_ij = p_ij dy_i (v_j - y_i):
//
//   dv_j = Σ_i p_ij dy_i,   dk_j = Σ_i g_ij,   dw_ij = Σ_c g_ij
//
// In a tile p_ij = e^(w_ij - m_i) e^(k_j - n) e^(m_i + n - L_i), so these too are matrix products,
// except for rows with a large last factor.
#include "longhand/attention/ops/aft.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
using namespace ops;
namespace {

using tile::infinity;

// The exponent of an empty sum. Finite, so that differences of two such exponents are numbers.
constexpr double nothing = -1e300;
constexpr int64_t lanes = 64;       // maximum channels per task
constexpr int64_t run = 64;         // terms that are added in T before being added in double
constexpr int64_t tile_keys = 128;  // per tile
// The sums of a tile are exact if they are at least e^-slack relative to the product of both
// maxima: exponentials that are 0 because they would be subnormal are then negligible.
constexpr double slack = 40;
// The operands of the gradients: k, v, y, L and dy at a token and channel.
template <class T>
struct Back {
  const T *k, *v, *y, *L, *dy;
  Back at(int64_t offset) const {
    return {k + offset, v + offset, y + offset, L + offset, dy + offset};
  }
};

// Σ e^t v and Σ e^t for some channels, relative to e^most. For the gradients of keys,
// Σ e^-L_i dy_i y_i and Σ e^-L_i dy_i over queries.
struct Sums {
  double most[lanes], value[lanes], total[lanes];

  Sums() = default;
  explicit Sums(int64_t n) {
    std::fill_n(most, n, nothing);
    std::fill_n(value, n, 0.0);
    std::fill_n(total, n, 0.0);
  }
  // Adds e^x [values, totals] to channel c, for e = e^-|x - most_c|.
  void join(int64_t c, double x, double e, double values, double totals) {
    const double own = x > most[c] ? e : 1, others = x > most[c] ? 1 : e;
    value[c] = value[c] * own + values * others;
    total[c] = total[c] * own + totals * others;
    most[c] = std::max(x, most[c]);
  }
  template <class T>
  void add(const T* t, const T* v, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const auto x = static_cast<double>(t[c]);
      join(c, x, math::exp(-std::abs(x - most[c])), static_cast<double>(v[c]), 1);
    }
  }
  // Adds the sums of a tile, relative to e^(bias + key).
  template <class T>
  void add(T bias, const T* key, const T* values, const T* totals, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const double x = static_cast<double>(bias) + static_cast<double>(key[c]);
      const T e = math::exp(static_cast<T>(std::max(-std::abs(x - most[c]), -1e3)));
      join(c, x, static_cast<double>(e), static_cast<double>(values[c]),
           static_cast<double>(totals[c]));
    }
  }
  void add(const Sums& other, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c)
      join(c, other.most[c], math::exp(-std::abs(other.most[c] - most[c])), other.value[c],
           other.total[c]);
  }
  // Adds a query.
  template <class T>
  void add(const Back<T>& query, int64_t n) {
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const double x = -static_cast<double>(query.L[c]), dy = static_cast<double>(query.dy[c]);
      join(c, x, math::exp(-std::abs(x - most[c])), dy * static_cast<double>(query.y[c]), dy);
    }
  }
  // Adds some queries, few enough to be summed in T first.
  template <class T>
  void add(const Back<T>& first, int64_t count, int64_t step, int64_t n) {
    T low[lanes], a[lanes] = {}, b[lanes] = {};
    std::fill_n(low, n, infinity<T>);
    for (int64_t r = 0; r < count; ++r)
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        const T L = first.L[r * step + c];
        low[c] = L < low[c] ? L : low[c];
      }
    for (int64_t r = 0; r < count; ++r) {
      const Back<T> query = first.at(r * step);
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        const T e = math::exp(low[c] - query.L[c]) * query.dy[c];
        a[c] += e;
        b[c] += e * query.y[c];
      }
    }
#pragma GCC ivdep
    for (int64_t c = 0; c < n; ++c) {
      const double x = -static_cast<double>(low[c]);
      join(c, x, math::exp(-std::abs(x - most[c])), static_cast<double>(b[c]),
           static_cast<double>(a[c]));
    }
  }
  // The gradients of a key with w = 0 for all queries added.
  template <class T>
  void give(const T* k, const T* v, int64_t n, double* dk, double* dv) const {
    for (int64_t c = 0; c < n; ++c) {
      const double e = math::exp(static_cast<double>(k[c]) + most[c]);
      dv[c] += e * total[c];
      dk[c] += e * (static_cast<double>(v[c]) * total[c] - value[c]);
    }
  }
};

// Biases w_ij for |i - j| < window (others are 0) or their gradients: element (i, j) of full
// biases, (i, window - 1 + j - i) of a band (N, 2 window - 1). Without biases, window is 0.
template <class T>
struct Biases {
  T* values;
  int64_t step, first;

  T* row(int64_t i) const { return values + i * step + first; }  // of j
};

// Sizes and options shared by all tasks.
struct Sizes {
  int64_t B, N, C;  // C = H D channels
  bool causal;
  std::vector<int32_t> lengths;
  int64_t window;

  // Whether the window of every query covers all tokens, so that tiles are independent.
  bool whole() const { return window >= N; }
  int64_t channels() const { return whole() ? lanes : lanes / 2; }  // per task
  int64_t parts() const { return (C + channels() - 1) / channels(); }
  // Queries per tile: more of them share the exponentials of its keys, but with a narrow window
  // they see different keys, and smaller tiles give more tasks.
  int64_t queries() const {
    return std::clamp<int64_t>(N / 32 / 16 * 16, 16, window < tile_keys ? 64 : 128);
  }
  // Keys per tile when computing their gradients from queries: few for a narrow window.
  int64_t keys() const { return window < tile_keys ? tile_keys / 2 : tile_keys; }
  int64_t first(int64_t i) const { return std::max<int64_t>(0, i - window + 1); }
  // The keys of the window of query i are first(i) … end(i) - 1.
  int64_t end(int64_t i, int64_t n) const {
    return window == 0 ? first(i) : causal ? i + 1 : std::min(n, i + window);
  }
  bool sees(int64_t i, int64_t j, int64_t n) const { return first(i) <= j && j < end(i, n); }
  // Keys outside of it are those up to i - window and, unless causal, from i + gap() on.
  int64_t gap() const { return std::max<int64_t>(window, 1); }
};

// Adds the terms of keys [begin, end) with biases w[j], or 0 if w is null, to sums.
template <class T>
void add_window(const T* k, const T* v, const T* w, int64_t begin, int64_t end, int64_t step,
                int64_t n, Sums& sums) {
  const auto bias = [w](int64_t j) { return w ? w[j] : T{0}; };
  T most[lanes];
  std::fill_n(most, n, -infinity<T>);
  for (int64_t j = begin; j < end; ++j)
    for (int64_t c = 0; c < n; ++c) most[c] = std::max(most[c], k[j * step + c] + bias(j));
  Sums window(n);
  for (int64_t c = 0; c < n; ++c) window.most[c] = static_cast<double>(most[c]);
  for (int64_t j = begin; j < end; j += run) {
    T value[lanes] = {}, total[lanes] = {};
    for (int64_t l = j; l < std::min(end, j + run); ++l) {
      const T of_pair = bias(l);
#pragma GCC ivdep
      for (int64_t c = 0; c < n; ++c) {
        const T e = math::exp(k[l * step + c] + of_pair - most[c]);
        total[c] += e;
        value[c] += e * v[l * step + c];
      }
    }
    for (int64_t c = 0; c < n; ++c) {
      window.value[c] += static_cast<double>(value[c]);
      window.total[c] += static_cast<double>(total[c]);
    }
  }
  sums.add(window, n);
}

// A tile of queries [i, i + rows) and keys [j, j + cols), and the scratch memory of its task.
template <class T>
struct Tile {
  Tile(const Sizes& z, Scratch& scratch)
      : biases(scratch.take<T>(z.queries() * tile_keys)),
        most_bias(scratch.take<T>(z.queries())),
        keys(scratch.take<T>(tile_keys * 2 * lanes)),
        most_key(scratch.take<T>(lanes)),
        queries(scratch.take<T>(z.queries() * 2 * lanes)),
        products(scratch.take<T>(std::max(tile_keys, z.queries()) * 2 * lanes)),
        inexact(scratch.take<int64_t>(z.queries())),
        skipped(scratch.take<int64_t>(tile_keys)) {}

  int64_t i = 0, rows = 0, j = 0, cols = 0;
  T* const biases;     // (rows, tile_keys): e^(w_ij - m_i), 0 outside of the window
  T* const most_bias;  // (rows): m_i, -inf without keys
  T* const keys;       // (cols, 2 n) for n channels: e^(k_j - n) v_j and e^(k_j - n)
  T* const most_key;   // (n)
  T* const queries;    // (rows, 2 n): e^(m_i + n - L_i) dy_i and -e^(m_i + n - L_i) dy_i y_i
  T* const products;
  int64_t* const inexact;  // queries without a row of `queries`, since that factor is too large
  int64_t inexact_count = 0;
  int64_t* const skipped;  // keys without a row of `keys`, since they are too large or not finite
  int64_t skipped_count = 0;

  void load_biases(const Biases<const T>& w, const Sizes& z, int64_t tokens) {
    simd([this, &w, &z, tokens] {
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t begin = std::clamp(z.first(i + r), j, j + cols) - j,
                      end = std::clamp(z.end(i + r, tokens), j + begin, j + cols) - j;
        const T* const from = w.row(i + r) + j;
        T* const to = biases + r * tile_keys;
        const T most = kernels::row_max(from + begin, end - begin);
        std::fill(to, to + begin, T{0});
        for (int64_t l = begin; l < end; ++l) to[l] = math::exp(from[l] - most);
        std::fill(to + end, to + cols, T{0});
        most_bias[r] = most;
      }
    });
  }

  // k and v belong to key j. The maximum is over the first `common` keys: causal queries must not
  // depend on keys that only later queries see.
  void load_keys(const T* k, const T* v, int64_t step, int64_t n, int64_t common) {
    skipped_count = 0;
    simd([this, k, v, step, n, common, most = most_key] {
      std::copy_n(k, n, most);
      for (int64_t l = 1; l < common; ++l)
        for (int64_t c = 0; c < n; ++c) most[c] = std::max(most[c], k[l * step + c]);
      for (int64_t l = 0; l < cols; ++l) {
        T *const value = keys + l * 2 * n, *const total = value + n;
        int large = 0;
#pragma GCC ivdep
        for (int64_t c = 0; c < n; ++c) {
          const T t = k[l * step + c] - most[c];
          total[c] = math::exp(t);
          value[c] = total[c] * v[l * step + c];
          large |= t <= static_cast<T>(slack) && std::abs(value[c]) < infinity<T> ? 0 : 1;
        }
        if (!large) continue;
        std::fill_n(value, 2 * n, T{0});
        skipped[skipped_count++] = j + l;
      }
    });
  }
  // Whether a key among [begin, end) has no row of `keys`.
  bool skips(int64_t begin, int64_t end) const {
    return std::any_of(skipped, skipped + skipped_count,
                       [=](int64_t key) { return begin <= key && key < end; });
  }

  // x are the operands of query i.
  void load_queries(const Back<T>& x, int64_t step, int64_t n) {
    inexact_count = 0;
    simd([this, x, step, n] {
      for (int64_t r = 0; r < rows; ++r) {
        const Back<T> q = x.at(r * step);
        T *const value = queries + r * 2 * n, *const total = value + n;
        const T bias = most_bias[r];
        int large = 0;
#pragma GCC ivdep
        for (int64_t c = 0; c < n; ++c) {
          const T t = bias - q.L[c] + most_key[c], a = math::exp(t) * q.dy[c];
          large |= t <= static_cast<T>(slack) ? 0 : 1;
          value[c] = a;
          total[c] = -a * q.y[c];
        }
        if (!large) continue;
        std::fill_n(value, 2 * n, T{0});
        inexact[inexact_count++] = i + r;
      }
    });
  }
};

// Whether the sums of a row of a tile, relative to e^(bias + key), may be added to `sums`.
template <class T>
bool exact(const T* totals, T bias, const T* key, const Sums& sums, int64_t n) {
  const T least = math::exp(static_cast<T>(-slack));
  int small = 0;
  for (int64_t c = 0; c < n; ++c) small |= totals[c] >= least ? 0 : 1;
  if (!small) return true;
  for (int64_t c = 0; c < n; ++c) {
    // The terms so far add up to at least e^(most - slack).
    const bool negligible =
        static_cast<double>(bias) + static_cast<double>(key[c]) < sums.most[c] - slack - 60;
    if (!(totals[c] >= least) && !negligible) return false;
  }
  return true;
}

// Adds the terms of the windows of queries [i, i + rows) to the sums of each of them.
template <class T>
void add_windows(const T* k, const T* v, const Biases<const T>& w, const Sizes& z, int64_t n,
                 int64_t channels, Tile<T>& tile, Sums* sums) {
  const int64_t step = z.C, last = z.end(tile.i + tile.rows - 1, n);
  for (tile.j = z.first(tile.i); tile.j < last; tile.j += tile_keys) {
    tile.cols = std::min(tile_keys, last - tile.j);
    tile.load_biases(w, z, n);
    const int64_t common = std::clamp<int64_t>(tile.i + 1 - tile.j, 1, tile.cols);
    tile.load_keys(k + tile.j * step, v + tile.j * step, step, channels,
                   z.causal ? common : tile.cols);
    kernels::gemm_tile<T>(tile.rows, 2 * channels, tile.cols, {tile.biases, tile_keys, 1},
                          tile.keys, 2 * channels, tile.products, 2 * channels, false);
    simd([&] {
      for (int64_t r = 0; r < tile.rows; ++r) {
        const T *const value = tile.products + r * 2 * channels, *const total = value + channels;
        const int64_t i = tile.i + r, begin = std::max(tile.j, z.first(i)),
                      end = std::min(tile.j + tile.cols, z.end(i, n));
        if (begin >= end) continue;
        if (!tile.skips(begin, end) &&
            exact(total, tile.most_bias[r], tile.most_key, sums[r], channels))
          sums[r].add(tile.most_bias[r], tile.most_key, value, total, channels);
        else
          add_window(k, v, w.row(i), begin, end, step, channels, sums[r]);
      }
    });
  }
}

// y and L for queries [begin, end) and some of the channels of one sequence of n tokens; for all
// queries unless Sizes::whole().
template <class T>
void forward_part(const T* k, const T* v, const Biases<const T>& w, const Sizes& z, int64_t n,
                  int64_t channels, int64_t begin, int64_t end, T* y, T* L) {
  std::vector<Sums> after;  // for queries up to i, of keys from i + gap on: at the end of each tile
  const int64_t step = z.C, gap = z.gap(), size = z.queries();
  if (!z.causal && n > gap) {
    after.assign(static_cast<size_t>((n + size - 1) / size), Sums(channels));
    simd([=, to = after.data(), tiles = static_cast<int64_t>(after.size())] {
      for (int64_t at = tiles - 2; at >= 0; --at) {
        const int64_t first = (at + 1) * size + gap;
        to[at] = to[at + 1];
        if (first < n)
          add_window<T>(k, v, nullptr, first, std::min(n, first + size), step, channels, to[at]);
      }
    });
  }
  Workspace<Tile<T>> tile(z);
  std::vector<Sums> sums(static_cast<size_t>(std::min(size, end - begin)));
  Sums before(channels);  // of keys up to i - window
  for (int64_t first = begin; first < end; first += size) {
    tile->i = first, tile->rows = std::min(size, end - first);
    simd([&, rows = tile->rows, of = sums.data()] {
      if (!after.empty()) {
        Sums& sum = after[static_cast<size_t>(first / size)];
        for (int64_t i = first + rows - 1; i >= first; --i) {
          if (i + gap < n) sum.add(k + (i + gap) * step, v + (i + gap) * step, channels);
          of[i - first] = sum;
        }
      }
      for (int64_t i = first; i < first + rows; ++i) {
        const int64_t oldest = (i - z.window) * step;
        if (i >= z.window) before.add(k + oldest, v + oldest, channels);
        if (after.empty())
          of[i - first] = before;
        else
          of[i - first].add(before, channels);
      }
    });
    if (z.window) add_windows(k, v, w, z, n, channels, *tile, sums.data());
    simd([&, rows = tile->rows] {
      for (int64_t r = 0; r < rows; ++r) {
        const Sums& sum = sums[static_cast<size_t>(r)];
        const int64_t at = (first + r) * step;
        for (int64_t c = 0; c < channels; ++c) {
          y[at + c] = static_cast<T>(sum.value[c] / sum.total[c]);
          L[at + c] = static_cast<T>(sum.most[c] + math::log(sum.total[c]));
        }
      }
    });
  }
}

// Adds the gradients of keys [j, j + cols) from the queries that have them in their windows: dk and
// dv of each key in rows of 2 lanes.
template <class T>
void add_key_gradients(const Back<T>& x, const Biases<const T>& w, const Sizes& z, int64_t n,
                       int64_t channels, Tile<T>& tile, double* sums) {
  const int64_t step = z.C, j = tile.j, cols = tile.cols, width = 2 * channels;
  tile.load_keys(x.k + j * step, x.v + j * step, step, channels, cols);
  // Products with the columns of `queries`, relative to the keys.
  std::vector<double> products(static_cast<size_t>(cols * width), 0.0);
  const int64_t last = std::min(n, j + cols - 1 + z.window);
  for (tile.i = z.causal ? j : z.first(j); tile.i < last; tile.i += z.queries()) {
    tile.rows = std::min(z.queries(), last - tile.i);
    tile.load_biases(w, z, n);
    tile.load_queries(x.at(tile.i * step), step, channels);
    kernels::gemm_tile<T>(cols, width, tile.rows, {tile.biases, 1, tile_keys}, tile.queries, width,
                          tile.products, width, false);
    simd([&, to = products.data(), from = tile.products] {
      for (int64_t l = 0; l < cols * width; ++l) to[l] += static_cast<double>(from[l]);
      if (tile.inexact_count == 0) return;
      for (int64_t l = 0; l < cols; ++l) {
        const T *const k = x.k + (j + l) * step, *const v = x.v + (j + l) * step;
        T a[lanes] = {}, b[lanes] = {};
        for (int64_t r = 0; r < tile.inexact_count; ++r) {
          const int64_t i = tile.inexact[r];
          if (!z.sees(i, j + l, n)) continue;
          const T bias = w.row(i)[j + l];
          const Back<T> q = x.at(i * step);
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) {
            const T p = math::exp(k[c] + bias - q.L[c]) * q.dy[c];
            b[c] += p;
            a[c] += p * (v[c] - q.y[c]);
          }
        }
        for (int64_t c = 0; c < channels; ++c) {
          sums[2 * l * lanes + c] += static_cast<double>(a[c]);
          sums[(2 * l + 1) * lanes + c] += static_cast<double>(b[c]);
        }
      }
    });
  }
  simd([&, from = products.data()] {
    for (int64_t l = 0; l < cols; ++l) {
      const double *const dy = from + l * width, *const dyy = dy + channels;
      const T *const value = tile.keys + l * width, *const total = value + channels;
      double *const dk = sums + 2 * l * lanes, *const dv = dk + lanes;
      for (int64_t c = 0; c < channels; ++c) {
        const auto e = static_cast<double>(total[c]);
        dv[c] += e * dy[c];
        dk[c] += static_cast<double>(value[c]) * dy[c] + e * dyy[c];
      }
    }
  });
}

// dk and dv of keys [begin, end); all keys unless Sizes::whole().
template <class T>
void backward_part(const Back<T>& x, const Biases<const T>& w, const Sizes& z, int64_t n,
                   int64_t channels, int64_t begin, int64_t end, T* dk, T* dv) {
  const int64_t step = z.C, gap = z.gap(), size = z.keys();
  std::vector<Sums>
      later;  // for keys up to j, of queries from j + window on: at the end of each tile
  if (n > z.window) {
    later.assign(static_cast<size_t>((n + size - 1) / size), Sums(channels));
    simd([&, to = later.data(), tiles = static_cast<int64_t>(later.size())] {
      for (int64_t at = tiles - 2; at >= 0; --at) {
        const int64_t first = (at + 1) * size + z.window;
        to[at] = to[at + 1];
        for (int64_t i = first; i < std::min(n, first + size); i += run)
          to[at].add(x.at(i * step), std::min(run, std::min(n, first + size) - i), step, channels);
      }
    });
  }
  Sums earlier(channels);  // of queries up to j - gap
  std::optional<Workspace<Tile<T>>> tile;
  if (z.window) tile.emplace(z);
  std::vector<double> sums(static_cast<size_t>(2 * tile_keys * lanes));
  for (int64_t first = begin; first < end; first += size) {
    const int64_t last = std::min(first + size, end);
    const auto give = [&](const Sums& from, int64_t j) {
      double* const to = sums.data() + 2 * (j - first) * lanes;
      from.give(x.k + j * step, x.v + j * step, channels, to, to + lanes);
    };
    std::fill_n(sums.begin(), 2 * (last - first) * lanes, 0.0);
    simd([&] {
      for (int64_t j = std::min(last, n - z.window) - 1; j >= first; --j) {
        Sums& sum = later[static_cast<size_t>(first / size)];
        sum.add(x.at((j + z.window) * step), channels);
        give(sum, j);
      }
      for (int64_t j = std::max(first, gap); j < last && !z.causal; ++j) {
        earlier.add(x.at((j - gap) * step), channels);
        give(earlier, j);
      }
    });
    if (tile) {
      (*tile)->j = first, (*tile)->cols = last - first;
      add_key_gradients(x, w, z, n, channels, **tile, sums.data());
    }
    simd([=, from = sums.data()] {
      for (int64_t j = first; j < last; ++j)
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; ++c) {
          dk[j * step + c] = static_cast<T>(from[2 * (j - first) * lanes + c]);
          dv[j * step + c] = static_cast<T>(from[(2 * (j - first) + 1) * lanes + c]);
        }
    });
  }
}

// dw_ij for one query and key that are not in a product, from n channels.
template <class T>
double bias_gradient(const Back<T>& query, const Back<T>& key, T bias, int64_t n) {
  T parts[lanes];
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c)
    parts[c] = math::exp(key.k[c] + bias - query.L[c]) * query.dy[c] * (key.v[c] - query.y[c]);
  return static_cast<double>(kernels::row_sum(parts, n));
}

// Adds dw of a tile from some of the channels of one sequence of n tokens, with operands x, to rows
// of tile_keys.
template <class T>
void add_bias_gradients(const Back<T>& x, const Biases<const T>& w, const Sizes& z, int64_t n,
                        int64_t channels, Tile<T>& tile, double* sums) {
  const int64_t step = z.C, width = 2 * channels;
  const Back<T> key = x.at(tile.j * step);
  tile.load_keys(key.k, key.v, step, channels, tile.cols);
  tile.load_queries(x.at(tile.i * step), step, channels);
  std::vector<T> transposed(static_cast<size_t>(width * tile_keys));
  kernels::transpose_into(tile.cols, width, tile.keys, width, T{1}, transposed.data(), tile_keys,
                          false);
  kernels::gemm_tile<T>(tile.rows, tile.cols, width, {tile.queries, width, 1}, transposed.data(),
                        tile_keys, tile.products, tile_keys, false);
  simd([&, from = tile.products, e = tile.biases] {
    for (int64_t r = 0; r < tile.rows; ++r)
      for (int64_t l = r * tile_keys; l < r * tile_keys + tile.cols; ++l)
        sums[l] += static_cast<double>(e[l] * from[l]);
    for (int64_t r = 0; r < tile.inexact_count; ++r) {
      const int64_t i = tile.inexact[r];
      for (int64_t l = 0; l < tile.cols; ++l)
        if (z.sees(i, tile.j + l, n))
          sums[(i - tile.i) * tile_keys + l] +=
              bias_gradient(x.at(i * step), key.at(l * step), w.row(i)[tile.j + l], channels);
    }
  });
}

// dw of queries [i, i + rows).
template <class T>
void backward_biases(const Back<T>& x, const Biases<const T>& w, const Sizes& z, int64_t i,
                     int64_t rows, const Biases<T>& dw) {
  Workspace<Tile<T>> tile(z);
  const int64_t last = z.end(i + rows - 1, z.N);
  for (int64_t j = z.first(i); j < last; j += tile_keys) {
    const int64_t cols = std::min(tile_keys, last - j);
    std::vector<double> sums(static_cast<size_t>(rows * tile_keys), 0.0);
    tile->i = i, tile->rows = rows, tile->j = j, tile->cols = cols;
    tile->load_biases(w, z, z.N);
    for (int64_t b = 0; b < z.B; ++b) {
      const int64_t n = z.lengths[static_cast<size_t>(b)];
      if (i >= n || j >= n) continue;
      tile->rows = std::min(rows, n - i), tile->cols = std::min(cols, n - j);
      for (int64_t c = 0; c < z.C; c += z.channels())
        add_bias_gradients(x.at(b * z.N * z.C + c), w, z, n, std::min(z.channels(), z.C - c), *tile,
                           sums.data());
    }
    for (int64_t r = 0; r < rows; ++r) {
      T* const to = dw.row(i + r);
      for (int64_t l = 0; l < cols; ++l)
        if (z.sees(i + r, j + l, z.N))
          to[j + l] = static_cast<T>(sums[static_cast<size_t>(r * tile_keys + l)]);
    }
  }
}

}  // namespace

Variable aft(const Variable& k, const Variable& v, const Variable& biases, int64_t window,
             bool band, bool causal, const Tensor& lengths) {
  check_float_pair("aft", k, v);
  if (biases.defined()) check_float_pair("aft", k, biases);
  const int64_t B = k.size(0), N = k.size(1);
  check<ShapeError>(k.shape() == v.shape() && k.rank() == 4,
                    "aft: expected k and v of one shape (B, N, H, D), got k ", k.shape(), ", v ",
                    v.shape());
  const Tensor weights = biases.value().contiguous();
  const int64_t step = weights ? weights.size(1) - (band ? 1 : 0) : 0,
                first_bias = band ? window - 1 : 0;
  const auto rows_of = [=]<class T>(T* numbers) { return Biases<T>{numbers, step, first_bias}; };
  Sizes z{B, N, k.size(2) * k.size(3), causal, {}, window};
  z.lengths = tile::lengths_or("aft: lengths", lengths, B, N);
  const Tensor keys = k.value().contiguous(), values = v.value().contiguous();
  // Padding is not written.
  const auto result = [shape = k.shape(), dtype = k.dtype(), padded = lengths.defined()] {
    return padded ? Tensor::zeros(shape, dtype) : Tensor::empty(shape, dtype);
  };
  Tensor y = result(), L = result();
  // Calls f(n, channels, begin, end, offset) for each sequence, range of its channels and, if tiles
  // are independent, range of `size` tokens.
  const auto for_parts = [](const Sizes& sizes, int64_t size, auto f) {
    const int64_t pieces = sizes.whole() ? (sizes.N + size - 1) / size : 1, parts = sizes.parts();
    parallel_for_each(sizes.B * parts * pieces, 1, [&](int64_t task) {
      const int64_t b = task / pieces / parts, c = task / pieces % parts * sizes.channels(),
                    n = sizes.lengths[static_cast<size_t>(b)];
      const int64_t begin = task % pieces * size, end = pieces > 1 ? std::min(n, begin + size) : n;
      if (begin < end)
        f(n, std::min(sizes.channels(), sizes.C - c), begin, end, b * sizes.N * sizes.C + c);
    });
  };
  dispatch_float(k.dtype(), [&]<class T>() {
    const auto w = rows_of(tile::data_or_null<T>(weights));
    T *const to_y = y.data<T>(), *const to_L = L.data<T>();
    for_parts(z, z.queries(),
              [&](int64_t n, int64_t channels, int64_t begin, int64_t end, int64_t at) {
                forward_part(keys.data<T>() + at, values.data<T>() + at, w, z, n, channels, begin,
                             end, to_y + at, to_L + at);
              });
  });
  Variables operands{k, v};
  if (biases.defined()) operands.push_back(biases);
  return record("aft", y, operands, [=](const Tensor& grad_out, std::span<GradSlot> slots) {
    const Tensor dy = grad_out.contiguous();
    Tensor dk = result(), dv = result();
    Tensor dw;
    if (weights && slots[2]) dw = Tensor::zeros(weights.shape(), keys.dtype());
    dispatch_float(keys.dtype(), [&]<class T>() {
      const auto w = rows_of(tile::data_or_null<T>(weights));
      const Back<T> x{keys.data<T>(), values.data<T>(), y.data<T>(), L.data<T>(), dy.data<T>()};
      T *const to_k = dk.data<T>(), *const to_v = dv.data<T>();
      for_parts(z, tile_keys,
                [&](int64_t n, int64_t channels, int64_t begin, int64_t end, int64_t at) {
                  backward_part(x.at(at), w, z, n, channels, begin, end, to_k + at, to_v + at);
                });
      if (!dw) return;
      const Biases<T> to_w = rows_of(dw.data<T>());
      parallel_for(z.N, z.queries(), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i += z.queries())
          backward_biases(x, w, z, i, std::min(z.queries(), end - i), to_w);
      });
    });
    if (slots[0]) slots[0].take(dk);
    if (slots[1]) slots[1].take(dv);
    if (dw) slots[2].take(dw);
  });
}

}  // namespace longhand::attention
