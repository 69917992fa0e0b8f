// OperationObserver: sees all operations and backward functions, to find where a value came from.
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
  /// Identifies the operation in the backward pass; empty if it was not recorded (see NoGrad).
  std::optional<uint64_t> number{};
  /// Whether a backward function computed it, as recompute() does.
  bool in_backward = false;
};

/// Observes the operations of the thread that constructed it, during its lifetime. Observers nest
/// and must be destroyed in reverse order of construction; the outermost is called first. Without
/// an observer, an operation or backward function tests one pointer. A DryRun is not observed.
///
/// The functions may replace tensors with others of the same shape and dtype, to inject faults in
/// tests, and may throw; the exception propagates through the operation or backward().
class OperationObserver {
 public:
  OperationObserver();
  virtual ~OperationObserver();
  OperationObserver(const OperationObserver&) = delete;
  OperationObserver& operator=(const OperationObserver&) = delete;

  /// Called after an operation has computed its result.
  virtual void on_result(const Operation& operation, Tensor& result) = 0;
  /// Called after the backward function of the operation with this number has run. `grad_in` holds
  /// the gradients of its inputs accumulated so far, null for inputs that need none. `grad_out` has
  /// no elements for an operation with several results, each of which on_result() has received.
  virtual void on_gradients(std::string_view operation, uint64_t number, const Tensor& grad_out,
                            std::span<Tensor* const> grad_in) = 0;

  /// Returns the observer constructed before this one, or null.
  OperationObserver* outer() const { return outer_; }

 private:
  OperationObserver* outer_;
};

}  // namespace longhand
