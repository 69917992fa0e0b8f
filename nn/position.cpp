#include "longhand/nn/position.h"

#include <cmath>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"
#include "longhand/nn/init.h"

namespace longhand::nn {
namespace {

// x (N, pairs)_ni = f(n' 10000^(-2i/width)) at positions n' = first + n.
template <class F>
void fill_positions(Tensor x, int64_t first, int64_t width, F f) {
  std::vector<double> frequencies(x.size(1));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  dispatch_float(x.dtype(), [&]<class T>() {
    const int64_t row = x.strides()[0], step = x.strides()[1];
    parallel_for_each(x.size(0), 64, [&, to = x.data<T>()](int64_t n) {
      for (size_t i = 0; i < frequencies.size(); ++i)
        to[n * row + static_cast<int64_t>(i) * step] =
            static_cast<T>(f(static_cast<double>(first + n) * frequencies[i]));
    });
  });
}

}  // namespace

Tensor sinusoids(int64_t length, int64_t width, DType dtype) {
  Tensor out = Tensor::empty({length, width}, dtype);
  fill_positions(out.slice(1, 0, width, 2), 0, width, [](double a) { return std::sin(a); });
  if (width > 1)
    fill_positions(out.slice(1, 1, width, 2), 0, width, [](double a) { return std::cos(a); });
  return out;
}

Variable turns_of_positions(int64_t first, int64_t N, int64_t D, DType dtype) {
  check<ShapeError>(D % 2 == 0, "rotary positions: expected heads of even width, got ", D);
  Tensor out = Tensor::empty({N, 1, D}, dtype);
  const Tensor rows = out.select(1, 0);
  fill_positions(rows.slice(1, 0, D / 2), first, D, [](double a) { return std::cos(a); });
  fill_positions(rows.slice(1, D / 2, D), first, D, [](double a) { return std::sin(a); });
  return Variable(out);
}

Position::Position(const Scope& scope_, const std::string& kind, int64_t max_length, int64_t width)
    : Module(scope_) {
  if (kind == "learned")
    weight_.emplace(scope("weight"), Shape{max_length, width}, init::normal(0.02));
  else if (kind == "sinusoidal")
    table_ = sinusoids(max_length, width, parameter_dtype());
  else
    check<ConfigError>(kind == "rotary" || kind == "none", "positions: \"", kind,
                       "\": expected learned, sinusoidal, rotary or none");
}

Variable Position::forward(const Variable& x, int64_t first, int64_t padding) const {
  if (!weight_ && !table_.defined()) return x;
  const Variable table = weight_ ? Variable(*weight_) : Variable(table_);
  const int64_t n = x.size(1) - padding, begin = n == 0 ? 0 : first;
  check<ShapeError>(n >= 0 && begin + n <= table.size(0), "positions: ", begin + n,
                    " tokens, but only ", table.size(0), " positions");
  const Variable rows = slice(table, 0, begin, begin + n);
  if (padding == 0) return x + rows;
  return x + concat({rows, Variable(Tensor::zeros({padding, table.size(1)}, table.dtype()))}, 0);
}

}  // namespace longhand::nn
