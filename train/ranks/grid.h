// RankGrid: the ranks of a training run, arranged by what they divide.
#pragma once

#include <memory>
#include <string>

#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/train/step/reducer.h"

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// Ranks in rows and columns: a row divides the same sequences (sequence parallelism), a column the
/// sequences of a batch (data parallelism). Neighbours in a row are neighbours among all ranks,
/// because a row communicates in every layer, a column only once a step.
class RankGrid : public Reducer {
 public:
  ~RankGrid() override;
  /// Makes rows of `sequence_ranks` ranks; columns divide the `shards`. Collective. Throws
  /// ConfigError, naming the options, if the ranks cannot be divided that way.
  RankGrid(Communicator& world, int64_t sequence_ranks, int64_t shards);

  Communicator& world() const { return world_; }
  /// The ranks that hold the same part of other sequences.
  Communicator& data() const { return *data_; }
  /// The ranks that hold the other parts of the same sequences.
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

/// Sums gradients in buckets. A bucket is sent as soon as all its gradients are known, last
/// parameters first, since a backward pass ends with the first ones. All ranks begin collective
/// operations in the same order, regardless of the order in which gradients are added. The sum over
/// data ranks continues TreeSum's tree: it is bitwise identical for any number of ranks.
/// `parameters`, which must be the same on all ranks, and `grid` must outlive the result.
std::unique_ptr<GradientSum> gradient_join(const Parameters& parameters, const RankGrid& grid);

/// Returns this part's tokens, (B, n), and also their targets if there is one per token. Past the
/// end of the sequences, tokens are 0 without targets. Lengths remain those of whole sequences, as
/// the model expects. Returns the batch itself if sequences are not cut.
data::Batch part_of(const data::Batch& batch, const attention::SequencePart& part);

/// Returns text such as "rank 2 on HOST", with the name of the machine.
std::string rank_name(int rank, const std::string& host);
/// Returns the name of this machine.
std::string host_name();

}  // namespace longhand::train
