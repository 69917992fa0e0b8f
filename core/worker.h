// Worker: a thread for jobs that mostly wait, such as communication.
#pragma once

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>

namespace longhand {

/// Runs jobs in the order of their arrival on its own thread, apart from those of parallel_for(),
/// which are for computing. The destructor runs the remaining jobs, then ends the thread.
class Worker {
 public:
  Worker() : thread_([this](const std::stop_token& stop) { work(stop); }) {}

  /// Queues a job and returns a future, which rethrows what the job threw.
  std::future<void> run(std::packaged_task<void()> job);

 private:
  void work(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::packaged_task<void()>> jobs_;
  std::jthread thread_;  // last, since it uses the others
};

}  // namespace longhand
