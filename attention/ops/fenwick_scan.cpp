// Up to level log2 C, all keys of a query are in its own block of C tokens, and y is a product with the
// weights of their pairs:
//
//   y_i = Σ_(j<=i) s_(i,l(i,j)) e^(g_(j+1) + … + g_i) (q_i·k_j) v_j
//
// Above it, blocks of b = 2^(l-1) tokens form pairs. The tokens of the second block of a pair see
// those of the first one, with the decay to the end of the first block times that from there on:
//
//   y_i = (s_il e^(g_(e+1) + … + g_i) q_i)ᵀ Σ_j e^(g_(j+1) + … + g_e) k_j v_jᵀ,   e the last token of the first block
//
// as products of all pairs at once: of queries with keys while blocks are short, otherwise with the
// sums.
#include "longhand/attention/ops/fenwick_scan.h"

#include <algorithm>
#include <bit>

#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

Variable zeros(const Shape& shape, DType dtype) { return Variable(Tensor::zeros(shape, dtype)); }

// x with zeros behind it along an axis, so that it has `size` there.
Variable extended(const Variable& x, int axis, int64_t size) {
  if (!x.defined() || x.size(axis) == size) return x;
  Shape shape = x.shape();
  shape[axis] = size - x.size(axis);
  return concat({x, zeros(shape, x.dtype())}, axis);
}

// (B, pairs, b, …): the tokens of one block of each pair.
Variable half(const Variable& x, int64_t b, int64_t which) {
  Shape shape{x.size(0), x.size(1) / (2 * b), 2, b};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return select(reshape(x, shape), 2, which);
}

// (B, blocks, H, C, …): blocks of C tokens.
Variable in_blocks(const Variable& x, int64_t C) {
  Shape shape{x.size(0), x.size(1) / C, C};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(x.size(axis));
  return transpose(reshape(x, shape), 2, 3);
}

// l(i,j) for tokens of a block, where j <= i.
int64_t level_of(int64_t i, int64_t j) { return std::bit_width(static_cast<uint64_t>(i ^ j)); }

// s_(i,l(i,j)) of the pairs of a block, (B, blocks, H, C, C); 0 where j > i.
Variable scales_of_pairs(const Variable& scales, int64_t C) {
  const int64_t levels = scales.size(3);
  Tensor choice = Tensor::zeros({C, levels, C}, DType::f64);  // of a level by i and j
  for (int64_t i = 0; i < C; ++i)
    for (int64_t j = 0; j <= i; ++j)
      choice.data<double>()[(i * levels + std::min(level_of(i, j), levels - 1)) * C + j] = 1;
  const Variable s = in_blocks(scales, C);
  const Variable rows =
      reshape(permute(s, {3, 0, 1, 2, 4}), {C, s.value().numel() / (C * levels), levels});
  return permute(reshape(matmul(rows, Variable(choice.to(scales.dtype()))),
                         {C, s.size(0), s.size(1), s.size(2), C}),
                 {1, 2, 3, 0, 4});
}

// e^(g_(j+1) + … + g_i) of the pairs of a block, (B, blocks, H, C, C); 1 where j >= i. Terms up to j are not
// subtracted: one far below 0 would cost the others their digits.
Variable decays_of_pairs(const Variable& log_decay, int64_t C) {
  Tensor between = Tensor::zeros({C, C}, DType::u8);  // whether j < i
  for (int64_t i = 0; i < C; ++i) std::fill_n(between.data<uint8_t>() + i * C, i, uint8_t{1});
  const Variable next = extended(slice(in_blocks(log_decay, C), 3, 1, C), 3, C);  // g_(j+1)
  return exp(cumsum(where(between, unsqueeze(next, 3), 0.0), 4, true));
}

}  // namespace

