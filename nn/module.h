// Module: a named tree of parameters and buffers. Constructing is registering.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand::nn {

class Module;

/// Names to tensors: the state of a module, an optimizer, a random source.
using StateDict = std::map<std::string, Tensor>;

/// Throws one DataError, "the state does not fit WHAT:", that lists every name of `own` missing in
/// `from`, every unknown name and every wrong shape or dtype (f32 and f64 fit each other).
void check_state(const StateDict& own, const StateDict& from, const std::string& what);

/// Where a module or parameter is registered, and what it is made with: a dtype, and a random
/// generator that depends on the seed and the full name alone, not on the order of construction.
struct Scope {
  Module* parent = nullptr;
  std::string name;
  DType dtype = DType::f32;
  Generator random{0};
};

/// A root scope. All parameters below it have this dtype and are initialised from this seed.
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
  /// The generator of one module, by its full name. Throws Error, naming the module and the remedy,
  /// if the pass has none.
  Generator fork(std::string_view module) const;

 private:
  std::optional<Generator> generator_;
};

/// What a forward pass needs to know beside its inputs. The default is evaluation.
struct Pass {
  /// Dropout is active, and modules may count what happens in training.
  bool training = false;
  /// Of this pass alone (one micro-batch of one step). Modules fork it by their own name, so that
  /// the numbers do not depend on the order of calls, and recomputation gives the same bits. There
  /// is no default: a module that needs random numbers in a pass without them throws Error.
  PassRandom random = {};
  /// Saves memory: repeated parts, such as blocks, keep only their inputs and recompute everything
  /// else in the backward pass. Same bits.
  bool recompute = false;

  /// A pass for measuring and predicting.
  static Pass evaluate() { return {}; }
  /// A pass for training. Give every step (and every micro-batch) a generator of its own, such as
  /// Generator(seed).fork(step): the same generator draws the same dropout masks.
  static Pass train(const Generator& random) { return {.training = true, .random = random}; }
};

/// Fills a fresh parameter from random numbers; see init.h.
using Init = std::function<void(Tensor&, const Generator&)>;

/// Base of everything that owns parameters. Derived classes declare members that take scope("name")
/// and define forward() as they like. Modules stay where they were constructed.
class Module {
 public:
  /// Registers with scope.parent, if there is one. Throws Error for a name that is empty, has a dot
  /// or is taken.
  explicit Module(const Scope& scope = {});
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// All parameters below here by their full names ("blocks.0.mlp.fc1.weight"), in the order of
  /// construction. The handles share memory with the module.
  std::vector<std::pair<std::string, Variable>> named_parameters() const;
  /// Number of trained numbers.
  int64_t parameter_count() const;

  /// Parameters and buffers by full name. The tensors share memory with the module: clone what is
  /// to be kept.
  StateDict state_dict() const;
  /// Copies values in (converting f32 and f64). Throws one Error that lists every missing name,
  /// every unknown name and every wrong shape or dtype; nothing is changed then.
  void load_state_dict(const StateDict& state);

  /// Forgets all gradients.
  void zero_grad();

  /// To be called after every optimizer step (never inside gradient accumulation), once, on the
  /// root: hands it to on_step() of every module.
  void after_step();

  /// What modules have to tell of their work beside its result, by full names, such as counts of
  /// something that should not happen.
  std::map<std::string, double> metrics() const;

  /// "blocks.0.mlp", or "" for a root.
  const std::string& full_name() const { return full_name_; }
  DType parameter_dtype() const { return dtype_; }

 protected:
  /// Where a member of this module registers.
  Scope scope(const std::string& name);
  /// The generator this module was given at construction: what is drawn from it is part of
  /// initialisation.
  const Generator& init_random() const { return random_; }
  /// A hook for state that changes by optimizer steps, such as redrawn random features.
  virtual void on_step() {}
  /// This module's part of metrics().
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

/// A trained tensor. A leaf Variable that its module owns and names.
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
  /// To be written in place; its memory is what state_dict() shows.
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
