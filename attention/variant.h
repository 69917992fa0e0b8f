// Variant: the interface of an attention mechanism.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "longhand/attention/config.h"
#include "longhand/attention/decoding/decoder.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/module.h"

namespace longhand::attention {

/// Which queries may attend to which keys. Every variant supports lengths; only those with
/// Capabilities::any_mask support keep and bias, which apply to individual query-key pairs.
struct Mask {
  Tensor lengths{};  // (B) i32, real tokens of each sequence; padding follows; undefined: all
  Tensor keep{};     // u8, broadcasts to (B, H, N, M): 1 where a query may attend to a key
  Variable bias{};   // broadcasts to (B, H, N, M): added to the scores, before the softmax
};

/// Inputs of attention. B batch size, N queries, M keys, H heads, D head dimension.
struct Inputs {
  Variable q;     // (B, N, H, D)
  Variable k, v;  // (B, M, kv_heads, D)
  /// (B, N, H D): the normalised tokens that q, k and v were projected from, for variants that
  /// compute gates, decays or learning rates from them. Undefined unless Capabilities::uses_x.
  Variable x{};
};

/// Keys or values (B, M, G, D), each head repeated for its group of query heads: (B, M, heads, D).
Variable for_all_heads(const Variable& x, int64_t heads);

/// The cost of attention over one sequence, summed over all heads.
struct Work {
  struct Counts {
    double flops = 0;  // a multiply-add counts as two
    double exponentials = 0;
  };
  Counts forward, backward;  // backward includes recomputation
  double bytes = 0;          // of working memory in forward(), besides q, k, v and the result
};
Work operator*(double factor, const Work& work);
Work operator+(const Work& a, const Work& b);
/// The cost of softmax attention over `pairs` query-key pairs, tile by tile: Q Kᵀ and P V forward;
/// dV, dP, dQ, dK, Q Kᵀ again and the exponentials backward.
Work softmax_work(double pairs, double dim, double bytes);

/// The tokens that keys and values are projected from, (B, M, d) each.
struct Sources {
  Variable keys, values;
};

class Variant;

/// What Variant::forward() requires of Pass::join; implemented in ranks/sequence_part.h.
class SequenceJoin : public Join {
 public:
  /// Returns the result of variant.forward() at the tokens of this part, given the inputs at these
  /// tokens, already checked. mask.lengths are the lengths of whole sequences.
  virtual Variable attend(Variant& variant, const Inputs& inputs, const Mask& mask,
                          const nn::Pass& pass) const = 0;
};

/// An attention mechanism. B batch size, N queries, M keys, H heads, D head dimension. Keys and
/// values may have fewer heads, each shared by H / kv_heads consecutive query heads (Ainslie et al.
/// 2023, arXiv 2305.13245).
class Variant : public nn::Module {
 public:
  Variant(const nn::Scope& scope, const Config& config);

  /// Computes attention in every head for q (B, N, H, D), k and v (B, M, kv_heads, D) with any
  /// strides: (B, N, H, D), contiguous. With a mask (then N = M: self-attention) neither the result
  /// at real tokens nor any gradient depends on the contents of the padding, and the result and all
  /// gradients at padding are 0. The result of a query with no key to attend to is 0. If the
  /// weights do not depend on queries and keys (Capabilities::uses_queries_and_keys), q and k may
  /// both be undefined; then N = M. A pass over some of the tokens supports neither keep nor bias.
  /// Throws ShapeError if shapes do not match or a length is outside [0, M], and ConfigError for a
  /// keep or bias that the variant does not support.
  Variable forward(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                   const nn::Pass& pass) {
    return forward({q, k, v}, mask, pass);
  }

  /// Receives the inputs, the mask and the result of a forward(). If the weights do not depend on
  /// queries and keys, only the shapes of q and k are meaningful.
  using Observer = std::function<void(const Inputs&, const Mask&, const Variable& result)>;
  /// Calls `observer` at the end of every forward(), for analyses of the q, k and v that occur in a
  /// model. An empty function turns this off.
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// Receives the same arguments, and returns the result to use instead.
  using Substitute = std::function<Variable(const Inputs&, const Mask&, const Variable& result)>;
  /// Replaces the result of every forward(), so that the suite can check another function instead
  /// of this variant. An empty function restores the variant's own result. See conformance/tools.h.
  void substitute(Substitute substitute) { substitute_ = std::move(substitute); }

