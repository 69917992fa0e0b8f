// Variant: one way of letting queries attend to keys. The registry that makes them by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/nn/module.h"

namespace longhand::attention {

/// Which tokens are real. Padding stands at the end.
struct Mask {
  Tensor lengths;  // (B) i32, real tokens of each sequence; undefined: all of them
};

/// What a variant is told when it is made.
struct Config {
  int64_t heads = 1;
  int64_t head_dim = 1;    // D
  int64_t max_length = 1;  // no sequence is longer
  bool causal = false;
  int64_t layer = 0;
  Options options{"attention"};  // the [attention] section; a variant reads what it knows
};

/// What a variant can do, whatever its options.
struct Traits {
  std::string summary;  // one line: what it computes
  bool exact = false;   // computes softmax attention itself
  bool causal = false;
  std::string causal_reason{};  // why not, if not
  bool cross_lengths = true;    // keys may be of another number than queries
  bool fixed_length = false;    // parameters are tied to max_length
  std::string time, memory;     // per head, as "N m D"
  std::string state;            // what a checkpoint holds beside trained parameters
  std::string paper;            // "Wang et al. 2020, arXiv 2006.04768"
};

/// A way of attending. B batch, N queries, M keys, H heads, D width of a head.
class Variant : public nn::Module {
 public:
  Variant(const nn::Scope& scope, const Config& config);

  /// Attention of every head: q (B, N, H, D), k and v (B, M, H, D), any strides; the result is
  /// (B, N, H, D) and dense in memory as such. With a mask (then N = M: self-attention) the result
  /// at real tokens does not depend on what stands in the padding, nor does any gradient, and the
  /// result and all gradients there are 0. A query that may attend to nothing gives 0.
  /// Throws ShapeError for shapes that do not fit, or lengths above M or below 0.
  Variable forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                   const nn::Pass& pass);

 protected:
  /// The variant itself. Shapes are checked, and padding of q, k and v holds zeros (not masked
  /// keys: those must still get no weight). What it returns at padding does not matter.
  virtual Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                          const nn::Pass& pass) = 0;

  const Config& config() const { return config_; }

 private:
  Config config_;
};

/// What a variant's file tells the registry.
struct Registration {
  Traits traits;
  std::unique_ptr<Variant> (*make)(const nn::Scope&, const Config&);
};

/// The names that make() knows, in the order of variants.def, and those added by add().
std::vector<std::string> names();
/// Throws ConfigError for an unknown name, listing the known ones and the nearest.
const Traits& traits(std::string_view name);
/// Constructs a variant. Throws ConfigError for an unknown name, options out of range, or
/// config.causal where the variant cannot be (with the reason).
std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config);
/// Adds a variant of your own, from outside the library. Throws ConfigError if the name is taken.
void add(const std::string& name, const Registration& registration);

}  // namespace longhand::attention
