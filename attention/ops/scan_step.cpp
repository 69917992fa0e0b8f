#include "longhand/attention/ops/scan_step.h"

#include <algorithm>
#include <limits>

#include "longhand/autograd/grad_mode.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {

Tensor scan_step(ScanState& state, const StepInputs& in, Normalizer normalizer) {
  const NoGrad no_grad;
  const Shape& ks = in.k.shape();
  const int64_t B = ks[0], H = ks[1], m = ks[2], E = in.v.size(2);
  const DType dtype = in.k.dtype();
  check<ShapeError>(in.q.shape() == ks && in.v.size(0) == B && in.v.size(1) == H,
                    "scan: expected q and k (B, H, m) and v (B, H, E), got q ", in.q.shape(),
                    ", k ", ks, ", v ", in.v.shape());
  const bool z = normalizer != Normalizer::none, scaled = in.key_log.defined();
  if (!state.S.defined()) {
    state.S = Variable(Tensor::zeros({B, H, m, E}, dtype));
    if (z) state.z = Variable(Tensor::zeros({B, H, m}, dtype));
    if (scaled)
      state.log_scale = Variable(
          Tensor::full(in.key_log.shape(), -std::numeric_limits<double>::infinity(), dtype));
  }
  check<ShapeError>(state.S.shape() == Shape{B, H, m, E} && state.z.defined() == z &&
                        state.log_scale.defined() == scaled,
                    "scan: expected a state of ", Shape{B, H, m, E}, ", got ", state.S.shape());
  check<ShapeError>(
      !scaled || in.key_log.rank() == 3 || !in.log_decay.defined() || in.log_decay.rank() == 2,
      "scan: expected a key_log with one value a channel, as log_decay has, got ",
      in.log_decay.defined() ? in.log_decay.shape() : Shape{}, " and ",
      scaled ? in.key_log.shape() : Shape{});
  const auto dense = [](const Tensor& t) { return t.defined() ? t.contiguous() : t; };
  const Tensor q = dense(in.q), k = dense(in.k), v = dense(in.v), g = dense(in.log_decay),
               key_log = dense(in.key_log);
  const bool column = normalizer == Normalizer::query;
  Tensor out = Tensor::zeros({B, H, column ? E + 1 : E}, dtype);
  const bool g_each = g.defined() && g.rank() == 3, log_each = scaled && key_log.rank() == 3;
  dispatch_float(dtype, [&]<class T>() {
    T* const S = state.S.mutable_value().data<T>();
    T* const zs = z ? state.z.mutable_value().data<T>() : nullptr;
    T* const scales = scaled ? state.log_scale.mutable_value().data<T>() : nullptr;
    parallel_for(B * H, 1, [&](int64_t begin, int64_t end) {
      for (int64_t head = begin; head < end; ++head)
        simd([&, width = out.size(2)] {
          T* const to = out.data<T>() + head * width;
          const T* const value = v.data<T>() + head * E;
          T decay = 1, weight = 1;
          for (int64_t l = 0; l < m; ++l) {
            const int64_t at = head * m + l;
            if (l == 0 || g_each || log_each) {
              const T log_decay = g.defined() ? g.data<T>()[g_each ? at : head] : T{0};
              decay = math::exp(log_decay);
              if (scaled) {
                T& c = scales[log_each ? at : head];
                const T log = key_log.data<T>()[log_each ? at : head];
                const T next = std::max(c + log_decay, log);
                decay = math::exp(c + log_decay - next), weight = math::exp(log - next);
                c = next;
              }
            }
            const T key = weight * k.data<T>()[at];
            T query = q.data<T>()[at];
            if (zs) {
              zs[at] = decay * zs[at] + key;
              if (column)
                to[E] += query * zs[at];
              else
                query /= zs[at];
            }
            T* const row = S + at * E;
            for (int64_t e = 0; e < E; ++e) {
              row[e] = decay * row[e] + key * value[e];
              to[e] += query * row[e];
            }
          }
        });
    });
  });
  return out;
}

}  // namespace longhand::attention
