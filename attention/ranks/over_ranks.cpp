#include "longhand/attention/ranks/over_ranks.h"

#include <algorithm>
#include <utility>

#include "longhand/attention/mask.h"
#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

// x (B, n, H, D), and zeros for the tokens up to N.
Variable with_zeros(const Variable& x, int64_t N) {
  const int64_t n = x.size(1);
  if (n == N) return x;
  return concat({x, Variable(Tensor::zeros({x.size(0), N - n, x.size(2), x.size(3)}, x.dtype()))},
                1);
}

// The mask of tokens behind the end of sequences, which are padding.
Mask padded(const Mask& mask, int64_t batch, const SequencePart& part) {
  Mask out = mask;
  if (!mask.lengths.defined() && part.length < part.padded())
    out.lengths = Tensor::full({batch}, static_cast<double>(part.length), DType::i32);
  return out;
}

// The pass over whole sequences.
nn::Pass over_whole(const nn::Pass& pass) {
  nn::Pass whole = pass;
  whole.tokens = {};
  whole.join = whole.others = nullptr;
  return whole;
}

// The inputs that a variant reads, of whole sequences or heads, from what one exchange gives for those of
// the part: v, q, k, x.
class Exchanged {
 public:
  Exchanged(const Capabilities& can, const Inputs& in)
      : queries_(can.uses_queries_and_keys), keys_(queries_ && can.uses_keys), x_(can.uses_x) {
    given.push_back(in.v);
    if (queries_) given.push_back(in.q);
    if (keys_) given.push_back(in.k);
    if (x_) given.push_back(in.x);
  }
  // `heads`: of queries. What is not read has shapes alone.
  Inputs of(const Variables& whole, int64_t heads) const {
    size_t next = 0;
    Inputs out;
    out.v = whole[next++];
    out.q = queries_ ? whole[next++] : for_all_heads(out.v, heads);
    out.k = keys_ ? whole[next++] : out.v;
    if (x_) out.x = whole[next++];
    return out;
  }

  Variables given;

 private:
  bool queries_, keys_, x_;
};

// The tokens of the part, and what they need of others by Pass::join.
Variable attend_own(Variant& variant, const Inputs& inputs, const Mask& mask, const nn::Pass& pass,
                    const SequencePart& part) {
  const Capabilities& can = variant.capabilities();
  const Mask known = padded(mask, inputs.q.size(0), part);
  // Parameters of positions end where sequences do. If the part begins behind that, one token of
  // padding stands for it.
  const int64_t n = inputs.q.size(1), with = std::min(n, part.length - variant.first_token(pass));
  if (with == n || !can.fixed_length) return variant.apply(inputs, known, pass);
  Inputs in = inputs;
  const auto trim = [&](Variable& x) {
    if (x.defined()) x = slice(x, 1, 0, with);
  };
  trim(in.q), trim(in.x);
  if (!can.shortens) trim(in.k), trim(in.v);
  return with_zeros(variant.apply(in, known, pass), n);
}

Variable attend_heads(Variant& variant, const Inputs& inputs, const Mask& mask,
                      const nn::Pass& pass, const SequencePart& part) {
  const int64_t P = part.parts(), H = variant.config().heads;
  Inputs own = inputs;
  for (Variable* const x : {&own.k, &own.v})  // of at least one head a rank
    if (x->size(2) % P != 0) *x = for_all_heads(*x, H);
  if (variant.capabilities().uses_x) own.x = variant.gates(inputs.x);
  const Exchanged exchanged(variant.capabilities(), own);
  const Inputs whole = exchanged.of(heads_of_sequences(exchanged.given, part), H / P);
  nn::Pass of_heads = over_whole(pass);
  of_heads.heads = {part.part() * (H / P), H};
  of_heads.others = pass.join;
  return contiguous(tokens_of_heads(variant.apply(whole, mask, of_heads), part));
}

