// RankGrid: the ranks of a training run, by what they share out.
#pragma once

#include <memory>
#include <string>

namespace longhand {
class Communicator;
Communicator& alone();
}  // namespace longhand

namespace longhand::train {

/// Ranks in rows and columns: the ranks of a row have parts of the same sequences, those of a column
/// the same parts of other sequences. Neighbours in a row are neighbours among all ranks, because a row
/// communicates in every layer, a column once a step.
class RankGrid {
 public:
  /// One process.
  RankGrid();
  ~RankGrid();
  /// Rows of `sequence_ranks` ranks. Collective. `shards` is what the columns share out. Throws
  /// ConfigError, naming the options, if the ranks cannot be divided so.
  RankGrid(Communicator& world, int64_t sequence_ranks, int64_t shards);

  Communicator& world() const { return *world_; }
  /// The ranks that have the same part of other sequences.
  Communicator& data() const { return data_ ? *data_ : *world_; }
  /// The ranks that have the other parts of the same sequences.
  Communicator& sequence() const { return sequence_ ? *sequence_ : alone(); }
  /// Whether this is the rank that reports and writes files.
  bool leads() const;

 private:
  Communicator* world_ = &alone();
  std::unique_ptr<Communicator> data_, sequence_;
};

/// "rank 2 on HOST", with the name of its machine
std::string rank_name(int rank, const std::string& host);
/// The name of this machine.
std::string host_name();

}  // namespace longhand::train
