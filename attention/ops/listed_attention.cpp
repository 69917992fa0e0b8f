// For the keys j listed for query i, with s_ij = scale q_i·k_j + added_ij, m_i = max_j s_ij and
// p_ij = e^(s_ij - m_i) / Σ_j e^(s_ij - m_i):
//
//   out_i = Σ_j f_ij p_ij v_j                                       f_ij: factors
//   L_i   = m_i + log Σ_j e^(s_ij - m_i)
//   ds_ij = p_ij (f_ij dout_i·v_j - dout_i·out_i + dL_i),   dadded_ij = ds_ij
//   dq_i  = scale Σ_j ds_ij k_j,   dk_j = scale Σ_i ds_ij q_i,   dv_j = Σ_i f_ij p_ij dout_i
#include "longhand/attention/ops/listed_attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "longhand/attention/ops/tile/listed_rows.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

template void tile::attend_to_listed(const float*, const KeyRows<const float>&,
                                     const KeyRows<const float>&, const std::vector<int32_t>&,
                                     const OfList<float>&, int64_t, float, float*, float*, float*,
                                     float*);
template void tile::attend_to_listed(const double*, const KeyRows<const double>&,
                                     const KeyRows<const double>&, const std::vector<int32_t>&,
                                     const OfList<double>&, int64_t, double, double*, double*,
                                     double*, double*);

namespace {

using namespace tile;

// Rows of a query, dL, and its gradients: one row, and one element per listed key, or null.
template <class T>
struct Rows {
  const T *q, *out, *dout;
  T dlog_sum;
  T *dq, *dadded;
};
// The rows of the M keys of a head: k, v, dk and dv of D elements each, adjacent for each key, and
// dq of N queries.
template <class T>
struct AllKeys {
  int64_t N, M, D;
  T *const rows, *const dq;

  AllKeys(int64_t queries, int64_t keys, int64_t width, Scratch& scratch)
      : N(queries),
        M(keys),
        D(width),
        rows(scratch.take<T>(4 * M * D)),
        dq(scratch.take<T>(N * D)) {}

  void start(const Heads<const T>& k, const Heads<const T>& v, int64_t b, int64_t h) {
    std::fill_n(dq, N * D, T{0});
    for (int64_t j = 0; j < M; ++j) {
      std::copy_n(k.at(b, j, h), D, at(j));
      std::copy_n(v.at(b, j, h), D, at(j) + D);
      std::fill_n(at(j) + 2 * D, 2 * D, T{0});
    }
  }
  T* at(int64_t j) { return rows + j * 4 * D; }
};

// p and ds are scratch memory for one element per key.
template <class T>
void add_gradients(const Rows<T>& row, AllKeys<T>& all, const std::vector<int32_t>& keys,
                   const OfList<T>& of, T scale, const T* sums, T* p, T* ds) {
  simd([&] {
    with_width(all.D, [&](int64_t D) {
      const KeyRows<const T> k{all.rows, 4 * D}, v{all.rows + D, 4 * D};
      const KeyRows<T> dk{all.rows + 2 * D, 4 * D}, dv{all.rows + 3 * D, 4 * D};
      const auto count = static_cast<int64_t>(keys.size());
      const T own = kernels::row_dot(row.dout, row.out, D) - row.dlog_sum, largest = sums[0],
              factor = sums[1];
      listed_scores(row.q, k, keys, D, scale, of.added, p);
      dots(row.dout, v, keys, D, ds);
      if (of.factors)
        for (int64_t n = 0; n < count; ++n) ds[n] *= of.factors[n];
#pragma GCC ivdep
      for (int64_t n = 0; n < count; ++n) {
        p[n] = math::exp(p[n] - largest) * factor;
        ds[n] = p[n] * (ds[n] - own);
      }
      if (row.dadded) std::copy_n(ds, count, row.dadded);
      for (int64_t n = 0; n < count; ++n) ds[n] *= scale;
      if (of.factors)
        for (int64_t n = 0; n < count; ++n) p[n] *= of.factors[n];
      add_listed_rows(ds, k, keys.data(), count, D, row.dq);
      for (int64_t n = 0; n < count; ++n) {
        add_scaled(ds[n], row.q, D, dk.at(keys[n]));
        add_scaled(p[n], row.dout, D, dv.at(keys[n]));
      }
    });
  });
}

// to (one head of it) = beta to + rows of D elements, `step` apart
template <class T>
void put(tile::Gradient& gradient, int64_t b, int64_t h, const T* rows, int64_t step) {
  if (!gradient.to.defined()) return;
  const Heads<T> to(gradient.to);
  for (int64_t i = 0; i < gradient.to.size(1); ++i)
    kernels::row_accumulate(to.at(b, i, h), gradient.to.size(3), static_cast<T>(gradient.beta),
                            [from = rows + i * step](int64_t d) { return from[d]; });
}

// The row of query i of x (B, H, N, .), row-major, or null.
template <class T, class X>
auto row_of(X& x, int64_t b, int64_t h, int64_t i) -> decltype(data_or_null<T>(x)) {
  return x.defined() ? x.template data<T>() + ((b * x.size(1) + h) * x.size(2) + i) * x.size(3)
                     : nullptr;
}

struct Saved {
  Tensor q, k, v, added, factors;
  double scale;
  KeysOfQuery keys_of;
  Tensor out, sums;  // sums (B, H, N, 2): m and 1 / Σ

