#include "longhand/train/distributed/gradient_join.h"

#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/view.h"

namespace longhand::train {
namespace {

int64_t bytes_of(DType dtype) {
  return dispatch_float(dtype, []<class T>() { return static_cast<int64_t>(sizeof(T)); });
}

}  // namespace

GradientJoin::GradientJoin(const Parameters& parameters, const RankGrid& grid)
    : parameters_(parameters),
      grid_(grid),
      gradients_(parameters.size()),
      bucket_of_(parameters.size()),
      present_(Tensor::zeros({static_cast<int64_t>(parameters.size())}, DType::i64)) {
  for (size_t i = parameters.size(); i-- > 0;) {
    const Tensor& value = parameters[i].second.value();
    const bool full = buckets_.empty() || buckets_.back().dtype != value.dtype() ||
                      buckets_.back().elements * bytes_of(value.dtype()) >= bucket_bytes;
    if (full) buckets_.push_back({.dtype = value.dtype()});
    Bucket& bucket = buckets_.back();
    bucket.parameters.push_back(i);
    bucket.elements += value.numel();
    ++bucket.missing;
    bucket_of_[i] = buckets_.size() - 1;
  }
}

void GradientJoin::add(size_t i, Tensor gradient) {
  if (gradient) present_.data<int64_t>()[i] = 1;
  gradients_[i] = std::move(gradient);
  --buckets_[bucket_of_[i]].missing;
  send_complete();
}

void GradientJoin::send_complete() {
  for (; sent_ < buckets_.size() && buckets_[sent_].missing == 0; ++sent_) {
    Bucket& bucket = buckets_[sent_];
    bucket.values = Tensor::empty({bucket.elements}, bucket.dtype);
    int64_t begin = 0;
    for (const size_t i : bucket.parameters) {
      const int64_t n = parameters_[i].second.value().numel();
      Tensor part = bucket.values.slice(0, begin, begin + n);
      if (gradients_[i])
        copy_into(part, gradients_[i].in_memory_order().reshape({n}));
      else
        part.fill(-0.0);  // x + -0 = x, also for x = -0
      gradients_[i] = Tensor();
      begin += n;
    }
    start_sums(bucket.values, bucket.sums);
  }
}

void GradientJoin::start_sums(const Tensor& values, std::vector<std::future<void>>& sums) {
  // In the order of one engine, the second one begins after the first.
  sums.push_back(grid_.sequence().start_sum(values));
  sums.push_back(grid_.data().start_sum(values));
}

void GradientJoin::wait(std::vector<std::future<void>>& sums) {
  grid_.sequence().wait(std::move(sums[0]));
  grid_.data().wait(std::move(sums[1]));
}

Gradients GradientJoin::finish() {
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
        copy_into(gradients_[i].in_memory_order(),
                  sum.reshape(gradients_[i].in_memory_order().shape()));
      }
    }
  }
  return std::move(gradients_);
}

}  // namespace longhand::train