  /// The tokens to project keys and values from, for tokens x (B, N, d): x itself, except in
  /// variants that compress tokens before projection (Capabilities::shortens). Their forward()
  /// takes M keys and values without padding, while the mask's lengths refer to the N tokens.
  virtual Sources sources(const Variable& x, const Mask&, const nn::Pass&) { return {x, x}; }

  /// Returns a decoder for a batch of sequences, at their start. Throws ConfigError if the variant
  /// has none or is not causal.
  std::unique_ptr<Decoder> decoder(int64_t batch) const;
  /// Bytes that a decoder keeps for one sequence after the given number of tokens; 0 without a
  /// decoder.
  int64_t state_bytes(int64_t tokens) const;
  /// The cost of forward() and of its gradients for one sequence.
  virtual Work work(int64_t queries, int64_t keys) const = 0;
  /// An upper bound on the rank of the N x N weights; N or more if no bound is known.
  virtual int64_t rank(int64_t tokens) const { return tokens; }
  /// A short description of what forward() computes for the given number of tokens, if that depends
  /// on the number ("softmax: 50 tokens are at most 64 landmarks"); otherwise empty.
  virtual std::string algorithm(int64_t /*tokens*/) const { return {}; }
  /// A warning, with what to do instead, if options meant to save work save none for sequences of
  /// at most this number of tokens; otherwise empty.
  virtual std::string advice(int64_t /*tokens*/) const { return {}; }
  const Capabilities& capabilities() const { return config_.capabilities; }
  const Config& config() const { return config_; }

  // The steps of forward(), for inputs with the tokens and heads of the pass (Pass::tokens, heads).

  /// Calls attend() with padding cleared, keys and values repeated for all heads, and gates(x) as
  /// x; in a pass over a section of heads, x already is gates(x).
  Variable apply(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  /// Computes the attention. On entry shapes are checked, lengths are contiguous, keys and values
  /// have as many heads as queries, q, k, v and x are zero at padding, and x is gates(x). Zeroing
  /// does not mask keys: the variant must give them no weight. Results at padding are ignored.
  virtual Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) = 0;
  /// Whether attend() accepts q, k and v as passed to forward(), which saves copies: keys and
  /// values have kv_heads heads and padding may hold anything. attend() must then not read the
  /// padding and must return 0 there.
  virtual bool takes_all(const Mask&) const { return false; }
  /// Computes the x of attend() from tokens x (B, N, H D): x itself, or (B, N, H, …), one part per
  /// head. Only with the latter are heads independent of each other.
  virtual Variable gates(const Variable& x) const { return x; }
  /// The index of the first token that attend() gets, limited to tokens that have parameters.
  int64_t first_token(const nn::Pass& pass) const;

 protected:
  /// The sizes that costs depend on: N queries, M keys, H heads of width D, bytes per parameter.
  struct Sizes {
    double N, M, H, D, bytes;
  };
  Sizes sizes(int64_t queries, int64_t keys) const;

  /// Throws ShapeError for more than max_length tokens, for which there are no parameters.
  void check_length(int64_t tokens) const;
  /// Slices x, which has all heads along `axis`, to the `count` heads of the pass.
  static Variable heads_of_pass(const Variable& x, int axis, int64_t count, const nn::Pass& pass);
  /// Samples N(0, 1) in this shape for training: if the pass has a section of heads, the slice of
  /// those heads, along `axis`, from a sample for all heads.
  Tensor training_noise(Shape shape, int axis, DType dtype, const nn::Pass& pass) const;
  /// first_token() for softmax_attention(); none if attend() gets all queries.
  std::optional<int64_t> first_query(const nn::Pass& pass) const;
  /// Dropout options for weights (B, H, …) of the heads of the pass; `p` is used in training.
  DropoutOptions weight_dropout(double p, const nn::Pass& pass) const;

  /// Implements decoder() for a causal variant with Capabilities::decodes.
  virtual std::unique_ptr<Decoder> make_decoder(int64_t batch) const;

 private:
  // checked_lengths() is undefined where nothing is padded.
  void check_inputs(const Inputs& inputs) const;
  Tensor checked_lengths(const Inputs& inputs, const Tensor& lengths, const nn::Pass& pass) const;
  void check_pairs(const Inputs& inputs, const Mask& mask) const;
  Variable attend_to_real(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);

  Config config_;
  Observer observer_;
  Substitute substitute_;
};

}  // namespace longhand::attention
