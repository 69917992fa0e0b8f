// Linear attention: features elu(x) + 1, of positive entries, in place of the softmax kernel.
// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5-9. A kernel of its own, not an approximation:
// no 1/sqrt(D), and nothing is added to the normaliser, which is positive.
#include "longhand/attention/dropout_option.h"
#include "longhand/attention/kernel_attention.h"
#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

class Linear final : public Variant {
 public:
  Linear(const nn::Scope& scope_, const Config& config) : Variant(scope_, config) {
    refuse_dropout(config, "linear");
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass&) override {
    const Variable fq = elu_plus_one(q);
    Variable fk = elu_plus_one(k);
    if (config().causal) return causal_kernel_attention(fq, fk, v);
    // Zeroed keys are not enough: their features are 1.
    if (mask.lengths.defined()) fk = where(real_tokens(mask.lengths, k.size(1)), fk, 0.0);
    return kernel_attention(fq, fk, v, mask);
  }
};

}  // namespace

Registration linear_variant() {
  return {{.summary = "kernel attention with the features elu(x) + 1",
           .causal = true,
           .time = "N D^2",
           .memory = "D^2",
           .state = "-",
           .paper = "Katharopoulos et al. 2020, arXiv 2006.16236"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Linear>(scope, config);
          }};
}

}  // namespace longhand::attention
