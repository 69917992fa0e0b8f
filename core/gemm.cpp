#include "longhand/core/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <type_traits>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/measure/multiply_adds.h"
#include "longhand/core/parallel.h"

// Exported by builds with kernels for several CPUs, but in no header: one forgets which kernel it
// uses, the other chooses as at the start of the process, by OPENBLAS_CORETYPE or else by the CPU.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_quit();
[[gnu::weak]] void gotoblas_dynamic_init();
}

namespace longhand {
namespace {

// Called before the first product; set_threads() checks for other thread counts.
void prepare_blas() {
  static std::once_flag once;
  std::call_once(once, [] { check_blas(threads()); });
}

CBLAS_TRANSPOSE cblas(Trans t) { return t == Trans::yes ? CblasTrans : CblasNoTrans; }

int blas_int(int64_t n) {
  check<ShapeError>(n <= INT32_MAX, "gemm: size ", n, " exceeds the 32-bit integers of BLAS");
  return static_cast<int>(n);
}

// The matrices of a batch in a form that BLAS accepts: unit stride along rows, or along columns
// (transposed).
struct Operand {
  Tensor tensor;  // (…, rows, cols), one of the last two strides is 1
  Trans trans;
  int64_t leading;  // stride of the other axis
};

// The stride of an axis; that of an axis of size 1 is arbitrary and replaced by `if_one`.
int64_t stride_of(const Tensor& t, int axis, int64_t if_one) {
  return t.size(axis) == 1 ? if_one : t.strides()[axis];
}

Operand as_operand(const Tensor& t) {
  const int64_t rows = t.size(-2), cols = t.size(-1);
  const int64_t row_stride = stride_of(t, -2, cols), col_stride = stride_of(t, -1, 1);
  if (col_stride == 1 && row_stride >= cols) return {t, Trans::no, row_stride};
  const int64_t down = stride_of(t, -2, 1), across = stride_of(t, -1, rows);
  if (down == 1 && across >= rows) return {t, Trans::yes, across};
  return {t.contiguous(), Trans::no, cols};
}

template <class T>
MatrixView<const T> matrix(const Operand& x, int64_t offset) {
  const int64_t rows = x.tensor.size(-2), cols = x.tensor.size(-1);
  const T* data = x.tensor.data<T>() + offset;
  if (x.trans == Trans::yes) return {data, cols, rows, x.leading};
  return {data, rows, cols, x.leading};
}

// Offset of matrix `index` of a batch with the axes `batch`; axes of size 1 in t broadcast.
int64_t batch_offset(const Shape& batch, const Tensor& t, int64_t index) {
  int64_t offset = 0;
  for (int i = 1; i <= batch.rank(); ++i) {
    const int64_t at = index % batch[-i];
    index /= batch[-i];
    if (i + 2 <= t.rank() && t.size(-i - 2) != 1) offset += at * t.strides()[-i - 2];
  }
  return offset;
}

// How one product is split: blocks of rows of c, and chunks of the summed axis, whose partial
// products are added in index order. Both depend on the shapes alone.
struct Split {
  int64_t row_block, k_chunk;
};

constexpr int64_t task_flops = int64_t{1} << 23;  // about 80 µs
constexpr int64_t min_rows = 64;

Split split(int64_t batch, int64_t m, int64_t n, int64_t k) {
  Split s{m, k};
  const int64_t flops = 2 * m * n * k;
  if (flops <= task_flops || batch >= 64) return s;
  // Long sums into a small result (weight gradients): blocks of rows alone would be too few tasks.
  if (k >= 2048 && m * n <= 256 * 256 && batch < 16)
    s.k_chunk = (k / 32 + 511) / 512 * 512;  // Panels' depth
  const int64_t rows = task_flops / std::max<int64_t>(1, 2 * n * s.k_chunk);
  s.row_block = std::min(m, std::max(min_rows, (rows + min_rows - 1) / min_rows * min_rows));
  return s;
}

// A right factor, times alpha, packed into panels for our own kernels, `depth` of its rows at a
// time.
template <class T>
class Panels {
 public:
  static constexpr int64_t depth = 512;

  // Packing pays off if each matrix is multiplied by many rows.
  static bool pay(const Operand& b, const Shape& batch, int64_t m) {
    const int64_t matrices = b.tensor.numel() / (b.tensor.size(-2) * b.tensor.size(-1));
    return kernels::has_tile_kernels<T>() && m >= min_rows &&
           (matrices == 1 || matrices == batch.numel());
  }

