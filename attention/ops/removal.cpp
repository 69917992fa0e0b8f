// Gradients, with da, dκ those of a and κ, and s = 1 / sqrt(|k ∘ ξ|² + eps):
//
//   dκ = a ∘ dkey + e^-g ∘ dread,   da = κ ∘ dkey + k ∘ α ∘ dwrite
//   dy = s (dκ - (κ·dκ) κ) for y = k ∘ ξ,   dk = ξ ∘ dy + (1 + (a - 1) ∘ α) ∘ dwrite
//   dξ = Σ k ∘ dy,   dα = Σ k ∘ (a - 1) ∘ dwrite, over tokens
//   dw = σ'(w) ∘ (-e^(-1/2)) (dg - κ ∘ e^-g ∘ dread),   dz = σ'(z) ∘ da
#include "longhand/attention/ops/removal.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/reduce.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

const double fastest = std::exp(-0.5);  // -g is at most this

// 1 / sqrt(|k ∘ ξ|² + eps). Inside simd().
template <class T>
T scale_of(const T* k, const T* xi, int64_t D, T eps) {
  const T squares = kernels::lane_sum<T>(D, [=](int64_t l) { return k[l] * xi[l] * k[l] * xi[l]; });
  return 1 / std::sqrt(squares + eps);
}

// Tokens of a task, by their size.
int64_t tokens_of_task(int64_t width) {
  return std::max<int64_t>(1, (int64_t{1} << 14) / std::max<int64_t>(1, width));
}

struct Tensors {
  Tensor k, decay, rate, removal, replacement;
};

template <class T>
void forward(const Tensors& in, T eps, Tensor& log_decay, Tensor& key, Tensor& read,
             Tensor& write) {
  const int64_t H = in.k.size(2), D = in.k.size(3);
  parallel_for(in.k.size(0) * in.k.size(1), tokens_of_task(H * D), [&](int64_t begin, int64_t end) {
    simd([=, c = static_cast<T>(fastest), k = in.k.data<T>(), w = in.decay.data<T>(),
          z = in.rate.data<T>(), xis = in.removal.data<T>(), alphas = in.replacement.data<T>(),
          to_g = log_decay.data<T>(), to_key = key.data<T>(), to_read = read.data<T>(),
          to_write = write.data<T>()] {
      for (int64_t row = begin * H; row < end * H; ++row) {
        const int64_t first = row * D;
        const T *const xi = xis + row % H * D, *const alpha = alphas + row % H * D;
        const T s = scale_of(k + first, xi, D, eps);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const int64_t at = first + l;
          const T g = -c / (1 + math::exp(-w[at])), a = 1 / (1 + math::exp(-z[at]));
          const T removed = k[at] * xi[l] * s;
          to_g[at] = g;
          to_key[at] = a * removed;
          to_read[at] = removed * math::exp(-g);
          to_write[at] = k[at] * (1 + (a - 1) * alpha[l]);
        }
      }
    });
  });
}

// The gradients of the results, contiguous.
struct Given {
  Tensor log_decay, key, read, write;
};

// The gradients of `removal` and `replacement` are those of the tokens of each task, (tasks, H, D).
template <class T>
void backward(const Tensors& in, const Tensor& log_decay, T eps, const Given& d, Tensors& to) {
  const int64_t H = in.k.size(2), D = in.k.size(3), grain = tokens_of_task(H * D);
  Tensor scratch = Tensor::empty({to.removal.size(0), 2, D}, in.k.dtype());
  parallel_for(in.k.size(0) * in.k.size(1), grain, [&](int64_t begin, int64_t end) {
    const int64_t task = begin / grain;
    simd([=, c = static_cast<T>(fastest), k = in.k.data<T>(), z = in.rate.data<T>(),
          xis = in.removal.data<T>(), alphas = in.replacement.data<T>(), g = log_decay.data<T>(),
          dg = d.log_decay.data<T>(), dkey = d.key.data<T>(), dread = d.read.data<T>(),
          dwrite = d.write.data<T>(), dk = to.k.data<T>(), dw = to.decay.data<T>(),
          dz = to.rate.data<T>(), dxis = to.removal.data<T>() + task * H * D,
          dalphas = to.replacement.data<T>() + task * H * D,
          dremoved = scratch.data<T>() + task * 2 * D] {
      T* const removed = dremoved + D;
      std::fill_n(dxis, H * D, T{0});
      std::fill_n(dalphas, H * D, T{0});
      for (int64_t row = begin * H; row < end * H; ++row) {
        const int64_t first = row * D, head = row % H * D;
        const T *const xi = xis + head, *const alpha = alphas + head;
        T *const dxi = dxis + head, *const dalpha = dalphas + head;
        const T s = scale_of(k + first, xi, D, eps);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const int64_t at = first + l;
          const T a = 1 / (1 + math::exp(-z[at])), rise = math::exp(-g[at]), of_w = -g[at] / c;
          removed[l] = k[at] * xi[l] * s;
          dremoved[l] = a * dkey[at] + rise * dread[at];
          dz[at] = a * (1 - a) * (removed[l] * dkey[at] + k[at] * alpha[l] * dwrite[at]);
          dw[at] = -c * of_w * (1 - of_w) * (dg[at] - removed[l] * rise * dread[at]);
          dk[at] = (1 + (a - 1) * alpha[l]) * dwrite[at];
          dalpha[l] += k[at] * (a - 1) * dwrite[at];
        }
        const T along = kernels::row_dot(removed, dremoved, D);
#pragma GCC ivdep
        for (int64_t l = 0; l < D; ++l) {
          const T dy = s * (dremoved[l] - along * removed[l]);
          dk[first + l] += xi[l] * dy;
          dxi[l] += k[first + l] * dy;
        }
      }
    });
  });
}

}  // namespace

