// Variant: the interface of an attention mechanism.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/attention/decoding/decoder.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/options.h"
#include "longhand/nn/module.h"

namespace longhand::attention {

/// Which queries may attend to which keys. Every variant supports lengths; only those with
/// Capabilities::any_mask support keep and bias, which apply to single pairs of a query and a key.
struct Mask {
  Tensor lengths{};  // (B) i32, real tokens of each sequence; padding follows; undefined: all
  Tensor keep{};     // u8, broadcasts to (B, H, N, M): 1 where a query may attend to a key
  Variable bias{};   // broadcasts to (B, H, N, M): added to the scores, before the softmax
};

class Variant;

/// How a variant computes attention over sequences that are cut over P ranks (nn::Pass::part).
enum class SequencePath {
  gathered,  // every rank gathers all tokens and computes all of the attention: nothing is saved
  heads,  // whole sequences of H / P heads on every rank; unless P divides H: Capabilities::undivided
  keys,   // keys and values of all tokens; every rank computes the queries of its part
  ring,   // the same, but keys and values go round, and every rank has those of few parts at a time
  sums,   // sums over all tokens, of a size that does not depend on their number; causal: state
  state,  // the states after the parts before this one, of constant size
  landmarks,  // landmarks, and sums over tokens for each of them
  halo,       // tokens next to the part
  local,      // nothing
  parts       // what the variants that it consists of exchange
};
/// "gathered", "heads", …
const char* name_of(SequencePath path);

/// What a variant supports and which properties hold for it, given its options. Immutable.
struct Capabilities {
  bool exact = false;            // computes exact softmax attention
  bool random = false;           // its result depends on random numbers, kept in checkpoints
  bool averages = true;          // the weights of one query sum to 1
  bool linear = true;            // its result is linear in v
  bool separate_queries = true;  // a query's result does not depend on other queries
  bool positional = false;       // permuting the tokens changes the result
  bool signed_weights = false;   // a sum of weights may be near 0, making the result inaccurate
  bool any_mask = false;         // applies Mask::keep and Mask::bias
  bool causal = false;           // supports causal attention
  std::string causal_reason{};   // why not, if not
  bool causal_only = false;      // has no form in which queries see later keys
  bool decodes = false;          // has a Decoder when causal
  bool uses_queries_and_keys = true;  // the weights depend on the values of q and k
  bool uses_keys = true;              // reads k; if not, its keys are computed from q
  bool cross_lengths = true;          // the number of keys may differ from the number of queries
  bool fixed_length = false;          // parameters are tied to max_length
  bool shortens = false;              // keys and values are compressed to fewer tokens: sources()
  bool uses_x = false;                // reads Inputs::x
  SequencePath sequence = SequencePath::gathered;   // what ranks exchange
  SequencePath undivided = SequencePath::gathered;  // instead of heads: gathered, keys or ring
  std::string time{}, memory{};                     // per head, as "N m D"
  std::string state{"-"};  // what a checkpoint holds besides trained parameters
};

/// The configuration that a variant is constructed with.
struct Config {
  int64_t heads = 1;
  int64_t head_dim = 1;    // D
  int64_t kv_heads = 0;    // heads of keys and values, a divisor of heads; 0: equal to heads
  int64_t max_length = 1;  // maximum sequence length
  bool causal = false;
  int64_t layer = 0, layers = 0;  // index, and number of layers; 0: unknown
  /// For later layers, the variant of the first layer of this type, which owns the parameters that
  /// layers share. It outlives this one.
  Variant* first = nullptr;
  Options options{"attention"};  // the [attention] section
  /// The registry sets these before it calls the constructor.
  std::string name{};
  Capabilities capabilities{};
};

/// Inputs of attention. B batch size, N queries, M keys, H heads, D head dimension.
struct Inputs {
  Variable q;     // (B, N, H, D)
  Variable k, v;  // (B, M, kv_heads, D)
  /// (B, N, H D): the normalised tokens that q, k and v were projected from, for variants that
  /// compute gates, decays or learning rates from them. Undefined unless Capabilities::uses_x.
  Variable x{};
  /// The heads that q has, of those of the layer. All of them, except on SequencePath::heads.
  Section heads{};
  /// (B, N, H, …): Variant::of_heads(), on SequencePath::heads; otherwise undefined.
  Variable of_heads{};
  /// The ranks that have the other heads, on SequencePath::heads; otherwise null.
  Communicator* head_ranks = nullptr;
};

/// The cost of attention over one sequence, summed over all heads.
struct Work {
  struct Counts {
    double flops = 0;  // a multiply-add counts as two
    double exponentials = 0;
  };
  Counts forward, backward;  // recomputation for gradients counts in backward
  double bytes = 0;          // of working memory in forward(), besides q, k, v and the result
};
Work operator*(double factor, const Work& work);

/// The tokens that keys and values are projected from, (B, M, d) each.
struct Sources {
  Variable keys, values;
};

/// An attention mechanism. B batch size, N queries, M keys, H heads, D head dimension. Keys and
/// values may have fewer heads, each shared by H / kv_heads consecutive query heads (Ainslie et al.
/// 2023, arXiv 2305.13245).
class Variant : public nn::Module {
 public:
  Variant(const nn::Scope& scope, const Config& config);

