// Everything is computed in blocks of rows that stay in the L2 cache: a, z and their gradients are
// never written to memory as a whole.
//
// The gradient of the weight is a sum over rows. For a small weight, each of up to 64 tasks sums
// over its own rows, and these partial sums are added. For a large weight, partial sums would take
// that many times its memory: instead, tasks first compute some blocks of rows of dz and a, and
// then tiles of the gradient from all of these blocks.
#include "longhand/autograd/ops/linear_kernel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "longhand/autograd/fixed_weights.h"
#include "longhand/autograd/ops/gelu.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/reduce.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/memory/recycled.h"

namespace longhand::ops {
namespace {

using kernels::Addend;
using kernels::panel_width;
using kernels::panels_of;
using kernels::Strided;
using normalise::Moments;

template <class T>
Tensor scratch(int64_t size) {
  return Tensor::empty({size}, dtype_of<T>);
}

// A right factor (k, n) in the form that product() expects: panels, or rows for OpenBLAS.
template <class T>
Tensor right_factor(const Tensor& b) {
  if (!kernels::has_tile_kernels<T>()) return b.contiguous();
  const Tensor from = b.strides()[0] == 1 || b.strides()[1] == 1 ? b : b.contiguous();
  const int64_t k = b.size(0), n = b.size(1);
  Tensor packed = scratch<T>(kernels::panels_size(k, n));
  parallel_for(panels_of(n), rows_per_task(panel_width * (k + 1)),
               [&, data = from.data<T>(), to = packed.data<T>()](int64_t begin, int64_t end) {
                 kernels::pack_panels<T>(k, n, {data, from.strides()[0], from.strides()[1]}, 1,
                                         begin, end, to);
               });
  return packed;
}

// c = to + a b for a (m, k), one of whose strides is 1, a right factor b (k, n) and rows of c with
// stride ldc.
template <class T>
void product(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, T* c, int64_t ldc,
             Addend<T> to) {
  if (kernels::has_tile_kernels<T>()) {
    kernels::gemm_panels<T>(m, n, k, a, b, c, ldc, to);
  } else {
    if (to.data && to.data != c)
      for (int64_t i = 0; i < m; ++i) std::copy_n(to.data + i * to.row, n, c + i * ldc);
    const bool rows = a.col == 1 && a.row >= k;
    gemm<T>(rows ? Trans::no : Trans::yes, Trans::no, 1,
            {a.data, rows ? m : k, rows ? k : m, rows ? a.row : a.col}, {b, k, n, n},
            to.data ? 1 : 0, {c, m, n, ldc});
  }
}

// The same for c = a b or, with `add`, c += a b.
template <class T>
void product(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, T* c, int64_t ldc,
             bool add) {
  product<T>(m, n, k, a, b, c, ldc, add ? Addend<T>{c, ldc} : Addend<T>{});
}

// The micro-kernels compute this many rows at a time.
constexpr int64_t row_step = 12;

int64_t divide(int64_t n, int64_t by) { return (n + by - 1) / by; }

// The largest part when `rows` are divided into the fewest even parts of at most `most` rows,
// rounded up to whole steps: uneven parts would keep threads waiting for the last one.
int64_t even_part(int64_t rows, int64_t most) {
  const int64_t parts = std::max<int64_t>(1, divide(rows, std::max<int64_t>(1, most)));
  return std::max<int64_t>(1, divide(divide(rows, parts), row_step)) * row_step;
}

// The most rows per block, for `width` elements per row in total: a block should fit into the L2
// cache but be large, because the weight's gradient is read and written once per block.
constexpr int64_t fewest_rows = 48;
int64_t block_of(int64_t width) {
  return std::clamp<int64_t>(98304 / (width + 1) / row_step * row_step, fewest_rows, 192);
}

// ---- before and after the product of a block ---------------------------------------------------

// h = norm(x) for `count` rows of n elements, and their moments s.
template <class T>
void normalise_block(const Prologue& p, const T* x, int64_t count, int64_t n, Moments<T>* s, T* h) {
  simd([=, w = p.norm_weight.data<T>(), b = p.norm_bias.data<T>(), eps = static_cast<T>(p.eps),
        centred = p.centred] { normalise::rows(x, count, n, eps, centred, w, b, s, h); });
}

// a = dropout(gelu(h)) and, unless da is null, da = its derivative, for elements `first` … `first`
// + n - 1; h, a and da point to the first of these.
template <class T>
void activate(const Prologue& p, int64_t first, int64_t n, const T* h, T* a, T* da) {
  const T s = static_cast<T>(p.dropout.scale());
  const auto run = [](int64_t count, const T* from, T* y, T* dy, bool gelu, auto factor) {
    if (!gelu) {
      for (int64_t i = 0; i < count; ++i) y[i] = factor(i, from[i]);
      if (dy)
        for (int64_t i = 0; i < count; ++i) dy[i] = factor(i, T{1});
    } else if (!dy) {
      for (int64_t i = 0; i < count; ++i) y[i] = factor(i, gelu_of(from[i]));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const GeluWithSlope<T> at = gelu_with_slope(from[i]);
        y[i] = factor(i, at.value);
        dy[i] = factor(i, at.slope);
      }
    }
  };
  if (!p.dropout.on()) {
    simd([&] { run(n, h, a, da, p.gelu, [](int64_t, T v) { return v; }); });
    return;
  }
  p.dropout.for_pieces(first, n, [&](int64_t j, int64_t count, auto keep) {
    run(count, h + j, a + j, da ? da + j : nullptr, p.gelu, [=](int64_t i, T v) {
      const T kept = v * s;
      return keep(i) ? kept : T{0};
    });
  });
}

// y = dropout(z) + u for elements as in activate(); u may be null, and y may be z.
template <class T>
void drop_output(const DropoutMask& mask, int64_t first, int64_t n, const T* z, const T* u, T* y) {
  const T s = static_cast<T>(mask.scale());
  mask.for_pieces(first, n, [&](int64_t j, int64_t count, auto keep) {
    for (int64_t i = 0; i < count; ++i) {
      const T kept = z[j + i] * s;
      y[j + i] = keep(i) ? kept : T{0};
    }
    if (u)
      for (int64_t i = 0; i < count; ++i) y[j + i] += u[j + i];
  });
}

// u + bias for `count` rows, written to y only if neither is null.
template <class T>
Addend<T> sum_of(const T* u, const T* bias, T* y, int64_t count, int64_t width) {
  if (!u) return {bias, 0};
  if (!bias) return {u, width};
  simd([=] {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t j = 0; j < width; ++j) y[r * width + j] = bias[j] + u[r * width + j];
  });
  return {y, width};
}

