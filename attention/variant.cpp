#include "longhand/attention/variant.h"

#include <algorithm>

#include "longhand/attention/mask.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/nn/dropout.h"

namespace longhand::attention {
Variable for_all_heads(const Variable& x, int64_t heads) {
  const int64_t B = x.size(0), M = x.size(1), G = x.size(2), D = x.size(3);
  if (G == heads) return x;
  return reshape(broadcast_to(reshape(x, {B, M, G, 1, D}), {B, M, G, heads / G, D}),
                 {B, M, heads, D});
}

Variant::Variant(const nn::Scope& scope, const Config& config) : Module(scope), config_(config) {}

Work operator*(double factor, const Work& work) {
  const auto times = [factor](const Work::Counts& counts) -> Work::Counts {
    return {factor * counts.flops, factor * counts.exponentials};
  };
  return {times(work.forward), times(work.backward), factor * work.bytes};
}

Work operator+(const Work& a, const Work& b) {
  const auto sum = [](const Work::Counts& x, const Work::Counts& y) -> Work::Counts {
    return {x.flops + y.flops, x.exponentials + y.exponentials};
  };
  return {sum(a.forward, b.forward), sum(a.backward, b.backward), a.bytes + b.bytes};
}

Work softmax_work(double pairs, double dim, double bytes) {
  return {{4 * pairs * dim, pairs}, {10 * pairs * dim, pairs}, bytes};
}

std::unique_ptr<Decoder> Variant::decoder(int64_t batch) const {
  check<ConfigError>(capabilities().decodes, config_.name, ": this variant has no decoder");
  check<ConfigError>(config_.causal, config_.name,
                     ": only causal attention can be decoded token by token");
  return make_decoder(batch);
}

std::unique_ptr<Decoder> Variant::make_decoder(int64_t) const {
  throw Error(config_.name + ": declares \"decodes\" but does not override make_decoder()");
}

int64_t Variant::state_bytes(int64_t tokens) const {
  if (!config_.causal || !capabilities().decodes || tokens == 0) return 0;
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, parameter_dtype()); };
  const int64_t H = config_.heads, D = config_.head_dim;
  Token token{zeros({1, H, D}), zeros({1, config_.kv_heads, D}), zeros({1, config_.kv_heads, D})};
  if (capabilities().uses_x) token.x = zeros({1, H * D});
  const auto one = make_decoder(1);
  one->step(token);
  return one->bytes_after(tokens);
}

Variant::Sizes Variant::sizes(int64_t queries, int64_t keys) const {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  return {number(queries), number(keys), number(config_.heads), number(config_.head_dim),
          number(static_cast<int64_t>(size_of(parameter_dtype())))};
}

void Variant::check_length(int64_t tokens) const {
  check<ShapeError>(tokens <= config_.max_length, config_.name,
                    ": expected at most max_length = ", config_.max_length, " tokens, got ",
                    tokens);
}

void Variant::check_inputs(const Inputs& inputs) const {
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v, &x = inputs.x;
  check<ShapeError>(q.defined() && k.defined() && v.defined(),
                    "attention: expected q, k and v to be defined");
  const Shape &qs = q.shape(), &ks = k.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && ks == v.shape() && qs[0] == ks[0] &&
                        ks[2] == config_.kv_heads && qs[3] == ks[3] && qs[2] == config_.heads &&
                        qs[3] == config_.head_dim,
                    "attention: expected q (B, N, H, D), k and v (B, M, G, D) with H = ",
                    config_.heads, ", G = ", config_.kv_heads, " and D = ", config_.head_dim,
                    ", got q ", qs, ", k ", ks, ", v ", v.shape());
  tile::check_one_float_dtype("attention", q.dtype(), k.dtype(), v.dtype());
  const int64_t B = qs[0], N = qs[1], M = ks[1];
  check<ShapeError>(B >= 1 && N >= 1 && M >= 1, "attention: expected nothing empty, got q ", qs,
                    ", k ", ks);
  check<ShapeError>(!config_.causal || N == M,
                    "attention: causal attention expects as many queries as keys, got ", N, " and ",
                    M);
  check<ShapeError>(N == M || capabilities().cross_lengths || capabilities().shortens, config_.name,
                    ": expected as many queries as keys, got ", N, " queries and ", M, " keys");
  if (capabilities().uses_x)
    check<ShapeError>(
        x.defined() && x.shape() == Shape{B, N, qs[2] * qs[3]} && x.dtype() == q.dtype(),
        config_.name, ": this variant reads the tokens x: expected ", q.dtype(), " of shape ",
        Shape{B, N, qs[2] * qs[3]}, ", got ",
        x.defined() ? concat_message(x.dtype(), " of shape ", x.shape()) : "none");
}

Tensor Variant::checked_lengths(const Inputs& inputs, const Tensor& lengths,
                                const nn::Pass& pass) const {
  if (!lengths.defined()) return {};
  const int64_t B = inputs.q.size(0), n = inputs.q.size(1), M = inputs.k.size(1),
                N = pass.all_tokens(n);
  check<ShapeError>(n == M || capabilities().shortens,
                    "attention: lengths expect as many queries as keys, got ", n, " and ", M);
  check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{B},
                    "attention: expected lengths i32 of shape ", Shape{B}, ", got ",
                    lengths.dtype(), " of shape ", lengths.shape());
  bool padded = false;
  for (const int32_t length : lengths.to_vector<int32_t>()) {
    check<ShapeError>(length >= 0 && length <= N, "attention: expected lengths in [0, ", N,
                      "], got ", length);
    padded = padded || length < N;
  }
  // Contiguous, because variants read the lengths as an array.
  return padded ? lengths.contiguous() : Tensor();
}

