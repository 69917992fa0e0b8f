#include "longhand/attention/model/transformer.h"

#include <algorithm>

#include "longhand/attention/mask.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/autograd/recompute.h"

namespace longhand::attention {
namespace {

// Like pool(), for sequences of which x (B, n, d) is a part: sums the contributions of all parts.
Variable joined_pool(const Variable& x, const Tensor& lengths, const std::string& pooling,
                     const nn::Pass& pass) {
  const int64_t B = x.size(0), n = x.size(1);
  // The weights of these tokens in the pooled vectors.
  Tensor weights = Tensor::zeros({B, n, 1}, x.dtype()),
         chosen = Tensor::zeros({B, n, 1}, DType::u8);
  for (int64_t b = 0; b < B; ++b) {
    const int64_t all = lengths.defined() ? lengths.data<int32_t>()[b] : pass.tokens.of;
    const int64_t first = pooling == "last" ? all - 1 : 0;
    const int64_t begin = std::clamp<int64_t>(first - pass.tokens.first, 0, n),
                  end = std::clamp<int64_t>(all - pass.tokens.first, 0, n);
    chosen.select(0, b).slice(0, begin, end).fill(1);
    weights.select(0, b).slice(0, begin, end).fill(1 / static_cast<double>(all - first));
  }
  return pass.join->sum(sum(where(chosen, x, 0) * Variable(weights), {1}));
}

// The vector that represents each sequence: x (B, N, d) to (B, d).
Variable pool(const Variable& x, const Tensor& lengths, const std::string& pooling,
              const nn::Pass& pass) {
  if (pass.join) return joined_pool(x, lengths, pooling, pass);
  const int64_t B = x.size(0), N = x.size(1), d = x.size(2);
  if (pooling == "cls") return select(x, 1, 0);
  if (pooling == "last") {
    if (!lengths.defined()) return select(x, 1, N - 1);
    Tensor last = Tensor::empty({B, 1, d}, DType::i32);
    for (int64_t b = 0; b < B; ++b) last.select(0, b).fill(lengths.data<int32_t>()[b] - 1);
    return squeeze(gather(x, 1, last), 1);
  }
  if (!lengths.defined()) return mean(x, {1});
  // The mean over real tokens: padding enters neither the sum nor the count.
  Tensor weight = Tensor::empty({B, 1}, x.dtype());
  for (int64_t b = 0; b < B; ++b)
    weight.select(0, b).fill(1 / static_cast<double>(lengths.data<int32_t>()[b]));
  return sum(where(real_tokens(lengths, N).squeeze(3), x, 0), {1}) * Variable(weight);
}

// x (B, n, d) with positions added: those of the pass, or from `first` on.
Variable with_positions(const nn::Position& position, const Variable& x, const nn::Pass& pass,
                        int64_t first = 0) {
  if (!pass.tokens.of) return position.forward(x, first);
  const auto [begin, all] = pass.tokens;
  const int64_t n = x.size(1), padding = std::clamp<int64_t>(begin + n - all, 0, n);
  return position.forward(x, begin, padding);
}

nn::Scope in_f64(nn::Scope scope) {
  scope.dtype = DType::f64;
  return scope;
}

}  // namespace

Embeddings::Embeddings(const nn::Scope& scope_, const TransformerConfig& config)
    : Module(scope_),
      token_(scope("token"), config.vocabulary, config.d_model),
      // ALiBi is applied in the attention.
      position_(scope("position"), config.positions == "alibi" ? "none" : config.positions,
                config.max_length + config.has_class_token(), config.d_model),
      dropout_(scope("dropout"), config.dropout) {
  if (config.has_class_token())
    class_token_.emplace(scope("class_token"), Shape{config.d_model}, nn::init::normal(0.02));
  if (config.embedding_norm)
    norm_.emplace(scope("norm"), config.norm_type, config.d_model, config.norm_eps);
}

Variable Embeddings::forward(const Tensor& tokens, const nn::Pass& pass, int64_t first) const {
  const nn::Running running(*this);
  Variable x = token_.forward(tokens);
  if (class_token_ && !pass.tokens.of)
    x = concat({broadcast_to(*class_token_, {x.size(0), 1, x.size(2)}), x}, 1);
  x = with_positions(position_, x, pass, first);
  if (norm_) x = norm_->forward(x).eval();
  return dropout_.forward(x, pass);
}

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

Reconstruction::Reconstruction(const nn::Scope& scope_, const TransformerConfig& config)
    : Module(scope_),
      position_(scope("position"), "sinusoidal", config.max_length, config.d_model),
      norm1_(scope("norm1"), config.norm_type, config.d_model, config.norm_eps),
      norm2_(scope("norm2"), config.norm_type, config.d_model, config.norm_eps),
      linear1_(scope("linear1"), config.d_model, config.d_model),
      linear2_(scope("linear2"), config.d_model, config.d_model) {}

Variable Reconstruction::forward(const Variable& sequences, int64_t n, const nn::Pass& pass) const {
  const nn::Running running(*this);
  const int64_t B = sequences.size(0), d = sequences.size(1);
  const Variable x = broadcast_to(reshape(sequences, {B, 1, d}), {B, n, d});
  const nn::Lazy y =
      gelu(linear1_.forward(norm1_.forward(with_positions(position_, x, pass)))).eval();
  return gelu(linear2_.forward(norm2_.forward(y))).eval();
}

Head::Head(const nn::Scope& scope_, const TransformerConfig& config, const nn::Parameter* tied)
    : Module(scope_), bias_(scope("bias"), {config.classes}, nn::init::zeros()), tied_(tied) {
  const int64_t width = config.head_hidden ? config.head_hidden : config.d_model;
  if (config.head_hidden) hidden_.emplace(scope("hidden"), config.d_model, width);
  if (!tied)
    weight_.emplace(scope("weight"), Shape{config.classes, width}, nn::init::xavier_uniform());
}

Variable Head::forward(const nn::Lazy& x) const {
  const nn::Running running(*this);
  const Variable weight = tied_ ? *tied_ : *weight_;
  return hidden_ ? linear(relu(hidden_->forward(x)), weight, bias_)
                 : linear(x, weight, bias_).eval();
}

Transformer::Transformer(const nn::Scope& scope_, const TransformerConfig& config)
    : Module(config.dtype == "f64" ? in_f64(scope_) : scope_),
      config_(config),
      embeddings_(scope("embeddings"), config),
      blocks_(scope("blocks")),
      head_(scope("head"), config, config.tied_embeddings ? &embeddings_.token_weight() : nullptr) {
  config.check_effects();
  for (int64_t i = 0; i < config.layers; ++i) {
    Config attention = config.attention_config(i);
    // The earliest layer with the same variant owns shared parameters.
    for (int64_t j = 0; j < i && !attention.first; ++j)
      if (config.attention_of(j) == attention.name) attention.first = &blocks_[j].kernel();
    blocks_.emplace_back(config, attention);
  }
  if (config.reconstruct) reconstruction_.emplace(scope("reconstruction"), config);
  // Post-norm blocks end with a norm, so no final norm is needed.
  if (config.norm == "pre" || config.reconstruct)
    norm_.emplace(scope("norm"), config.norm_type, config.d_model, config.norm_eps);
}

Variable Transformer::forward(const Tensor& tokens, const Tensor& lengths, const nn::Pass& pass,
                              const Tensor& rows) {
  check<ShapeError>(tokens.rank() == 2 && tokens.dtype() == DType::i32 && tokens.size(1) >= 1,
                    "transformer: expected tokens (B, N) of i32, got ", tokens.shape(), " of ",
                    tokens.dtype());
  const int64_t N = pass.all_tokens(tokens.size(1));
  if (pass.join) check_part(tokens, pass);
  check<ShapeError>(N <= config_.max_length, "transformer: a sequence of ", N,
                    " tokens exceeds the model's max_length ", config_.max_length);
  check<ShapeError>(
      !rows.defined() || config_.per_token,
      "transformer: rows expect a model with per_token; this model returns logits for "
      "whole sequences");
  const nn::Running running(*this);
  Variable x = embeddings_.forward(tokens, pass);
  Mask mask;
  if (lengths.defined()) {
    check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{tokens.size(0)},
                      "transformer: expected lengths (", tokens.size(0), ") of i32, got ",
                      lengths.shape(), " of ", lengths.dtype());
    mask.lengths = lengths.clone();
    const int32_t extra = static_cast<int32_t>(x.size(1) - tokens.size(1));  // the class token
    for (int64_t b = 0; b < lengths.numel(); ++b) {
      int32_t& n = mask.lengths.data<int32_t>()[b];
      check<ShapeError>(n >= 1 && n <= N, "transformer: expected lengths in [1, ", N, "], got ", n,
                        " for sequence ", b);
      n += extra;
    }
  }
  // The tokens of the last part past N are padding.
  if (pass.join && !lengths.defined() && N < pass.join->parts() * tokens.size(1))
    mask.lengths = Tensor::full({tokens.size(0)}, static_cast<double>(N), DType::i32);
  for (const auto& block : blocks_) {
    if (pass.recompute)
      x = recompute([&block = *block, mask,
                     pass](const Variables& in) { return block.forward(in[0], mask, pass); },
                    {x});
    else
      x = block->forward(x, mask, pass);
  }
  if (reconstruction_)
    x = reconstruction_->forward(pool(x, mask.lengths, "last", pass), tokens.size(1), pass);
  // Selects rows of a (B N, d) matrix as from an embedding table. The rest acts on single tokens.
  if (rows.defined()) x = embedding(reshape(x, {x.size(0) * x.size(1), x.size(2)}), rows);
  const nn::Lazy normed = norm_ ? norm_->forward(x) : nn::Lazy(x);
  if (config_.per_token) return head_.forward(normed);
  // The norm acts on single tokens, so it precedes pooling: the norm of a mean is not the mean of
  // the norms.
  return head_.forward(pool(normed, mask.lengths, config_.pooling, pass));
}

