// Linformer: keys and values projected along the sequence to k rows. Wang et al. 2020 (arXiv
// 2006.04768), eq. 7:
//
//   O = softmax(Q (E K)ᵀ / sqrt(D)) (F V),   E, F (k, N)
//
// Padding is zeroed before it is projected and so adds nothing. No mask covers the k slots: one
// that is fed by padding alone has score 0, like a key of zeros. A shorter sequence uses the first
// columns of E and F, which is the same as padding it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "longhand/attention/dropout_option.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

class Linformer final : public Variant {
 public:
  Linformer(const nn::Scope& scope_, const Config& config)
      : Variant(scope_, config), dropout_(read_dropout(config)) {
    const std::string sharing =
        config.options.get_choice("sharing", "headwise", {"none", "headwise", "kv"});
    const int64_t k =
        config.options.get_int("k", std::min<int64_t>(256, config.max_length), 1, 1 << 20);
    Shape shape{k, config.max_length};
    if (sharing == "none") shape = shape.with_axis(0, config.heads);
    projection_k_.emplace(scope("projection_k"), shape, nn::init::xavier_uniform());
    if (sharing != "kv")
      projection_v_.emplace(scope("projection_v"), shape, nn::init::xavier_uniform());
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask&,
                  const nn::Pass& pass) override {
    const int64_t tokens = k.size(1);
    check<ShapeError>(tokens <= config().max_length, "linformer: ", tokens,
                      " tokens, but the projections are made for ", config().max_length);
    const double tau = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const Variable E = slice(*projection_k_, -1, 0, tokens);
    const Variable F = projection_v_ ? slice(*projection_v_, -1, 0, tokens) : E;
    const Variable keys = matmul(E, permute(k, {0, 2, 1, 3}));    // (B, H, k, D)
    const Variable values = matmul(F, permute(v, {0, 2, 1, 3}));  // (B, H, k, D)
    Variable p = softmax(matmul(permute(q, {0, 2, 1, 3}), transpose(keys, 2, 3), tau));
    if (pass.training && dropout_ > 0) p = dropout(p, dropout_, pass.random.fork(full_name()));
    return permute(matmul(p, values), {0, 2, 1, 3});
  }

  double dropout_;
  std::optional<nn::Parameter> projection_k_;  // E (k, max_length), or (H, k, max_length)
  std::optional<nn::Parameter> projection_v_;  // F likewise; E where keys and values share
};

}  // namespace

Registration linformer_variant() {
  return {{.summary = "softmax attention to k learned mixtures of the tokens",
           .averages = false,
           .positional = true,
           .causal_reason = "E mixes future tokens into every slot",
           .fixed_length = true,
           .time = "N k D",
           .memory = "N k",
           .state = "-",
           .paper = "Wang et al. 2020, arXiv 2006.04768"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Linformer>(scope, config);
          },
          {{{"k", 5}}, {{"k", 5}, {"sharing", "none"}}, {{"k", 5}, {"sharing", "kv"}}}};
}

}  // namespace longhand::attention