// ---- backward: a block -------------------------------------------------------------------------

// Enough tasks to keep some threads busy; blocks are made smaller to reach it.
constexpr int64_t enough_tasks = 8;

// Shared by all tasks.
template <class T>
struct Backward {
  Rows<const T> x;
  const std::vector<BackwardLayer<T>>& layers;
  const Prologue& prologue;
  const DropoutMask& dropout;
  InputGradients<T> to;
  int64_t rows, k, n, block;    // n of all layers together
  std::vector<int64_t> begin;   // of each layer among the n
  std::vector<Tensor> factors;  // the weights as right factors, if the input's gradient is required
  bool dweights = false, dbiases = false;

  Backward(Rows<const T> x_, const std::vector<BackwardLayer<T>>& layers_, const Prologue& before,
           const DropoutMask& behind, const InputGradients<T>& gradients)
      : x(x_),
        layers(layers_),
        prologue(before),
        dropout(behind),
        to(gradients),
        rows(x.count),
        k(x.width),
        n(0) {
    for (const BackwardLayer<T>& layer : layers) {
      rows = std::max(rows, layer.dy.count);  // count is 0 if rows have no elements
      begin.push_back(n);
      n += layer.dy.width;
      if (to_input()) factors.push_back(right_factor<T>(layer.weight));
      dweights = dweights || layer.dweight;
      dbiases = dbiases || layer.dbias;
    }
    block = even_part(
        rows, std::clamp<int64_t>(divide(rows, enough_tasks), fewest_rows, block_of(k + n)));
  }
  bool norms() const { return to.norm_weight || to.norm_bias; }
  bool to_input() const { return to.x || norms(); }
  int64_t blocks() const { return divide(rows, block); }
};

// The gradients of the biases and of the norm's parameters, summed over some blocks of rows: n and
// twice k elements, in double, so that summing many blocks loses no precision. Null pointers are
// not required.
struct SmallSums {
  double *biases, *norm_weight, *norm_bias;

