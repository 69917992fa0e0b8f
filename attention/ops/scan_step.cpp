#include "longhand/attention/ops/scan_step.h"

#include <algorithm>
#include <limits>

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

Tensor scan_step(ScanState& state, const StepInputs& in, Normalizer normalizer) {
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
      in.log_decay.defined() ? in.log_decay.shape() : Shape{}, " and ",
      scaled ? in.key_log.shape() : Shape{});
  const auto dense = [](const Tensor& t) { return t.defined() ? t.contiguous() : t; };
  const Tensor q = dense(in.q), k = dense(in.k), v = dense(in.v), g = dense(in.log_decay),
               key_log = dense(in.key_log);
  const bool column = normalizer == Normalizer::query;
  Tensor out = Tensor::zeros({B, H, column ? E + 1 : E}, DType::f64);
  const bool g_each = g.defined() && g.rank() == 3, log_each = scaled && key_log.rank() == 3,
             each = g_each || log_each;
  double* const S = state.S.mutable_value().data<double>();
  double* const zs = z ? state.z.mutable_value().data<double>() : nullptr;
  double* const outs = out.data<double>();
  double* const scales = scaled ? state.log_scale.mutable_value().data<double>() : nullptr;
  dispatch_float(in.k.dtype(), [&]<class T>() {
    const auto numbers = [](const Tensor& x) { return x.defined() ? x.data<T>() : nullptr; };
    const T *const qs = numbers(q), *const keys = numbers(k), *const vs = numbers(v),
                   *const decays = numbers(g), *const logs = numbers(key_log);
    parallel_for(B * H, heads_of_task(m * E), [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head)
        simd([&, width = out.size(2)] {
          double* const to = outs + head * width;
          double decay[tile::state_rows], weight[tile::state_rows], key[tile::state_rows],
              query[tile::state_rows];
          for (int64_t first = 0; first < m; first += tile::state_rows) {
            const int64_t n = std::min(tile::state_rows, m - first), at = head * m + first;
            // One decay and one weight of all rows are those of the first one.
            const int64_t own = each ? n : first == 0 ? 1 : 0;
            if (!scaled) {
              const T* const of_rows = decays ? decays + (g_each ? at : head) : nullptr;
              for (int64_t l = 0; l < own; ++l)
                decay[l] = of_rows ? math::exp(static_cast<double>(of_rows[l])) : 1;
              std::fill(weight, weight + own, 1);
            }
            for (int64_t l = 0; scaled && l < own; ++l) {
              const double log_decay =
                  decays ? static_cast<double>(decays[g_each ? at + l : head]) : 0;
              double& c = scales[log_each ? at + l : head];
              const double log = static_cast<double>(logs[log_each ? at + l : head]);
              const double next = std::max(c + log_decay, log);
              decay[l] = math::exp(c + log_decay - next), weight[l] = math::exp(log - next);
              c = next;
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
              if (column)
                to[E] += kernels::row_dot(query, z_rows, n);
              else
                for (int64_t l = 0; l < n; ++l) query[l] /= z_rows[l];
            }
            tile::update_rows(S + at * E, n, E, decay, key, query, vs + head * E, to);
          }
        });
    });
  });
  return out;
}

}  // namespace longhand::attention
