#include "tests/support/thread_ranks.h"

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::test {
namespace {

/// Thrown on ranks that wait for one which has ended with an exception.
struct Abandoned : Error {
  Abandoned() : Error("another rank has failed") {}
};

/// What the ranks of a group share: a place for one message of each, and turns in which they are read.
struct Shared {
  explicit Shared(int n) : size(n), messages(static_cast<size_t>(n)) {}

  /// Puts `message` in the place of `rank`, waits for those of the others, and calls read(messages)
  /// before anyone may write again.
  template <class F>
  void exchange(int rank, std::string message, F read) {
    {
      std::unique_lock lock(mutex);
      messages[static_cast<size_t>(rank)] = std::move(message);
      meet(lock);
    }
    read(std::as_const(messages));
    std::unique_lock lock(mutex);
    meet(lock);
  }

  void meet(std::unique_lock<std::mutex>& lock) {
    const int64_t turn = turns;
    if (++present == size) {
      present = 0;
      ++turns;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return turns != turn || failed; });
    if (turns == turn) throw Abandoned();
  }

  void fail() {
    const std::lock_guard lock(mutex);
    failed = true;
    changed.notify_all();
    for (const auto& [name, group] : groups) group->fail();
  }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> messages;
  int present = 0;
  int64_t turns = 0;
  bool failed = false;
  std::map<std::pair<int64_t, int>, std::shared_ptr<Shared>> groups;  // by split() and its group
};

class ThreadRank final : public Communicator {
 public:
  ThreadRank(std::shared_ptr<Shared> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return shared_->size; }

  std::future<void> start_sum(Tensor x) override {
    Tensor all = all_gather(x);
    tree_sum(x, all);
    std::promise<void> done;
    done.set_value();
    return done.get_future();
  }
  Tensor all_gather(const Tensor& x) override {
    Tensor out = Tensor::empty(x.shape().with_axis(0, size()), x.dtype());
    exchange(bytes(x), [&](const auto& all) {
      for (int r = 0; r < size(); ++r) set(out.select(0, r), all[static_cast<size_t>(r)]);
    });
    sent(x, size() - 1);
    return out;
  }
  Tensor sum_scatter(const Tensor& x) override {
    Tensor all = all_to_all(x), out = Tensor::empty(x.shape().without_axis(0), x.dtype());
    tree_sum(out, all);
    return out;
  }
  Tensor all_to_all(const Tensor& x) override {
    check<ShapeError>(x.rank() >= 1 && x.size(0) == size(), "thread ranks: expected (", size(),
                      ", …), got ", x.shape());
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    exchange(bytes(x), [&](const auto& all) {
      const size_t part = all[0].size() / static_cast<size_t>(size());
      for (int r = 0; r < size(); ++r)
        set(out.select(0, r),
            all[static_cast<size_t>(r)].substr(part * static_cast<size_t>(rank_), part));
    });
    sent(x.select(0, 0), size() - 1);
    return out;
  }
  std::future<void> start_shift(Tensor x, Tensor out, int distance) override {
    const int from = ((rank_ - distance) % size() + size()) % size();
    exchange(bytes(x), [&](const auto& all) { set(out, all[static_cast<size_t>(from)]); });
    sent(x, from != rank_);
    return {};
  }
  void broadcast(std::string& text) override {
    const std::string own = rank_ == 0 ? text : "";
    exchange(own, [&](const auto& all) { text = all[0]; });
  }
  std::vector<std::string> gather(const std::string& own) override {
    std::vector<std::string> out;
    exchange(own, [&](const auto& all) { out = all; });
    return out;
  }
  void barrier() override { gather(""); }

  std::unique_ptr<Communicator> split(int group) override {
    const std::vector<std::string> groups = gather(std::to_string(group));
    int members = 0, rank = 0;
    for (int r = 0; r < size(); ++r)
      if (groups[static_cast<size_t>(r)] == std::to_string(group)) {
        rank += r < rank_;
        ++members;
      }
    const std::lock_guard lock(shared_->mutex);
    std::shared_ptr<Shared>& part = shared_->groups[{splits_++, group}];
    if (!part) part = std::make_shared<Shared>(members);
    return std::make_unique<ThreadRank>(part, rank);
  }

  void wait(std::future<void> operation) override {
    if (operation.valid()) operation.get();
  }
  Traffic traffic() const override { return traffic_; }

 private:
  template <class F>
  void exchange(std::string message, F read) {
    shared_->exchange(rank_, std::move(message), std::move(read));
    ++traffic_.operations;
  }
  static std::string bytes(const Tensor& x) {
    return dispatch_any(x.dtype(), [&]<class T>() {
      const std::vector<T> values = x.to_vector<T>();
      return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    });
  }
  static void set(Tensor out, const std::string& bytes) {
    dispatch_any(out.dtype(), [&]<class T>() {
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(out.data<T>()));
    });
  }
  void sent(const Tensor& x, int receivers) {
    const auto size = dispatch_any(x.dtype(), []<class T>() { return sizeof(T); });
    traffic_.bytes += x.numel() * static_cast<int64_t>(size) * receivers;
  }

  std::shared_ptr<Shared> shared_;
  int rank_;
  int64_t splits_ = 0;
  Traffic traffic_;
};

}  // namespace

void run_ranks(int count, const std::function<void(Communicator&)>& body) {
  const auto shared = std::make_shared<Shared>(count);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadRank ranks(shared, rank);
        body(ranks);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
        shared->fail();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    if (!first) first = error;
    try {
      std::rethrow_exception(error);
    } catch (const Abandoned&) {
    } catch (...) {
      throw;
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace longhand::test
