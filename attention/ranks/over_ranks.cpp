#include "longhand/attention/ranks/over_ranks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

// Masks the tokens beyond the end of the sequences, which are padding.
Mask mask_with_padding(const Mask& mask, int64_t batch, const SequencePart& part) {
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

// The inputs for this number of heads, after exchange() of the tensors that the variant reads. Of
// the others, only the shapes are valid.
template <class Exchange>
Inputs exchanged(const Capabilities& can, const Inputs& in, int64_t heads, Exchange exchange) {
  std::vector<Variable Inputs::*> read{&Inputs::v};
  if (can.uses_queries_and_keys) read.push_back(&Inputs::q);
  if (can.uses_queries_and_keys && can.uses_keys) read.push_back(&Inputs::k);
  if (can.uses_x) read.push_back(&Inputs::x);
  Variables given;
  for (const auto member : read) given.push_back(in.*member);
  const Variables whole = exchange(given);
  Inputs out;
  for (size_t i = 0; i < read.size(); ++i) out.*read[i] = whole[i];
  if (!out.q.defined()) out.q = for_all_heads(out.v, heads);
  if (!out.k.defined()) out.k = out.v;
  return out;
}

// Attends at the tokens of the part; Pass::join provides what they need from other parts.
Variable attend_own(Variant& variant, const Inputs& inputs, const Mask& mask, const nn::Pass& pass,
                    const SequencePart& part) {
  const Capabilities& can = variant.capabilities();
  const Mask known = mask_with_padding(mask, inputs.q.size(0), part);
  // Positional parameters end where sequences do. If the part begins beyond that, one token of
  // padding stands for it.
  const int64_t n = inputs.q.size(1), with = std::min(n, part.length - variant.first_token(pass));
  if (with == n || !can.fixed_length) return variant.apply(inputs, known, pass);
  Inputs in = inputs;
  const auto trim = [&](Variable& x) {
    if (x.defined()) x = slice(x, 1, 0, with);
  };
  trim(in.q), trim(in.x);
  if (!can.shortens) trim(in.k), trim(in.v);
  return padded(variant.apply(in, known, pass), 0, n - with);
}

Variable attend_heads(Variant& variant, const Inputs& inputs, const Mask& mask,
                      const nn::Pass& pass, const SequencePart& part) {
  const int64_t P = part.parts(), H = variant.config().heads;
  Inputs own = inputs;
  for (Variable* const x : {&own.k, &own.v})  // at least one head per rank
    if (x->size(2) % P != 0) *x = for_all_heads(*x, H);
  if (variant.capabilities().uses_x) own.x = variant.gates(inputs.x);
  const Inputs whole = exchanged(variant.capabilities(), own, H / P, [&](const Variables& given) {
    return heads_of_sequences(given, part);
  });
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
  const Mask known = mask_with_padding(mask, in.q.size(0), part);
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
  const Inputs whole =
      exchanged(variant.capabilities(), inputs, variant.config().heads,
                [&](const Variables& given) { return whole_sequences(given, part); });
  return contiguous(tokens_of_part(variant.apply(whole, mask, over_whole(pass)), part));
}

}  // namespace

const char* name_of(SequencePath path) {
  constexpr std::array names{"gathered", "heads",     "keys", "ring",  "sums",
                             "state",    "landmarks", "halo", "local", "parts"};
  return names[static_cast<size_t>(path)];
}

SequencePath sequence_path(Needs needs, bool causal, bool divided) {
  using enum SequencePath;
  if (divided && (needs == Needs::heads || needs == Needs::keys || needs == Needs::key_blocks))
    return heads;
  if (causal && needs == Needs::sums) return state;
  constexpr std::array of_needs{gathered, gathered, keys, ring,  landmarks,
                                sums,     state,    halo, local, parts};
  return of_needs[static_cast<size_t>(needs)];
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