void Transformer::check_part(const Tensor& tokens, const nn::Pass& pass) const {
  check<ConfigError>(
      !config_.has_class_token(),
      "model.pooling = \"cls\": the class token belongs to no part of a sequence that "
      "is cut over ranks; use \"mean\" or \"last\"");
  const Join& join = *pass.join;
  check<ShapeError>(join.tokens() == tokens.size(1), "transformer: rank ", join.part(), " of ",
                    join.parts(), " expected ", join.tokens(), " of ", pass.tokens.of,
                    " tokens, got ", tokens.size(1));
}

TransformerDecoder::TransformerDecoder(Transformer& model, int64_t batch)
    : model_(model), batch_(batch) {
  check<ConfigError>(batch >= 1, "decoder: expected a batch of at least 1 sequence, got ", batch);
  check<ConfigError>(
      model.config().causal && model.config().per_token && !model.config().reconstruct,
      "decoder: expected a causal model with per_token and without reconstruct; others cannot be "
      "decoded token by token");
  for (int64_t i = 0; i < model.config().layers; ++i)
    states_.push_back(model.blocks_[i].decoder(batch));
}

Tensor TransformerDecoder::step(const Tensor& tokens) {
  check<ShapeError>(tokens.dtype() == DType::i32 && tokens.shape() == Shape{batch_},
                    "decoder: expected tokens (", batch_, ") of i32, got ", tokens.shape(), " of ",
                    tokens.dtype());
  check<ShapeError>(position_ < model_.config().max_length,
                    "decoder: the sequences have reached the model's max_length ",
                    model_.config().max_length);
  const NoGrad no_grad;
  Variable x = model_.embeddings_.forward(tokens.unsqueeze(1), {}, position_);
  for (size_t i = 0; i < states_.size(); ++i)
    x = model_.blocks_[static_cast<int64_t>(i)].step(x, states_[i], position_);
  ++position_;
  return logits(x);
}

