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
/// Capabilities::any_mask support keep and bias, which apply to single pairs of a query and a key.
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
  Counts forward, backward;  // recomputation for gradients counts in backward
  double bytes = 0;          // of working memory in forward(), besides q, k, v and the result
};
Work operator*(double factor, const Work& work);
Work operator+(const Work& a, const Work& b);
/// The cost of softmax attention with this number of pairs of a query and a key, tile by tile: of Q Kᵀ and P V,
/// and for gradients of dV, dP, dQ, dK and again Q Kᵀ and the exponentials.
Work softmax_work(double pairs, double dim, double bytes);

/// The tokens that keys and values are projected from, (B, M, d) each.
struct Sources {
  Variable keys, values;
};

class Variant;

/// The parts of the same sequences (Pass::join) as Variant::forward() needs them: ranks/sequence_part.h.
class SequenceJoin : public Join {
 public:
  /// The result of variant.forward() at the tokens of this part, for inputs with these tokens that are
  /// checked; mask.lengths are those of whole sequences.
  virtual Variable attend(Variant& variant, const Inputs& inputs, const Mask& mask,
                          const nn::Pass& pass) const = 0;
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
  /// and all gradients at padding are 0. The result of a query with no key to attend to is 0. If the
  /// weights do not depend on queries and keys (see Capabilities::uses_queries_and_keys), q and k may
  /// both be undefined; then N = M. A pass over some of the tokens supports neither keep nor bias.
  /// Throws ShapeError if shapes do not match, or if a length is above M or below 0, and ConfigError for
  /// a keep or a bias if the variant supports neither.
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

  /// Receives the same, and returns the result in place of it.
  using Substitute = std::function<Variable(const Inputs&, const Mask&, const Variable& result)>;
  /// Replaces the result of every forward(), so that the suite can check another function in place of this variant.
  /// An empty function restores the variant's own result. See conformance/tools.h.
  void substitute(Substitute substitute) { substitute_ = std::move(substitute); }

  /// The tokens to project keys and values from, for tokens x (B, N, d): x itself, except in
  /// variants that compress tokens before projection (Capabilities::shortens). Their forward()
  /// takes M keys and values without padding, while the mask's lengths refer to the N tokens.
  virtual Sources sources(const Variable& x, const Mask&, const nn::Pass&) { return {x, x}; }

  /// A decoder for a batch of sequences, from their start. Throws ConfigError if the variant has
  /// none or is not causal.
  std::unique_ptr<Decoder> decoder(int64_t batch) const;
  /// Bytes that a decoder keeps for one sequence after the given number of tokens; 0 without a
  /// decoder.
  int64_t state_bytes(int64_t tokens) const;
  /// The cost of forward() and of its gradients for one sequence.
  virtual Work work(int64_t queries, int64_t keys) const = 0;
  /// An upper bound on the rank of the N x N weights; N or more: none is known.
  virtual int64_t rank(int64_t tokens) const { return tokens; }
  /// A short description of what forward() computes for the given number of tokens, if that depends
  /// on the number ("softmax: 50 tokens are at most 64 landmarks"); otherwise empty.
  virtual std::string algorithm(int64_t /*tokens*/) const { return {}; }
  /// A warning, with what to do instead, if options that should save work save none for sequences of
  /// at most this number of tokens; otherwise empty.
  virtual std::string advice(int64_t /*tokens*/) const { return {}; }
  const Capabilities& capabilities() const { return config_.capabilities; }
  const Config& config() const { return config_; }

  // What forward() consists of, for inputs with the tokens and heads of the pass (Pass::tokens, Pass::heads).

  /// attend() of keys and values for all heads and of gates(x), with padding cleared; in a pass with a
  /// section of heads, x is gates(x) already.
  Variable apply(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  /// Computes the attention. On entry shapes are checked, lengths are contiguous, keys and values
  /// have as many heads as queries, q, k, v and x are zero at padding, and x is gates(x). Zeroing does not
  /// mask keys: the variant must still give them no weight. What it returns at padding is ignored.
  virtual Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) = 0;
  /// Whether attend() accepts q, k and v as passed to forward(), which saves copies: keys and
  /// values have kv_heads heads and padding may hold anything. attend() must then not read the
  /// padding and must return 0 there.
  virtual bool takes_all(const Mask&) const { return false; }
  /// What attend() gets as x, for tokens x (B, N, H D): x itself, or (B, N, H, …), computed for each head,
  /// without which heads need each other.
  virtual Variable gates(const Variable& x) const { return x; }
  /// The index of the first token that attend() gets, one for which there are parameters.
  int64_t first_token(const nn::Pass& pass) const;

 protected:
  /// What costs depend on: N queries, M keys, H heads of width D, and the bytes of a parameter.
  struct Sizes {
    double N, M, H, D, bytes;
  };
  Sizes sizes(int64_t queries, int64_t keys) const;

  /// Throws ShapeError for more than max_length tokens, for which there are no parameters.
  void check_length(int64_t tokens) const;
  /// The slice of x, which has all heads along `axis`, for the `count` heads of the pass.
  static Variable heads_of_pass(const Variable& x, int axis, int64_t count, const nn::Pass& pass);
  /// Numbers from N(0, 1) of this shape, drawn for training: those of the heads along axis `axis` that
  /// the pass has, out of those of all heads.
  Tensor training_noise(Shape shape, int axis, DType dtype, const nn::Pass& pass) const;
  /// first_token() for softmax_attention(): none if attend() gets all queries.
  std::optional<int64_t> first_query(const nn::Pass& pass) const;
  /// The dropout of weights (B, H, …) of the heads of the pass. `p` is that of training passes.
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
