#include "longhand/core/parallel.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <memory>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"

namespace longhand {
namespace {

// One arena for the process: its size is the number of threads.
struct Pool {
  int threads;
  tbb::global_control limit;
  // Shared with background work, which ends where it began if set_threads() comes in between.
  std::shared_ptr<tbb::task_arena> arena;

  explicit Pool(int n)
      : threads(n),
        limit(tbb::global_control::max_allowed_parallelism, n),
        arena(std::make_shared<tbb::task_arena>(n)) {}
};

std::unique_ptr<Pool>& pool() {
  // Leaked: TBB's own static objects may be gone before ours.
  static auto* const pool = new std::unique_ptr<Pool>(
      std::make_unique<Pool>(std::max(1, tbb::info::default_concurrency())));
  return *pool;
}

}  // namespace

int threads() { return pool()->threads; }

void set_threads(int n) {
  check<ConfigError>(n >= 1, "threads: ", n, " is not at least 1");
  check_blas(n);
  if (n == threads()) return;
  pool().reset();  // the old limit must be gone before the new one, or the smaller of both holds
  pool() = std::make_unique<Pool>(n);
}

void detail::parallel_blocks(int64_t blocks, void (*run)(void*, int64_t), void* context) {
  if (threads() == 1) {
    for (int64_t i = 0; i < blocks; ++i) run(context, i);
    return;
  }
  const auto loop = [&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, blocks, 1),
        [&](const tbb::blocked_range<int64_t>& range) {
          for (int64_t i = range.begin(); i != range.end(); ++i) run(context, i);
        },
        tbb::simple_partitioner());
  };
  // Isolated: while it waits for its last blocks, this thread must not pick up other work, such as
  // a long piece of Background or a block of the loop around this one.
  pool()->arena->execute([&] { tbb::this_task_arena::isolate(loop); });
}

struct Background::State {
  tbb::task_group group;
  std::shared_ptr<tbb::task_arena> arena;
};

Background::Background() : state_(std::make_unique<State>()) {}

Background::~Background() {
  try {
    wait();
  } catch (...) {  // nobody is left to hear it
  }
}

void Background::run(std::function<void()> work) {
  state_->arena = pool()->arena;
  state_->arena->execute([&] { state_->group.run(std::move(work)); });
}

void Background::wait() {
  if (state_->arena) state_->arena->execute([&] { state_->group.wait(); });
}

}  // namespace longhand