  SmallSums(double* data, bool with_biases, bool with_norm, int64_t k, int64_t n)
      : biases(with_biases ? data : nullptr),
        norm_weight(with_norm ? data + n : nullptr),
        norm_bias(with_norm ? data + n + k : nullptr) {}
  static int64_t size(int64_t k, int64_t n) { return n + 2 * k; }
};

// The left and the right factor of a block's contribution to the gradients of the weights: dzᵀ
// (n, count) of all layers, one below the other, and a (count, k).
template <class T>
struct WeightFactors {
  Strided<T> left;
  const T* right;
};

// Processes blocks of rows one after another, in the memory of one task.
template <class T>
class BlockGradients {
 public:
  BlockGradients(const Backward<T>& all, Scratch& scratch)
      : all_(all),
        dropped_(scratch.take<T>(drops() ? all.block * all.n : 0)),
        normed_(scratch.take<T>(normalises() ? all.block * all.k : 0)),
        activated_(scratch.take<T>(activates() ? all.block * all.k : 0)),
        slope_(scratch.take<T>(activates() ? all.block * all.k : 0)),
        dactivated_(scratch.take<T>(activates() ? all.block * all.k : 0)),
        dnormed_(scratch.take<T>(normalises() ? all.block * all.k : 0)),
        sums_(scratch.take<T>(std::max(all.n, 2 * all.k))),
        moments_(scratch.take<Moments<T>>(normalises() ? all.block : 0)) {}

  // Rows [first, first + count): writes dx and adds to the sums. The factors of the weight's
  // gradient are kept until the next call.
  void run(int64_t first, int64_t count, const SmallSums& sums) {
    first_ = first, count_ = count;
    find_output_gradient();
    find_activations();
    if (all_.to_input()) find_input_gradient(sums);
    if (sums.biases)
      for (size_t i = 0; i < all_.layers.size(); ++i)
        if (all_.layers[i].dbias) add_bias(dz(i), sums.biases + all_.begin[i]);
  }

  // Number of elements of the factors of a full block.
  static int64_t left_size(const Backward<T>& all) { return all.block * left_stride(all.n); }
  static int64_t right_size(const Backward<T>& all) {
    return std::max(all.block * all.k, kernels::panels_size(all.block, all.k));
  }
  // The factors in the form for product(), in `left` and `right` if they must outlive this block or
  // need another form. The columns of dz are read in order: if n were a power of two, they would
  // map to few sets of the L1 cache.
  WeightFactors<T> factors(T* left, T* right, bool keep) const {
    const int64_t n = all_.n, k = all_.k, stride = left_stride(n);
    if (!keep && !kernels::has_tile_kernels<T>() && all_.layers.size() == 1)
      return {{dz(0).data, 1, n}, a_};
    for (size_t l = 0; l < all_.layers.size(); ++l) {
      const Rows<const T> from = dz(l);
      T* const to = left + all_.begin[l];
      for (int64_t i = 0; i < count_; ++i) std::copy_n(from[i], from.width, to + i * stride);
    }
    if (kernels::has_tile_kernels<T>())
      kernels::pack_panels<T>(count_, k, {a_, k, 1}, 1, 0, panels_of(k), right);
    else
      std::copy_n(a_, count_ * k, right);
    return {{left, 1, stride}, right};
  }

 private:
  static int64_t left_stride(int64_t n) { return (n + 15) / 16 * 16 + 16; }
  bool drops() const { return all_.dropout.on(); }
  bool normalises() const { return all_.prologue.normalises(); }
  bool activates() const { return all_.prologue.activates(); }

  // dz = dropout(dy) of the only layer
  void find_output_gradient() {
    if (!drops()) return;
    drop_output<T>(all_.dropout, first_ * all_.n, count_ * all_.n, all_.layers[0].dy[first_],
                   nullptr, dropped_);
  }
  // The rows of this block.
  Rows<const T> dz(size_t layer) const {
    const Rows<const T>& dy = all_.layers[layer].dy;
    return {drops() ? dropped_ : dy[first_], count_, dy.width};
  }

  // a, and its derivative if the input's gradient is required.
  void find_activations() {
    a_ = all_.x[first_];
    if (normalises()) {
      normalise_block(all_.prologue, a_, count_, all_.k, moments_, normed_);
      a_ = normed_;
    }
    if (activates()) {
      activate<T>(all_.prologue, first_ * all_.k, count_ * all_.k, a_, activated_,
                  all_.to_input() ? slope_ : nullptr);
      a_ = activated_;
    }
  }

