// OperationObserver: sees every operation and every backward function, to find where a value came from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "longhand/autograd/variable.h"

namespace longhand {

/// An operation as record() received it.
struct Operation {
  std::string_view name;
  std::span<const Variable> inputs;  // some may be undefined
  /// Identifies it in the backward pass; nothing if it was not recorded (see NoGrad).
  std::optional<uint64_t> number{};
  /// Whether a backward function computed it, as recompute() does.
  bool in_backward = false;
};

/// Observes the operations of the thread that constructed it, during its lifetime. Observers nest
/// and must be destroyed in reverse order of construction; the first one is called first. Without an
/// observer, an operation and a rule test one pointer each. A DryRun is not observed.
///
/// The functions may replace tensors by others of the same shape and dtype, for tests that inject
/// faults, and may throw; the exception passes through the operation or backward().
class OperationObserver {
 public:
  OperationObserver();
  virtual ~OperationObserver();
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;

  /// After an operation computed its result.
  virtual void on_result(const Operation& operation, Tensor& result) = 0;
  /// After the backward function of the operation with this number ran. `grad_in` are the gradients of
  /// its inputs accumulated so far, null for inputs that need none. `grad_out` has no elements for an
  /// operation with several results, of each of which on_result() was told.
  virtual void on_gradients(std::string_view operation, uint64_t number, const Tensor& grad_out,
                            std::span<Tensor* const> grad_in) = 0;

  /// The one that was constructed before this one, or null.
  OperationObserver* outer() const { return outer_; }

 private:
  OperationObserver* outer_;
};

}  // namespace longhand
