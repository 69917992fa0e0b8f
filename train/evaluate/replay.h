// Replay: one training step again, with every operation checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "longhand/core/tensor.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// The range of the values of a tensor.
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

/// The first operation of a step whose result, or a gradient of whose inputs, is not finite.
struct BadOperation {
  std::string operation;  // "linear"
  /// The module in which it ran, by full name; the module of its parameter, if it has one. "model"
  /// for the model itself, "loss" outside of it; modules of a teacher begin with "teacher.".
  std::string layer;
  bool backward = false;                 // whether a gradient is not finite, rather than the result
  std::vector<ValueRange> inputs{};      // of the operation, also in the backward pass
  std::vector<ValueRange> results{};     // backward: the gradients of the inputs that need one
  std::optional<ValueRange> gradient{};  // backward: that of its result, unless it has several
};

/// A parameter with the norm of its gradient.
struct GradientNorm {
  std::string parameter;
  double norm = 0;
};

/// A step of training, repeated from a checkpoint.
struct ReplayedStep {
  int64_t step = 0;  // its number; the first is 1
  double learning_rate = 0;
  /// Parameters, buffers, moments and averages that were not finite before it.
  std::vector<ValueRange> state{};
  std::optional<BadOperation> first{};  // the step is repeated up to this operation
  /// An exception that ended the step; empty: none.
  std::string error{};

  // If the step was completed:
  std::optional<double> loss{}, gradient_norm{};
  std::vector<GradientNorm> gradients{};  // all, the largest norm first
  std::string defect{};                   // see train/step/guard.h

  /// Whether it is finite and no outlier.
  bool good() const { return state.empty() && !first && error.empty() && defect.empty(); }
};

/// The name of the last checkpoint before-step-N.h5 of a run. Throws ConfigError if it has none.
std::string last_snapshot(const std::filesystem::path& run);

/// Repeats the step that follows a checkpoint, up to the update, with the same bits; nothing is written.
/// Reads the data, and the teacher if there is one. -Inf alone is not bad, since scores are masked with
/// it; if a NaN or +Inf follows, the first operation that made one otherwise is named. Throws ConfigError and DataError as Run::resume() does.
ReplayedStep replay(const SavedModel& snapshot);

}  // namespace longhand::train
