// y_i = E[t_i]          dE[v] = sum of dy_i over the i with t_i = v
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/dry_run.h"

namespace longhand {
using namespace ops;
namespace {

// The positions of each token, in ascending order: those of v are places[begin[v]] …
// places[begin[v + 1] - 1].
struct Places {
  Tensor begin_of_token, place;
  int64_t *const begin = begin_of_token.data<int64_t>(), *const places = place.data<int64_t>();

  Places(const int32_t* tokens, int64_t count, int64_t vocabulary)
      : begin_of_token(Tensor::zeros({vocabulary + 1}, DType::i64)),
        place(Tensor::empty({count}, DType::i64)) {
    if (is_dry()) return;
    for (int64_t i = 0; i < count; ++i) ++begin[tokens[i] + 1];
    for (int64_t v = 0; v < vocabulary; ++v) begin[v + 1] += begin[v];
    std::vector<int64_t> next(begin, begin + vocabulary);
    for (int64_t i = 0; i < count; ++i) places[next[tokens[i]]++] = i;
  }
};

// row = beta row + the sum of dy at the positions of one token. A frequent token has many: they are
// summed in blocks, whose partial sums are added in double.
template <class T>
void add_token(const int64_t* places, int64_t count, Rows<const T> dy, T* row, T beta) {
  constexpr int64_t block = 256, width = 512;
  T sum[width];
  double total[width];
  for (int64_t first = 0; first < dy.width; first += width) {
    const int64_t columns = std::min(width, dy.width - first);
    const auto sum_from = [&](int64_t place) {
      kernels::sum_rows(
          std::min(block, count - place), columns,
          [=](int64_t i) { return dy[places[place + i]] + first; }, sum);
    };
    sum_from(0);
    if (count > block) {
      std::copy(sum, sum + columns, total);
      for (int64_t i = block; i < count; i += block) {
        sum_from(i);
        for (int64_t j = 0; j < columns; ++j) total[j] += static_cast<double>(sum[j]);
      }
      for (int64_t j = 0; j < columns; ++j) sum[j] = static_cast<T>(total[j]);
    }
    kernels::row_accumulate(row + first, columns, beta, [&sum](int64_t j) { return sum[j]; });
  }
}

// Each row of the table is summed by one task, in the order of the tokens.
template <class T>
void scatter_add(const Places& at, Rows<const T> dy, Rows<T> table, T beta) {
  const int64_t work = (dy.count + table.count) * table.width;
  const int64_t grain = kernels::elements_per_task * table.count / std::max<int64_t>(1, work);
  parallel_for(table.count, grain, [&](int64_t begin, int64_t end) {
    simd([&] {
      for (int64_t v = begin; v < end; ++v) {
        const int64_t count = at.begin[v + 1] - at.begin[v];
        if (count > 0)
          add_token(at.places + at.begin[v], count, dy, table[v], beta);
        else if (beta == 0)
          std::fill(table[v], table[v] + table.width, T{0});
      }
    });
  });
}

}  // namespace

Variable embedding(const Variable& table, const Tensor& tokens) {
  check_float("embedding", table);
  check<ShapeError>(table.rank() == 2, "embedding: expected a table (V, d), got ", table.shape());
  check<ShapeError>(tokens.defined() && tokens.dtype() == DType::i32,
                    "embedding: expected tokens of i32, got ", tokens.dtype());
  const int64_t vocabulary = table.size(0), width = table.size(1), count = tokens.numel();
  const Tensor index = tokens.contiguous();
  const int32_t* const t = index.data<int32_t>();
  for (int64_t i = 0; !is_dry() && i < count; ++i)
    check<ShapeError>(t[i] >= 0 && t[i] < vocabulary, "embedding: token ", t[i], " at index ", i,
                      " of ", tokens.shape(), " is out of range for a table of ", vocabulary,
                      " rows");

  Shape shape = tokens.shape();
  shape.push_back(width);
  Tensor out = Tensor::empty(shape, table.dtype());
  const Tensor dense = row_dense(table.value());
  dispatch_float(table.dtype(), [&]<class T>() {
    const T* const from = dense.data<T>();
    T* const to = out.data<T>();
    parallel_for_each(count, rows_per_task(width),
                      [&](int64_t i) { std::copy_n(from + t[i] * width, width, to + i * width); });
  });
  return record("embedding", out, {table},
                [index, strides = out.strides(), shape = table.shape()](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Tensor dout = with_strides(grad_out, strides);
                  const Places at(index.data<int32_t>(), index.numel(), shape[0]);
                  accumulate_with_strides(
                      grad_in[0], contiguous_strides(shape), [&](Tensor& grad, double beta) {
                        dispatch_float(grad.dtype(), [&]<class T>() {
                          scatter_add<T>(at, rows<T>(dout), rows<T>(grad), static_cast<T>(beta));
                        });
                      });
                });
}

}  // namespace longhand