  // Calls visit(i, its keys) for queries [begin, end).
  template <class Visit>
  void for_queries(int64_t b, int64_t h, int64_t begin, int64_t end, Visit visit) const {
    std::vector<int32_t> listed;
    for (int64_t i = begin; i < end; ++i) {
      listed.clear();
      keys_of(b, h, i, listed);
      visit(i, listed);
    }
  }
};

template <class T>
void forward(const Saved& s, Tensor& out, Tensor& sums) {
  const int64_t N = s.q.size(1), H = s.q.size(2), D = s.q.size(3);
  const Heads<const T> qs(s.q), ks(s.k), vs(s.v);
  const Heads<T> to(out);
  constexpr int64_t block = 64;  // queries per task
  const int64_t blocks = (N + block - 1) / block;
  parallel_for_each(s.q.size(0) * H * blocks, 1, [&](int64_t task) {
    std::vector<T> p, part(D);
    const int64_t b = task / blocks / H, h = task / blocks % H, first = task % blocks * block;
    const KeyRows<const T> k{ks.at(b, 0, h), ks.token}, v{vs.at(b, 0, h), vs.token};
    s.for_queries(b, h, first, std::min(N, first + block),
                  [&](int64_t i, const std::vector<int32_t>& listed) {
                    if (listed.empty()) {
                      std::fill_n(to.at(b, i, h), D, T{0});
                      T* const of_none = row_of<T>(sums, b, h, i);
                      of_none[0] = -std::numeric_limits<T>::infinity();
                      of_none[1] = 1;
                      return;
                    }
                    p.resize(std::max(p.size(), listed.size()));
                    attend_to_listed<T>(
                        qs.at(b, i, h), k, v, listed,
                        {row_of<T>(s.added, b, h, i), row_of<T>(s.factors, b, h, i)}, D,
                        static_cast<T>(s.scale), p.data(), part.data(), to.at(b, i, h),
                        row_of<T>(sums, b, h, i));
                  });
  });
}

template <class T>
void backward(const Saved& s, const Tensor& grad, const Tensor& dlog_sums,
              std::array<tile::Gradient, 3>& gradients, Tensor& dadded) {
  const int64_t N = s.q.size(1), H = s.q.size(2), D = s.q.size(3), M = s.k.size(1);
  const Heads<const T> qs(s.q), outs(s.out), douts(grad);
  // Queries add to the gradients of shared keys, so each head is one task.
  parallel_for_each(s.q.size(0) * H, 1, [&](int64_t task) {
    std::vector<T> p, ds;
    Workspace<AllKeys<T>> of_head(N, M, D);
    AllKeys<T>& all = *of_head;
    const int64_t b = task / H, h = task % H;
    all.start(Heads<const T>(s.k), Heads<const T>(s.v), b, h);
    s.for_queries(b, h, 0, N, [&](int64_t i, const std::vector<int32_t>& listed) {
      if (listed.empty()) return;
      p.resize(std::max(p.size(), listed.size()));
      ds.resize(p.size());
      add_gradients<T>({qs.at(b, i, h), outs.at(b, i, h), douts.at(b, i, h),
                        dlog_sums.defined() ? dlog_sums.data<T>()[(b * H + h) * N + i] : T{0},
                        all.dq + i * D, row_of<T>(dadded, b, h, i)},
                       all, listed, {row_of<T>(s.added, b, h, i), row_of<T>(s.factors, b, h, i)},
                       static_cast<T>(s.scale), row_of<T>(s.sums, b, h, i), p.data(), ds.data());
    });
    put(gradients[0], b, h, all.dq, D);
    put(gradients[1], b, h, all.at(0) + 2 * D, 4 * D);
    put(gradients[2], b, h, all.at(0) + 3 * D, 4 * D);
  });
}

// log_sums only if `with_sums`.
SoftmaxAttentionResult compute(const Variable& queries, const Variable& keys,
                               const Variable& values, const ListedOptions& options,
                               KeysOfQuery keys_of, bool with_sums) {
  const Variable q = tile::with_contiguous_rows(queries), k = tile::with_contiguous_rows(keys),
                 v = tile::with_contiguous_rows(values);
  check<ShapeError>(
      q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.size(0) == k.size(0) &&
          q.size(2) == k.size(2) && q.size(3) == k.size(3) && q.dtype() == k.dtype() &&
          q.dtype() == v.dtype(),
      "listed_attention: expected q (B, N, H, D), k and v (B, M, H, D) of one dtype, got q ",
      q.shape(), " ", q.dtype(), ", k ", k.shape(), " ", k.dtype(), ", v ", v.shape(), " ",
      v.dtype());
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
  Variables operands{q, k, v};
  if (options.added.defined()) operands.push_back(contiguous(options.added));
  Tensor out = Tensor::empty(q.shape(), q.dtype()), sums = Tensor::empty({B, H, N, 2}, q.dtype());
  const Saved saved{.q = q.value(),
                    .k = k.value(),
                    .v = v.value(),
                    .added = operands.size() > 3 ? operands[3].value() : Tensor(),
                    .factors = options.factors.contiguous(),
                    .scale = options.scale,
                    .keys_of = std::move(keys_of),
                    .out = out,
                    .sums = sums};
  for (const Tensor* const of_lists : {&saved.added, &saved.factors})
    check<ShapeError>(!of_lists->defined() || (of_lists->rank() == 4 && of_lists->size(0) == B &&
                                               of_lists->size(1) == H && of_lists->size(2) == N &&
                                               of_lists->dtype() == q.dtype()),
                      "listed_attention: expected added and factors ", q.dtype(), " (", B, ", ", H,
                      ", ", N, ", most), got ", of_lists->dtype(), " ", of_lists->shape());
  dispatch_float(q.dtype(), [&]<class T>() { forward<T>(saved, out, sums); });
  ShortVector<Tensor> results{out};
  if (with_sums)  // L (B, H, N)
    results.push_back(ops::pointwise([](auto m, auto factor) { return m - math::log(factor); },
                                     sums.select(3, 0), sums.select(3, 1)));
  const Variables recorded = record_all(
      "listed_attention", results, operands,
      [saved](std::span<const Tensor> grads, std::span<GradSlot> slots) {
        auto gradients = tile::gradients_of(slots);
        Tensor dadded;
        if (slots.size() > 3 && slots[3])
          dadded = Tensor::zeros(saved.added.shape(), saved.added.dtype());
        dispatch_float(saved.q.dtype(), [&]<class T>() {
          backward<T>(saved, tile::with_contiguous_rows(grads[0]),
                      grads.size() > 1 ? grads[1].contiguous() : Tensor(), gradients, dadded);
        });
        if (dadded.defined()) slots[3].take(dadded);
      });
  return {recorded[0], with_sums ? recorded[1] : Variable()};
}

}  // namespace

Variable listed_attention(const Variable& q, const Variable& k, const Variable& v,
                          const ListedOptions& options, KeysOfQuery keys_of) {
  return compute(q, k, v, options, std::move(keys_of), false).out;
}

SoftmaxAttentionResult listed_attention_with_sums(const Variable& q, const Variable& k,
                                                  const Variable& v, const ListedOptions& options,
                                                  KeysOfQuery keys_of) {
  return compute(q, k, v, options, std::move(keys_of), true);
}

}  // namespace longhand::attention
