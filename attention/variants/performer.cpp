// Performer (FAVOR+): random features of positive entries whose inner products estimate the softmax
// kernel. Choromanski et al. 2020 (arXiv 2009.14794), eq. 5 and 6, with x̂ = D^(-1/4) x and rows w_l
// of W (m, D) drawn from N(0, I), orthogonal within blocks:
//
//   softmax:     φ(x)_l = exp(w_l·x̂ - |x̂|²/2)
//   hyperbolic:  the 2m features exp(±w_l·x̂ - |x̂|²/2)
//   relu:        φ(x)_l = max(w_l·x̂, 0) + eps, another kernel
//
// Every factor that is common to a query, or that φ(q)_l gains and all φ(k)_l lose, cancels in
// num / den. So |q̂|²/2 is dropped, and with t_jl = w_l·k̂_j - |k̂_j|²/2, c_l = max_j t_jl over real
// tokens and s_il = w_l·q̂_i + c_l:
//
//   φ(k_j)_l = exp(t_jl - c_l),   φ(q_i)_l = exp(s_il - max_l s_il),   den_i >= 1
//
// whatever the norms. That needs no eps, which would turn large norms into uniform attention. A
// causal query must not know the maximum of later keys, so there c_j = max over l and j' <= j.
#include <limits>

#include "longhand/attention/dropout_option.h"
#include "longhand/attention/kernel_attention.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/random_features.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

enum class Kernel { softmax, hyperbolic, relu };

Kernel read_kernel(const Options& options) {
  const std::string kernel =
      options.get_choice("kernel", "softmax", {"softmax", "hyperbolic", "relu"});
  return kernel == "softmax" ? Kernel::softmax
         : kernel == "relu"  ? Kernel::relu
                             : Kernel::hyperbolic;
}

class Performer final : public RandomFeatureVariant {
 public:
  Performer(const nn::Scope& scope_, const Config& config)
      : RandomFeatureVariant(scope_, config),
        kernel_(read_kernel(config.options)),
        eps_(config.options.get_double("eps", kernel_ == Kernel::relu ? 1e-3 : 0, 0)) {
    refuse_dropout(config, "performer");
    if (kernel_ == Kernel::relu)
      config.options.require(eps_ > 0, "eps",
                             "the relu kernel needs more than 0, for queries without a feature");
    else
      config.options.require(eps_ == 0, "eps",
                             "exponential features need none; eps belongs to the relu kernel");
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass&) override {
    const Variable W = projection();
    Variable uq = linear(q, W), uk = linear(k, W);  // w_l·x̂ (B, N, H, m)
    const bool masked = mask.lengths.defined() && !config().causal;
    const Tensor real = masked ? real_tokens(mask.lengths, k.size(1)) : Tensor();
    if (kernel_ == Kernel::relu) {
      const Variable fq = relu(uq) + eps_;
      Variable fk = relu(uk) + eps_;
      if (config().causal) return causal_kernel_attention(fq, fk, v);
      if (masked) fk = where(real, fk, 0.0);
      return kernel_attention(fq, fk, v, mask);
    }
    if (kernel_ == Kernel::hyperbolic) {
      uq = concat({uq, -uq}, 3);
      uk = concat({uk, -uk}, 3);
    }
    Variable t = uk - half_square(k);
    if (config().causal) {
      const Tensor c = running_max(max(t.detach(), 3).value());  // (B, N, H)
      const Variable fk = exp(t - Variable(c.unsqueeze(3)));
      const Variable fq = exp(uq - max(uq.detach(), 3, true));
      return causal_kernel_attention(fq, fk, v, c);
    }
    if (masked) t = where(real, t, -std::numeric_limits<double>::infinity());
    Variable c = max(t.detach(), 1, true);  // (B, 1, H, m)
    if (masked) c = where(not_empty(mask.lengths), c, 0.0);
    const Variable s = uq + c;
    return kernel_attention(exp(s - max(s.detach(), 3, true)), exp(t - c), v, mask);
  }

  Kernel kernel_;
  double eps_;
};

}  // namespace

Registration performer_variant() {
  return {{.summary = "kernel attention with positive random features of the softmax kernel",
           .random = true,
           .causal = true,
           .time = "N m D",
           .memory = "N m",
           .state = "features, redraws, steps, random_state",
           .paper = "Choromanski et al. 2020, arXiv 2009.14794"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Performer>(scope, config);
          },
          {{{"features", 20}},
           {{"features", 20}, {"kernel", "hyperbolic"}},
           {{"features", 20}, {"kernel", "relu"}}}};
}

}  // namespace longhand::attention
