// The only entry point to threads. Work is split by size, never by thread count, and partial
// results are combined in index order, so that results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "longhand/core/dry_run.h"
#include "longhand/core/memory/recycled.h"

namespace longhand {

/// Number of threads that parallel_for may use. Default: the cores this process may run on.
int threads();

/// Sets the number of threads, 1 to 1024, which may exceed the number of cores. Must not be called
/// while work is running. Throws ConfigError for other n, or n > 1 if OpenBLAS is not thread-safe.
void set_threads(int n);

namespace detail {
void parallel_blocks(int64_t blocks, void (*run)(void* context, int64_t block), void* context);
}

/// Calls body(begin, end) for the blocks [0, grain), [grain, 2 grain), … of [0, n), in parallel.
/// The blocks do not depend on the number of threads. The first exception that a body throws is
/// rethrown here. Calls may be nested. In a DryRun, nothing is called.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& body) {
  if (n <= 0 || is_dry()) return;
  grain = std::max<int64_t>(grain, 1);
  if (n <= grain) return body(int64_t{0}, n);
  struct Context {
    F& body;
    int64_t n, grain;
  } context{body, n, grain};
  detail::parallel_blocks((n + grain - 1) / grain,
                          [](void* p, int64_t block) {
                            auto& c = *static_cast<Context*>(p);
                            c.body(block * c.grain, std::min(c.n, (block + 1) * c.grain));
                          },
                          &context);
}

/// Calls body(i) for each i of the same blocks.
template <class F>
void parallel_for_each(int64_t n, int64_t grain, F&& body) {
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

/// Returns the sum of body(begin, end) over the same blocks, in index order. T needs += and T{}.
template <class T, class F>
T parallel_sum(int64_t n, int64_t grain, F&& body) {
  if (is_dry()) return {};
  grain = std::max<int64_t>(grain, 1);
  ShortVector<T> parts((std::max<int64_t>(n, 0) + grain - 1) / grain);
  parallel_for(n, grain,
               [&](int64_t begin, int64_t end) { parts[begin / grain] = body(begin, end); });
  T sum{};
  for (const T& part : parts) sum += part;
  return sum;
}

/// A job that runs in parallel with the caller, such as reading the next batch.
class Background {
 public:
  Background();
  /// Waits for the job; an exception that it threw is lost.
  ~Background();

  /// Starts a job. The previous one must have been waited for.
  void run(std::function<void()> work);
  /// Returns when the job is done (running it on this thread if no other was free) and rethrows
  /// what it threw. Returns at once if none was started.
  void wait();

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: nothing to wait for
};

}  // namespace longhand
