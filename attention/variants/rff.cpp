// Trigonometric random features of the softmax kernel. Rahimi & Recht 2007; Peng et al. 2021 (arXiv
// 2103.02143), eq. 4-5. With x̂ = D^(-1/4) x and rows w_l of W (m, D) drawn from N(0, I):
//
//   φ(x) = exp(|x̂|²/2) m^(-1/2) [cos W x̂, sin W x̂],   E φ(x)·φ(y) = exp(x̂·ŷ)
//
// exp(|q̂|²/2) and m^(-1/2) cancel in num / den; of the keys exp(|k̂|²/2 - max |k̂|²/2) stays, the
// maximum over real tokens (causal: those so far). Features have signs, so den may come near 0 and
// the result be far off: that is this method, and it is left as it is.
#include <limits>

#include "longhand/attention/dropout_option.h"
#include "longhand/attention/kernel_attention.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/random_features.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

class Rff final : public RandomFeatureVariant {
 public:
  Rff(const nn::Scope& scope_, const Config& config) : RandomFeatureVariant(scope_, config) {
    refuse_dropout(config, "rff");
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass&) override {
    const Variable W = projection();
    const Variable fq = cos_sin(linear(q, W)), fk = cos_sin(linear(k, W));  // (B, N, H, 2m)
    Variable h = half_square(k);                                            // (B, M, H, 1)
    if (config().causal) {
      const Tensor c = running_max(h.value().squeeze(3));  // (B, N, H)
      return causal_kernel_attention(fq, fk * exp(h - Variable(c.unsqueeze(3))), v, c);
    }
    const bool masked = mask.lengths.defined();
    if (masked)
      h = where(real_tokens(mask.lengths, k.size(1)), h, -std::numeric_limits<double>::infinity());
    Variable c = max(h.detach(), 1, true);  // (B, 1, H, 1)
    if (masked) c = where(not_empty(mask.lengths), c, 0.0);
    return kernel_attention(fq, fk * exp(h - c), v, mask);
  }
};

}  // namespace

Registration rff_variant() {
  return {{.summary = "kernel attention with sines and cosines of random projections",
           .random = true,
           .signed_weights = true,
           .causal = true,
           .time = "N m D",
           .memory = "N m",
           .state = "features, redraws, steps, random_state",
           .paper = "Rahimi & Recht 2007; Peng et al. 2021, arXiv 2103.02143"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Rff>(scope, config);
          },
          {{{"features", 20}}}};
}

}  // namespace longhand::attention
