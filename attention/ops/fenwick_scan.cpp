// Up to level log2 C, all keys of a query are in its own block of C tokens: weights of pairs as in
// head_pairs.h, times the scales of their levels.
//
// Above it, keys are in nodes of a binary tree whose leaves are the blocks. A node of height t has
// C 2^t tokens and, with e its last token, the state
//
//   S_n = Σ_j e^(g_(j+1) + … + g_e) k_j v_jᵀ = e^(G_r) S_l + S_r
//
// for its children l and r, with G the sum of g over a node. A block reads node (block >> t) - 1 of
// each height t whose bit is set in its number, for its levels above log2 C:
//
//   y_i = Σ_t (s_it F_t e^C_i q_i)ᵀ S_t,   F_t = Π e^(G_n) over the nodes that it reads below height t
//
// since these lie between the node and the block; C_i is the sum of g in the block. For the
// gradients, with δ_i the gradient of y_i,
//
//   dS_t = Σ_i (s_it F_t e^C_i q_i) δ_iᵀ,   dS_l += e^(G_r) dS_n,   dS_r += dS_n
//
// and g_i of a block contributes to F_t of later blocks, to G of the nodes around it, and within it
// (head_blocks.h): the sum of q_i·dq_i - k_i·dk_i from i on, and ⟨S_n, dS_n⟩ at its end.
#include "longhand/attention/ops/fenwick_scan.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "longhand/attention/ops/tile/head_pairs.h"
#include "longhand/attention/ops/tile/row_blocks.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/subnormals.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using namespace tile;

Variable zeros(const Shape& shape, DType dtype) { return Variable(Tensor::zeros(shape, dtype)); }

/// Pairs whose weights are multiplied by the scale of their level.
template <class T>
class FenwickPairs : public HeadPairs<T> {
 public:
  FenwickPairs(const Tensor& g, int64_t m, int64_t ld, Scratch& scratch)
      : HeadPairs<T>(g, m, ld, scratch), products_(scratch.take<T>(ld * ld)) {}

  /// Sets the scales of the tokens of a block, (levels, lanes), and memory for their gradients.
  void set_scales(const T* scales, T* gradients, int64_t levels) {
    scales_ = scales, gradients_ = gradients, levels_ = levels;
  }
  void weights(const T* x, int64_t token, T factor, const T* k, int64_t key_token, bool strict,
               T* A) {
    HeadPairs<T>::weights(x, token, factor, k, key_token, strict, A);
    for_levels([ld = this->ld_, A](int64_t j, int64_t i, T scale, T&) { A[j * ld + i] *= scale; });
  }
  /// Adds to the gradients of the scales. dA becomes the gradient of the weights without scales.
  void gradients(T* dA, const T* x, int64_t token, const T* k, int64_t key_token, T* dx, bool add_x,
                 T* dk, bool add_k) {
    const int64_t n = this->count_, lanes = whole_lanes(n), m = this->m_, ld = this->ld_;
    pack_transposed(x, token, n, m, T{1}, this->transposed_);
    for (int64_t j = 0; j < n; j += step)
      kernels::gemm_tile<T>(std::min(step, n - j), lanes - j, m, {k + j * key_token, key_token, 1},
                            this->transposed_ + j, lanes, products_ + j * (ld + 1), ld, false);
    for_levels([ld, dA, products = products_](int64_t j, int64_t i, T scale, T& gradient) {
      gradient += products[j * ld + i] * dA[j * ld + i];
      dA[j * ld + i] *= scale;
    });
    HeadPairs<T>::gradients(dA, x, token, k, key_token, dx, add_x, dk, add_k);
  }

 private:
  // Calls f(j, i, scale, its gradient) for pairs of a key j and a query i >= j. Keys that differ
  // from i in bit l - 1 and in none above it are at level l.
  template <class F>
  void for_levels(F f) const {
    simd([=, n = this->count_, lanes = whole_lanes(this->count_), scales = scales_,
          gradients = gradients_, levels = levels_] {
      for (int64_t j = 0; j < n; ++j) {
        f(j, j, scales[j], gradients[j]);
        for (int64_t l = 1, b = 1; b < n; ++l, b *= 2) {
          const int64_t row = std::min(l, levels - 1) * lanes, first = (j | (b - 1)) + 1;
          if (j & b) continue;
          const int64_t end = std::min(first + b, n);
#pragma GCC ivdep
          for (int64_t i = first; i < end; ++i) f(j, i, scales[row + i], gradients[row + i]);
        }
      }
    });
  }