  Panels(const Operand& b, const Shape& batch, T alpha)
      : k_(b.tensor.size(-2)), n_(b.tensor.size(-1)), one_(b.tensor.numel() == k_ * n_) {
    const int64_t matrices = one_ ? 1 : batch.numel(), pieces = (k_ + depth - 1) / depth;
    data_ = Tensor::empty({matrices, kernels::panels_size(k_, n_)}, dtype_of<T>);
    parallel_for_each(matrices * pieces, std::max<int64_t>(1, (int64_t{1} << 15) / (depth * n_)),
                      [&, to = data_.data<T>()](int64_t i) {
                        const int64_t index = i / pieces, from = i % pieces * depth;
                        const auto v = matrix<T>(b, batch_offset(batch, b.tensor, index));
                        const kernels::Strided<T> piece =
                            b.trans == Trans::yes
                                ? kernels::Strided<T>{v.data + from, 1, v.row_stride}
                                : kernels::Strided<T>{v[from], v.row_stride, 1};
                        kernels::pack_panels<T>(std::min(depth, k_ - from), n_, piece, alpha, 0,
                                                kernels::panels_of(n_), to + at(index, from));
                      });
  }

  // The panels from row `from`, a multiple of depth, of the matrix at index `index` of the batch.
  const T* piece(int64_t index, int64_t from) const { return data_.data<T>() + at(index, from); }

 private:
  int64_t at(int64_t index, int64_t from) const {
    const int64_t size = kernels::panels_size(k_, n_);
    return (one_ ? 0 : index * size) + size / k_ * from;
  }

