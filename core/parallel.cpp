#include "longhand/core/parallel.h"

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"

#ifdef LONGHAND_TSAN  // defined by CMakeLists.txt
#include <sanitizer/tsan_interface.h>
#endif

namespace longhand {
namespace {

// Neither oneTBB nor this file is instrumented by the thread sanitizer. It therefore does not see
// that spawning a task happens before the task runs, and the end of the task before the wait
// returns. One of these declares it: release() on the earlier side, acquire() on the later one.
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

// Calls release() or acquire() at the end of a scope, even if it is left by an exception.
struct ReleaseAtEnd {
  HappensBefore& end;
  ~ReleaseAtEnd() { end.release(); }
};
struct AcquireAtEnd {
  HappensBefore& end;
  ~AcquireAtEnd() { end.acquire(); }
};

// A running loop. Its blocks are divided into one share per thread. A thread takes the blocks of
// its own share first, in order, then those left in other shares. Successive loops over the same
// rows therefore find most of them in the caches of the same core.
class Loop {
 public:
  HappensBefore start{}, end{};

  Loop(int64_t blocks, int threads, void (*run)(void*, int64_t), void* context)
      : run_(run), context_(context), shares_(std::min(threads, most_shares)) {
    for (int i = 0; i < shares_; ++i) {
      share_[i].next.store(blocks * i / shares_, std::memory_order_relaxed);
      share_[i].end = blocks * (i + 1) / shares_;
    }
  }

  bool has_blocks() const {
    for (int i = 0; i < shares_; ++i)
      if (share_[i].next.load(std::memory_order_relaxed) < share_[i].end) return true;
    return false;
  }

