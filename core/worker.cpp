#include "longhand/core/worker.h"

#include <utility>

namespace longhand {

std::future<void> Worker::run(std::packaged_task<void()> job) {
  std::future<void> end = job.get_future();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return end;
}

void Worker::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) {
    {
      std::packaged_task<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }  // what the job owned is destroyed before the next one begins
    lock.lock();
  }
}

}  // namespace longhand
