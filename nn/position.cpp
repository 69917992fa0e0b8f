#include "longhand/nn/position.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/nn/init.h"

namespace longhand::nn {
namespace {

// f(n 10000^(-2i/width)) at (n - first, i), for `length` positions n from `first` and i below
// `columns`.
template <class F>
Tensor position_table(int64_t first, int64_t length, int64_t columns, int64_t width, DType dtype,
                      F f) {
  Tensor out = Tensor::empty({length, columns}, dtype);
  if (is_dry()) return out;
  dispatch_float(dtype, [&]<class T>() {
    T* p = out.data<T>();
    for (int64_t n = first; n < first + length; ++n)
      for (int64_t i = 0; i < columns; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(width);
        *p++ = static_cast<T>(f(static_cast<double>(n) * std::pow(10000.0, exponent)));
      }
  });
  return out;
}

}  // namespace

Tensor sinusoids(int64_t length, int64_t width, DType dtype) {
  Tensor out = Tensor::empty({length, width}, dtype);
  const int64_t pairs = width / 2;
  copy_into(out.slice(1, 0, width, 2), position_table(0, length, width - pairs, width, dtype,
                                                      [](double a) { return std::sin(a); }));
  if (pairs)
    copy_into(out.slice(1, 1, width, 2),
              position_table(0, length, pairs, width, dtype, [](double a) { return std::cos(a); }));
  return out;
}

Variable rotate_pairs(const Variable& x, const Variable& cosines, const Variable& sines) {
  const int64_t R = cosines.size(-1), D = x.size(-1);
  check<ShapeError>(sines.shape() == cosines.shape() && 2 * R <= D,
                    "rotate_pairs: expected cosines and sines of one shape, of at most ", D / 2,
                    " angles for ", D, " channels, got ", cosines.shape(), " and ", sines.shape());
  const Variable a = slice(x, -1, 0, R), b = slice(x, -1, R, 2 * R);
  Variables parts{a * cosines - b * sines, a * sines + b * cosines};
  if (2 * R < D) parts.push_back(slice(x, -1, 2 * R, D));
  return concat(parts, -1);
}

Variable rotate_by_position(const Variable& x, int64_t first) {
  check<ShapeError>(x.rank() == 4 && x.size(3) % 2 == 0,
                    "rotary positions: expected x (B, N, H, D) with even D, got ", x.shape());
  const int64_t N = x.size(1), D = x.size(3), half = D / 2;
  const auto table = [&](auto f) {
    return Variable(position_table(first, N, half, D, x.dtype(), f).reshape({1, N, 1, half}));
  };
  return rotate_pairs(x, table([](double a) { return std::cos(a); }),
                      table([](double a) { return std::sin(a); }));
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