Variable fenwick_scan(const ScanInputs& inputs, const Variable& scales) {
  const Shape &qs = inputs.q.shape(), &ks = inputs.k.shape(), &vs = inputs.v.shape(),
              &ss = scales.shape();
  const Variable& g = inputs.log_decay;
  const Shape tokens{qs[0], qs[1], qs[2]};
  const auto fits = [&](const Shape& x) { return x.rank() == 4 && x.without_axis(3) == tokens; };
  check<ShapeError>(qs.rank() == 4 && ks == qs && fits(vs) && fits(ss) && qs.numel() > 0 &&
                        vs[3] > 0 && ss[3] > 0 && (!g.defined() || g.shape() == tokens),
                    "fenwick_scan: expected q and k (B, N, H, D), v (B, N, H, E), a log_decay (B, "
                    "N, H) and scales (B, N, H, levels), nothing empty, got q ",
                    qs, ", k ", ks, ", v ", vs, ", log_decay ", g.defined() ? g.shape() : tokens,
                    ", scales ", ss);
  const DType dtype = inputs.q.dtype(), of_g = g.defined() ? g.dtype() : dtype;
  check<ShapeError>(is_float(dtype) && inputs.k.dtype() == dtype && inputs.v.dtype() == dtype &&
                        of_g == dtype && scales.dtype() == dtype,
                    "fenwick_scan: expected one float dtype, got q ", dtype, ", k ",
                    inputs.k.dtype(), ", v ", inputs.v.dtype(), ", log_decay ", of_g, ", scales ",
                    scales.dtype());
  const int64_t N = qs[1], D = qs[3], E = vs[3];
  // A pair of a block takes about as long in all operations as one number of a query in those of a level.
  const int64_t C =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min({N, D, int64_t{64}}))));
  ScanInputs x = inputs;
  Variable s = scales, out;
  const auto extend = [&](int64_t multiple) {
    for (Variable* const of : {&x.q, &x.k, &x.v, &x.log_decay, &s, &out})
      *of = extended(*of, 1, (N + multiple - 1) / multiple * multiple);
  };
  extend(C);
  Variable weights =
      matmul(in_blocks(x.q, C), transpose(in_blocks(x.k, C), 3, 4)) * scales_of_pairs(s, C);
  if (x.log_decay.defined()) weights = weights * decays_of_pairs(x.log_decay, C);
  out =
      reshape(transpose(matmul(weights, in_blocks(x.v, C)), 2, 3), {qs[0], x.q.size(1), qs[2], E});
  for (int64_t b = C, level = std::bit_width(static_cast<uint64_t>(C)); b < N; b *= 2, ++level) {
    extend(2 * b);
    Variable queries = half(x.q, b, 1), keys = half(x.k, b, 0), values = half(x.v, b, 0),
             factor = half(select(s, 3, std::min(level, ss[3] - 1)), b, 1);  // (B, pairs, b, H)
    if (x.log_decay.defined()) {
      factor = factor * exp(cumsum(half(x.log_decay, b, 1), 2));
      if (b > 1) {
        const Variable own = half(x.log_decay, b, 0),
                       later = extended(cumsum(slice(own, 2, 1, b), 2, true), 2, b);
        keys = keys * unsqueeze(exp(later), 4);
      }
    }
    queries = transpose(queries * unsqueeze(factor, 4), 2, 3);  // (B, pairs, H, b, D)
    keys = permute(keys, {0, 1, 3, 4, 2}), values = transpose(values, 2, 3);
    const Variable y = b * (D + E) < 2 * D * E ? matmul(matmul(queries, keys), values)
                                               : matmul(queries, matmul(keys, values));
    const Variable second = transpose(y, 2, 3);
    out = out + reshape(stack({zeros(second.shape(), second.dtype()), second}, 2), out.shape());
  }
  return out.size(1) == N ? out : slice(out, 1, 0, N);
}

Tensor FenwickState::step(const StepInputs& token, const Tensor& scales, bool read) {
  const NoGrad no_grad;
  const auto wide = [](const Tensor& x) { return Variable(x.to(DType::f64)); };
  const Variable q = unsqueeze(wide(token.q), 2), k = unsqueeze(wide(token.k), 3),
                 v = unsqueeze(wide(token.v), 2), s = unsqueeze(wide(scales), 3);
  const auto scale = [&](int64_t level) {  // (B, H, 1, 1)
    const int64_t at = std::min(level, s.size(2) - 1);
    return slice(s, 2, at, at + 1);
  };
  Variable out, own = matmul(k, v);
  if (read) out = scale(0) * matmul(q, own);
  for (size_t l = 0; l < blocks_.size(); ++l) {
    if (!(tokens_ >> l & 1)) continue;
    Block& block = blocks_[l];
    if (token.log_decay.defined()) block.log_decay = block.log_decay + wide(token.log_decay);
    if (!read) continue;
    const Variable decay = unsqueeze(unsqueeze(exp(block.log_decay), 2), 3);
    out = out + scale(static_cast<int64_t>(l) + 1) * decay * matmul(q, block.S);
  }
  // Blocks of equal size join, as a binary counter counts.
  size_t l = 0;
  for (; tokens_ >> l & 1; ++l)
    own = own + unsqueeze(unsqueeze(exp(blocks_[l].log_decay), 2), 3) * blocks_[l].S;
  if (l == blocks_.size()) blocks_.emplace_back();
  blocks_[l] = {own, zeros({own.size(0), own.size(1)}, DType::f64)};
  ++tokens_;
  return read ? squeeze(out, 2).value() : Tensor();
}

int64_t FenwickState::numbers(int64_t tokens, int64_t m, int64_t E) {
  return std::bit_width(static_cast<uint64_t>(tokens)) * (m * E + 1);
}

int64_t FenwickState::numel() const {
  int64_t total = 0;
  for (const Block& block : blocks_)
    total += block.S.value().numel() + block.log_decay.value().numel();
  return total;
}

}  // namespace longhand::attention