  // da = the sum of dz W over the layers, dh = da a', then dx and the norm's parameter gradients.
  void find_input_gradient(const SmallSums& sums) {
    const int64_t k = all_.k, size = count_ * k;
    T* const dx = all_.to.x ? all_.to.x.to + first_ * k : nullptr;
    T* const dh = normalises() ? dnormed_ : dx;
    T* const da = activates() ? dactivated_ : dh;
    const T beta = normalises() ? T{0} : all_.to.x.beta;
    for (size_t i = 0; i < all_.layers.size(); ++i) {
      const Rows<const T> z = dz(i);
      product<T>(count_, k, z.width, {z.data, z.width, 1}, all_.factors[i].template data<T>(), da,
                 k, i > 0 || (!activates() && beta != 0));
    }
    if (activates())
      simd([=, slopes = slope_] {
        kernels::row_accumulate(dh, size, beta, [=](int64_t i) { return da[i] * slopes[i]; });
      });
    if (normalises()) norm_gradients(dh, dx, sums);
  }

  void norm_gradients(const T* dh, T* dx, const SmallSums& sums) {
    const int64_t k = all_.k;
    T* const dw = sums.norm_weight ? sums_ : nullptr;
    T* const db = dw ? dw + k : nullptr;
    simd([&, x = all_.x[first_], w = all_.prologue.norm_weight.template data<T>(), s = moments_] {
      if (dw) std::fill(dw, dw + 2 * k, T{0});
      normalise::rows_backward(x, dh, w, s, count_, k, all_.prologue.centred, dx, all_.to.x.beta,
                               dw, db);
      if (dw) add_to(sums.norm_weight, dw, k), add_to(sums.norm_bias, db, k);
    });
  }

  // The sum of dz over the rows.
  void add_bias(Rows<const T> z, double* bias) {
    simd([&, sum = sums_] {
      kernels::sum_rows(
          count_, z.width, [=](int64_t r) { return z[r]; }, sum);
      add_to(bias, sum, z.width);
    });
  }

  static void add_to(double* sum, const T* x, int64_t count) {
    for (int64_t j = 0; j < count; ++j) sum[j] += static_cast<double>(x[j]);
  }

  const Backward<T>& all_;
  T *dropped_, *normed_, *activated_, *slope_, *dactivated_, *dnormed_, *sums_;
  Moments<T>* moments_;
  int64_t first_ = 0, count_ = 0;
  const T* a_ = nullptr;  // of the current block
};

// ---- backward: sums over blocks ----------------------------------------------------------------

// to = beta to + the sum of `count` rows of doubles with the given stride.
template <class T>
void write_sum(const double* sums, int64_t count, int64_t stride, int64_t size, GradientTo<T> to) {
  if (!to) return;
  std::vector<double> total(sums, sums + size);
  for (int64_t s = 1; s < count; ++s)
    for (int64_t j = 0; j < size; ++j) total[j] += sums[s * stride + j];
  simd([&] {
    kernels::row_accumulate(to.to, size, to.beta,
                            [&](int64_t j) { return static_cast<T>(total[j]); });
  });
}

// Partial sums of several tasks, each of which adds to its own.
template <class T>
class AllSmallSums {
 public:
  AllSmallSums(const Backward<T>& all, int64_t count)
      : all_(all),
        wanted_(all.dbiases || all.norms()),
        sums_(Tensor::zeros(
            {wanted_ ? std::max<int64_t>(1, count) : 0, SmallSums::size(all.k, all.n)},
            DType::f64)) {}

  SmallSums of(int64_t task) {
    double* const data = wanted_ ? sums_.data<double>() + task * sums_.size(1) : nullptr;
    return {data, all_.dbiases, all_.norms(), all_.k, all_.n};
  }
  void write() const {
    if (!wanted_) return;
    const double* const data = sums_.data<double>();
    const int64_t count = sums_.size(0), stride = sums_.size(1), k = all_.k, n = all_.n;
    for (size_t i = 0; i < all_.layers.size(); ++i)
      write_sum(data + all_.begin[i], count, stride, all_.layers[i].dy.width, all_.layers[i].dbias);
    write_sum(data + n, count, stride, k, all_.to.norm_weight);
    write_sum(data + n + k, count, stride, k, all_.to.norm_bias);
  }

