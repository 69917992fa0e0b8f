// Replay: repeats a training step and checks every operation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "longhand/core/tensor.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// The range of a tensor's values.
struct ValueRange {
  std::string name;  // of the parameter or buffer; empty: a computed tensor
  Shape shape;
  DType dtype = DType::f32;
  double least = 0, greatest = 0;  // of the finite values; NaN if there are none
  int64_t nan = 0, positive_infinity = 0, negative_infinity = 0;

  bool finite() const { return nan + positive_infinity + negative_infinity == 0; }
};
/// Throws ShapeError unless the dtype is f32 or f64.
ValueRange range_of(const Tensor& tensor, std::string name = "");

/// "(2, 3) f32, -1 to 2, 5 NaN: weight"
std::string to_text(const ValueRange& range);

/// The first operation of a step with a non-finite result or input gradient.
struct BadOperation {
  std::string operation;  // "linear"
  /// The full name of the module in which it ran, or of its parameter's module if it has one.
  /// "model" for the model itself, "loss" outside it; a teacher's modules begin with "teacher.".
  std::string layer;
  bool backward = false;                 // whether a gradient, not the result, is non-finite
  std::vector<ValueRange> inputs{};      // of the operation, also in the backward pass
  std::vector<ValueRange> results{};     // backward: the gradients of inputs that need them
  std::optional<ValueRange> gradient{};  // backward: of its result, unless there are several
};

/// A parameter with the norm of its gradient.
struct GradientNorm {
  std::string parameter;
  double norm = 0;
};

/// A training step repeated from a checkpoint.
struct ReplayedStep {
  int64_t step = 0;  // step number, from 1
  double learning_rate = 0;
  /// Parameters, buffers, moments and averages that were already non-finite before the step.
  std::vector<ValueRange> state{};
  std::optional<BadOperation> first{};  // the step is repeated up to this operation
  /// The exception that ended the step; empty: none.
  std::string error{};

  // If the step was completed:
  std::optional<double> loss{}, gradient_norm{};
  std::vector<GradientNorm> gradients{};  // all, the largest norm first
  std::string defect{};                   // see train/step/guard.h

  /// Returns whether the step is finite and not an outlier.
  bool good() const { return state.empty() && !first && error.empty() && defect.empty(); }
};

/// Returns the name of a run's last before-step-N.h5. Throws ConfigError if it has none.
std::string last_snapshot(const std::filesystem::path& run);

/// Repeats the step after a checkpoint, bitwise identical, up to the update; writes nothing. Reads
/// the data, and the teacher if any. -Inf alone is not bad, since it masks scores; if NaN or +Inf
/// follows, names the first operation that made one otherwise. Throws as Run::resume() does.
ReplayedStep replay(const SavedModel& snapshot);

}  // namespace longhand::train
