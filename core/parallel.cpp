#include "longhand/core/parallel.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <memory>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"

#ifdef LONGHAND_TSAN  // defined by CMakeLists.txt
#include <sanitizer/tsan_interface.h>
#endif

namespace longhand {
namespace {

// Neither oneTBB nor this file is instrumented by the thread sanitizer, which therefore does not see
// that spawning a task happens before the task runs, and the end of the task before the wait returns.
// One of these states it: release() on the earlier side, acquire() on the later one.
struct HappensBefore {
#ifdef LONGHAND_TSAN
  void release() { __tsan_release(this); }
  void acquire() { __tsan_acquire(this); }
  char address = 0;
#else
  void release() {}
  void acquire() {}
#endif
};

// release() or acquire() at the end of a scope, also when it is left by an exception.
struct ReleaseAtEnd {
  HappensBefore& end;
  ~ReleaseAtEnd() { end.release(); }
};
struct AcquireAtEnd {
  HappensBefore& end;
  ~AcquireAtEnd() { end.acquire(); }
};

// The process has one arena, whose size is the number of threads.
struct Pool {
  int threads;
  tbb::global_control limit;
  // Shared with background work, which ends in the arena where it began even after set_threads().
  std::shared_ptr<tbb::task_arena> arena;

  explicit Pool(int n)
      : threads(n),
        limit(tbb::global_control::max_allowed_parallelism, n),
        arena(std::make_shared<tbb::task_arena>(n)) {}
};

std::unique_ptr<Pool>& pool() {
  // Leaked, since TBB's own static objects may be destroyed before ours.
  static auto* const pool = new std::unique_ptr<Pool>(
      std::make_unique<Pool>(std::max(1, tbb::info::default_concurrency())));
  return *pool;
}

}  // namespace

int threads() { return pool()->threads; }

void set_threads(int n) {
  check<ConfigError>(n >= 1, "threads: expected at least 1, got ", n);
  check_blas(n);
  if (n == threads()) return;
  pool().reset();  // first, since the smaller of two limits that exist at once applies
  pool() = std::make_unique<Pool>(n);
}

void detail::parallel_blocks(int64_t blocks, void (*run)(void*, int64_t), void* context) {
  if (threads() == 1) {
    for (int64_t i = 0; i < blocks; ++i) run(context, i);
    return;
  }
  HappensBefore start, end;
  const auto loop = [&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, blocks, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          const ReleaseAtEnd release{end};
          start.acquire();
          for (int64_t i = range.begin(); i != range.end(); ++i) run(context, i);
        },
        tbb::simple_partitioner());
  };
  const AcquireAtEnd acquire{end};
  start.release();
  // Isolated: while it waits for its last blocks, this thread must not pick up other work, such as
  // a long Background job or a block of an enclosing loop.
  pool()->arena->execute([&] { tbb::this_task_arena::isolate(loop); });
}

struct Background::State {
  tbb::task_group group;
  std::shared_ptr<tbb::task_arena> arena;
  HappensBefore start, end;
};

Background::Background() : state_(std::make_unique<State>()) {}

Background::~Background() {
  try {
    wait();
  } catch (...) {  // documented as lost
  }
}

void Background::run(std::function<void()> work) {
  state_->arena = pool()->arena;
  state_->start.release();
  auto task = [state = state_.get(), work = std::move(work)] {
    const ReleaseAtEnd release{state->end};
    state->start.acquire();
    work();
  };
  state_->arena->execute([&] { state_->group.run(std::move(task)); });
}

void Background::wait() {
  if (!state_->arena) return;
  const AcquireAtEnd acquire{state_->end};
  state_->arena->execute([&] { state_->group.wait(); });
}

}  // namespace longhand
