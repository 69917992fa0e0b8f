#include "longhand/train/ranks/rank_division.h"

#include <algorithm>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/view.h"

namespace longhand::train {
namespace {

class RankDivision final : public Division {
 public:
  RankDivision(Communicator& ranks, const Parameters& parameters) : ranks_(ranks) {
    for (const auto& [name, parameter] : parameters) {
      check<ShapeError>(parameter.dtype() == parameters.front().second.dtype(), "optimizer: ", name,
                        " of ", parameter.dtype(), ": expected the dtype of all others, ",
                        parameters.front().second.dtype());
      first_.push_back(first_.back() + parameter.value().numel());
    }
  }

  Tensor own(size_t i, const Tensor& x) const override { return part(ranks_.rank(), i, x); }
  bool leads() const override { return ranks_.rank() == 0; }

  void complete(size_t first, std::span<const Tensor> tensors) const override {
    const auto parts_of = [&](int rank, auto f) {
      int64_t begin = 0;
      for (size_t i = 0; i < tensors.size(); ++i) {
        const int64_t size = edge(rank + 1, first + i, 1) - edge(rank, first + i, 1);
        if (size > 0) f(part(rank, first + i, tensors[i]), begin, begin + size);
        begin += size;
      }
    };
    int64_t most = 0;
    for (int rank = 0; rank < ranks_.size(); ++rank)
      most =
          std::max(most, edge(rank + 1, first, tensors.size()) - edge(rank, first, tensors.size()));
    Tensor sent = Tensor::zeros({most}, tensors.front().dtype());
    parts_of(ranks_.rank(), [&](const Tensor& own, int64_t begin, int64_t end) {
      copy_into(sent.slice(0, begin, end), own);
    });
    const Tensor all = ranks_.all_gather(sent);
    for (int rank = 0; rank < ranks_.size(); ++rank)
      if (rank != ranks_.rank())
        parts_of(rank, [&](Tensor own, int64_t begin, int64_t end) {
          copy_into(own, all.select(0, rank).slice(0, begin, end));
        });
  }

 private:
  Tensor part(int rank, size_t i, const Tensor& x) const {
    return flat(x).slice(0, edge(rank, i, 1) - first_[i], edge(rank + 1, i, 1) - first_[i]);
  }
  /// Returns a rank's first element among those of `count` parameters, starting with parameter i.
  int64_t edge(int64_t rank, size_t i, size_t count) const {
    return std::clamp(first_.back() * rank / ranks_.size(), first_[i], first_[i + count]);
  }

  Communicator& ranks_;
  std::vector<int64_t> first_{0};  // number of elements before each parameter, and in total
};

}  // namespace

std::unique_ptr<Division> rank_division(Communicator& ranks, const Parameters& parameters) {
  return std::make_unique<RankDivision>(ranks, parameters);
}

}  // namespace longhand::train