 private:
  const Backward<T>& all_;
  bool wanted_;
  Tensor sums_;  // (count, n + 2 k)
};

// The number of partial sums of the weight's gradient: up to 16, more for very many rows, so that
// no sum has too many terms, but only as many as fit into 16 MiB.
int64_t partial_sums(int64_t blocks, int64_t weight_bytes) {
  constexpr int64_t budget = int64_t{16} << 20;
  const int64_t fit = budget / std::max<int64_t>(1, weight_bytes);
  return std::min({blocks, std::max<int64_t>(16, blocks / 64), fit});
}

// The memory of a task that sums over its own rows.
template <class T>
struct RowsTask {
  BlockGradients<T> gradients;
  T *left, *right;

  RowsTask(const Backward<T>& all, Scratch& scratch)
      : gradients(all, scratch),
        left(scratch.take<T>(all.dweights ? gradients.left_size(all) : 0)),
        right(scratch.take<T>(all.dweights ? gradients.right_size(all) : 0)) {}
};

// Each task sums over its own rows.
template <class T>
void backward_by_rows(Backward<T>& all, int64_t sums) {
  const int64_t rows_of_sum = even_part(all.rows, divide(all.rows, sums));
  sums = divide(all.rows, rows_of_sum);
  all.block = even_part(rows_of_sum, all.block);
  Tensor partial = scratch<T>(all.dweights ? sums * all.n * all.k : 0);
  AllSmallSums<T> small(all, sums);
  parallel_for(all.rows, rows_of_sum, [&](int64_t begin, int64_t end) {
    const int64_t task = begin / rows_of_sum;
    Workspace<RowsTask<T>> memory(all);
    const SmallSums small_sums = small.of(task);
    for (int64_t r = begin; r < end; r += all.block) {
      const int64_t count = std::min(all.block, end - r);
      memory->gradients.run(r, count, small_sums);
      if (!all.dweights) continue;
      const WeightFactors<T> f = memory->gradients.factors(memory->left, memory->right, false);
      for (size_t i = 0; i < all.layers.size(); ++i) {
        const Strided<T> left{f.left.data + all.begin[i], 1, f.left.col};
        const int64_t n = all.layers[i].dy.width;
        T* const of_layer = partial.data<T>() + all.begin[i] * all.k * sums;
        if (all.layers[i].dweight)
          product<T>(n, all.k, count, left, f.right, of_layer + task * n * all.k, all.k, r > begin);
      }
    }
  });
  for (size_t i = 0; i < all.layers.size(); ++i)
    if (const auto [to, beta] = all.layers[i].dweight; to)
      kernels::sum_middle<T>(std::as_const(partial).data<T>() + all.begin[i] * all.k * sums, 1,
                             sums, all.layers[i].dy.width * all.k, to, 1,
                             static_cast<double>(beta));
  small.write();
}

// Computes the weight's gradient in tiles, from the factors of some blocks of rows at a time.
template <class T>
class WeightGradient {
 public:
  static constexpr int64_t blocks_at_once = 16;

  explicit WeightGradient(const Backward<T>& all)
      : all_(all),
        // The first level of the sum has few terms; if the second has too many, a third is used.
        folds_(all.blocks() > blocks_at_once * blocks_of_fold),
        part_(scratch<T>(folds_ ? all.n * all.k : 0)),
        left_size_(BlockGradients<T>::left_size(all)),
        right_size_(BlockGradients<T>::right_size(all)),
        left_(scratch<T>(blocks_at_once * left_size_)),
        right_(scratch<T>(blocks_at_once * right_size_)),
        tile_columns_(kernels::has_tile_kernels<T>() ? 16 * panel_width : all.k) {
    for (size_t i = 0; i < all.layers.size(); ++i)
      for (int64_t row = 0; all.layers[i].dweight && row < all.layers[i].dy.width; row += tile_rows)
        for (int64_t column = 0; column < all.k; column += tile_columns_)
          tiles_.push_back({i, row, column});
  }

  void store(int64_t slot, int64_t count, const BlockGradients<T>& gradients) {
    counts_[slot] = count;
    factors_[slot] = gradients.factors(left_.data<T>() + slot * left_size_,
                                       right_.data<T>() + slot * right_size_, true);
  }