Variable attend_keys(Variant& variant, const Inputs& inputs, const Mask& mask, const nn::Pass& pass,
                     const SequencePart& part) {
  const bool has_x = variant.capabilities().uses_x;
  Variables given{inputs.k, inputs.v};
  if (has_x) given.push_back(variant.gates(inputs.x));
  const Variables whole = whole_sequences(given, part);
  Inputs in{inputs.q, whole[0], whole[1]};
  if (has_x) in.x = whole[2];
  const Mask known = padded(mask, in.q.size(0), part);
  nn::Pass of_queries = over_whole(pass);
  of_queries.tokens = pass.tokens;
  if (variant.takes_all(known)) return contiguous(variant.attend(in, known, of_queries));
  in.k = for_all_heads(in.k, variant.config().heads);
  in.v = for_all_heads(in.v, variant.config().heads);
  if (!known.lengths.defined()) return contiguous(variant.attend(in, known, of_queries));
  const int64_t n = in.q.size(1);
  const Tensor keys = real_tokens(known.lengths, part.length),
               queries = real_tokens(lengths_from(known.lengths, part.begin, n), n);
  in.k = where(keys, in.k, 0.0), in.v = where(keys, in.v, 0.0);
  in.q = where(queries, in.q, 0.0);
  return contiguous(where(queries, variant.attend(in, known, of_queries), 0.0));
}

Variable attend_gathered(Variant& variant, const Inputs& inputs, const Mask& mask,
                         const nn::Pass& pass, const SequencePart& part) {
  const Exchanged exchanged(variant.capabilities(), inputs);
  const Inputs whole = exchanged.of(whole_sequences(exchanged.given, part), variant.config().heads);
  return contiguous(tokens_of_part(variant.apply(whole, mask, over_whole(pass)), part));
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

SequencePath sequence_path(Needs needs, bool causal, bool divided) {
  switch (needs) {
    case Needs::tokens:
      return SequencePath::gathered;
    case Needs::heads:
      return divided ? SequencePath::heads : SequencePath::gathered;
    case Needs::keys:
      return divided ? SequencePath::heads : SequencePath::keys;
    case Needs::key_blocks:
      return divided ? SequencePath::heads : SequencePath::ring;
    case Needs::landmarks:
      return SequencePath::landmarks;
    case Needs::sums:
      return causal ? SequencePath::state : SequencePath::sums;
    case Needs::state:
      return SequencePath::state;
    case Needs::neighbours:
      return SequencePath::halo;
    case Needs::nothing:
      return SequencePath::local;
    case Needs::parts:
      return SequencePath::parts;
  }
  return SequencePath::gathered;
}

SequencePath sequence_path(const Variant& variant, int ranks) {
  const Config& config = variant.config();
  return sequence_path(config.capabilities.needs, config.causal, config.heads % ranks == 0);
}

Variable SequencePart::attend(Variant& variant, const Inputs& inputs, const Mask& mask,
                              const nn::Pass& pass) const {
  const int64_t n = inputs.q.size(1);
  check<ConfigError>(!mask.keep.defined() && !mask.bias.defined(), variant.config().name,
                     ": keep and bias apply to pairs of tokens, which different ranks may have; "
                     "sequences with them cannot be cut over ranks");
  check<ShapeError>(n == tokens(), "attention: expected the ", tokens(), " tokens of a part, got ",
                    n);
  check<ShapeError>(n == inputs.k.size(1) || variant.capabilities().shortens,
                    "attention: sequences that are cut over ranks expect as many queries as keys, "
                    "got ",
                    n, " and ", inputs.k.size(1));
  switch (sequence_path(variant, static_cast<int>(parts()))) {
    case SequencePath::heads:
      return attend_heads(variant, inputs, mask, pass, *this);
    case SequencePath::keys:
      return attend_keys(variant, inputs, mask, pass, *this);
    case SequencePath::gathered:
      return attend_gathered(variant, inputs, mask, pass, *this);
    default:
      return attend_own(variant, inputs, mask, pass, *this);
  }
}

}  // namespace longhand::attention
