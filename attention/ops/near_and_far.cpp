// o_i = Σ_p w_ip x_ip, the quotient of the sums over all keys, for the weights w of its parts. With
// the gradient g_i of o_i and δ_i = g_i·o_i:
//
//   near keys:  dx_i = w_i g_i,  dL_i = w_i (g_i·x_i - δ_i)
//   far keys:   the gradient of [x_i, its normaliser] is w_i [g_i, -δ_i]
//
// Gradients treat the scales of far keys as constants, like scan(). Rows without any keys are 0.
#include "longhand/attention/ops/near_and_far.h"

#include <algorithm>

#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// The parts that a query attends to: near keys, and the far keys of up to two FarSums.
constexpr int64_t most_parts = 3;

// The weights of the parts of a query in its result: near keys with the logarithm L of their
// normaliser, and far sums with a normaliser and the logarithm of their scale, which has not been
// applied to them yet.
template <class T>
struct PartWeights {
  T logs[most_parts], normalisers[most_parts];
  int64_t count = 0;

  // Parts without any weight are omitted. Smaller normalisers cannot be rescaled, and are counted.
  void add(T log, T normaliser) {
    if (normaliser < smallest_normaliser<T> || log == -tile::infinity<T>) normaliser = 0;
    logs[count] = log, normalisers[count++] = normaliser;
  }
  // to_p = e^(log_p) / Σ_q e^(log_q) normaliser_q, or 0.
  void write(T* to) const {
    T top = -tile::infinity<T>, sum = 0;
    for (int64_t p = 0; p < count; ++p)
      if (normalisers[p] != 0) top = std::max(top, logs[p] + math::log(normalisers[p]));
    for (int64_t p = 0; p < count; ++p) {
      to[p] = normalisers[p] != 0 ? math::exp(logs[p] - top) : T{0};
      sum += to[p] * normalisers[p];
    }
    // Omitted parts are 0 even where others are NaN: their sums may not exist.
    for (int64_t p = 0; p < count; ++p)
      to[p] = normalisers[p] == 0 || sum == 0 ? T{0} : to[p] / sum;
  }
};

// Calls visit(b, h, i) for all queries of x (B, N, H, D), in parallel and within simd().
template <class F>
void for_queries(const Shape& x, F visit) {
  const int64_t N = x[1], H = x[2];
  parallel_for(x[0] * N, std::max<int64_t>(1, 4096 / (H * x[3])), [&](int64_t begin, int64_t end) {
    simd([&] {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t h = 0; h < H; ++h) visit(row / N, h, row % N);
    });
  });
}

// The sums of one FarSums, of n queries from `first` on, and their place in memory.
struct FarRows {
  int64_t first, n;

  bool has(int64_t i) const { return first <= i && i < first + n; }
  int64_t at(int64_t b, int64_t h, int64_t i, int64_t H) const {
    return (b * n + i - first) * H + h;
  }
};

}  // namespace

Variable near_and_far(const SoftmaxAttentionResult& near, ShortVector<FarSums> far,
                      std::span<const int32_t> lengths) {
  ops::check_float_pair("near_and_far", near.out, near.log_sums);
  for (FarSums& f : far) {
    ops::check_float_pair("near_and_far", near.out, f.sums);
    f.sums = contiguous(f.sums);
  }
  const Shape x = near.out.shape();
  const int64_t N = x[1], H = x[2], D = x[3], parts = 1 + static_cast<int64_t>(far.size());
  Tensor out = Tensor::empty(x, near.out.dtype()),
         weights = Tensor::empty({x[0], N, H, parts}, near.out.dtype());
  const Tensor values = near.out.value().contiguous(),
               log_sums = near.log_sums.value().contiguous();
  Variables operands{near.out, near.log_sums};
  ShortVector<FarRows> rows;
  for (const FarSums& f : far) {
    operands.push_back(f.sums);
    rows.push_back({f.first, f.sums.size(1)});
  }
  dispatch_float(out.dtype(), [&]<class T>() {
    const T *sums[most_parts] = {}, *scales[most_parts] = {};
    for (size_t p = 0; p < far.size(); ++p)
      sums[p] = far[p].sums.value().data<T>(), scales[p] = far[p].log_scale.data<T>();
    for_queries(x, [&, L = log_sums.data<T>(), v = values.data<T>(), of_parts = weights.data<T>(),
                    to_out = out.data<T>()](int64_t b, int64_t h, int64_t i) {
      const int64_t at = (b * N + i) * H + h;
      PartWeights<T> all;
      all.add(L[(b * H + h) * N + i], 1);
      for (size_t p = 0; p < far.size(); ++p)
        if (const FarRows& of = rows[p]; !of.has(i) || i >= lengths[b] - far[p].gap)
          all.add(0, 0);
        else
          all.add(scales[p][(b * H + h) * of.n + i - of.first],
                  sums[p][of.at(b, h, i, H) * (D + 1) + D]);
      T *const w = of_parts + at * parts, *const to = to_out + at * D;
      all.write(w);
      for (int64_t d = 0; d < D; ++d) to[d] = w[0] * v[at * D + d];
      for (size_t p = 0; p < far.size(); ++p) {
        if (w[p + 1] == 0) continue;
        const T* const row = sums[p] + rows[p].at(b, h, i, H) * (D + 1);
        for (int64_t d = 0; d < D; ++d) to[d] += w[p + 1] * row[d];
      }
    });
  });
  return record(
      "near_and_far", out, operands, [=](const Tensor& grad_out, std::span<GradSlot> grad_in) {
        const Tensor g = grad_out.contiguous();
        std::vector<Tensor> gradients{Tensor::empty(x, g.dtype()),
                                      Tensor::empty({x[0], H, N}, g.dtype())};
        for (const FarRows& of : rows)
          gradients.push_back(Tensor::empty({x[0], of.n, H, D + 1}, g.dtype()));
        dispatch_float(g.dtype(), [&]<class T>() {
          T* of_far[most_parts] = {};
          for (size_t p = 0; p < rows.size(); ++p) of_far[p] = gradients[2 + p].data<T>();
          for_queries(x, [&, of_parts = weights.data<T>(), dout = g.data<T>(), o = out.data<T>(),
                          v = values.data<T>(), to_x = gradients[0].data<T>(),
                          to_L = gradients[1].data<T>()](int64_t b, int64_t h, int64_t i) {
            const int64_t at = (b * N + i) * H + h;
            const T *const w = of_parts + at * parts, *const gi = dout + at * D;
            T* const to = to_x + at * D;
            T delta = 0, of_near = 0;
            for (int64_t d = 0; d < D; ++d) {
              delta += gi[d] * o[at * D + d];
              of_near += gi[d] * v[at * D + d];
              to[d] = w[0] * gi[d];
            }
            to_L[(b * H + h) * N + i] = w[0] * (of_near - delta);
            for (size_t p = 0; p < rows.size(); ++p) {
              if (!rows[p].has(i)) continue;
              T* const sums = of_far[p] + rows[p].at(b, h, i, H) * (D + 1);
              for (int64_t d = 0; d < D; ++d) sums[d] = w[p + 1] * gi[d];
              sums[D] = -w[p + 1] * delta;
            }
          });
        });
        for (size_t i = 0; i < grad_in.size(); ++i)
          if (grad_in[i]) grad_in[i].take(gradients[i]);
      });
}

}  // namespace longhand::attention