  // Adds the contributions stored in the first `slots`.
  void add(int64_t slots, bool last) {
    const bool fold = folds_ && (last || times_ % blocks_of_fold == blocks_of_fold - 1);
    parallel_for_each(static_cast<int64_t>(tiles_.size()), 1, [&](int64_t t) {
      Tensor memory = scratch<T>(tile_rows * tile_columns_);
      add_tile(tiles_[t], slots, fold, memory.data<T>());
    });
    ++times_;
    if (fold) folded_ = true;
  }

 private:
  static constexpr int64_t tile_rows = 96, blocks_of_fold = 64;

  // A tile of the gradient of one layer's weight.
  struct Tile {
    size_t layer;
    int64_t row, column;
  };

  void add_tile(const Tile& of, int64_t slots, bool fold, T* tile) {
    const BackwardLayer<T>& layer = all_.layers[of.layer];
    const int64_t row = of.row, column = of.column, k = all_.k;
    const int64_t m = std::min(tile_rows, layer.dy.width - row),
                  columns = std::min(tile_columns_, k - column);
    for (int64_t s = 0; s < slots; ++s) {
      const Strided<T> left{factors_[s].left.data + all_.begin[of.layer] + row, 1,
                            factors_[s].left.col};
      product<T>(m, columns, counts_[s], left, factors_[s].right + column * counts_[s], tile,
                 columns, s > 0);
    }
    const GradientTo<T> dw = layer.dweight;
    const bool starts = folds_ && times_ % blocks_of_fold == 0;
    const T beta = folds_ ? T(!starts) : times_ == 0 ? dw.beta : T{1};
    T* const part = folds_ ? part_.data<T>() + all_.begin[of.layer] * k : nullptr;
    simd([&, at = row * k + column, sum = folds_ ? part : dw.to] {
      for (int64_t i = 0; i < m; ++i)
        kernels::row_accumulate(sum + at + i * k, columns, beta,
                                [from = tile + i * columns](int64_t j) { return from[j]; });
      if (!fold) return;
      for (int64_t i = 0; i < m; ++i)
        kernels::row_accumulate(dw.to + at + i * k, columns, folded_ ? T{1} : dw.beta,
                                [from = sum + at + i * k](int64_t j) { return from[j]; });
    });
  }

  const Backward<T>& all_;
  const bool folds_;
  Tensor part_;  // (n, k), the sum of blocks_of_fold rounds
  const int64_t left_size_, right_size_;
  Tensor left_, right_;
  const int64_t tile_columns_;
  std::vector<Tile> tiles_;
  int64_t counts_[blocks_at_once] = {};
  WeightFactors<T> factors_[blocks_at_once] = {};
  int64_t times_ = 0;
  bool folded_ = false;
};

// Processes some blocks of rows at a time, then the tiles of the weight's gradient.
template <class T>
void backward_by_tiles(const Backward<T>& all) {
  constexpr int64_t at_once = WeightGradient<T>::blocks_at_once;
  WeightGradient<T> dw(all);
  AllSmallSums<T> small(all, at_once);
  for (int64_t first = 0; first < all.rows; first += at_once * all.block) {
    const int64_t rows = std::min(at_once * all.block, all.rows - first);
    parallel_for(rows, all.block, [&](int64_t begin, int64_t end) {
      Workspace<BlockGradients<T>> gradients(all);
      for (int64_t r = begin; r < end; r += all.block) {
        const int64_t slot = r / all.block, count = std::min(all.block, end - r);
        gradients->run(first + r, count, small.of(slot));
        dw.store(slot, count, *gradients);
      }
    });
    dw.add((rows + all.block - 1) / all.block, first + rows == all.rows);
  }
  small.write();
}

// ---- forward -----------------------------------------------------------------------------------

// The memory of a task of the forward pass.
template <class T>
struct ForwardTask {
  T* changed;  // a, if it is not x
  Moments<T>* moments;

  ForwardTask(const Prologue& prologue, int64_t block, int64_t k, Scratch& scratch)
      : changed(scratch.take<T>(prologue.changes() ? block * k : 0)),
        moments(scratch.take<Moments<T>>(prologue.normalises() ? block : 0)) {}
};

