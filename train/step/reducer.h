// Reducer: what the processes of a run add up and decide together.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/nn/module.h"
#include "longhand/train/step/gradients.h"

namespace longhand::train {

struct Loss;
struct Metrics;
class Optimizer;

/// Adds up the gradients of several processes while a backward pass computes the next ones.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// Hands over gradient i of this process, once for each parameter; undefined counts as zero.
  virtual void add(size_t i, Tensor gradient) = 0;
  /// The last backward pass of this process: hands over each gradient as soon as it is complete, with
  /// those that have been added to `shard` and `sum`.
  virtual void backward(const Variable& loss, TreeSum& shard, TreeSum& sum) = 0;
  /// Returns the sums, after every gradient has been added: undefined where no process has one. May be
  /// called once.
  virtual Gradients finish() = 0;
};

/// The processes that train together. This class is one process alone, for which every function does
/// nothing; RankGrid (ranks/grid.h) is several. All of them call each function together.
class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Whether this process reports and writes files.
  virtual bool leads() const { return true; }
  /// Whether a condition holds in any process.
  virtual bool any(bool condition) const { return condition; }

  /// The index of this process among those that divide batches, and their number.
  struct Share {
    int64_t index = 0, of = 1;
  };
  virtual Share share() const { return {}; }
  /// The tokens of a batch that this process has, if sequences are cut, and `pass` for them.
  virtual data::Batch tokens_of(const data::Batch& batch, nn::Pass&) const { return batch; }
  /// Reduces the loss or the metrics of a batch to what this process contributes, where the others have
  /// them, too.
  virtual void keep_share(Loss&, const data::Batch&) const {}
  virtual void keep_share(Metrics&, const data::Batch&) const {}

  /// What adds up the gradients of all processes; null if there is one.
  virtual std::unique_ptr<GradientSum> gradient_sum(const Parameters&) const { return nullptr; }
  /// Adds up the losses of a step.
  virtual void add_losses(LossSums&) const {}
  /// Adds up what each process has added to counters (i64) since they were `before`.
  virtual void add_counts(std::vector<Tensor>& /*counters*/,
                          const std::vector<Tensor>& /*before*/) const {}
  /// Replaces Module::metrics() by those of the last micro-batch of the step.
  virtual void of_last_batch(std::map<std::string, double>&) const {}
  /// Completes the metrics of batches, of which each process has its share, with those of the others, in
  /// the order of the batches.
  virtual void add_others(std::vector<Metrics>& /*batches*/) const {}

  /// Divides the state of the optimizer.
  virtual void divide(Optimizer&) const {}
  /// Throws Error, naming the process, if the parameters after `step` steps are not the same everywhere.
  /// `equal` is the step after which they were.
  virtual void compare(const Parameters&, int64_t /*step*/, int64_t /*equal*/) const {}
};

/// One process alone.
inline const Reducer& one_process() {
  static const Reducer alone;
  return alone;
}

}  // namespace longhand::train