  int64_t k_, n_;
  bool one_;  // one matrix for the whole batch
  Tensor data_;
};

// c = a b, or c += a b, for `rows` rows of a (m, k), or of its transpose, and k columns from column
// `from`, a multiple of Panels::depth.
template <class T>
void multiply_panels(MatrixView<const T> a, Trans trans, int64_t row, int64_t rows, int64_t from,
                     int64_t k, int64_t n, const Panels<T>& b, int64_t index, T* c, int64_t ldc,
                     bool add) {
  constexpr int64_t block = 96;  // rows that fit in the L2 cache along with a panel's columns
  constexpr int64_t odd = block + 16;
  Tensor columns = Tensor::empty({trans == Trans::yes ? odd * Panels<T>::depth : 0}, dtype_of<T>);
  T* const copy = columns.data<T>();
  for (int64_t r = row; r < row + rows; r += block)
    for (int64_t l = from; l < from + k; l += Panels<T>::depth) {
      const int64_t m = std::min(block, row + rows - r),
                    depth = std::min(Panels<T>::depth, from + k - l);
      kernels::Strided<T> left{a.data + r * a.row_stride + l, a.row_stride, 1};
      if (trans == Trans::yes) {
        // Columns a power of two apart would map to few cache sets.
        for (int64_t i = 0; i < depth; ++i) std::copy_n(a[l + i] + r, m, copy + i * odd);
        left = {copy, 1, odd};
      }
      kernels::gemm_panels<T>(m, n, depth, left, b.piece(index, l), c + (r - row) * ldc, ldc,
                              add || l > from);
    }
}

template <class T>
void multiply(Tensor& out, const Operand& a, const Operand& b, T alpha, T beta) {
  const int64_t m = out.size(-2), n = out.size(-1), k = a.tensor.size(-1);
  Shape batch = out.shape().without_axis(-1).without_axis(-1);
  const int64_t count = batch.numel();
  const int64_t out_stride = stride_of(out, -2, n);
  std::optional<Panels<T>> panels;
  if ((beta == 0 || beta == 1) && Panels<T>::pay(b, batch, m)) panels.emplace(b, batch, alpha);
  const Split s = split(count, m, n, k);
  const int64_t row_blocks = (m + s.row_block - 1) / s.row_block;
  const int64_t chunks = (k + s.k_chunk - 1) / s.k_chunk;
  // Chunk 0 is written directly to out, the others to partial results.
  Tensor partial = Tensor::empty({chunks - 1, count, m, n}, dtype_of<T>);
  T* const out_data = out.data<T>();
  T* const partial_data = partial.data<T>();

  // Rows or columns of a matrix as it is stored.
  const auto range = [](MatrixView<const T> v, bool columns, int64_t from, int64_t size) {
    if (columns) return MatrixView<const T>{v.data + from, v.rows, size, v.row_stride};
    return MatrixView<const T>{v[from], size, v.cols, v.row_stride};
  };
  // A task computes many small products.
  const int64_t flops = 2 * s.row_block * n * s.k_chunk;
  if (is_dry()) count_multiply_adds(count * m, n, k);
  const int64_t grain = std::max<int64_t>(1, task_flops / 8 / std::max<int64_t>(1, flops));
  parallel_for_each(count * row_blocks * chunks, grain, [&](int64_t task) {
    const int64_t chunk = task % chunks, block = task / chunks % row_blocks;
    const int64_t index = task / chunks / row_blocks;
    const int64_t row = block * s.row_block, rows = std::min(s.row_block, m - row);
    const int64_t from = chunk * s.k_chunk, depth = std::min(s.k_chunk, k - from);
    T* const c = chunk == 0 ? out_data + batch_offset(batch, out, index) + row * out_stride
                            : partial_data + ((chunk - 1) * count + index) * m * n + row * n;
    const int64_t ldc = chunk == 0 ? out_stride : n;
    const T keep = chunk == 0 ? beta : T{0};
    const auto left = matrix<T>(a, batch_offset(batch, a.tensor, index));
    if (panels) {
      multiply_panels(left, a.trans, row, rows, from, depth, n, *panels, index, c, ldc, keep != 0);
      return;
    }
    const bool across_a = a.trans == Trans::yes, across_b = b.trans == Trans::yes;
    const auto va = range(range(left, across_a, row, rows), !across_a, from, depth);
    const auto vb =
        range(matrix<T>(b, batch_offset(batch, b.tensor, index)), across_b, from, depth);
    gemm<T>(a.trans, b.trans, alpha, va, vb, keep, {c, rows, n, ldc});
  });
  for (int64_t chunk = 1; chunk < chunks; ++chunk)
    accumulate_into(out, 1, partial.select(0, chunk - 1).reshape(out.shape()));
}

}  // namespace

template <class T>
void gemm(Trans trans_a, Trans trans_b, T alpha, MatrixView<const T> a, MatrixView<const T> b,
          T beta, MatrixView<T> c) {
  const int64_t m = trans_a == Trans::yes ? a.cols : a.rows;
  const int64_t k = trans_a == Trans::yes ? a.rows : a.cols;
  const int64_t kb = trans_b == Trans::yes ? b.cols : b.rows;
  const int64_t n = trans_b == Trans::yes ? b.rows : b.cols;
  check<ShapeError>(m == c.rows && n == c.cols && k == kb,
                    "gemm: expected op(a) (m, k), op(b) (k, n) and c (m, n), got op(a) (", m, ", ",
                    k, "), op(b) (", kb, ", ", n, ") and c (", c.rows, ", ", c.cols, ")");
  if (m == 0 || n == 0) return;
  prepare_blas();
  count_multiply_adds(m, n, k);
  if (is_dry()) return;
  // How a library sums the k terms of an element depends on its kernel, and a chain of n equal
  // terms in f32 is off by up to n 2^-25 of the sum. So f32 sums are split into parts of `depth`.
  constexpr int64_t depth = std::is_same_v<T, float> ? 256 : std::numeric_limits<int64_t>::max();
  const int64_t a_step = trans_a == Trans::yes ? a.row_stride : 1;
  const int64_t b_step = trans_b == Trans::yes ? 1 : b.row_stride;
  const auto blas_gemm = for_type<T>(cblas_sgemm, cblas_dgemm);
  int64_t l = 0;
  do {
    const int64_t terms = (k - l) / 2 < depth ? k - l : depth;
    blas_gemm(CblasRowMajor, cblas(trans_a), cblas(trans_b), blas_int(m), blas_int(n),
              blas_int(terms), alpha, a.data + l * a_step,
              blas_int(std::max<int64_t>(1, a.row_stride)), b.data + l * b_step,
              blas_int(std::max<int64_t>(1, b.row_stride)), l ? T{1} : beta, c.data,
              blas_int(std::max<int64_t>(1, c.row_stride)));
    l += terms;
  } while (l < k);
}

template void gemm(Trans, Trans, float, MatrixView<const float>, MatrixView<const float>, float,
                   MatrixView<float>);
template void gemm(Trans, Trans, double, MatrixView<const double>, MatrixView<const double>, double,
                   MatrixView<double>);

Shape matmul_shape(const Shape& a, const Shape& b) {
  check<ShapeError>(a.rank() >= 2 && b.rank() >= 2 && a[-1] == b[-2],
                    "matmul: expected a (…, m, k) and b (…, k, n), got a ", a, " and b ", b);
  const auto batch = [](const Shape& s) { return s.without_axis(-1).without_axis(-1); };
  Shape out = broadcast_shape(batch(a), batch(b), "matmul");
  out.push_back(a[-2]);
  out.push_back(b[-1]);
  return out;
}

void matmul_into(Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
  const Shape shape = matmul_shape(a.shape(), b.shape());
  check<ShapeError>(broadcast_shape(shape, out.shape(), "matmul") == out.shape() &&
                        shape[-2] == out.size(-2) && shape[-1] == out.size(-1),
                    "matmul: expected a result that ", shape, " broadcasts to, got ", out.shape(),
                    " for a ", a.shape(), " and b ", b.shape());
  check<ShapeError>(a.dtype() == b.dtype() && a.dtype() == out.dtype(),
                    "matmul: expected equal dtypes, got a ", a.dtype(), ", b ", b.dtype(),
                    " and a result of ", out.dtype());
  check<ShapeError>(out.size(-1) == 1 || out.strides()[-1] == 1,
                    "matmul: expected a result with contiguous rows, got strides ", out.strides());
  if (out.numel() == 0) return;
  dispatch_float(out.dtype(), [&]<class T>() {
    if (a.size(-1) == 0) {  // an empty sum
      kernels::elementwise_accumulate<T>(out, beta, [] { return T{0}; });
      return;
    }
    multiply<T>(out, as_operand(a), as_operand(b), static_cast<T>(alpha), static_cast<T>(beta));
  });
}

void check_blas(int threads) {
  const int build = openblas_get_parallel();
  check<ConfigError>(
      build == 1 || threads == 1, "OpenBLAS: expected the pthread build for ", threads,
      " threads, got the ", build == 0 ? "serial" : "OpenMP", " build, which ",
      build == 0 ? "computes wrong products" : "starts threads of its own",
      " when called from several threads; install libopenblas0-pthread and select it with "
      "update-alternatives, or use 1 thread");
  // OpenBLAS's own threads would compete with ours for the cores, and results would depend on their
  // number. The setting is global and must not change while products run, so it is set once.
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

std::string better_blas_core(std::string_view core, Isa used) {
  constexpr std::string_view older[] = {
      "Katmai", "Coppermine", "Northwood", "Prescott",   "Banias",      "Atom",         "Core2",
      "Penryn", "Dunnington", "Nehalem",   "Athlon",     "Opteron",     "Opteron_SSE3", "Barcelona",
      "Bobcat", "Bulldozer",  "Nano",      "Piledriver", "Steamroller", "Sandybridge"};
  constexpr std::string_view with_avx2[] = {"Excavator", "Haswell", "Zen"};
  // Other names are those of newer CPUs.
  const Isa of_core = std::ranges::count(older, core)       ? Isa::baseline
                      : std::ranges::count(with_avx2, core) ? Isa::avx2
                                                            : Isa::avx512;
  if (of_core >= used) return "";
  return used == Isa::avx512 ? "SkylakeX" : "Haswell";
}

void use_better_blas_core() {
  const std::string better = better_blas_core(openblas_get_corename(), isa());
  if (better.empty() || !gotoblas_dynamic_quit || !gotoblas_dynamic_init) return;
  setenv("OPENBLAS_CORETYPE", better.c_str(), 1);
  gotoblas_dynamic_quit();
  gotoblas_dynamic_init();
}

std::string blas_advice() {
  const std::string core = openblas_get_corename(), better = better_blas_core(core, isa());
  if (better.empty()) return "";
  return concat_message(
      "OpenBLAS runs kernels for ", core, ", which do not use ", name_of(isa()),
      ": its products are slower than they could be; set OPENBLAS_CORETYPE=", better);
}

std::string blas_description() {
  static const char* const builds[] = {"serial", "pthread", "openmp"};
  const std::string config = openblas_get_config();  // "OpenBLAS 0.3.21 NO_LAPACKE …"
  const size_t end = config.find(' ', config.find(' ') + 1);
  return config.substr(0, end) + ' ' + builds[openblas_get_parallel()] + ' ' +
         openblas_get_corename();
}

}  // namespace longhand