  /// Attention in every head, of q (B, N, H, D), k and v (B, M, kv_heads, D) with any strides. The
  /// result is (B, N, H, D), contiguous. With a mask (then N = M: self-attention) neither the
  /// result at real tokens nor any gradient depends on the contents of the padding, and the result
  /// and all gradients at padding are 0. The result of a query with no key to attend to is 0. In a
  /// pass over a part of each sequence, inputs and result have the tokens of the part, mask.lengths
  /// are those of whole sequences, and neither keep nor bias is supported. If
  /// the weights do not depend on queries and keys (see Capabilities::uses_queries_and_keys), q and
  /// k may both be undefined; then N = M. Throws ShapeError if shapes do not match, or if a length
  /// is above M or below 0, and ConfigError for a keep or a bias if the variant supports neither.
  Variable forward(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                   const nn::Pass& pass) {
    return forward({q, k, v}, mask, pass);
  }

  /// Receives the inputs, the mask and the result of a forward(). If the weights do not depend on
  /// queries and keys, only the shapes of q and k mean something.
  using Observer = std::function<void(const Inputs&, const Mask&, const Variable& result)>;
  /// Calls `observer` at the end of every forward(), for analyses of the q, k and v that occur in a
  /// model; an empty one ends this.
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// The tokens to project keys and values from, for tokens x (B, N, d): x itself, except in
  /// variants that compress tokens before projection (Capabilities::shortens). Their forward()
  /// takes M keys and values without padding, while the mask's lengths refer to the N tokens.
  virtual Sources sources(const Variable& x, const Mask& mask, const nn::Pass& pass);

  /// A decoder for a batch of sequences, from their start. Throws ConfigError if the variant has
  /// none or is not causal.
  std::unique_ptr<Decoder> decoder(int64_t batch) const;
  /// Bytes that a decoder keeps for one sequence after the given number of tokens; 0 without a
  /// decoder. The default is for states of constant size: the bytes kept after one token.
  virtual int64_t state_bytes(int64_t tokens) const;
  /// The cost of forward() and of its gradients for one sequence.
  virtual Work work(int64_t queries, int64_t keys) const = 0;
  /// What forward() does if sequences are cut over this number of ranks.
  SequencePath sequence_path(int ranks) const;
  /// Bytes that a rank sends to others in forward() and for its gradients, for a batch of sequences of
  /// this number of tokens that are cut over this number of ranks; small terms are left out. An upper
  /// bound where numbers are summed: of many numbers, more than two ranks send less. With
  /// Pass::recompute, those of forward() are sent twice.
  virtual double sequence_bytes(int64_t batch, int64_t tokens, int ranks) const;
  /// An upper bound on the rank of the N x N weights, if it is below N.
  virtual std::optional<int64_t> rank(int64_t tokens) const;
  /// A short description of what forward() computes for the given number of tokens, if that depends
  /// on the number ("softmax: 50 tokens are at most 64 landmarks"); otherwise empty.
  virtual std::string algorithm(int64_t tokens) const;
  /// A warning, with what to do instead, if options that should save work save none for sequences of
  /// at most this number of tokens; otherwise empty.
  virtual std::string advice(int64_t tokens) const;
  const Capabilities& capabilities() const { return config_.capabilities; }

 protected:
  /// Computes the attention. On entry shapes are checked, lengths are contiguous, keys and values
  /// have as many heads as queries, and q, k, v and x are zero at padding. Zeroing does not mask
  /// keys: the variant must still give them no weight. What it returns at padding is ignored.
  ///
  /// pass.part is whole unless sequence_path() is `ring` or one of those after it: inputs then have
  /// the tokens of the part, and mask.lengths are those of whole sequences. On `keys` so has q, but k and
  /// v have all tokens.
  virtual Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) = 0;
  /// Whether attend() accepts q, k and v as passed to forward(), which saves copies: keys and
  /// values have kv_heads heads and padding may hold anything. attend() must then not read the
  /// padding and must return 0 there.
  virtual bool takes_all(const Mask&) const { return false; }

  /// What attend() computes for each head from the tokens x (B, N, H D), of a variant that reads x: (B,
  /// N, H, …). On SequencePath::heads it is computed from the tokens of a part, and attend() gets it as
  /// Inputs::of_heads, but no x.
  virtual Variable of_heads(const Variable& x) const;
  /// How many numbers of_heads() has for each head of a token.
  virtual int64_t numbers_of_heads() const { return 1; }

  /// Numbers from N(0, 1) of this shape, drawn for training: those of the heads along axis `axis` that
  /// `inputs` has, out of those of all heads.
  Tensor training_noise(Shape shape, int axis, DType dtype, const Inputs& inputs,
                        const nn::Pass& pass) const;
  /// The index of the first token that attend() gets.
  int64_t first_token(const nn::Pass& pass) const;
  /// The same for softmax_attention(): none if attend() gets all tokens.
  std::optional<int64_t> first_query(const nn::Pass& pass) const;
  /// The dropout of weights (B, H, …) of the heads that `inputs` has. `p` is that of training passes.
  DropoutOptions weight_dropout(double p, const Inputs& inputs, const nn::Pass& pass) const;

  /// Implements decoder() for a causal variant with Capabilities::decodes.
  virtual std::unique_ptr<Decoder> make_decoder(int64_t batch) const;

  /// Whether decoder() returns a decoder.
  bool decodes() const { return config_.causal && config_.capabilities.decodes; }
  const Config& config() const { return config_; }

 private:
  // The steps of forward(), in order. checked_lengths() is undefined where nothing is padded.
  void check_inputs(const Inputs& inputs) const;
  Tensor checked_lengths(const Inputs& inputs, const Tensor& lengths,
                         const nn::SequencePart& part) const;
  void check_pairs(const Inputs& inputs, const Mask& mask) const;
  Variable attend_to_real(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_checked(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_whole(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  // The same if sequences are cut, and its two ways to whole sequences.
  Variable attend_part(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_heads(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_keys(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_gathered(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable attend_own(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);

  Config config_;
  Observer observer_;
};

}  // namespace longhand::attention
