// A data race in the body of a parallel loop, which the thread sanitizer must report: proof that it
// sees what runs on the threads of core/parallel.
#include <atomic>
#include <cstdio>
#include <thread>

#include "longhand/core/parallel.h"

int main() {
  longhand::set_threads(2);
  int sum = 0;
  std::atomic<int> arrived{0};
  longhand::parallel_for(2, 1, [&](int64_t begin, int64_t) {
    // Both threads are here; relaxed operations order nothing.
    arrived.fetch_add(1, std::memory_order_relaxed);
    while (arrived.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
    sum += static_cast<int>(begin) + 1;
  });
  std::printf("%d\n", sum);
}
