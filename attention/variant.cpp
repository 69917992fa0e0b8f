#include "longhand/attention/variant.h"

#include <algorithm>
#include <utility>

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/sequence_part.h"

namespace longhand::attention {
namespace {

// (B, M, G, D) to (B, M, H, D): each head of keys repeated for its group of query heads.
Variable for_all_heads(const Variable& x, int64_t heads) {
  const int64_t B = x.size(0), M = x.size(1), G = x.size(2), D = x.size(3);
  if (G == heads) return x;
  return reshape(broadcast_to(reshape(x, {B, M, G, 1, D}), {B, M, G, heads / G, D}),
                 {B, M, heads, D});
}

// x (B, n, H, D), and zeros for the tokens up to N.
Variable with_zeros(const Variable& x, int64_t N) {
  const int64_t n = x.size(1);
  if (n == N) return x;
  return concat({x, Variable(Tensor::zeros({x.size(0), N - n, x.size(2), x.size(3)}, x.dtype()))},
                1);
}

}  // namespace

const char* name_of(SequencePath path) {
  switch (path) {
    case SequencePath::gathered:
      return "gathered";
    case SequencePath::heads:
      return "heads";
    case SequencePath::sums:
      return "sums";
    case SequencePath::state:
      return "state";
    case SequencePath::landmarks:
      return "landmarks";
    case SequencePath::halo:
      return "halo";
    case SequencePath::local:
      return "local";
    case SequencePath::keys:
      return "keys";
    case SequencePath::ring:
      return "ring";
    case SequencePath::parts:
      return "parts";
  }
  return "";
}

Variant::Variant(const nn::Scope& scope, const Config& config) : Module(scope), config_(config) {}

Work operator*(double factor, const Work& work) {
  const auto times = [factor](const Work::Counts& counts) -> Work::Counts {
    return {factor * counts.flops, factor * counts.exponentials};
  };
  return {times(work.forward), times(work.backward), factor * work.bytes};
}

Sources Variant::sources(const Variable& x, const Mask&, const nn::Pass&) { return {x, x}; }

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
  if (!decodes() || tokens == 0) return 0;
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, parameter_dtype()); };
  const int64_t H = config_.heads, D = config_.head_dim;
  Token token{zeros({1, H, D}), zeros({1, config_.kv_heads, D}), zeros({1, config_.kv_heads, D})};
  if (capabilities().uses_x) token.x = zeros({1, H * D});
  const auto one = make_decoder(1);
  one->step(token);
  return one->bytes();
}

std::optional<int64_t> Variant::rank(int64_t) const { return {}; }

std::string Variant::algorithm(int64_t) const { return {}; }

std::string Variant::advice(int64_t) const { return {}; }

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
  check<ShapeError>(is_float(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
                    "attention: expected one float dtype, got q ", q.dtype(), ", k ", k.dtype(),
                    ", v ", v.dtype());
  const int64_t B = qs[0], N = qs[1], M = ks[1];
  check<ShapeError>(B >= 1 && N >= 1 && M >= 1, "attention: expected nothing empty, got q ", qs,
                    ", k ", ks);
  check<ShapeError>(!config_.causal || N == M,
                    "attention: causal attention expects as many queries as keys, got ", N, " and ",
                    M);
  if (capabilities().uses_x)
    check<ShapeError>(
        x.defined() && x.shape() == Shape{B, N, qs[2] * qs[3]} && x.dtype() == q.dtype(),
        config_.name, ": this variant reads the tokens x: expected ", q.dtype(), " of shape ",
        Shape{B, N, qs[2] * qs[3]}, ", got ",
        x.defined() ? concat_message(x.dtype(), " of shape ", x.shape()) : "none");
}

Tensor Variant::checked_lengths(const Inputs& inputs, const Tensor& lengths,
                                const nn::SequencePart& part) const {
  if (!lengths.defined()) return {};
  const int64_t B = inputs.q.size(0), n = inputs.q.size(1), M = inputs.k.size(1),
                N = part.cut() ? part.length : n;
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
  // Contiguous, because variants read them as an array.
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
  const Tensor real = real_tokens(nn::lengths_of_part(mask.lengths, pass.part), inputs.q.size(1));
  // A selection, not a product: padding may hold NaN. Its gradient is a selection too.
  const auto zeroed = [&](const Variable& y) { return where(real, y, 0.0); };
  Inputs known = inputs;
  if (capabilities().uses_queries_and_keys) known.q = zeroed(inputs.q);
  if (!capabilities().shortens) {
    if (capabilities().uses_queries_and_keys) known.k = zeroed(inputs.k);
    known.v = zeroed(inputs.v);
  }
  if (capabilities().uses_x && inputs.x.defined()) known.x = where(real.squeeze(3), inputs.x, 0.0);
  return zeroed(attend(known, mask, pass));
}