  // Returns when no block is left to take; other threads may still be running theirs.
  void work(int thread) {
    const ReleaseAtEnd release{end};
    start.acquire();
    try {
      for (int i = 0; i < shares_; ++i) {
        Share& share = share_[(thread + i) % shares_];
        for (int64_t block;
             (block = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
          run_(context_, block);
      }
    } catch (...) {
      for (int i = 0; i < shares_; ++i)
        share_[i].next.store(share_[i].end, std::memory_order_relaxed);
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  // The first error. Read it only when no thread works on the loop any more.
  const std::exception_ptr& error() const { return error_; }

 private:
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  static constexpr int most_shares = 16;  // on the stack

  void (*run_)(void*, int64_t);
  void* context_;
  int shares_;
  Share share_[most_shares];
  std::atomic<bool> failed_{false};
  std::exception_ptr error_{};
};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Waits in turns: the first take nanoseconds, later ones let other threads and processes run first.
class Wait {
 public:
  void turn() {
    if (++turns_ < 1000)
      pause();
    else
      std::this_thread::yield();
  }

 private:
  int turns_ = 0;
};

// The threads of the process, in one oneTBB arena, and the loops that they run.
//
// Waking a sleeping thread takes 20 to 50 µs, longer than many loops. A thread that has helped with
// a loop therefore watches for the next one for a while: see help().
class Pool {
 public:
  explicit Pool(int n)
      : threads(n),
        arena_(n),
        places_(static_cast<size_t>(2 * n)),
        numbers_(static_cast<size_t>(n)) {}

  ~Pool() { stop(); }

  // Returns when no thread is watching for loops any more.
  void stop() {
    stopped_ = true;
    for (Wait wait; inside_ > 0;) wait.turn();
  }

  // Runs all blocks, on this thread and on helping threads.
  void run(Loop& loop, int64_t blocks) {
    const AcquireAtEnd acquire{loop.end};
    loop.start.release();
    Place* const place = publish(loop);
    if (place) call_helpers(std::min<int64_t>(threads, blocks) - 1);
    loop.work(0);
    if (place) withdraw(*place);
    if (loop.error()) std::rethrow_exception(loop.error());
  }

  // Starts a task on another thread. A thread leaves help() for it, until begun() is called.
  template <class F>
  void start(F task) {
    ++jobs_;
    arena_.enqueue(std::move(task));
  }
  void begun() { --jobs_; }

  const int threads;

 private:
  // A running loop, if `loop` is not null. A helper reads `loop` only while it counts among the
  // users, and withdraw() waits until there are none.
  struct alignas(64) Place {
    std::atomic<bool> taken{false};
    std::atomic<Loop*> loop{nullptr};
    std::atomic<int> users{0};
  };

  // The number of a helping thread, from 1: the smallest that no other thread has.
  struct Number {
    explicit Number(std::vector<std::atomic<bool>>& all) : taken(all) {
      while (value < static_cast<int>(taken.size()) && taken[value].exchange(true)) ++value;
    }
    ~Number() {
      if (value < static_cast<int>(taken.size())) taken[value] = false;
    }
    std::vector<std::atomic<bool>>& taken;
    int value = 1;
  };

  // Returns null if all places are taken, by nested loops on other threads.
  Place* publish(Loop& loop) {
    for (Place& place : places_) {
      if (place.taken.exchange(true)) continue;
      place.loop = &loop;
      ++loops_;
      return &place;
    }
    return nullptr;
  }
  void withdraw(Place& place) {
    --loops_;
    place.loop = nullptr;
    for (Wait wait; place.users > 0;) wait.turn();
    place.taken = false;
  }

  void call_helpers(int64_t wanted) {
    for (int now = helpers_; now < wanted;)
      if (helpers_.compare_exchange_weak(now, now + 1)) {
        ++inside_;
        try {
          arena_.enqueue([this] {
            help();
            --inside_;  // last, as the pool may be destroyed now
          });
        } catch (const std::bad_alloc&) {  // fewer threads will do
          --helpers_;
          --inside_;
          return;
        }
        ++now;
      }
  }

  // Helps with loops until none came for longer than the usual gaps within a training step.
  void help() {
    using Clock = std::chrono::steady_clock;
    const Number number(numbers_);
    do {
      Wait wait;
      for (auto last = Clock::now(); !has_to_leave() && Clock::now() - last < patience;) {
        if (loops_ > 0 && visit(number.value)) {
          wait = {};
          last = Clock::now();
        } else {
          wait.turn();
        }
      }
      --helpers_;
      // A loop that was published before this may have counted on this thread.
    } while (loops_ > 0 && !has_to_leave() && return_to_work());
  }
  bool has_to_leave() const { return stopped_ || jobs_ > 0; }
  bool return_to_work() {
    int now = helpers_;
    while (now < threads - 1)
      if (helpers_.compare_exchange_weak(now, now + 1)) return true;
    return false;
  }

  // Helps with every loop; returns whether there was one with blocks left.
  bool visit(int thread) {
    bool found = false;
    for (Place& place : places_) {
      if (!place.loop) continue;
      ++place.users;
      if (Loop* const loop = place.loop; loop && loop->has_blocks()) {
        found = true;
        loop->work(thread);
      }
      --place.users;
    }
    return found;
  }

  static constexpr std::chrono::microseconds patience{200};

  tbb::task_arena arena_;
  std::vector<Place> places_;
  std::vector<std::atomic<bool>> numbers_;  // whether a helping thread has this number
  std::atomic<int> loops_{0}, helpers_{0}, inside_{0}, jobs_{0};
  std::atomic<bool> stopped_{false};
};

struct Process {
  std::unique_ptr<tbb::global_control> limit;
  std::shared_ptr<Pool> pool;  // shared with background jobs, which end where they began

  void set(int n) {
    if (pool) pool->stop();
    pool.reset();
    limit.reset();  // first, since the smaller of two limits that exist at once applies
    limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                  static_cast<size_t>(n));
    pool = std::make_shared<Pool>(n);
  }
};

Process& process() {
  // Leaked, since TBB's own static objects may be destroyed before ours.
  static Process* const process = [] {
    auto* const made = new Process;
    made->set(std::max(1, tbb::info::default_concurrency()));
    return made;
  }();
  return *process;
}

}  // namespace

int threads() { return process().pool->threads; }

void set_threads(int n) {
  // No machine has that many cores, and systems refuse to start that many threads.
  check<ConfigError>(n >= 1 && n <= 1024, "threads: expected 1 to 1024, got ", n);
  check_blas(n);
  if (n != threads()) process().set(n);
}

void detail::parallel_blocks(int64_t blocks, void (*run)(void*, int64_t), void* context) {
  if (threads() == 1) {
    for (int64_t i = 0; i < blocks; ++i) run(context, i);
    return;
  }
  const std::shared_ptr<Pool>& pool = process().pool;
  Loop loop(blocks, pool->threads, run, context);
  pool->run(loop, blocks);
}

struct Background::State {
  enum { waiting, running, done };

  std::shared_ptr<Pool> pool;
  std::function<void()> work;
  HappensBefore start{}, end{}, dropped{};
  std::atomic<int> state{waiting}, owners{1};
  std::exception_ptr error{};

  State(std::shared_ptr<Pool> p, std::function<void()> w)
      : pool(std::move(p)), work(std::move(w)) {}

  // The last owner deletes the state: the waiting thread, or the one that runs the job.
  void drop() {
    dropped.release();
    if (owners.fetch_sub(1) > 1) return;
    dropped.acquire();
    delete this;
  }

  // Runs the job unless another thread has begun it.
  void run_once() {
    int expected = waiting;
    if (!state.compare_exchange_strong(expected, running)) return;
    if (pool->threads > 1) pool->begun();
    {
      const ReleaseAtEnd release{end};
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      work = {};
    }
    state = done;
    state.notify_all();
  }
};

Background::Background() = default;

Background::~Background() {
  try {
    wait();
  } catch (...) {  // documented as lost
  }
}

void Background::run(std::function<void()> work) {
  if (is_dry()) return work();
  State* const state = new State(process().pool, std::move(work));
  state_ = std::shared_ptr<State>(state, [](State* s) { s->drop(); });
  state->start.release();
  if (state->pool->threads == 1) return;
  ++state->owners;
  try {
    state->pool->start([state] {
      state->start.acquire();
      state->run_once();
      state->drop();
    });
  } catch (...) {
    state->drop();
    throw;
  }
}

void Background::wait() {
  if (!state_) return;
  const std::shared_ptr<State> state = std::move(state_);
  state->run_once();
  state->state.wait(State::running);
  state->end.acquire();
  // Reset here, not by the other thread, which may be the last to drop the state.
  state->pool.reset();
  const std::exception_ptr error = std::exchange(state->error, {});
  if (error) std::rethrow_exception(error);
}

}  // namespace longhand
