#include "longhand/attention/model/block.h"

#include "longhand/attention/registry.h"

namespace longhand::attention {

Block::Block(const nn::Scope& scope_, const TransformerConfig& config, const Config& attention)
    : Module(scope_),
      norm_(config.norm == "pre" ? nn::NormPlace::pre : nn::NormPlace::post),
      norm1_(scope("norm1"), config.norm_type, config.d_model, config.norm_eps),
      // A model with rotary positions may have layers without queries and keys to rotate.
      attention_(scope("attention"), attention.name, attention,
                 config.positions == "rotary" &&
                     capabilities(attention.name, attention).uses_queries_and_keys,
                 {.query = config.rank_of(attention.layer, BlockLinear::query),
                  .key = config.rank_of(attention.layer, BlockLinear::key),
                  .value = config.rank_of(attention.layer, BlockLinear::value),
                  .output = config.rank_of(attention.layer, BlockLinear::output)},
                 config.around),
      dropout1_(scope("dropout1"), config.dropout) {
  if (config.d_mlp == 0) return;
  norm2_.emplace(scope("norm2"), config.norm_type, config.d_model, config.norm_eps);
  mlp_.emplace(scope("mlp"), config.mlp, config.d_model, config.d_mlp, config.dropout,
               config.rank_of(attention.layer, BlockLinear::fc1),
               config.rank_of(attention.layer, BlockLinear::fc2));
  dropout2_.emplace(scope("dropout2"), config.dropout);
}

template <class Attend>
Variable Block::apply(const Variable& x, const nn::Pass& pass, const Attend& attend) const {
  const nn::Running running(*this);
  const Variable h = nn::residual_branch(x, norm1_, norm_, dropout1_, pass, attend);
  if (!mlp_) return h;
  return nn::residual_branch(h, *norm2_, norm_, *dropout2_, pass,
                             [&](const nn::Lazy& in) { return mlp_->forward(in, pass); });
}

Variable Block::forward(const Variable& x, const Mask& mask, const nn::Pass& pass,
                        AttentionState* state) {
  return apply(x, pass,
               [&](const nn::Lazy& in) { return attention_.forward(in, mask, pass, state); });
}

Variable Block::step(const Variable& x, AttentionState& state, int64_t position) const {
  return apply(x, {}, [&](const nn::Lazy& in) { return attention_.step(in, state, position); });
}

}  // namespace longhand::attention