Variable Variant::forward(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
  if (!capabilities().uses_queries_and_keys && !q.defined() && !k.defined()) {
    check<ShapeError>(v.defined() && v.shape().rank() == 4 && v.size(2) == config_.kv_heads,
                      "attention: expected v (B, N, G, D) with G = ", config_.kv_heads, ", got ",
                      v.defined() ? v.shape() : Shape{});
    // v is passed for q and k, of which only the shapes are used.
    return forward({for_all_heads(v, config_.heads), v, v, inputs.x}, mask, pass);
  }
  check_inputs(inputs);
  const nn::Running running(*this);
  const Variable out = attend_checked(inputs, mask, pass);
  if (observer_) observer_(inputs, mask, out);
  return out;
}

Variable Variant::attend_checked(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  Mask known = mask;
  known.lengths = checked_lengths(inputs, mask.lengths, pass.part);
  check_pairs(inputs, mask);
  return pass.part.cut() ? attend_part(inputs, known, pass) : attend_whole(inputs, known, pass);
}

Variable Variant::attend_whole(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  if (takes_all(mask)) return contiguous(attend(inputs, mask, pass));
  Inputs all = inputs;
  all.k = for_all_heads(inputs.k, inputs.q.size(2));
  all.v = for_all_heads(inputs.v, inputs.q.size(2));
  const Variable out =
      mask.lengths.defined() ? attend_to_real(all, mask, pass) : attend(all, mask, pass);
  check<ShapeError>(out.shape() == inputs.q.shape(), "attention: expected ", full_name(),
                    " to return ", inputs.q.shape(), ", got ", out.shape());
  return contiguous(out);
}

SequencePath Variant::sequence_path(int ranks) const {
  const SequencePath path = capabilities().sequence;
  if (path == SequencePath::heads && config_.heads % ranks != 0) return capabilities().undivided;
  return path == SequencePath::sums && config_.causal ? SequencePath::state : path;
}

int64_t Variant::first_token(const nn::Pass& pass) const {
  if (!pass.part.cut()) return 0;
  return capabilities().fixed_length ? std::min(pass.part.begin, pass.part.length - 1)
                                     : pass.part.begin;
}

std::optional<int64_t> Variant::first_query(const nn::Pass& pass) const {
  return pass.part.cut() ? std::optional(first_token(pass)) : std::nullopt;
}

DropoutOptions Variant::weight_dropout(double p, const Inputs& inputs, const nn::Pass& pass) const {
  DropoutOptions options = nn::dropout_options(p, pass, full_name());
  options.section = inputs.heads;
  return options;
}

Tensor Variant::training_noise(Shape shape, int axis, DType dtype, const Inputs& inputs,
                               const nn::Pass& pass) const {
  const auto [first, heads] = inputs.heads;
  const int64_t own = shape[axis];
  if (heads) shape[axis] = heads;
  Tensor noise = Tensor::empty(shape, dtype);
  fill_normal(noise, pass.random.fork(full_name()));
  return heads ? noise.slice(axis, first, first + own) : noise;
}

Variable Variant::of_heads(const Variable&) const {
  throw Error(config_.name + ": declares \"heads\" but does not override of_heads()");
}

Variable Variant::attend_part(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const int64_t n = inputs.q.size(1);
  check<ConfigError>(!mask.keep.defined() && !mask.bias.defined(), config_.name,
                     ": keep and bias apply to pairs of tokens, which different ranks may have; "
                     "sequences with them cannot be cut over ranks");
  check<ShapeError>(n == pass.part.tokens(), "attention: expected the ", pass.part.tokens(),
                    " tokens of a part, got ", n);
  check<ShapeError>(n == inputs.k.size(1) || capabilities().shortens,
                    "attention: sequences that are cut over ranks expect as many queries as keys, "
                    "got ",
                    n, " and ", inputs.k.size(1));
  switch (sequence_path(pass.part.ranks->size())) {
    case SequencePath::heads:
      return attend_heads(inputs, mask, pass);
    case SequencePath::keys:
      return attend_keys(inputs, mask, pass);
    case SequencePath::gathered:
      return attend_gathered(inputs, mask, pass);
    default:
      return attend_own(inputs, mask, pass);
  }
}

Variable Variant::attend_own(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const nn::SequencePart& part = pass.part;
  Mask of_all = mask;
  if (!mask.lengths.defined() && part.length < part.padded())
    of_all.lengths = Tensor::full({inputs.q.size(0)}, static_cast<double>(part.length), DType::i32);
  // Parameters of positions end where sequences do. If the part begins behind that, one token of
  // padding stands for it.
  const int64_t n = inputs.q.size(1), known = std::min(n, part.length - first_token(pass));
  if (known == n || !capabilities().fixed_length) return attend_whole(inputs, of_all, pass);
  Inputs in = inputs;
  const auto trim = [&](Variable& x) {
    if (x.defined()) x = slice(x, 1, 0, known);
  };
  trim(in.q), trim(in.x);
  if (!capabilities().shortens) trim(in.k), trim(in.v);
  return with_zeros(attend_whole(in, of_all, pass), n);
}