  T* const products_;
  const T* scales_ = nullptr;
  T* gradients_ = nullptr;
  int64_t levels_ = 0;
};

// The operands, and values kept for the gradients.
struct Fenwick {
  ScanRule rule;
  ScanTensors x;
  Tensor scales;  // (B, N, H, levels)
  // For all nodes of a head: S, (heads, nodes, m E), and e^G in f64, (heads, nodes, 1).
  Tensor states{}, decays{};
  Tensor queries{};  // e^C_i q_i, (heads, N, m)
  std::vector<int64_t> first{
      0};  // the first node of each height, and after these the number of nodes

  int64_t heights() const { return static_cast<int64_t>(first.size()) - 1; }
  int64_t count(int64_t height) const { return first[height + 1] - first[height]; }
  // The node that a block reads, or -1; its level.
  int64_t node(int64_t block_, int64_t height) const {
    return block_ >> height & 1 ? first[height] + (block_ >> height) - 1 : -1;
  }
  int64_t level(int64_t height) const {
    const int64_t above = std::bit_width(static_cast<uint64_t>(rule.tokens)) + height;
    return std::min(above, scales.size(3) - 1);
  }
  double decay(int64_t head, int64_t n) { return *row<double>(decays, head, n); }
  // F of a block.
  template <class T>
  T factor(int64_t head, int64_t block_, int64_t height) {
    double product = 1;
    for (int64_t t = 0; t < height; ++t)
      if (const int64_t n = node(block_, t); n >= 0) product *= decay(head, n);
    return static_cast<T>(product);
  }
  // s_it F_t e^C_i q_i for the tokens of a block
  template <class T>
  void weigh(int64_t head, int64_t block_, int64_t height, T* to) {
    const Heads<const T> all(std::as_const(scales));
    simd([=, n = rule.count(block_), m = rule.m, token = all.token,
          F = factor<T>(head, block_, height), q = row<T>(queries, head, rule.first(block_)),
          s = all.at(head / rule.H, rule.first(block_), head % rule.H) + level(height)] {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t l = 0; l < m; ++l) to[i * m + l] = s[i * token] * F * q[i * m + l];
    });
  }
};

template <class T>
struct FenwickTask {
  FenwickTask(const Fenwick& f, bool gradients, Scratch& scratch)
      : blocks(f.rule, f.x, 0, gradients, scratch) {
    const int64_t ld = f.rule.lanes(), m = f.rule.m;
    scratch.take_each(f.scales.size(3) * ld, scales, dscales);
    scratch.take_each(ld * m, weighed, q, dq, y);
    dout = scratch.take<T>(ld * f.rule.E);
    decays = scratch.take<double>(m);
  }
  // Selects a block.
  void load(const Fenwick& f, int64_t head, int64_t block_) {
    const ScanRule& z = f.rule;
    const int64_t first = z.first(block_), n = z.count(block_), levels = f.scales.size(3);
    const Heads<const T> s(f.scales);
    blocks.start(head / z.H, head % z.H);
    blocks.use(block_, T{0});
    pack_transposed(s.at(head / z.H, first, head % z.H), s.token, n, levels, T{1}, scales);
    std::fill_n(dscales, levels * whole_lanes(n), T{0});
    blocks.pairs().set_scales(scales, dscales, levels);
  }
  RowBlocks<T, FenwickPairs<T>> blocks;
  T *scales, *dscales, *weighed, *q, *dq, *y, *dout;
  double* decays;
};

// Calls visit(task, head, i) for n of each head.
template <class T, class F>
void for_each(const Fenwick& f, int64_t n, bool gradients, F visit) {
  parallel_for(f.rule.heads() * n, 8, [&](int64_t begin, int64_t end) {
    const kernels::SubnormalsAsZeros subnormals;
    Workspace<FenwickTask<T>> task(f, gradients);
    for (int64_t i = begin; i < end; ++i) visit(*task, i / n, i % n);
  });
}

