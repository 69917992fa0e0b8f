#include "longhand/attention/model/multi_head.h"

#include <cmath>
#include <vector>

#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/position.h"

namespace longhand::attention {
namespace {

// Rows along the last axis divided by their norms.
Variable l2_normalised(const Variable& x) {
  const double n = static_cast<double>(x.size(-1));
  const Tensor scale = Tensor::full({x.size(-1)}, 1 / std::sqrt(n), x.dtype());
  return rms_norm(x, Variable(scale), 1e-6 / n);  // x / sqrt(|x|² + 1e-6)
}

}  // namespace

std::string no_use_for_rotary(const std::string& variants) {
  return concat_message("rotary positions rotate queries and keys, but the weights of \"", variants,
                        "\" do not depend on them, so the option would have no effect; use "
                        "\"learned\", \"sinusoidal\" or \"none\"");
}

void check_keys_are_tokens(const std::string& variant, const Capabilities& capabilities,
                           bool rotary, const Surroundings& around) {
  check<ConfigError>(!capabilities.shortens || !rotary, variant,
                     ": rotary positions apply to single tokens, but the keys of this variant are "
                     "mixtures of tokens");
  check<ConfigError>(!capabilities.shortens || around.short_conv == 0, variant,
                     ": model.short_conv is a convolution over neighbouring tokens, but the keys "
                     "of this variant are mixtures of tokens; use 0");
}

int64_t AttentionState::bytes() const {
  return kernel->bytes() + query.bytes() + key.bytes() + value.bytes();
}

MultiHeadAttention::MultiHeadAttention(const nn::Scope& scope_, const std::string& variant,
                                       const Config& config, bool rotary,
                                       const ProjectionRanks& ranks, const Surroundings& around)
    : Module(scope_),
      heads_(config.heads),
      head_dim_(config.head_dim),
      kv_heads_(config.kv_heads ? config.kv_heads : config.heads),
      rotary_(rotary),
      around_(around),
      query_(capabilities(variant, config).uses_queries_and_keys
                 ? std::make_unique<nn::LinearOfRank>(scope("query"), heads_ * head_dim_,
                                                      heads_ * head_dim_, ranks.query)
                 : nullptr),
      key_(query_ && capabilities(variant, config).uses_keys
               ? std::make_unique<nn::LinearOfRank>(scope("key"), heads_ * head_dim_,
                                                    kv_heads_ * head_dim_, ranks.key)
               : nullptr),
      value_(scope("value"), heads_ * head_dim_, kv_heads_ * head_dim_, ranks.value),
      gate_(around.output_gate != "none"
                ? std::make_unique<nn::LinearOfRank>(scope("gate"), heads_ * head_dim_,
                                                     heads_ * head_dim_, 0)
                : nullptr),
      kernel_(make(variant, scope("kernel"), config)),
      output_(scope("output"), heads_ * head_dim_, heads_ * head_dim_, ranks.output) {
  check<ConfigError>(!rotary || query_, no_use_for_rotary(variant));
  check_keys_are_tokens(variant, kernel_->capabilities(), rotary, around);
  if (const int64_t width = around.short_conv; width > 0) {
    const auto add = [&](std::optional<nn::ShortConv>& to, const char* name, int64_t heads) {
      to.emplace(scope(name), heads * head_dim_, width, config.causal);
    };
    if (query_) add(query_conv_, "query_conv", heads_);
    if (key_) add(key_conv_, "key_conv", kv_heads_);
    add(value_conv_, "value_conv", kv_heads_);
  }
  if (query_ && around.qk_norm == "rms_norm") {
    query_norm_.emplace(scope("query_norm"), around.qk_norm, head_dim_);
    if (key_) key_norm_.emplace(scope("key_norm"), around.qk_norm, head_dim_);
  }
  if (around.head_norm != "none")
    head_norm_.emplace(scope("head_norm"), around.head_norm, head_dim_);
}

MultiHeadAttention::Projected MultiHeadAttention::project(const nn::Lazy& x, const Mask& mask,
                                                          const nn::Pass& pass,
                                                          AttentionState* state) const {
  // Gates of kernels need the normalised tokens in memory, and projections then read the same
  // tokens. Otherwise linear layers normalise their input themselves, once for all projections, and
  // the normalised tokens are never stored.
  const Capabilities& kernel = kernel_->capabilities();
  Projected out;
  if (kernel.uses_x) out.tokens = x.eval();
  if (kernel.shortens) {  // mixtures are computed from normalised tokens in memory
    const Sources from = kernel_->sources(x, mask, pass);
    if (query_) out.q = query_->forward(x);
    if (key_) out.k = key_->forward(from.keys);
    out.v = value_.forward(from.values);
    if (gate_) out.gate = gate_->forward(x);
  } else {
    std::vector<const nn::LinearOfRank*> layers;
    std::vector<Variable*> results;
    const auto add = [&](const nn::LinearOfRank* layer, Variable& result) {
      if (!layer) return;
      layers.push_back(layer);
      results.push_back(&result);
    };
    add(query_.get(), out.q), add(key_.get(), out.k), add(&value_, out.v),
        add(gate_.get(), out.gate);
    const Variables projected = nn::LinearOfRank::forward(x, layers);
    for (size_t i = 0; i < results.size(); ++i) *results[i] = projected[i];
  }
  if (value_conv_) {
    const auto convolve = [&](Variable& y, const nn::ShortConv& conv, nn::ConvState* recent) {
      for (int64_t t = 0; recent && t < y.size(1); ++t) conv.step(y.value().select(1, t), *recent);
      y = conv.forward(y, mask.lengths, pass);
    };
    if (query_) convolve(out.q, *query_conv_, state ? &state->query : nullptr);
    if (key_) convolve(out.k, *key_conv_, state ? &state->key : nullptr);
    convolve(out.v, *value_conv_, state ? &state->value : nullptr);
  }
  const auto split = [&](Variable& y, int64_t heads) {
    if (y.defined()) y = reshape(y, {y.size(0), y.size(1), heads, head_dim_});
  };
  split(out.q, heads_), split(out.k, kv_heads_), split(out.v, kv_heads_);
  return out;
}

Variable MultiHeadAttention::turns(int64_t first, int64_t tokens) const {
  return rotary_ ? nn::turns_of_positions(first, tokens, head_dim_, parameter_dtype()) : Variable();
}

Variable MultiHeadAttention::prepared(const Variable& x, const std::optional<nn::Norm>& norm,
                                      const Variable& turns) const {
  Variable y = x;
  if (norm) y = norm->forward(y);
  if (around_.qk_norm == "l2") y = l2_normalised(y);
  return turns.defined() ? rotate_pairs(y, turns) : y;
}

nn::Lazy MultiHeadAttention::finished(const Variable& out, const Variable& gate) const {
  const Shape joined{out.size(0), out.size(1), heads_ * head_dim_};
  GatedOptions options{.function = around_.output_gate == "sigmoid" ? GateFunction::sigmoid
                                                                    : GateFunction::silu};
  if (head_norm_) options.norm = head_norm_->options();
  const Variable logits = gate_ ? reshape(gate, out.shape()) : Variable();
  return output_.forward(reshape(gated(out, logits, options), joined));
}

nn::Lazy MultiHeadAttention::forward(const nn::Lazy& x, const Mask& mask, const nn::Pass& pass,
                                     AttentionState* state) {
  const nn::Running running(*this);
  Projected in = project(x, mask, pass, state);
  const Variable turned = turns(pass.tokens.first, in.v.size(1));
  if (query_) in.q = prepared(in.q, query_norm_, turned);
  if (key_) in.k = prepared(in.k, key_norm_, turned);
  for (int64_t t = 0; state && t < in.v.size(1); ++t) {
    const auto of = [t](const Variable& y) {
      return y.defined() ? y.value().select(1, t).contiguous() : Tensor();
    };
    state->kernel->append({of(in.q), of(in.k), of(in.v), of(in.tokens)});
  }
  // A variant that does not read keys shares queries and keys: the first queries of each group.
  if (query_ && !key_)
    in.k = select(
        reshape(in.q, {in.q.size(0), in.q.size(1), kv_heads_, heads_ / kv_heads_, head_dim_}), 3,
        0);
  return finished(kernel_->forward({in.q, in.k, in.v, in.tokens}, mask, pass), in.gate);
}

AttentionState MultiHeadAttention::decoder(int64_t batch) const {
  return {kernel_->decoder(batch)};
}

nn::Lazy MultiHeadAttention::step(const nn::Lazy& x, AttentionState& state,
                                  int64_t position) const {
  const int64_t B = x.shape()[0];
  const auto row = [&](const nn::LinearOfRank& projection, const std::optional<nn::ShortConv>& conv,
                       nn::ConvState& recent, int64_t heads) {
    Tensor y = projection.forward(x).value().select(1, 0);
    if (conv) y = conv->step(y, recent);
    return Variable(y.contiguous().reshape({B, 1, heads, head_dim_}));
  };
  const Variable turned = turns(position, 1);
  Token token;
  if (kernel_->capabilities().uses_x) token.x = x.value().select(1, 0);
  if (query_) {
    const Variable q = row(*query_, query_conv_, state.query, heads_);
    token.q = prepared(q, query_norm_, turned).value().select(1, 0);
  }
  if (key_) {
    const Variable k = row(*key_, key_conv_, state.key, kv_heads_);
    token.k = prepared(k, key_norm_, turned).value().select(1, 0);
  }
  token.v = row(value_, value_conv_, state.value, kv_heads_).value().select(1, 0);
  const Tensor out = state.kernel->step(token);
  const Variable whole(out.contiguous().reshape({B, 1, heads_, head_dim_}));
  return finished(whole, gate_ ? gate_->forward(x).eval() : Variable());
}

}  // namespace longhand::attention