Variable Variant::attend_heads(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const nn::SequencePart& part = pass.part;
  const Capabilities& can = capabilities();
  const int P = part.ranks->size();
  const auto shared = [&](const Variable& x) {  // keys or values, of at least one head a rank
    return x.size(2) % P == 0 ? x : for_all_heads(x, config_.heads);
  };
  Variables parts{shared(inputs.v)};
  if (can.uses_queries_and_keys) parts.push_back(inputs.q);
  if (can.uses_queries_and_keys && can.uses_keys) parts.push_back(shared(inputs.k));
  if (can.uses_x) parts.push_back(of_heads(inputs.x));
  const Variables whole = nn::heads_of_sequences(parts, part);
  size_t next = 0;
  Inputs in;
  in.v = whole[next++];
  in.q = can.uses_queries_and_keys ? whole[next++] : for_all_heads(in.v, config_.heads / P);
  in.k = can.uses_queries_and_keys && can.uses_keys ? whole[next++] : in.v;
  if (can.uses_x) in.of_heads = whole[next++];
  in.heads = {part.ranks->rank() * (config_.heads / P), config_.heads};
  in.head_ranks = part.ranks;
  nn::Pass of_whole = pass;
  of_whole.part = {};
  return contiguous(nn::tokens_of_heads(attend_whole(in, mask, of_whole), part));
}

Variable Variant::attend_keys(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const nn::SequencePart& part = pass.part;
  Variables parts{inputs.k, inputs.v};
  if (capabilities().uses_x) parts.push_back(of_heads(inputs.x));
  const Variables whole = nn::whole_sequences(parts, part);
  Inputs in{inputs.q, whole[0], whole[1]};
  if (capabilities().uses_x) in.of_heads = whole[2];
  Mask known = mask;
  if (!mask.lengths.defined() && part.length < part.padded())
    known.lengths = Tensor::full({in.q.size(0)}, static_cast<double>(part.length), DType::i32);
  if (takes_all(known)) return contiguous(attend(in, known, pass));
  in.k = for_all_heads(in.k, config_.heads);
  in.v = for_all_heads(in.v, config_.heads);
  if (!known.lengths.defined()) return contiguous(attend(in, known, pass));
  const Tensor keys = real_tokens(known.lengths, part.length),
               queries = real_tokens(nn::lengths_of_part(known.lengths, part), in.q.size(1));
  in.k = where(keys, in.k, 0.0), in.v = where(keys, in.v, 0.0);
  in.q = where(queries, in.q, 0.0);
  return contiguous(where(queries, attend(in, known, pass), 0.0));
}

Variable Variant::attend_gathered(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const Capabilities& can = capabilities();
  Variables parts{inputs.v};
  if (can.uses_queries_and_keys) parts.push_back(inputs.q);
  if (can.uses_queries_and_keys && can.uses_keys) parts.push_back(inputs.k);
  if (can.uses_x) parts.push_back(inputs.x);
  const Variables whole = nn::whole_sequences(parts, pass.part);
  size_t next = 0;
  Inputs in;
  in.v = whole[next++];
  in.q = can.uses_queries_and_keys ? whole[next++] : for_all_heads(in.v, config_.heads);
  in.k = can.uses_queries_and_keys && can.uses_keys ? whole[next++] : in.v;
  if (can.uses_x) in.x = whole[next++];
  nn::Pass of_whole = pass;
  of_whole.part = {};
  return contiguous(nn::tokens_of_part(attend_whole(in, mask, of_whole), pass.part));
}

// Heads go to their ranks and come back, forward and backward; gathered tokens, or their keys and values,
// go to all ranks, and their gradients come back. In a ring, keys and values go to all others twice, and
// their gradients all the way round.
double Variant::sequence_bytes(int64_t batch, int64_t tokens, int ranks) const {
  const Capabilities& can = capabilities();
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const bool heads = sequence_path(ranks) == SequencePath::heads;
  const int64_t G = heads && config_.kv_heads % ranks != 0 ? config_.heads : config_.kv_heads;
  const bool ring = sequence_path(ranks) == SequencePath::ring,
             keys = ring || sequence_path(ranks) == SequencePath::keys;
  double width = number(G * config_.head_dim);
  if (can.uses_queries_and_keys)
    width += number(((keys ? 0 : config_.heads) + (can.uses_keys ? G : 0)) * config_.head_dim);
  if (keys)
    width += number(can.uses_x ? config_.heads * numbers_of_heads() : 0);
  else if (heads)
    width += number(config_.heads * config_.head_dim +
                    (can.uses_x ? config_.heads * numbers_of_heads() : 0));
  else if (can.uses_x)
    width += number(config_.heads * config_.head_dim);
  if (sequence_path(ranks) == SequencePath::local) return 0;
  const double others = number(ranks - 1) / (heads ? number(ranks) : 1),
               times = ring ? 2 * others + number(ranks) : 2 * others;
  return times * number(batch * nn::SequencePart::tokens_of(tokens, ranks)) * width *
         number(static_cast<int64_t>(size_of(parameter_dtype())));
}

}  // namespace longhand::attention
