// Ranks as threads of one process: a Communicator in which everything follows from one exchange of tensors.
#pragma once

#include <algorithm>
#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "longhand/core/communicator.h"

namespace longhand {

// What the ranks of a group share: a place for each, and a barrier at which all wait for all.
struct Shared {
  explicit Shared(size_t n) : tensors(n), texts(n), groups(n), meet(std::ptrdiff_t(n)) {}
  std::vector<Tensor> tensors;
  std::vector<std::string> texts;
  std::vector<std::shared_ptr<Shared>> groups;
  std::barrier<> meet;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return int(shared_->tensors.size()); }

  // Puts x in the place of this rank, waits for the others, and calls read(rank, its tensor) for each.
  template <class F>
  void exchange(const Tensor& x, F read) {
    shared_->tensors[size_t(rank_)] = x;
    shared_->meet.arrive_and_wait();
    for (int r = 0; r < size(); ++r) read(r, shared_->tensors[size_t(r)]);
    shared_->meet.arrive_and_wait();  // until all have read, nobody may go on and change x
  }
  Tensor all_gather(const Tensor& x) override {
    Tensor out = Tensor::empty(x.shape().with_axis(0, size()), x.dtype());
    exchange(x, [&](int r, const Tensor& y) { copy_into(out.select(0, r), y); });
    return count(x.numel() * (size() - 1), out);
  }
  Tensor all_to_all(const Tensor& x) override {
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    exchange(x, [&](int r, const Tensor& y) { copy_into(out.select(0, r), y.select(0, rank_)); });
    return count(x.numel() / size() * (size() - 1), out);
  }
  std::future<void> start_shift(Tensor x, Tensor out, int distance) override {
    const int from = ((rank_ - distance) % size() + size()) % size();
    const auto read = [&](int r, const Tensor& y) {
      return r == from ? copy_into(out, y) : void();
    };
    exchange(x, read);
    count(x.numel(), out);
    return {};
  }
  std::future<void> start_sum(Tensor x) override {
    Tensor all = all_gather(x);
    tree_sum(x, all);
    return {};
  }
  Tensor sum_scatter(const Tensor& x) override {
    Tensor all = all_to_all(x), out = Tensor::empty(x.shape().without_axis(0), x.dtype());
    tree_sum(out, all);
    return out;
  }
  std::vector<std::string> gather(const std::string& own) override {
    shared_->texts[size_t(rank_)] = own;
    shared_->meet.arrive_and_wait();
    const std::vector<std::string> all = shared_->texts;
    shared_->meet.arrive_and_wait();
    return all;
  }
  void broadcast(std::string& bytes) override { bytes = gather(bytes)[0]; }
  void barrier() override { gather(""); }
  std::unique_ptr<Communicator> split(int group) override {
    const std::vector<std::string> groups = gather(std::to_string(group));
    const auto first = size_t(std::ranges::find(groups, groups[size_t(rank_)]) - groups.begin());
    const auto before = std::count(groups.begin(), groups.begin() + rank_, groups[first]);
    const auto members = size_t(std::ranges::count(groups, groups[first]));
    if (before == 0) shared_->groups[first] = std::make_shared<Shared>(members);
    shared_->meet.arrive_and_wait();
    return std::make_unique<ThreadRank>(shared_->groups[first], int(before));
  }
  void wait(std::future<void> operation) override { operation = {}; }
  Traffic traffic() const override { return traffic_; }

 private:
  Tensor count(int64_t sent, const Tensor& x) {
    traffic_.bytes += sent * (x.dtype() == DType::f64 || x.dtype() == DType::i64 ? 8 : 4);
    return x;
  }
  std::shared_ptr<Shared> shared_;
  int rank_;
  Traffic traffic_;
};

// Calls body(ranks) on n threads, each of which is a rank. An exception ends the program.
inline void run_ranks(int n, const std::function<void(Communicator&)>& body) {
  const auto shared = std::make_shared<Shared>(size_t(n));
  std::vector<std::jthread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] { body(*std::make_unique<ThreadRank>(shared, r)); });
}

}  // namespace longhand
