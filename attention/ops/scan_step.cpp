#include "longhand/attention/ops/scan_step.h"

#include <algorithm>
#include <limits>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/attention/ops/tile/state_rows.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

int64_t heads_of_task(int64_t numbers) {
  return std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(1, numbers));
}

Tensor scan_step(ScanState& state, const StepInputs& in, Normalizer normalizer,
                 const Guard& guard) {
  const NoGrad no_grad;
  const Shape& ks = in.k.shape();
  const int64_t B = ks[0], H = ks[1], m = ks[2], E = in.v.size(2);
  check<ShapeError>(in.q.shape() == ks && in.v.size(0) == B && in.v.size(1) == H,
                    "scan: expected q and k (B, H, m) and v (B, H, E), got q ", in.q.shape(),
                    ", k ", ks, ", v ", in.v.shape());
  const bool z = normalizer != Normalizer::none, scaled = in.key_log.defined();
  if (!state.S.defined()) {
    state.S = Variable(Tensor::zeros({B, H, m, E}, DType::f64));
    if (z) state.z = Variable(Tensor::zeros({B, H, m}, DType::f64));
    if (scaled)
      state.log_scale = Variable(
          Tensor::full(in.key_log.shape(), -std::numeric_limits<double>::infinity(), DType::f64));
  }
  check<ShapeError>(state.S.shape() == Shape{B, H, m, E} && state.z.defined() == z &&
                        state.log_scale.defined() == scaled,
                    "scan: expected a state of ", Shape{B, H, m, E}, ", got ", state.S.shape());
  check<ShapeError>(
      !scaled || in.key_log.rank() == 3 || !in.log_decay.defined() || in.log_decay.rank() == 2,
      "scan: expected a key_log with one value per channel, as log_decay has, got ",
      in.log_decay.shape(), " and ", in.key_log.shape());
  const Tensor q = in.q.contiguous(), k = in.k.contiguous(), v = in.v.contiguous(),
               g = in.log_decay.contiguous(), key_log = in.key_log.contiguous();
  const bool column = normalizer == Normalizer::column,
             sums_z = column || normalizer == Normalizer::query;
  const int64_t width = sums_z ? E + 1 : E;
  Tensor sums = Tensor::empty({B, H, width}, DType::f64),
         out = column ? sums : Tensor::empty({B, H, E}, in.q.dtype());
  const bool g_each = g.defined() && g.rank() == 3, log_each = scaled && key_log.rank() == 3,
             each = g_each || log_each;
  double* const S = state.S.mutable_value().data<double>();
  double* const zs = z ? state.z.mutable_value().data<double>() : nullptr;
  double* const scales = scaled ? state.log_scale.mutable_value().data<double>() : nullptr;
  dispatch_float(in.q.dtype(), [&]<class T>() {
    const T *const qs = q.data<T>(), *const keys = k.data<T>(), *const vs = v.data<T>(),
                   *const decays = tile::data_or_null<T>(g),
                   *const logs = tile::data_or_null<T>(key_log);
    T* const outs = column ? nullptr : out.data<T>();
    parallel_for_each(B * H, heads_of_task(m * E), [&](int64_t head) {
      simd([&, to = sums.data<double>() + head * width] {
        std::fill_n(to, width, 0.0);
        double decay[tile::state_rows], weight[tile::state_rows], key[tile::state_rows],
            query[tile::state_rows];
        for (int64_t first = 0; first < m; first += tile::state_rows) {
          const int64_t n = std::min(tile::state_rows, m - first), at = head * m + first;
          // A decay or weight shared by all rows is stored for the first one.
          const int64_t own = each ? n : first == 0 ? 1 : 0, from = each ? at : head;
          if (decays && g_each == each)
            std::copy_n(decays + from, own, decay);
          else
            std::fill(decay, decay + own, decays ? static_cast<double>(decays[head]) : 0);
          if (scaled) {
#pragma GCC ivdep
            for (int64_t l = 0; l < own; ++l) {
              double& c = scales[from + l];
              const double before = c + decay[l], log = static_cast<double>(logs[from + l]);
              c = std::max(before, log);
              decay[l] = math::exp(before - c), weight[l] = math::exp(log - c);
            }
          } else {
            if (decays)
              for (int64_t l = 0; l < own; ++l) decay[l] = math::exp(decay[l]);
            else
              std::fill(decay, decay + own, 1);
            std::fill(weight, weight + own, 1);
          }
          if (!each && first == 0) {
            std::fill(decay + 1, decay + n, decay[0]);
            std::fill(weight + 1, weight + n, weight[0]);
          }
          for (int64_t l = 0; l < n; ++l) {
            key[l] = weight[l] * static_cast<double>(keys[at + l]);
            query[l] = static_cast<double>(qs[at + l]);
          }
          if (zs) {
            double* const z_rows = zs + at;
            for (int64_t l = 0; l < n; ++l) z_rows[l] = decay[l] * z_rows[l] + key[l];
            if (sums_z)
              to[E] += kernels::row_dot(query, z_rows, n);
            else
              for (int64_t l = 0; l < n; ++l) query[l] /= z_rows[l];
          }
          tile::update_rows(S + at * E, n, E, decay, key, vs + head * E, query, to);
        }
        if (column) return;
        if (const double by = sums_z ? guard.divisor(to[E]).value : 1; by != 1)
          for (int64_t e = 0; e < E; ++e) to[e] /= by;
        std::copy_n(to, E, outs + head * E);
      });
    });
  });
  return out;
}

}  // namespace longhand::attention