DeltaInputs removal(const RemovalInputs& inputs, double eps) {
  check<ShapeError>(inputs.k.rank() == 4, "removal: expected k (B, N, H, D), got ",
                    inputs.k.shape());
  const Shape &ks = inputs.k.shape(), head{ks[2], ks[3]};
  const DType dtype = inputs.k.dtype();
  const auto checked = [&](const char* name, const Variable& x, const Shape& shape) {
    check<ShapeError>(x.shape() == shape && x.dtype() == dtype && is_float(dtype),
                      "removal: expected ", name, " of shape ", shape,
                      " and the float dtype of k, ", dtype, ", got ", x.shape(), " of ", x.dtype());
    return contiguous(x);
  };
  const Variables operands{checked("k", inputs.k, ks), checked("decay", inputs.decay, ks),
                           checked("rate", inputs.rate, ks),
                           checked("removal", inputs.removal, head),
                           checked("replacement", inputs.replacement, head)};
  const Tensors in{operands[0].value(), operands[1].value(), operands[2].value(),
                   operands[3].value(), operands[4].value()};
  const auto empty = [&] { return Tensor::empty(ks, dtype); };
  Tensor log_decay = empty(), key = empty(), read = empty(), write = empty();
  dispatch_float(
      dtype, [&]<class T>() { forward<T>(in, static_cast<T>(eps), log_decay, key, read, write); });
  const Variables results = record_all(
      "removal", {log_decay, key, read, write}, operands,
      [in = Tensors{in.k, {}, in.rate, in.removal, in.replacement}, log_decay, eps](
          std::span<const Tensor> d, std::span<GradSlot> slots) {
        const Shape& shape = in.k.shape();
        const int64_t tokens = shape[0] * shape[1], grain = tokens_of_task(shape[2] * shape[3]),
                      tasks = (tokens + grain - 1) / grain;
        const auto of_tokens = [&] { return Tensor::empty(shape, in.k.dtype()); };
        const auto of_tasks = [&] {
          return Tensor::empty({tasks, shape[2], shape[3]}, in.k.dtype());
        };
        Tensors to{of_tokens(), of_tokens(), of_tokens(), of_tasks(), of_tasks()};
        const Given given{d[0].contiguous(), d[1].contiguous(), d[2].contiguous(),
                          d[3].contiguous()};
        const auto sum = [&](const Tensor& x) {
          Tensor out = Tensor::empty({1, shape[2], shape[3]}, x.dtype());
          kernels::sum_axes_into(out, x, {0});
          return out.squeeze(0);
        };
        dispatch_float(in.k.dtype(), [&]<class T>() {
          backward<T>(in, log_decay, static_cast<T>(eps), given, to);
        });
        const Tensor gradients[] = {to.k, to.decay, to.rate, sum(to.removal), sum(to.replacement)};
        for (size_t i = 0; i < slots.size(); ++i)
          if (slots[i]) slots[i].take(gradients[i]);
      });
  DeltaInputs out;
  out.log_decay = results[0], out.k = results[1], out.read = results[2], out.write = results[3];
  return out;
}

}  // namespace longhand::attention