template <class T>
void forward(Fenwick& f, Tensor& out) {
  const ScanRule& z = f.rule;
  const Heads<T> to(out);
  const Heads<const T> q(std::as_const(f.x.q));
  const auto own = [&](FenwickTask<T>& task, int64_t head, int64_t i) {
    const int64_t b = head / z.H, h = head % z.H, first = z.first(i);
    task.load(f, head, i);
    task.blocks.attend(0, i, nullptr, to.at(b, first, h), to.token);
    task.blocks.pairs().from_before(q.at(b, first, h), q.token, T{1},
                                    row<T>(f.queries, head, first));
    if (i + 1 == z.blocks) return;
    std::fill_n(row<T>(f.states, head, i), z.state_size(), T{0});
    task.blocks.advance(0, i, row<T>(f.states, head, i));
    task.blocks.pairs().whole(task.decays);
    *row<double>(f.decays, head, i) = task.decays[0];
  };
  for_each<T>(f, z.blocks, false, own);
  parallel_for_each(z.heads(), 1, [&](int64_t head) {
    for (int64_t t = 1; t < f.heights(); ++t)
      for (int64_t i = 0; i < f.count(t); ++i) {
        const int64_t left = f.first[t - 1] + 2 * i, n = f.first[t] + i;
        const double decay = f.decay(head, left + 1);
        *row<double>(f.decays, head, n) = f.decay(head, left) * decay;
        simd([size = z.state_size(), l = row<T>(f.states, head, left),
              r = row<T>(f.states, head, left + 1), to = row<T>(f.states, head, n),
              factor = static_cast<T>(decay)] {
          for (int64_t e = 0; e < size; ++e) to[e] = factor * l[e] + r[e];
        });
      }
  });
  const auto earlier = [&](FenwickTask<T>& task, int64_t head, int64_t i) {
    for (int64_t t = 0; t < f.heights(); ++t) {
      const int64_t n = f.node(i, t);
      if (n < 0) continue;
      f.weigh(head, i, t, task.weighed);
      kernels::gemm_tile<T>(z.count(i), z.E, z.m, {task.weighed, z.m, 1}, row<T>(f.states, head, n),
                            z.E, to.at(head / z.H, z.first(i), head % z.H), to.token, true);
    }
  };
  for_each<T>(f, z.blocks, false, earlier);
}

