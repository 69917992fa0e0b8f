// Variant: one way of letting queries attend to keys.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/attention/decoding/decoder.h"
#include "longhand/core/options.h"
#include "longhand/nn/module.h"

namespace longhand::attention {

/// What may attend to what. Every variant knows lengths; only those with Capabilities::any_mask
/// know keep and bias, which are about single pairs of a query and a key.
struct Mask {
  Tensor lengths{};  // (B) i32, real tokens of each sequence, padding after them; undefined: all
  Tensor keep{};     // u8, broadcasts to (B, H, N, M): 1 where a query may attend to a key
  Variable bias{};   // broadcasts to (B, H, N, M): added to the scores, before the softmax
};

class Variant;

/// What a variant can do and what holds of it, given its options. It does not change.
struct Capabilities {
  bool exact = false;                 // computes softmax attention itself
  bool random = false;                // its result depends on random numbers, kept in checkpoints
  bool averages = true;               // the weights of one query sum to 1
  bool linear = true;                 // its result is linear in v
  bool separate_queries = true;       // a query's result does not depend on other queries
  bool positional = false;            // permuting the tokens changes the result
  bool signed_weights = false;        // a sum of weights may be near 0, and the result far off
  bool any_mask = false;              // applies Mask::keep and Mask::bias
  bool causal = false;                // can be causal
  std::string causal_reason{};        // why not, if not
  bool causal_only = false;           // has no form in which queries see later keys
  bool decodes = false;               // has a Decoder when causal
  bool uses_queries_and_keys = true;  // the weights depend on what q and k hold
  bool cross_lengths = true;          // the number of keys may differ from the number of queries
  bool fixed_length = false;          // parameters are tied to max_length
  bool shortens = false;              // keys and values are made of fewer tokens: sources()
  bool uses_x = false;                // reads Inputs::x
  std::string time{}, memory{};       // per head, as "N m D"
  std::string state{"-"};             // what a checkpoint holds beside trained parameters
};

/// What a variant is told when it is made.
struct Config {
  int64_t heads = 1;
  int64_t head_dim = 1;    // D
  int64_t kv_heads = 0;    // of keys and values, a divisor of heads; 0: as many as heads
  int64_t max_length = 1;  // no sequence is longer
  bool causal = false;
  int64_t layer = 0, layers = 0;  // of how many; 0: not known
  /// The variant of layer 0 where this is of a later layer: the owner of parameters that layers
  /// share. It outlives this one.
  Variant* first = nullptr;
  Options options{"attention"};  // the [attention] section
  /// The registry sets these before it calls the constructor.
  std::string name{};
  Capabilities capabilities{};
};

/// What attention is computed from. B batch, N queries, M keys, H heads, D width of a head.
struct Inputs {
  Variable q;     // (B, N, H, D)
  Variable k, v;  // (B, M, kv_heads, D)
  /// (B, N, H D): the normalised tokens that q, k and v were projected from, for gates, decays and
  /// learning rates of their own. Undefined unless Capabilities::uses_x.
  Variable x{};
};

/// What attention of one sequence takes, all heads together.
struct Work {
  struct Counts {
    double flops = 0;  // a multiply-add is two
    double exponentials = 0;
  };
  Counts forward, backward;  // what is computed again for gradients counts in backward
  double bytes = 0;          // of working memory in forward(), beside q, k, v and the result
};
Work operator*(double factor, const Work& work);

/// What keys and what values are made of, (B, M, d) each.
struct Sources {
  Variable keys, values;
};

/// A way of attending. B batch, N queries, M keys, H heads, D width of a head. Keys and values may
/// have fewer heads, each for a group of H / kv_heads neighbouring heads of the queries (Ainslie et
/// al. 2023, arXiv 2305.13245).
class Variant : public nn::Module {
 public:
  Variant(const nn::Scope& scope, const Config& config);

  /// Attention of every head: q (B, N, H, D), k and v (B, M, kv_heads, D), any strides; the result
  /// is (B, N, H, D) and dense in memory as such. With a mask (then N = M: self-attention) the
  /// result at real tokens does not depend on what stands in the padding, nor does any gradient,
  /// and the result and all gradients there are 0. A query that may attend to nothing gives 0.
  /// Throws ShapeError for shapes that do not fit, or lengths above M or below 0, and ConfigError
  /// for a keep or a bias where the variant knows none. Where weights do not depend on queries and
  /// keys (Capabilities::uses_queries_and_keys), both may be undefined; then N = M.
  Variable forward(const Inputs& inputs, const Mask& mask, const nn::Pass& pass);
  Variable forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                   const nn::Pass& pass) {
    return forward({q, k, v}, mask, pass);
  }

  /// For tokens x (B, N, d), what to make keys and values of: x, but for variants that compress
  /// tokens before they are projected (Capabilities::shortens). Their forward() takes M keys and
  /// values without padding, while the mask's lengths are of the N tokens.
  virtual Sources sources(const Variable& x, const Mask& mask);

  /// A decoder for a batch of sequences, from their start. Throws ConfigError where there is none.
  std::unique_ptr<Decoder> decoder(int64_t batch) const;
  /// Bytes that a decoder keeps of one sequence after that many tokens; 0 without a decoder. As
  /// defined here, of one whose state does not grow: what it keeps after one token.
  virtual int64_t state_bytes(int64_t tokens) const;
  /// Of forward() and of its gradients, for one sequence.
  virtual Work work(int64_t queries, int64_t keys) const = 0;
  /// The most that the rank of the N x N weights can be, if it is bounded by less than N.
  virtual std::optional<int64_t> rank(int64_t tokens) const;
  /// What forward() really computes for that many tokens, in a few words, where it depends on them
  /// ("softmax: 50 tokens are at most 64 landmarks"); else empty.
  virtual std::string algorithm(int64_t tokens) const;
  const Capabilities& capabilities() const { return config_.capabilities; }

 protected:
  /// The variant itself. Shapes are checked, lengths are contiguous, keys have as many heads as
  /// queries, and padding of q, k, v and x holds zeros (not masked keys: those must still get no
  /// weight). What it returns at
  /// padding does not matter.
  virtual Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) = 0;
  /// Whether attend() takes q, k and v as forward() gets them: keys of kv_heads, and padding that
  /// holds anything, which it does not look at, while its result there is 0. It saves the copies.
  virtual bool takes_all(const Mask&) const { return false; }

  /// decoder(), of a variant that is causal and Capabilities::decodes.
  virtual std::unique_ptr<Decoder> make_decoder(int64_t batch) const;

  /// Whether decoder() gives one.
  bool decodes() const { return config_.causal && config_.capabilities.decodes; }
  const Config& config() const { return config_; }

 private:
  Config config_;
};

}  // namespace longhand::attention
