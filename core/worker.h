// Worker: a thread for jobs that mostly wait, such as communication.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

namespace longhand {

/// Runs jobs in the order of their arrival on one thread of its own, beside those of parallel_for, which
/// are for computing.
class Worker {
 public:
  Worker();
  /// Runs the jobs that have been given, then ends the thread.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Returns what to wait for; it rethrows what the job threw.
  std::future<void> run(std::packaged_task<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace longhand