template <class T>
void backward(Fenwick& f, const Tensor& grad_out, ScanGradients& to, Gradient& dscales) {
  const ScanRule& z = f.rule;
  const Heads<const T> dout(grad_out);
  const int64_t size = z.state_size(), nodes = f.first.back();
  const DType dtype = grad_out.dtype();
  Tensor dstates = Tensor::empty({z.heads(), nodes, size}, dtype);
  // Gradients of G of nodes, and of the sum of g of a block in F of later blocks, by height.
  Tensor ddecays = Tensor::zeros({z.heads(), nodes, 1}, DType::f64),
         later = Tensor::zeros({z.heads(), z.blocks, f.heights()}, DType::f64);
  const auto dot = [&](int64_t head, int64_t n, int64_t dn) {
    T sum = 0;
    simd([&, size, S = row<T>(f.states, head, n), dS = row<T>(dstates, head, dn)] {
      sum = kernels::row_dot(S, dS, size);
    });
    return static_cast<double>(sum);
  };
  for_each<T>(f, nodes, false, [&](FenwickTask<T>& task, int64_t head, int64_t n) {
    const int64_t t = std::upper_bound(f.first.begin(), f.first.end(), n) - f.first.begin() - 1;
    const int64_t begin = (n - f.first[t] + 1) << t,
                  end = std::min(z.blocks, begin + (int64_t{1} << t));
    T* const dS = row<T>(dstates, head, n);
    if (!(begin >> t & 1)) return (void)std::fill_n(dS, size, T{0});
    for (int64_t i = end - 1; i >= begin; --i) {
      f.weigh(head, i, t, task.weighed);
      kernels::gemm_tile<T>(z.m, z.E, z.count(i), {task.weighed, 1, z.m},
                            dout.at(head / z.H, z.first(i), head % z.H), dout.token, dS, z.E,
                            i + 1 < end);
      if (i > begin) row<double>(later, head, i - 1)[t] = dot(head, n, n);
    }
  });
  parallel_for_each(z.heads(), 1, [&](int64_t head) {
    for (int64_t t = f.heights() - 1; t > 0; --t)
      for (int64_t i = 0; i < f.count(t); ++i) {
        const int64_t left = f.first[t - 1] + 2 * i, n = f.first[t] + i;
        const double decay = f.decay(head, left + 1), dG = *row<double>(ddecays, head, n);
        *row<double>(ddecays, head, left) += dG;
        *row<double>(ddecays, head, left + 1) += dG + decay * dot(head, left, n);
        simd([size, l = row<T>(dstates, head, left), r = row<T>(dstates, head, left + 1),
              from = row<T>(dstates, head, n), factor = static_cast<T>(decay)] {
          for (int64_t e = 0; e < size; ++e) l[e] += factor * from[e], r[e] += from[e];
        });
      }
  });
  for_each<T>(f, z.blocks, true, [&](FenwickTask<T>& task, int64_t head, int64_t i) {
    const int64_t b = head / z.H, h = head % z.H, first = z.first(i), count = z.count(i),
                  lanes = whole_lanes(count), levels = f.scales.size(3);
    const bool last = i + 1 == z.blocks;
    task.load(f, head, i);
    pack_transposed(row<T>(f.queries, head, first), z.m, count, z.m, T{1}, task.q);
    pack_transposed(dout.at(b, first, h), dout.token, count, z.E, T{1}, task.dout);
    std::fill_n(task.dq, z.m * lanes, T{0});
    double end = last ? 0 : dot(head, i, i) + *row<double>(ddecays, head, i);
    for (int64_t t = 0; t < f.heights(); ++t) {
      end += row<double>(later, head, i)[t];
      const int64_t n = f.node(i, t), level = f.level(t) * lanes;
      if (n < 0) continue;
      kernels::gemm_tile<T>(z.m, lanes, z.E, {row<T>(f.states, head, n), z.E, 1}, task.dout, lanes,
                            task.y, lanes, false);
      simd([=, m = z.m, F = f.factor<T>(head, i, t), q = task.q, y = task.y, dq = task.dq,
            s = task.scales + level, ds = task.dscales + level] {
        for (int64_t l = 0; l < m; ++l)
          for_lanes(lanes, [=, at = l * lanes](int64_t lane) {
            dq[at + lane] += F * s[lane] * y[at + lane];
            ds[lane] += F * q[at + lane] * y[at + lane];
          });
      });
    }
    T* const dq = task.blocks.query_gradients();
    kernels::transpose_into(z.m, count, task.dq, lanes, T{1}, dq, z.m, false);
    task.blocks.pairs().from_before(dq, z.m, T{1}, dq);
    task.blocks.end_decay(end);
    task.blocks.pair_gradients(i, dout, true, last ? nullptr : row<T>(dstates, head, i), !last, to);
    if (!dscales.to.defined()) return;
    const Heads<T> ds(dscales.to);
    kernels::transpose_into(levels, count, task.dscales, lanes, T{1}, ds.at(b, first, h), ds.token,
                            dscales.beta != 0);
  });
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
  const int64_t N = qs[1], D = qs[3];
  // A pair of a block takes, in all, about as long as one element of a query at one level.
  const auto C =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min({N, D, int64_t{64}}))));
  const Variable q = with_contiguous_rows(inputs.q), k = with_contiguous_rows(inputs.k),
                 v = with_contiguous_rows(inputs.v), s = with_contiguous_rows(scales);
  std::vector<Variable> operands{q, k, v, s};
  if (g.defined()) operands.push_back(g);
  Fenwick f{{{qs[0], N, qs[2], D, vs[3], false, C},
             feature_rule("fenwick_scan", q, {}),
             inputs,
             {.normalizer = false}},
            {},
            s.value()};
  f.x.q = q.value(), f.x.k = k.value(), f.x.v = v.value(), f.x.log_decay = g.value();
  const ScanRule& z = f.rule;
  // The last block belongs to no node.
  for (int64_t n = z.blocks - 1; n > 0; n /= 2) f.first.push_back(f.first.back() + n);
  f.states = Tensor::empty({z.heads(), f.first.back(), z.state_size()}, dtype);
  f.decays = Tensor::empty({z.heads(), f.first.back(), 1}, DType::f64);
  f.queries = Tensor::empty({z.heads(), N, D}, dtype);
  if (is_recorded(operands))
    f.x.kept =
        kept_memory({z.heads(), z.blocks, z.lanes() * z.lanes()}, dtype, ScanOptions().most_kept);
  Tensor out = Tensor::empty({qs[0], N, qs[2], vs[3]}, dtype);
  dispatch_float(dtype, [&]<class T>() { forward<T>(f, out); });
  return record(
      "fenwick_scan", out, operands,
      [f](const Tensor& grad_out, std::span<GradSlot> slots) mutable {
        const Tensor dout = with_contiguous_rows(grad_out);
        f.x.has_kept = f.x.kept.defined();
        ScanGradients to{gradient_of(slots[0]), gradient_of(slots[1]), gradient_of(slots[2]), {}};
        Gradient ds = gradient_of(slots[3]);
        if (f.rule.decays) to.log_decay = gradient_of(slots[4]);
        dispatch_float(dout.dtype(), [&]<class T>() { backward<T>(f, dout, to, ds); });
      });
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
  // Blocks of equal size are merged, like the carries of a binary counter.
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