void Variant::check_pairs(const Inputs& inputs, const Mask& mask) const {
  check<ConfigError>(capabilities().any_mask || (!mask.keep.defined() && !mask.bias.defined()),
                     config_.name,
                     ": this variant computes no scores of single pairs, so keep and bias cannot "
                     "apply; it supports lengths",
                     capabilities().causal ? " and causal" : "");
  const Shape scores{inputs.q.size(0), inputs.q.size(2), inputs.q.size(1), inputs.k.size(1)};
  const auto check_one = [&](const char* name, const auto& pairs, DType dtype) {
    if (!pairs.defined()) return;
    check<ShapeError>(pairs.dtype() == dtype && broadcast_shape(pairs.shape(), scores) == scores,
                      "attention: expected ", name, " ", dtype, ", broadcastable to ", scores,
                      ", got ", pairs.dtype(), " of shape ", pairs.shape());
  };
  check_one("keep", mask.keep, DType::u8);
  check_one("bias", mask.bias, inputs.q.dtype());
}

Variable Variant::attend_to_real(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const int64_t n = inputs.q.size(1);
  const Tensor real = real_tokens(
      pass.tokens.of ? lengths_from(mask.lengths, pass.tokens.first, n) : mask.lengths, n);
  // A selection, not a product: padding may hold NaN. Its gradient is a selection too.
  const auto zeroed = [&](const Variable& y) { return where(real, y, 0.0); };
  Inputs known = inputs;
  if (capabilities().uses_queries_and_keys) known.q = zeroed(inputs.q);
  if (!capabilities().shortens) {
    if (capabilities().uses_queries_and_keys) known.k = zeroed(inputs.k);
    known.v = zeroed(inputs.v);
  }
  if (inputs.x.defined() && !pass.heads.of) known.x = gates(where(real.squeeze(3), inputs.x, 0.0));
  return zeroed(attend(known, mask, pass));
}

Variable Variant::forward(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
  if (!capabilities().uses_queries_and_keys && !q.defined() && !k.defined()) {
    check<ShapeError>(v.defined() && v.shape().rank() == 4 && v.size(2) == config_.kv_heads,
                      "attention: expected v (B, N, G, D) with G = ", config_.kv_heads, ", got ",
                      v.defined() ? v.shape() : Shape{});
    // v stands in for q and k, of which only the shapes are used.
    return forward({for_all_heads(v, config_.heads), v, v, inputs.x}, mask, pass);
  }
  check_inputs(inputs);
  const nn::Running running(*this);
  Mask known = mask;
  known.lengths = checked_lengths(inputs, mask.lengths, pass);
  check_pairs(inputs, mask);
  const auto* const part = dynamic_cast<const SequenceJoin*>(pass.join.get());
  check(part || !pass.join, "attention: expected a pass over a part of sequences: see over_part()");
  Variable out = part ? part->attend(*this, inputs, known, pass) : apply(inputs, known, pass);
  if (substitute_) out = substitute_(inputs, mask, out);
  if (observer_) observer_(inputs, mask, out);
  return out;
}

Variable Variant::apply(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  Inputs all = inputs;
  if (!capabilities().uses_x) all.x = {};
  const bool takes = takes_all(mask);
  if (!takes) {
    all.k = for_all_heads(inputs.k, inputs.q.size(2));
    all.v = for_all_heads(inputs.v, inputs.q.size(2));
  }
  const bool clears = mask.lengths.defined() && !takes;
  if (all.x.defined() && !clears && !pass.heads.of) all.x = gates(all.x);
  const Variable out = clears ? attend_to_real(all, mask, pass) : attend(all, mask, pass);
  check<ShapeError>(out.shape() == inputs.q.shape(), "attention: expected ", full_name(),
                    " to return ", inputs.q.shape(), ", got ", out.shape());
  return contiguous(out);
}

int64_t Variant::first_token(const nn::Pass& pass) const {
  const auto [first, all] = pass.tokens;
  return capabilities().fixed_length && all ? std::min(first, all - 1) : first;
}

std::optional<int64_t> Variant::first_query(const nn::Pass& pass) const {
  return pass.tokens.of ? std::optional(first_token(pass)) : std::nullopt;
}

DropoutOptions Variant::weight_dropout(double p, const nn::Pass& pass) const {
  DropoutOptions options = nn::dropout_options(p, pass, full_name());
  options.section = pass.heads;
  return options;
}

Variable Variant::heads_of_pass(const Variable& x, int axis, int64_t count, const nn::Pass& pass) {
  if (!pass.heads.of || !x.defined()) return x;
  return slice(x, axis, pass.heads.first, pass.heads.first + count);
}

Tensor Variant::training_noise(Shape shape, int axis, DType dtype, const nn::Pass& pass) const {
  const auto [first, heads] = pass.heads;
  const int64_t own = shape[axis];
  if (heads) shape[axis] = heads;
  Tensor noise = Tensor::empty(shape, dtype);
  fill_normal(noise, pass.random.fork(full_name()));
  return heads ? noise.slice(axis, first, first + own) : noise;
}

}  // namespace longhand::attention
