// Exact softmax attention, as written. Vaswani et al. 2017 (arXiv 1706.03762), eq. 1:
//
//   O = softmax(Q Kᵀ / sqrt(D)) V
//
// It forms the N x M probabilities: slow and large for long sequences, and the oracle for all
// others.
#include <cmath>
#include <limits>

#include "longhand/attention/decoder.h"
#include "longhand/attention/dropout_option.h"
#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

// (N, N) u8, 1 where j <= i.
Tensor not_later(int64_t n) {
  Tensor keep = Tensor::empty({n, n}, DType::u8);
  uint8_t* out = keep.data<uint8_t>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) *out++ = j <= i;
  return keep;
}

class Softmax final : public Variant {
 public:
  Softmax(const nn::Scope& scope_, const Config& config)
      : Variant(scope_, config), dropout_(read_dropout(config)) {}

  std::unique_ptr<Decoder> decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = 1 / std::sqrt(static_cast<double>(config().head_dim))});
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass& pass) override {
    const double tau = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Variable keys = permute(k, {0, 2, 3, 1});                 // (B, H, D, M)
    Variable scores = matmul(permute(q, {0, 2, 1, 3}), keys, tau);  // (B, H, N, M)
    constexpr double never = -std::numeric_limits<double>::infinity();
    if (config().causal)  // which also hides padding, at the end, from all real tokens
      scores = where(not_later(q.size(1)), scores, never);
    else if (mask.lengths.defined())
      scores = where(real_tokens(mask.lengths, k.size(1)).permute({0, 2, 3, 1}), scores, never);
    if (mask.bias.defined()) scores = scores + mask.bias;
    if (mask.keep.defined()) scores = where(mask.keep, scores, never);
    Variable p = softmax(scores);
    if (pass.training && dropout_ > 0) p = dropout(p, dropout_, pass.random.fork(full_name()));
    return permute(matmul(p, permute(v, {0, 2, 1, 3})), {0, 2, 1, 3});
  }

  double dropout_;
};

}  // namespace

Registration softmax_variant() {
  return {{.summary = "softmax(Q K^T / sqrt(D)) V, computed as it stands",
           .exact = true,
           .any_mask = true,
           .causal = true,
           .decodes = true,
           .time = "N M D",
           .memory = "N M",
           .state = "-",
           .paper = "Vaswani et al. 2017, arXiv 1706.03762"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Softmax>(scope, config);
          }};
}

}  // namespace longhand::attention
