// Sums the gradients of all ranks while the backward pass computes the next ones.
#include <future>
#include <utility>
#include <vector>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/view.h"
#include "longhand/train/ranks/grid.h"

namespace longhand::train {
namespace {

// Minimum bytes of a bucket: enough that a message takes longer than its start.
constexpr size_t bucket_bytes = size_t{1} << 20;

class GradientJoin final : public GradientSum {
 public:
  GradientJoin(const Parameters& parameters, const RankGrid& grid)
      : parameters_(parameters),
        grid_(grid),
        gradients_(parameters.size()),
        bucket_of_(parameters.size()),
        present_(Tensor::zeros({static_cast<int64_t>(parameters.size())}, DType::i64)) {
    for (size_t i = parameters.size(); i-- > 0;) {
      const Tensor& value = parameters[i].second.value();
      const bool full =
          buckets_.empty() || buckets_.back().dtype != value.dtype() ||
          static_cast<size_t>(buckets_.back().elements) * size_of(value.dtype()) >= bucket_bytes;
      if (full) buckets_.push_back({.dtype = value.dtype()});
      Bucket& bucket = buckets_.back();
      bucket.parameters.push_back(i);
      bucket.elements += value.numel();
      ++bucket.missing;
      bucket_of_[i] = buckets_.size() - 1;
    }
  }

  void add(size_t i, Tensor gradient) override {
    if (gradient) present_.data<int64_t>()[i] = 1;
    gradients_[i] = std::move(gradient);
    --buckets_[bucket_of_[i]].missing;
    send_complete();
  }

  void backward(const Variable& loss, TreeSum& shard, TreeSum& sum) override {
    Variables watched;
    for (const auto& [name, parameter] : parameters_) watched.push_back(parameter);
    std::vector<bool> added(parameters_.size());
    const auto add_next = [&](size_t i) {
      Tensor gradient = shard.last_gradient(i, take_gradient(parameters_[i].second));
      add(i, sum.last_gradient(i, std::move(gradient)));
      added[i] = true;
    };
    longhand::backward(loss, {}, watched, add_next);
    for (size_t i = 0; i < added.size(); ++i)
      if (!added[i]) add_next(i);
  }

  Gradients finish() override {
    check(sent_ == buckets_.size(), "gradient join: some gradients have not been added");
    std::vector<std::future<void>> sums;
    start_sums(present_, sums);
    for (Bucket& bucket : buckets_) wait(bucket.sums);
    wait(sums);
    for (Bucket& bucket : buckets_) {
      int64_t begin = 0;
      for (const size_t i : bucket.parameters) {
        const Tensor& value = parameters_[i].second.value();
        const Tensor sum = bucket.values.slice(0, begin, begin + value.numel());
        begin += value.numel();
        if (present_.data<int64_t>()[i] == 0) continue;
        if (value.is_contiguous()) {
          gradients_[i] = sum.reshape(value.shape());  // shares the memory of the bucket
        } else {
          gradients_[i] = Tensor::empty_ordered(value.shape(), value.dtype(), value.strides());
          copy_into(flat(gradients_[i]), sum);
        }
      }
    }
    return std::move(gradients_);
  }

 private:
  struct Bucket {
    std::vector<size_t> parameters{};
    int64_t elements = 0;
    DType dtype = DType::f32;
    size_t missing = 0;  // gradients not known yet
    Tensor values{};
    std::vector<std::future<void>> sums{};
  };

  void send_complete() {
    for (; sent_ < buckets_.size() && buckets_[sent_].missing == 0; ++sent_) {
      Bucket& bucket = buckets_[sent_];
      bucket.values = Tensor::empty({bucket.elements}, bucket.dtype);
      int64_t begin = 0;
      for (const size_t i : bucket.parameters) {
        const int64_t n = parameters_[i].second.value().numel();
        Tensor part = bucket.values.slice(0, begin, begin + n);
        if (gradients_[i])
          copy_into(part, flat(gradients_[i]));
        else
          part.fill(-0.0);  // x + -0 = x, also for x = -0
        gradients_[i] = Tensor();
        begin += n;
      }
      start_sums(bucket.values, bucket.sums);
    }
  }

  void start_sums(const Tensor& values, std::vector<std::future<void>>& sums) {
    // On a single engine these run in order: the second one starts after the first.
    sums.push_back(grid_.sequence().start_sum(values));
    sums.push_back(grid_.data().start_sum(values));
  }

  void wait(std::vector<std::future<void>>& sums) {
    grid_.sequence().wait(std::move(sums[0]));
    grid_.data().wait(std::move(sums[1]));
  }

  const Parameters& parameters_;
  const RankGrid& grid_;
  Gradients gradients_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  // by parameter
  size_t sent_ = 0;                // number of buckets sent
  Tensor present_;                 // by parameter: number of ranks with a gradient
};

}  // namespace

std::unique_ptr<GradientSum> gradient_join(const Parameters& parameters, const RankGrid& grid) {
  return std::make_unique<GradientJoin>(parameters, grid);
}

}  // namespace longhand::train
