#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/registry.h"

#include "longhand/autograd/ops.h"
#include "longhand/nn/position.h"

namespace longhand::attention {

MultiHeadAttention::MultiHeadAttention(const nn::Scope& scope_, const std::string& variant,
                                       const Config& config, bool rotary)
    : Module(scope_),
      heads_(config.heads),
      head_dim_(config.head_dim),
      kv_heads_(config.kv_heads ? config.kv_heads : config.heads),
      rotary_(rotary),
      query_(scope("query"), heads_ * head_dim_, heads_ * head_dim_),
      key_(scope("key"), heads_ * head_dim_, kv_heads_ * head_dim_),
      value_(scope("value"), heads_ * head_dim_, kv_heads_ * head_dim_),
      kernel_(make(variant, scope("kernel"), config)),
      output_(scope("output"), heads_ * head_dim_, heads_ * head_dim_) {
  check<ConfigError>(!rotary || !kernel_->capabilities().shortens, variant,
                     ": rotary positions are of tokens, but its keys are mixtures of them");
}

Variable MultiHeadAttention::forward(const Variable& in, const Mask& mask, const nn::Pass& pass,
                                     const nn::Residual& add, const nn::Norm* norm) {
  const int64_t B = in.size(0), N = in.size(1);
  // Mixtures of tokens are made of normalised ones, as are gates; else linear layers normalise what
  // they read, and x is not written out.
  const Capabilities& kernel = kernel_->capabilities();
  const bool early = norm && (kernel.shortens || kernel.uses_x);
  const Variable x = early ? norm->forward(in) : in;
  const LinearOptions behind = nn::behind(early ? nullptr : norm);
  const auto split = [&](const Variable& y, int64_t heads) {
    return reshape(y, {B, y.size(1), heads, head_dim_});
  };
  const Sources from = kernel_->sources(x, mask);
  Variable q = split(query_.forward(x, behind), heads_);
  Variable k = split(key_.forward(from.keys, behind), kv_heads_);
  const Variable v = split(value_.forward(from.values, behind), kv_heads_);
  if (rotary_) {
    q = nn::rotate_by_position(q);
    k = nn::rotate_by_position(k);
  }
  const Variable out = kernel_->forward({q, k, v, kernel.uses_x ? x : Variable()}, mask, pass);
  return output_.forward(reshape(out, {B, N, heads_ * head_dim_}),
                         {.output = add.dropout, .residual = add.to});
}

Variable MultiHeadAttention::step(const Variable& x, Decoder& decoder, int64_t position,
                                  const nn::Residual& add, const nn::Norm* norm) const {
  const int64_t B = x.size(0);
  const auto row = [&](const nn::Linear& projection, int64_t heads, bool turned) {
    const Variable y = reshape(projection.forward(x, nn::behind(norm)), {B, 1, heads, head_dim_});
    return (turned ? nn::rotate_by_position(y, position) : y).value().select(1, 0);
  };
  Token token{row(query_, heads_, rotary_), row(key_, kv_heads_, rotary_),
              row(value_, kv_heads_, false)};
  if (kernel_->capabilities().uses_x) token.x = (norm ? norm->forward(x) : x).value().select(1, 0);
  const Tensor out = decoder.step(token);
  return output_.forward(Variable(out.contiguous().reshape({B, 1, heads_ * head_dim_})),
                         {.output = add.dropout, .residual = add.to});
}

}  // namespace longhand::attention
