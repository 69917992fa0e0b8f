// Distillation: the loss of a student that learns from a teacher.
#pragma once

#include <memory>

#include "longhand/attention/model/transformer.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {

/// A teacher and the student that is trained. The loss of the student is
///
///     (1 - alpha) CE + alpha t² KL(softmax(teacher / t) || softmax(student / t))
///       + outputs MSE + weights KL_maps
///
/// CE    cross entropy of the targets, with label smoothing if set.
/// KL    mean over the targets that count; Hinton et al. 2015 (arXiv 1503.02531).
/// MSE   mean squared difference of each layer's attention outputs for each token and head, before
///       the output projection; the mean over layers, heads and tokens without padding.
/// KL_maps  mean of KL(teacher's weights || student's weights) over the rows of the N x N attention
///       maps, without dropout: their cross entropy minus the teacher's entropy, so that it is 0
///       for equal maps. Student weights below 1e-12, such as those outside a window, count as
///       1e-12 and have no gradient. Zhang et al. 2024 (arXiv 2402.04347).
///
/// The teacher is in evaluation mode and is not trained. Terms with weight 0 are not computed,
/// except for CE.
class Distillation {
 public:
  /// `task` is the task of both models. The student must outlive this object. Throws ConfigError if
  /// the teacher reads other tokens or predicts other classes; if outputs or weights are compared,
  /// also if the models differ in layers, heads or tokens, or if a variant has no weights that are
  /// positive and sum to 1 (see Capabilities).
  Distillation(std::unique_ptr<attention::Transformer> teacher, attention::Transformer& student,
               const data::TaskInfo& task, const DistillOptions& options,
               double label_smoothing = 0);

  /// Returns the loss; Loss::terms holds the unweighted terms "cross_entropy", "distill_logits",
  /// "distill_outputs" and "distill_weights".
  Loss loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass);

 private:
  std::unique_ptr<attention::Transformer> teacher_;
  attention::Transformer& student_;
  DistillOptions options_;
  double label_smoothing_;
};

/// A teacher as described by a checkpoint.
struct Teacher {
  Source source{};
  std::unique_ptr<attention::Transformer> model{};
};
/// Loads the teacher that the options name; nothing if they name none. Throws ConfigError if there
/// is no such checkpoint, DataError for a damaged file.
Teacher load_teacher(const DistillOptions& options);

/// Returns an experiment's Distillation::loss(), which it must outlive; empty without a teacher.
LossFn distilled_loss(Experiment& experiment, Teacher teacher);

}  // namespace longhand::train
