// GradientJoin: adds up the gradients of all ranks while the backward pass computes the next ones.
#pragma once

#include <future>
#include <vector>

#include "longhand/train/ranks/grid.h"
#include "longhand/train/step/gradients.h"

namespace longhand::train {

/// The sum of the gradients of all ranks, in buckets: as soon as all gradients of a bucket are known,
/// it is sent, last parameters first, since a backward pass ends with the first ones. The sum over
/// the data ranks continues the tree of TreeSum: the bits do not depend on the number of ranks.
class GradientJoin : public GradientSum {
 public:
  /// `parameters` must be the same on all ranks.
  GradientJoin(const Parameters& parameters, const RankGrid& grid);

  /// Hands over gradient i of this rank, once for each parameter; undefined counts as zero. Collective
  /// operations begin in the same order on all ranks, whatever the order of these calls.
  void add(size_t i, Tensor gradient) override;

  /// Waits for the sums, after every gradient has been added, and returns them: undefined where no rank
  /// has a gradient. May be called once.
  Gradients finish() override;

 private:
  struct Bucket {
    std::vector<size_t> parameters{};
    int64_t elements = 0;
    DType dtype = DType::f32;
    size_t missing = 0;  // gradients that are not known yet
    Tensor values{};
    std::vector<std::future<void>> sums{};
  };
  void send_complete();
  void start_sums(const Tensor& values, std::vector<std::future<void>>& sums);
  void wait(std::vector<std::future<void>>& sums);

  const Parameters& parameters_;
  const RankGrid& grid_;
  Gradients gradients_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by parameter
  size_t sent_ = 0;                // buckets
  Tensor present_;                 // by parameter: the number of ranks that have a gradient
};

}  // namespace longhand::train
