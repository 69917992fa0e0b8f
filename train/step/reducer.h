// Reducer: sums and decisions shared by the processes of a run.
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

/// Sums the gradients of several processes while a backward pass computes the next ones.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// Hands over gradient i of this process, once per parameter; undefined counts as zero.
  virtual void add(size_t i, Tensor gradient) = 0;
  /// Runs this process's last backward pass, handing over each gradient as soon as it is complete,
  /// together with those already added to `shard` and `sum`.
  virtual void backward(const Variable& loss, TreeSum& shard, TreeSum& sum) = 0;
  /// Returns the sums once every gradient has been added; undefined where no process has one. May
  /// be called only once.
  virtual Gradients finish() = 0;
};

/// The processes that train together; all call each function together. This class is a single
/// process, for which each does nothing; RankGrid (ranks/grid.h) implements several processes.
class Reducer {
 public:
  virtual ~Reducer() = default;

  /// Whether this process reports and writes files.
  virtual bool leads() const { return true; }
  /// Returns whether the condition holds in any process.
  virtual bool any(bool condition) const { return condition; }

  /// This process's index among the processes that divide batches, and their number.
  struct Share {
    int64_t index = 0, of = 1;
  };
  virtual Share share() const { return {}; }
  /// Returns this process's tokens of a batch with cut sequences, and adapts the pass to them.
  virtual data::Batch tokens_of(const data::Batch& batch, nn::Pass&) const { return batch; }
  /// Reduces the loss or the metrics of a batch to this process's contribution where other
  /// processes have them too.
  virtual void keep_share(Loss&, const data::Batch&) const {}
  virtual void keep_share(Metrics&, const data::Batch&) const {}

  /// Returns an object that sums the gradients of all processes; null for a single process.
  virtual std::unique_ptr<GradientSum> gradient_sum(const Parameters&) const { return nullptr; }
  /// Adds up the losses of a step.
  virtual void add_losses(LossSums&) const {}
  /// Sums over processes the increase of the counters (i64) since `before`.
  virtual void add_counts(std::vector<Tensor>& /*counters*/,
                          const std::vector<Tensor>& /*before*/) const {}
  /// Replaces Module::metrics() by its values for the last micro-batch of the step.
  virtual void of_last_batch(std::map<std::string, double>&) const {}
  /// Adds the other processes' shares to this process's metrics of batches, in the order of the
  /// batches.
  virtual void add_others(std::vector<Metrics>& /*batches*/) const {}

  /// Divides the state of the optimizer.
  virtual void divide(Optimizer&) const {}
  /// Throws Error, naming the process, if the parameters after `step` steps differ between
  /// processes. `equal` is the last step after which they were known to be equal.
  virtual void compare(const Parameters&, int64_t /*step*/, int64_t /*equal*/) const {}
};

/// One process alone.
inline const Reducer& one_process() {
  static const Reducer alone;
  return alone;
}

}  // namespace longhand::train