// The factor Wᵀ (k, n) of a weight W.
template <class T>
Tensor factor_of_weight(const ForwardLayer<T>& layer) {
  const auto factor = [](const Tensor& weight) { return right_factor<T>(weight.transpose(0, 1)); };
  FixedWeights* const fixed = layer.parameter ? FixedWeights::in_use() : nullptr;
  return fixed ? fixed->of(layer.weight, factor) : factor(layer.weight);
}

// product() of dense rows. With `divide`, tasks take some columns; tiles stay bitwise identical.
template <class T>
void product_of_tasks(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c, Addend<T> to,
                      bool divide) {
  constexpr int64_t task = int64_t{1} << 18;  // multiplications, about 5 µs
  if (!divide || !kernels::has_tile_kernels<T>())
    return product<T>(m, n, k, {a, k, 1}, b, c, n, to);
  parallel_for(panels_of(n), task / (m * k * panel_width + 1), [&](int64_t begin, int64_t end) {
    const int64_t first = begin * panel_width, columns = std::min(n, end * panel_width) - first;
    product<T>(m, columns, k, {a, k, 1}, b + first * k, c + first, n,
               {to.data ? to.data + first : nullptr, to.row});
  });
}

}  // namespace

template <class T>
void linear_forward(Rows<const T> x, std::span<const ForwardLayer<T>> layers, const T* residual,
                    const Prologue& prologue, const DropoutMask& dropout) {
  const int64_t k = x.width;
  int64_t n = 0, rows = 0;
  ShortVector<Tensor> factors;
  factors.reserve(layers.size());
  for (const ForwardLayer<T>& layer : layers) {
    n += layer.y.width;
    rows = std::max(rows, layer.y.count);
    factors.push_back(factor_of_weight(layer));
  }
  const bool drops = dropout.on();
  constexpr int64_t task = int64_t{1} << 20;  // multiplications, about 20 µs
  const int64_t most = block_of(k + n);
  const int64_t grain = even_part(rows, std::max<int64_t>(most, task / ((k + 1) * (n + 1))));
  const int64_t block = even_part(grain, most);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    Workspace<ForwardTask<T>> memory(prologue, block, k);
    for (int64_t r = begin; r < end; r += block) {
      const int64_t count = std::min(block, end - r);
      const T* a = x[r];
      if (prologue.normalises()) {
        normalise_block(prologue, a, count, k, memory->moments, memory->changed);
        a = memory->changed;
      }
      if (prologue.activates()) {
        activate<T>(prologue, r * k, count * k, a, memory->changed, nullptr);
        a = memory->changed;
      }
      for (size_t i = 0; i < layers.size(); ++i) {
        const Rows<T>& y = layers[i].y;
        const T* const u = residual ? residual + r * n : nullptr;
        const Addend<T> to = sum_of(drops ? nullptr : u, layers[i].bias, y[r], count, y.width);
        product_of_tasks<T>(count, y.width, k, a, factors[i].template data<T>(), y[r], to,
                            rows <= grain);
        if (drops) drop_output(dropout, r * n, count * n, y[r], u, y[r]);
      }
    }
  });
}

template <class T>
void linear_backward(Rows<const T> x, const std::vector<BackwardLayer<T>>& layers,
                     const Prologue& prologue, const DropoutMask& dropout,
                     const InputGradients<T>& to) {
  Backward<T> all(x, layers, prologue, dropout, to);
  const int64_t sums = partial_sums(all.blocks(), all.n * all.k * static_cast<int64_t>(sizeof(T)));
  if (all.dweights && sums < std::min(enough_tasks, all.blocks()))
    backward_by_tiles(all);
  else
    backward_by_rows(all,
                     std::max<int64_t>(1, all.dweights ? sums : partial_sums(all.blocks(), 0)));
}

template void linear_forward(Rows<const float>, std::span<const ForwardLayer<float>>, const float*,
                             const Prologue&, const DropoutMask&);
template void linear_forward(Rows<const double>, std::span<const ForwardLayer<double>>,
                             const double*, const Prologue&, const DropoutMask&);
template void linear_backward(Rows<const float>, const std::vector<BackwardLayer<float>>&,
                              const Prologue&, const DropoutMask&, const InputGradients<float>&);
template void linear_backward(Rows<const double>, const std::vector<BackwardLayer<double>>&,
                              const Prologue&, const DropoutMask&, const InputGradients<double>&);

}  // namespace longhand::ops
