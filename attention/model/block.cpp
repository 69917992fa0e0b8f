#include "longhand/attention/model/block.h"

namespace longhand::attention {

Block::Block(const nn::Scope& scope_, const TransformerConfig& config, const Config& attention)
    : Module(scope_),
      pre_norm_(config.norm == "pre"),
      norm1_(scope("norm1"), config.norm_type, config.d_model),
      attention_(scope("attention"), attention.name, attention, config.positions == "rotary"),
      dropout1_(scope("dropout1"), config.dropout) {
  if (config.d_mlp == 0) return;
  norm2_.emplace(scope("norm2"), config.norm_type, config.d_model);
  mlp_.emplace(scope("mlp"), config.d_model, config.d_mlp, config.dropout);
  dropout2_.emplace(scope("dropout2"), config.dropout);
}

template <class Attend>
Variable Block::apply(const Variable& x, const nn::Pass& pass, const Attend& attend) const {
  // A branch's first layers normalise what they read, its last one adds the residual.
  const nn::Residual add1{x, dropout1_.options(pass)};
  const Variable h =
      pre_norm_ ? attend(x, add1, &norm1_) : norm1_.forward(attend(x, add1, nullptr));
  if (!mlp_) return h;
  const nn::Residual add2{h, dropout2_->options(pass)};
  return pre_norm_ ? mlp_->forward(h, pass, add2, &*norm2_)
                   : norm2_->forward(mlp_->forward(h, pass, add2));
}

Variable Block::forward(const Variable& x, const Mask& mask, const nn::Pass& pass) {
  return apply(x, pass, [&](const Variable& in, const nn::Residual& add, const nn::Norm* norm) {
    return attention_.forward(in, mask, pass, add, norm);
  });
}

Variable Block::step(const Variable& x, Decoder& decoder, int64_t position) const {
  return apply(x, {}, [&](const Variable& in, const nn::Residual& add, const nn::Norm* norm) {
    return attention_.step(in, decoder, position, add, norm);
  });
}

}  // namespace longhand::attention
