// Module: a named tree of parameters and buffers. Construction is registration.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand::nn {

class Module;

/// Maps names to tensors: the state of a module or an optimizer.
using StateDict = std::map<std::string, Tensor>;

/// Throws one DataError, "the state does not match WHAT:", that lists every name of `own` missing
/// in `from`, every unknown name and every wrong shape or dtype (f32 and f64 are interchangeable).
void check_state(const StateDict& own, const StateDict& from, const std::string& what);

/// The place where a module or parameter is registered, its dtype, and a random generator that
/// depends on the seed and the full name alone, not on the order of construction.
struct Scope {
  Module* parent = nullptr;
  std::string name;
  DType dtype = DType::f32;
  Generator random{0};
};

/// Returns a root scope. All parameters below it have this dtype and are initialised from the seed.
inline Scope root(DType dtype = DType::f32, uint64_t seed = 0) {
  return {nullptr, "", dtype, Generator(seed).fork("init")};
}

/// The random numbers of one forward pass: a generator, or none.
class PassRandom {
 public:
  PassRandom() = default;
  PassRandom(const Generator& generator) : generator_(generator) {}  // NOLINT: implicit

  /// Whether there is a generator.
  explicit operator bool() const { return generator_.has_value(); }
  /// Returns the generator of one module, by its full name. Throws Error, naming the module and the
  /// remedy, if the pass has none.
  Generator fork(std::string_view module) const;

 private:
  std::optional<Generator> generator_;
};

/// Settings of a forward pass. The default is evaluation.
struct Pass {
  /// Dropout is active, and modules may collect metrics.
  bool training = false;
  /// Specific to this pass (one micro-batch of one step). Modules fork it by their own name, so
  /// that the order of calls has no effect, and recomputation is bitwise identical. There is no
  /// default: a module that needs random numbers in a pass without a generator throws Error.
  PassRandom random = {};
  /// Saves memory: repeated modules, such as blocks, keep only their inputs and recompute
  /// everything else in the backward pass, with bitwise identical results.
  bool recompute = false;
  /// The tokens that every tensor (B, N, …) of this pass holds, if others hold the rest of the same
  /// sequences; lengths are then those of whole sequences. Default: all.
  Section tokens = {};
  /// The heads that queries, keys and values of this pass hold. Default: all.
  Section heads = {};
  /// Combines results for the tokens of this pass with those for the rest of the sequences. All
  /// parts call forward() and backward() together. Null: all tokens are here.
  std::shared_ptr<const Join> join = {};
  /// Sums counts over all who compute this pass, for other tokens or heads. Null: nobody else does.
  std::shared_ptr<const Join> others = {};

  /// The number of tokens in whole sequences, of which tensors hold n.
  int64_t all_tokens(int64_t n) const { return tokens.of ? tokens.of : n; }

  /// A pass for evaluation and prediction.
  static Pass evaluate() { return {}; }
  /// A pass for training. Give every step (and every micro-batch) a generator of its own, such as
  /// Generator(seed).fork(step): the same generator draws the same dropout masks.
  static Pass train(const Generator& random) { return {.training = true, .random = random}; }
};

/// Fills a new parameter with initial values; see init.h.
using Init = std::function<void(Tensor&, const Generator&)>;

/// Base of all classes that own parameters. Derived classes declare members constructed from
/// scope("name") and define forward() with any signature. Modules cannot be copied or moved.
class Module {
 public:
  /// Registers with scope.parent, if there is one. Throws Error for a name that is empty, contains
  /// a dot or is already used.
  explicit Module(const Scope& scope = {});
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters of this subtree by their full names ("blocks.0.mlp.fc1.weight"), in the order
  /// of construction. The handles share memory with the module.
  std::vector<std::pair<std::string, Variable>> named_parameters() const;
  /// This module, named "", and all below it by their full names.
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  /// Total number of elements of all parameters.
  int64_t parameter_count() const;

  /// Parameters and buffers by full name. The tensors share memory with the module: clone them to
  /// keep their values.
  StateDict state_dict() const;
  /// Copies values into parameters and buffers, converting f32 and f64. Throws one DataError that
  /// lists all missing and unknown names and wrong shapes or dtypes; nothing is changed then. Counts
  /// named nonpositive_normalizers may be missing, as in files of version 0.1.
  void load_state_dict(const StateDict& state);

  /// Clears all gradients.
  void zero_grad();

  /// Call once after every optimizer step (not during gradient accumulation), on the root: calls
  /// on_step() of every module.
  void after_step();

  /// Diagnostics of modules by full name, such as counts of numerical exceptions.
  std::map<std::string, double> metrics() const;

  /// "blocks.0.mlp", or "" for a root.
  const std::string& full_name() const { return full_name_; }
  DType parameter_dtype() const { return dtype_; }

 protected:
  /// The scope for a member of this module.
  Scope scope(const std::string& name);
  /// The generator this module was constructed with; numbers drawn from it are part of the
  /// initialisation.
  const Generator& init_random() const { return random_; }
  /// Hook for state that changes with optimizer steps, such as redrawn random features.
  virtual void on_step() {}
  /// This module's own entries of metrics().
  virtual std::map<std::string, double> own_metrics() const { return {}; }

 private:
  friend class Parameter;
  friend class Buffer;
  void claim(const std::string& name);
  void visit(const std::string& prefix,
             const std::function<void(const std::string& prefix, const Module&)>& f) const;

  std::string full_name_;
  DType dtype_;
  Generator random_;
  std::vector<std::pair<std::string, Module*>> children_;
  std::vector<std::pair<std::string, class Parameter*>> parameters_;
  std::vector<std::pair<std::string, class Buffer*>> buffers_;
};

/// Declares that a module runs on this thread until this object is destroyed, for reports that name
/// the layer of an operation. Modules whose forward() calls operations directly, rather than only
/// their members, construct one.
class Running {
 public:
  explicit Running(const Module& module);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Returns the last one constructed on this thread, or null.
  static const Running* innermost();
  const Module& module() const { return module_; }

 private:
  const Module& module_;
  const Running* outer_;
};

/// A trainable tensor: a leaf Variable that its module owns and names.
class Parameter : public Variable {
 public:
  Parameter(const Scope& scope, const Shape& shape, const Init& init);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;
};

/// A tensor that is saved but not trained: random features, counters.
class Buffer {
 public:
  Buffer(const Scope& scope, Tensor value);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const Tensor& value() const { return value_; }
  /// For writing in place; state_dict() shares this memory.
  Tensor& mutable_value() { return value_; }

 private:
  Tensor value_;
};

/// A list of modules of one type, named by their indices.
template <class M>
class ModuleList : public Module {
 public:
  using Module::Module;
  /// Constructs M(scope("INDEX"), args...) at the end.
  template <class... Args>
  M& emplace_back(Args&&... args) {
    items_.push_back(
        std::make_unique<M>(scope(std::to_string(items_.size())), std::forward<Args>(args)...));
    return *items_.back();
  }
  int64_t size() const { return static_cast<int64_t>(items_.size()); }
  M& operator[](int64_t i) const { return *items_[i]; }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

}  // namespace longhand::nn
