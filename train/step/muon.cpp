#include <algorithm>
#include <cmath>

#include "longhand/core/gemm.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/view.h"
#include "longhand/train/step/adam.h"

namespace longhand::train {
namespace {

// Approximates the orthogonal factor U V' of x = U S V' (r, c): singular values s become p(…p(s /
// |x|)…), p(s) = 3.4445 s - 4.7750 s^3 + 2.0315 s^5, five times, near 1 unless tiny.
Tensor orthogonalised(Tensor x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315, eps = 1e-7;
  const bool wide = x.size(0) <= x.size(1);
  if (!wide) x = x.transpose(0, 1).contiguous();
  dispatch_float(x.dtype(), [&]<class T>() {
    double square = 0;
    for (T *p = x.data<T>(), *end = p + x.numel(); p != end; ++p) square += double(*p) * double(*p);
    const T factor = T(1 / (std::sqrt(square) + eps));
    for (T *p = x.data<T>(), *end = p + x.numel(); p != end; ++p) *p *= factor;
  });
  const int64_t n = x.size(0);
  Tensor gram = Tensor::empty({n, n}, x.dtype()), poly = Tensor::empty({n, n}, x.dtype()),
         next = Tensor::empty(x.shape(), x.dtype());
  for (int i = 0; i < 5; ++i) {
    matmul_into(gram, x, x.transpose(0, 1));
    copy_into(poly, gram);
    matmul_into(poly, gram, gram, c, b);  // b A + c A^2
    copy_into(next, x);
    matmul_into(next, poly, x, 1, a);  // a X + (b A + c A^2) X
    std::swap(x, next);
  }
  return wide ? x : x.transpose(0, 1).contiguous();
}

class Muon : public Adam {
 public:
  Muon(Parameters parameters, const MuonOptions& options, const std::vector<bool>& matrices)
      : Adam(std::move(parameters), options.others, [&](size_t i) { return !matrices[i]; }),
        options_(options),
        matrices_(matrices),
        b_(add_moments("momentum", [&](size_t i) { return matrices_[i]; })) {
    check<ConfigError>(options.momentum >= 0 && options.momentum < 1, "muon: momentum ",
                       options.momentum, ": expected a value in [0, 1)");
  }

 protected:
  // b <- mu b + (1 - mu) s g;  u = (1 - mu) s g + mu b;
  // theta <- (1 - lr lambda) theta - 0.2 sqrt(max(r, c)) lr orthogonalised(u).
  void update(const Part& part, double lr, double scale) override {
    if (!matrices_[part.parameter]) return Adam::update(part, lr, scale);
    check<ConfigError>(part.value.numel() == part.shape.numel(),
                       "muon: ", parameters()[part.parameter].first,
                       " is divided among processes, but only a whole matrix can be "
                       "orthogonalised; use train.shard_optimizer = false");
    // In memory order, which is the transpose's for a transposed parameter.
    const bool transposed = parameters()[part.parameter].second.value().strides()[0] == 1;
    const int64_t rows = part.shape[transposed ? 1 : 0], columns = part.shape[transposed ? 0 : 1];
    Tensor value = part.value, u = Tensor::empty({rows, columns}, value.dtype());
    dispatch_float(value.dtype(), [&]<class T>() {
      T* const theta = value.data<T>();
      const T* const g = part.gradient.data<T>();
      T* const b = moment(b_, part.parameter).data<T>();
      T* const to = u.data<T>();
      const T mu = T(options_.momentum), rest = T(1 - options_.momentum) * T(scale);
      for (int64_t i = 0; i < u.numel(); ++i) {
        b[i] = mu * b[i] + rest * g[i];
        to[i] = rest * g[i] + mu * b[i];
      }
      u = orthogonalised(u);
      const T* const direction = u.data<T>();
      const T keep = T(1 - lr * options_.others.weight_decay),
              step = T(lr * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns))));
      for (int64_t i = 0; i < u.numel(); ++i) theta[i] = keep * theta[i] - step * direction[i];
    });
  }

 private:
  MuonOptions options_;
  std::vector<bool> matrices_;
  size_t b_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(Parameters parameters, const MuonOptions& options) {
  std::vector<bool> matrices;
  for (const auto& [name, parameter] : parameters)
    matrices.push_back(parameter.value().rank() == 2 && !name.starts_with("embeddings.") &&
                       !name.starts_with("head."));
  return std::make_unique<Muon>(std::move(parameters), options, matrices);
}

}  // namespace longhand::train
