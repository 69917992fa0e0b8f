#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/registry.h"

#include "longhand/autograd/ops.h"
#include "longhand/nn/position.h"

namespace longhand::attention {

std::string no_use_for_rotary(const std::string& variant) {
  return concat_message("rotary positions rotate queries and keys, but the weights of \"", variant,
                        "\" do not depend on them, so the option would have no effect; use "
                        "\"learned\", \"sinusoidal\" or \"none\"");
}

MultiHeadAttention::MultiHeadAttention(const nn::Scope& scope_, const std::string& variant,
                                       const Config& config, bool rotary,
                                       const ProjectionRanks& ranks)
    : Module(scope_),
      heads_(config.heads),
      head_dim_(config.head_dim),
      kv_heads_(config.kv_heads ? config.kv_heads : config.heads),
      rotary_(rotary),
      query_(capabilities(variant, config).uses_queries_and_keys
                 ? std::make_unique<nn::LinearOfRank>(scope("query"), heads_ * head_dim_,
                                                      heads_ * head_dim_, ranks.query)
                 : nullptr),
      key_(query_ && capabilities(variant, config).uses_keys
               ? std::make_unique<nn::LinearOfRank>(scope("key"), heads_ * head_dim_,
                                                    kv_heads_ * head_dim_, ranks.key)
               : nullptr),
      value_(scope("value"), heads_ * head_dim_, kv_heads_ * head_dim_, ranks.value),
      kernel_(make(variant, scope("kernel"), config)),
      output_(scope("output"), heads_ * head_dim_, heads_ * head_dim_, ranks.output) {
  check<ConfigError>(!rotary || query_, no_use_for_rotary(variant));
  check<ConfigError>(!rotary || !kernel_->capabilities().shortens, variant,
                     ": rotary positions apply to single tokens, but the keys of this variant are "
                     "mixtures of tokens");
}

nn::Lazy MultiHeadAttention::forward(const nn::Lazy& x, const Mask& mask, const nn::Pass& pass) {
  const nn::Running running(*this);
  const int64_t B = x.shape()[0], N = x.shape()[1];
  // Gates need the normalised tokens in memory, and projections then read the same tokens.
  // Otherwise linear layers normalise their input themselves, once for all projections, and the
  // normalised tokens are never stored.
  const Capabilities& kernel = kernel_->capabilities();
  const Variable tokens = kernel.uses_x ? x.eval() : Variable();
  Variable q, k, v;
  if (kernel.shortens) {  // mixtures are computed from normalised tokens in memory
    const Sources from = kernel_->sources(x, mask);
    if (query_) q = query_->forward(x), k = key_->forward(from.keys);
    v = value_.forward(from.values);
  } else if (query_) {
    std::vector<const nn::LinearOfRank*> layers{query_.get(), &value_};
    if (key_) layers.insert(layers.begin() + 1, key_.get());
    const Variables projected = nn::LinearOfRank::forward(x, layers);
    q = projected.front(), v = projected.back();
    if (key_) k = projected[1];
  } else {
    v = value_.forward(x);
  }
  const auto split = [&](Variable& y, int64_t heads) {
    if (y.defined()) y = reshape(y, {B, y.size(1), heads, head_dim_});
  };
  split(q, heads_), split(k, kv_heads_), split(v, kv_heads_);
  if (rotary_) {
    q = nn::rotate_by_position(q);
    if (key_) k = nn::rotate_by_position(k);
  }
  // A variant that does not read keys shares queries and keys: the first queries of each group.
  if (query_ && !key_)
    k = select(reshape(q, {B, N, kv_heads_, heads_ / kv_heads_, head_dim_}), 3, 0);
  const Variable out = kernel_->forward({q, k, v, tokens}, mask, pass);
  return output_.forward(reshape(out, {B, N, heads_ * head_dim_}));
}

nn::Lazy MultiHeadAttention::step(const nn::Lazy& x, Decoder& decoder, int64_t position) const {
  const int64_t B = x.shape()[0];
  const auto row = [&](const nn::LinearOfRank* projection, int64_t heads, bool rotated) {
    if (!projection) return Tensor();
    const Variable y = reshape(projection->forward(x), {B, 1, heads, head_dim_});
    return (rotated ? nn::rotate_by_position(y, position) : y).value().select(1, 0);
  };
  Token token;
  if (kernel_->capabilities().uses_x) token.x = x.value().select(1, 0);
  token.q = row(query_.get(), heads_, rotary_);
  token.k = row(key_.get(), kv_heads_, rotary_);
  token.v = row(&value_, kv_heads_, false);
  const Tensor out = decoder.step(token);
  return output_.forward(Variable(out.contiguous().reshape({B, 1, heads_ * head_dim_})));
}

}  // namespace longhand::attention
