// RankGrid: the ranks of a training run, by what they divide.
#pragma once

#include <memory>
#include <string>

#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/train/step/reducer.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// Ranks in rows and columns: the ranks of a row have parts of the same sequences, those of a column
/// the same parts of other sequences. Neighbours in a row are neighbours among all ranks, because a row
/// communicates in every layer, a column once a step.
class RankGrid : public Reducer {
 public:
  ~RankGrid() override;
  /// Rows of `sequence_ranks` ranks. Collective. `shards` is what the columns divide. Throws
  /// ConfigError, naming the options, if the ranks cannot be divided so.
  RankGrid(Communicator& world, int64_t sequence_ranks, int64_t shards);

  Communicator& world() const { return world_; }
  /// The ranks that have the same part of other sequences.
  Communicator& data() const { return *data_; }
  /// The ranks that have the other parts of the same sequences.
  Communicator& sequence() const { return *sequence_; }

  bool leads() const override;
  bool any(bool condition) const override;
  Share share() const override;
  data::Batch tokens_of(const data::Batch& batch, nn::Pass& pass) const override;
  void keep_share(Loss& loss, const data::Batch& batch) const override;
  void keep_share(Metrics& metrics, const data::Batch& batch) const override;
  std::unique_ptr<GradientSum> gradient_sum(const Parameters& parameters) const override;
  void add_losses(LossSums& total) const override;
  void add_counts(std::vector<Tensor>& counters, const std::vector<Tensor>& before) const override;
  void of_last_batch(std::map<std::string, double>& metrics) const override;
  void add_others(std::vector<Metrics>& batches) const override;
  void divide(Optimizer& optimizer) const override;
  void compare(const Parameters& parameters, int64_t step, int64_t equal) const override;

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> data_, sequence_;
};

/// Adds up gradients in buckets: as soon as all gradients of a bucket are known, it is sent, last
/// parameters first, since a backward pass ends with the first ones. Collective operations begin in the
/// same order on all ranks, whatever the order in which gradients are added. The sum over the data ranks
/// continues the tree of TreeSum: the bits do not depend on the number of ranks. `parameters`, which must
/// be the same on all ranks, and `grid` must outlive the result.
std::unique_ptr<GradientSum> gradient_join(const Parameters& parameters, const RankGrid& grid);

/// The tokens of this part, (B, n); also their targets, if there is one per token. Behind the end of the
/// sequences there are tokens 0 without targets. Lengths remain those of whole sequences, which is what
/// the model expects. The batch itself if sequences are not cut.
data::Batch part_of(const data::Batch& batch, const attention::SequencePart& part);

/// "rank 2 on HOST", with the name of its machine
std::string rank_name(int rank, const std::string& host);
/// The name of this machine.
std::string host_name();

}  // namespace longhand::train