Tensor TransformerDecoder::read(const Tensor& tokens) {
  check<ShapeError>(tokens.rank() == 2 && tokens.size(1) >= 1,
                    "decoder: expected tokens (B, T) of i32, got ", tokens.shape());
  const int64_t T = tokens.size(1);
  bool together = position_ == 0 && T > 1;
  for (const auto& block : model_.blocks_)
    together = together && !block->kernel().capabilities().shortens;  // keys are not single tokens
  if (!together) {
    Tensor out;
    for (int64_t t = 0; t < T; ++t) out = step(tokens.select(1, t).contiguous());
    return out;
  }
  check<ShapeError>(
      tokens.dtype() == DType::i32 && tokens.size(0) == batch_ && T <= model_.config().max_length,
      "decoder: expected tokens (", batch_, ", T) of i32 with T up to the model's max_length ",
      model_.config().max_length, ", got ", tokens.shape(), " of ", tokens.dtype());
  const NoGrad no_grad;
  Variable x = model_.embeddings_.forward(tokens, {});
  for (size_t i = 0; i < states_.size(); ++i)
    x = model_.blocks_[static_cast<int64_t>(i)].forward(x, {}, {}, &states_[i]);
  position_ = T;
  return logits(slice(x, 1, T - 1, T));
}

Tensor TransformerDecoder::logits(const Variable& x) const {
  return model_.head_.forward(model_.norm_ ? model_.norm_->forward(x) : nn::Lazy(x))
      .value()
      .select(1, 0);
}

int64_t TransformerDecoder::bytes() const {
  int64_t sum = 0;
  for (const AttentionState& state : states_) sum += state.bytes();
  return sum;
}

}  // namespace longhand::attention
