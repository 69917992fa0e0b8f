// o_i = Σ_p w_ip x_ip, the quotient of the sums of all keys, for the weights w of its parts. With the
// gradient g_i of o_i and δ_i = g_i·o_i:
//
//   near keys:  dx_i = w_i g_i,  dL_i = w_i (g_i·x_i - δ_i)
//   far keys:   the gradient of [x_i, its normaliser] is w_i [g_i, -δ_i]
//
// Gradients treat the scales of far keys as constants, as scan() does. Rows without any keys are 0.
#include "longhand/attention/ops/near_and_far.h"

#include <algorithm>
#include <limits>

#include "longhand/attention/ops/normalised.h"
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

template <class T>
constexpr T never = -std::numeric_limits<T>::infinity();

// The parts that a query attends to: near keys, and those of up to two FarSums.
constexpr int64_t most_parts = 3;

// The weights of the parts of a query in its result: near keys with the logarithm L of their
// normaliser, and sums of far ones with a normaliser and the logarithm of their scale, by which they
// are not multiplied yet.
template <class T>
struct PartWeights {
  T logs[most_parts], normalisers[most_parts];
  int64_t count = 0;

  // Parts without any weight are left out. Smaller normalisers cannot be rescaled, and are counted.
  void add(T log, T normaliser) {
    if (normaliser < smallest_normaliser<T> || log == never<T>) normaliser = 0;
    logs[count] = log, normalisers[count++] = normaliser;
  }
  // to_p = e^(log_p) / Σ_q e^(log_q) normaliser_q, or 0.
  void write(T* to) const {
    T top = never<T>, sum = 0;
    for (int64_t p = 0; p < count; ++p)
      if (normalisers[p] != 0) top = std::max(top, logs[p] + math::log(normalisers[p]));
    for (int64_t p = 0; p < count; ++p) {
      to[p] = normalisers[p] != 0 ? math::exp(logs[p] - top) : T{0};
      sum += to[p] * normalisers[p];
    }
    // Those of parts left out are 0 also where others are NaN: their sums may not exist.
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

// (B, N, H, parts) weights. `lengths` of the samples.
template <class T>
Tensor part_weights(const SoftmaxAttentionResult& near, const std::vector<FarSums>& far,
                    const std::vector<int32_t>& lengths) {
  const Shape& x = near.out.shape();
  const int64_t N = x[1], H = x[2], D = x[3], parts = 1 + static_cast<int64_t>(far.size());
  const Tensor L = near.log_sums.value().contiguous();
  Tensor out = Tensor::empty({x[0], N, H, parts}, near.out.dtype());
  for_queries(x, [&](int64_t b, int64_t h, int64_t i) {
    PartWeights<T> weights;
    weights.add(L.data<T>()[(b * H + h) * N + i], 1);
    for (const FarSums& f : far) {
      const int64_t row = i - f.first, n = f.sums.size(1);
      if (row < 0 || row >= n || i >= lengths[b] - f.gap)
        weights.add(0, 0);
      else
        weights.add(f.log_scale.data<T>()[(b * H + h) * n + row],
                    f.sums.value().data<T>()[((b * n + row) * H + h) * (D + 1) + D]);
    }
    weights.write(out.data<T>() + ((b * N + i) * H + h) * parts);
  });
  return out;
}

}  // namespace

Variable near_and_far(const SoftmaxAttentionResult& near, std::vector<FarSums> far,
                      const std::vector<int32_t>& lengths) {
  ops::check_float_pair("near_and_far", near.out, near.log_sums);
  for (FarSums& f : far) {
    ops::check_float_pair("near_and_far", near.out, f.sums);
    f.sums = contiguous(f.sums);
  }
  const Shape x = near.out.shape();
  const int64_t N = x[1], H = x[2], D = x[3], parts = 1 + static_cast<int64_t>(far.size());
  Tensor weights, out = Tensor::empty(x, near.out.dtype());
  const Tensor values = near.out.value().contiguous();
  Variables operands{near.out, near.log_sums};
  std::vector<Shape> shapes;
  std::vector<int64_t> firsts;
  for (const FarSums& f : far) {
    operands.push_back(f.sums);
    shapes.push_back(f.sums.shape());
    firsts.push_back(f.first);
  }
  dispatch_float(out.dtype(), [&]<class T>() {
    weights = part_weights<T>(near, far, lengths);
    for_queries(x, [&](int64_t b, int64_t h, int64_t i) {
      const int64_t at = (b * N + i) * H + h;
      const T *const w = weights.data<T>() + at * parts, *const from = values.data<T>() + at * D;
      T* const to = out.data<T>() + at * D;
      for (int64_t d = 0; d < D; ++d) to[d] = w[0] * from[d];
      for (int64_t p = 1; p < parts; ++p) {
        if (w[p] == 0) continue;
        const FarSums& f = far[p - 1];
        const T* const sums =
            f.sums.value().data<T>() + ((b * f.sums.size(1) + i - f.first) * H + h) * (D + 1);
        for (int64_t d = 0; d < D; ++d) to[d] += w[p] * sums[d];
      }
    });
  });
  return record(
      "near_and_far", out, operands, [=](const Tensor& grad_out, std::span<GradSlot> grad_in) {
        const Tensor g = grad_out.contiguous();
        Tensor dx = Tensor::empty(x, g.dtype()), dL = Tensor::empty({x[0], H, N}, g.dtype());
        std::vector<Tensor> dsums;
        for (const Shape& shape : shapes) dsums.push_back(Tensor::empty(shape, g.dtype()));
        dispatch_float(g.dtype(), [&]<class T>() {
          for_queries(x, [&](int64_t b, int64_t h, int64_t i) {
            const int64_t at = (b * N + i) * H + h;
            const T *const w = weights.data<T>() + at * parts, *const gi = g.data<T>() + at * D,
                           *const o = out.data<T>() + at * D, *const v = values.data<T>() + at * D;
            T* const to = dx.data<T>() + at * D;
            T delta = 0, of_near = 0;
            for (int64_t d = 0; d < D; ++d) {
              delta += gi[d] * o[d];
              of_near += gi[d] * v[d];
              to[d] = w[0] * gi[d];
            }
            dL.data<T>()[(b * H + h) * N + i] = w[0] * (of_near - delta);
            for (int64_t p = 1; p < parts; ++p) {
              const int64_t row = i - firsts[p - 1], n = shapes[p - 1][1];
              if (row < 0 || row >= n) continue;
              T* const sums = dsums[p - 1].data<T>() + ((b * n + row) * H + h) * (D + 1);
              for (int64_t d = 0; d < D; ++d) sums[d] = w[p] * gi[d];
              sums[D] = -w[p] * delta;
            }
          });
        });
        if (grad_in[0]) grad_in[0].take(dx);
        if (grad_in[1]) grad_in[1].take(dL);
        for (size_t p = 0; p < dsums.size(); ++p)
          if (grad_in[2 + p]) grad_in[2 + p].take(dsums[p]);
      });
}

}  // namespace longhand::attention
