// Distillation: the loss of a student that learns from a teacher.
#pragma once

#include <memory>
#include <string>

#include "longhand/attention/model/transformer.h"
#include "longhand/data/dataset.h"
#include "longhand/train/config/sections.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {

/// A teacher and its student, a model that is trained. The loss of the student is
///
///     (1 - alpha) CE + alpha t² KL(softmax(teacher / t) || softmax(student / t))
///       + outputs MSE + weights KL_maps
///
/// CE    cross entropy of the targets, with label smoothing if that is set.
/// KL    mean over the targets that count; Hinton et al. 2015 (arXiv 1503.02531).
/// MSE   mean squared difference of what the attention of each layer returns for each token and head,
///       before the output projection; the mean over layers, heads and tokens without padding.
/// KL_maps  mean of KL(teacher's weights || student's weights) over the rows of the N x N attention
///       maps, without dropout: their cross entropy minus the entropy of the teacher's, so that it is
///       0 for equal maps. Student weights below 1e-12, such as those outside of a window, count as
///       1e-12 and have no gradient. Zhang et al. 2024 (arXiv 2402.04347).
///
/// The teacher is in evaluation mode and is not trained. Terms of weight 0 are not computed, apart from
/// CE.
class Distillation {
 public:
  /// `task` is what both read. The student must outlive this object. Throws ConfigError if the
  /// teacher reads other tokens or predicts other classes, and if outputs or weights are compared and
  /// the two models do not have the same layers, heads and tokens, or a variant has no weights that
  /// are positive and sum to 1 (see Capabilities).
  Distillation(std::unique_ptr<attention::Transformer> teacher, attention::Transformer& student,
               const data::TaskInfo& task, const DistillOptions& options,
               double label_smoothing = 0);

  /// Loss::terms are those above, not weighted: "cross_entropy", "distill_logits",
  /// "distill_outputs" and "distill_weights".
  Loss loss(const data::Batch& part, const BatchSize& whole, const nn::Pass& pass);
  /// loss() as a function, which must not outlive this object.
  LossFn function() {
    return [this](const data::Batch& part, const BatchSize& whole, const nn::Pass& pass) {
      return loss(part, whole, pass);
    };
  }

 private:
  std::unique_ptr<attention::Transformer> teacher_;
  attention::Transformer& student_;
  DistillOptions options_;
  double label_smoothing_;
};

/// A teacher as a checkpoint describes it.
struct Teacher {
  Source source;
  std::unique_ptr<attention::Transformer> model;
};
/// Loads the teacher that the options name. Throws ConfigError if there is no such checkpoint,
/// DataError for a damaged file.
Teacher load_teacher(const DistillOptions& options);

}  // namespace longhand::train
