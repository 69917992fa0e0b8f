#include "longhand/nn/short_conv.h"

#include <algorithm>
#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/nn/init.h"

namespace longhand::nn {

Tensor ConvState::step(const Tensor& x, const Tensor& weight) {
  check<ShapeError>(x.rank() == 2 && weight.rank() == 2 && weight.size(1) >= 1 &&
                        weight.size(0) == x.size(1) && x.dtype() == weight.dtype(),
                    "convolution of a token: expected x (B, C) and a weight (C, width), got x ",
                    x.shape(), " and a weight ", weight.shape());
  const int64_t B = x.size(0), C = x.size(1), kept = weight.size(1) - 1;
  if (!recent_.defined()) recent_ = Tensor::zeros({B, kept, C}, x.dtype());
  check<ShapeError>(recent_.shape() == Shape{B, kept, C} && recent_.dtype() == x.dtype(),
                    "convolution of a token: expected the shapes of the first token, got x ",
                    x.shape(), " and a weight ", weight.shape());
  const Tensor in = x.contiguous(), filters = weight.transpose(0, 1).contiguous();
  Tensor out = Tensor::empty({B, C}, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const T* const w = filters.data<T>();
    T* const rows = recent_.data<T>();
    const T* const all = in.data<T>();
    T* const results = out.data<T>();
    const int64_t per_task =
        std::max<int64_t>(1, kernels::elements_per_task / std::max<int64_t>(1, weight.numel()));
    parallel_for(B, per_task, [=, kept = kept, at = position_](int64_t begin, int64_t end) {
      simd([=] {
        for (int64_t b = begin; b < end; ++b) {
          const auto row = [=](int64_t j) { return rows + (b * kept + (at + j) % kept) * C; };
          const T* const now = all + b * C;
          T* const y = results + b * C;
#pragma GCC ivdep
          for (int64_t c = 0; c < C; ++c) y[c] = w[kept * C + c] * now[c];
          for (int64_t j = 0; j < kept; ++j) {
            const T *const f = w + j * C, *const past = row(j);
#pragma GCC ivdep
            for (int64_t c = 0; c < C; ++c) y[c] += f[c] * past[c];
          }
          if (kept > 0) std::copy_n(now, C, row(0));
        }
      });
    });
  });
  ++position_;
  return out;
}

Variable conv_of_pass(const Variable& x, const Variable& weight,
                      const DepthwiseConvOptions& options, const Pass& pass) {
  if (!pass.join) return depthwise_conv1d(x, weight, options);
  const int64_t n = x.size(1), width = weight.size(1),
                before = options.causal ? width - 1 : width / 2, after = width - 1 - before;
  DepthwiseConvOptions wider = options;
  if (options.lengths.defined()) {
    wider.lengths = options.lengths.clone();
    for (int64_t b = 0; b < wider.lengths.numel(); ++b) {
      int32_t& length = wider.lengths.data<int32_t>()[b];
      length = static_cast<int32_t>(
          std::clamp<int64_t>(length - pass.tokens.first + before, 0, before + n + after));
    }
  }
  const Variable y = depthwise_conv1d(pass.join->with_neighbours(x, before, after), weight, wider);
  return slice(y, 1, before, before + n);
}

ShortConv::ShortConv(const Scope& scope_, int64_t channels, int64_t width, bool causal)
    : Module(scope_),
      weight(scope("weight"), {channels, width},
             init::uniform(1 / std::sqrt(static_cast<double>(width)))),
      causal_(causal) {}

Variable ShortConv::forward(const Variable& x, const Tensor& lengths, const Pass& pass) const {
  const Running running(*this);
  return silu(conv_of_pass(x, weight, {.causal = causal_, .lengths = lengths}, pass));
}

Tensor ShortConv::step(const Tensor& x, ConvState& state) const {
  return silu(Variable(state.step(x, weight.value()))).value();
}

}  // namespace longhand::nn
