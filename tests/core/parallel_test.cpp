#include "longhand/core/parallel.h"

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "longhand/core/error.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("blocks cover the range once, for any number of threads") {
  for (const int64_t n : {0, 1, 7, 8, 9, 1000})
    for (const int64_t grain : {-1, 0, 1, 4, 8, 5000}) {
      std::set<std::pair<int64_t, int64_t>> first;
      for (const int count : {1, 2, 5}) {
        const WithThreads with(count);
        std::mutex mutex;
        std::set<std::pair<int64_t, int64_t>> blocks;
        std::vector<std::atomic<int>> seen(n);
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[i];
          std::lock_guard lock(mutex);
          blocks.emplace(begin, end);
        });
        for (const auto& s : seen) CHECK(s == 1);
        parallel_for_each(n, grain, [&](int64_t i) { ++seen[i]; });
        for (const auto& s : seen) CHECK(s == 2);
        if (count == 1) first = blocks;
        CHECK(blocks == first);
      }
    }
  int calls = 0;
  parallel_for(-3, 1, [&](int64_t, int64_t) { ++calls; });
  CHECK(calls == 0);
}

TEST_CASE("work is distributed to more than one thread") {
  const WithThreads with(2);
  std::atomic<int> arrived{0};
  // Each of two blocks waits for the other, so a single thread would not finish.
  std::atomic<bool> both{false};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    ++arrived;
    for (int i = 0; i < 10000 && arrived < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (arrived == 2) both = true;
  });
  CHECK(both);
}

TEST_CASE("a loop ends after its last block, on whatever thread that runs") {
  const WithThreads with(2);
  const auto owner = std::this_thread::get_id();
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> arrived{0}, done{0};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      // Each of the two threads runs one block, and the other thread is slow.
      ++arrived;
      for (int i = 0; i < 10000 && arrived < 2; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (std::this_thread::get_id() != owner)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++done;
    });
    REQUIRE(done == 2);
  }
}

TEST_CASE("exceptions reach the caller") {
  for (const int count : {1, 4}) {
    const WithThreads with(count);
    CHECK_THROWS_AS(parallel_for(100, 1,
                                 [](int64_t begin, int64_t) {
                                   if (begin == 57) throw ShapeError("block 57");
                                 }),
                    ShapeError);
    CHECK_THROWS_WITH(parallel_for(1, 1, [](int64_t, int64_t) { throw Error("only"); }), "only");
    // The threads remain usable.
    CHECK(parallel_sum<int64_t>(100, 3, [](int64_t a, int64_t b) { return b - a; }) == 100);
  }
}

TEST_CASE("loops nest") {
  for (const int count : {1, 4}) {
    const WithThreads with(count);
    std::vector<std::atomic<int>> seen(20 * 30);
    parallel_for(20, 3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        parallel_for(30, 4, [&, i](int64_t from, int64_t to) {
          for (int64_t j = from; j < to; ++j) ++seen[i * 30 + j];
        });
    });
    for (const auto& s : seen) CHECK(s == 1);
  }
}

TEST_CASE("a thread that waits for an inner loop does not run blocks of the outer one") {
  const WithThreads with(4);
  thread_local bool inside = false;
  std::atomic<int> mixed{0};
  for (int repeat = 0; repeat < 5; ++repeat)
    parallel_for(60, 1, [&](int64_t, int64_t) {
      if (inside) ++mixed;
      inside = true;
      const auto owner = std::this_thread::get_id();
      // The helping thread is slow, so that the owner has to wait for it.
      parallel_for(2, 1, [&](int64_t, int64_t) {
        const bool helper = std::this_thread::get_id() != owner;
        std::this_thread::sleep_for(std::chrono::microseconds(helper ? 2000 : 50));
      });
      inside = false;
    });
  CHECK(mixed == 0);
}

TEST_CASE("sums have the same bits for any number of threads") {
  const int64_t n = 100000;
  const auto sum = [&](int64_t grain) {
    return parallel_sum<float>(n, grain, [](int64_t begin, int64_t end) {
      float s = 0;
      for (int64_t i = begin; i < end; ++i) s += std::sin(static_cast<float>(i));
      return s;
    });
  };
  float first = 0;
  {
    const WithThreads with(1);
    first = sum(64);
    CHECK(first != sum(n));  // the order does matter
  }
  for (const int count : {2, 3, 8})
    for (int repeat = 0; repeat < 10; ++repeat) {
      const WithThreads with(count);
      CHECK(sum(64) == first);
    }
  CHECK(parallel_sum<double>(0, 5, [](int64_t, int64_t) { return 1.0; }) == 0);
}

TEST_CASE("the number of threads is at least one") {
  const int before = threads();
  CHECK(before >= 1);
  CHECK_THROWS_AS(set_threads(0), ConfigError);
  CHECK_THROWS_AS(set_threads(-2), ConfigError);
  CHECK_THROWS_AS(set_threads(1025), ConfigError);
  CHECK(threads() == before);
  const WithThreads with(3);
  CHECK(threads() == 3);
}

TEST_CASE("background work begins while loops follow one another without a pause") {
  const WithThreads with(2);
  std::atomic<bool> begun{false};
  Background background;
  const auto loops_until = [&](auto limit) {
    const auto start = std::chrono::steady_clock::now();
    while (!begun && std::chrono::steady_clock::now() - start < limit)
      // Long enough for both threads to take part.
      parallel_for(4, 1, [](int64_t, int64_t) {
        const auto begin = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(20)) {
        }
      });
  };
  loops_until(std::chrono::milliseconds(20));  // the second thread is helping now
  background.run([&] { begun = true; });
  loops_until(std::chrono::seconds(2));
  CHECK(begun);
  background.wait();
}

TEST_CASE("several threads run loops at once, more than there are places for") {
  const WithThreads with(2);
  constexpr int callers = 12;
  std::atomic<int64_t> sum{0};
  std::atomic<int> arrived{0};
  std::vector<std::thread> all;
  for (int caller = 0; caller < callers; ++caller)
    all.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat)
        parallel_for(20, 1, [&](int64_t begin, int64_t) {
          if (repeat == 0 && begin == 0) {  // no loop ends before all have begun
            ++arrived;
            while (arrived < callers) std::this_thread::yield();
          }
          sum += begin;
        });
    });
  for (std::thread& caller : all) caller.join();
  CHECK(sum == callers * 50 * 190);
}

TEST_CASE("background work is done after wait()") {
  for (const int count : {1, 2}) {
    const WithThreads with(count);
    Background background;
    CHECK_NOTHROW(background.wait());
    for (int round = 0; round < 50; ++round) {
      int result = 0;
      background.run([&] { result = round + 1; });
      double other = 0;
      parallel_for(100, 10, [&](int64_t begin, int64_t) {
        if (begin == 0) other = 1;
      });
      background.wait();
      CHECK(result == round + 1);
      CHECK(other == 1);
      CHECK_NOTHROW(background.wait());
    }
  }
}

TEST_CASE("background work runs in parallel with the caller") {
  const WithThreads with(2);
  Background background;
  std::atomic<bool> done{false};
  background.run([&] { done = true; });
  for (int i = 0; i < 10000 && !done; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(done);
  background.wait();
}

TEST_CASE("wait() rethrows an exception of background work, once") {
  for (const int count : {1, 2}) {
    const WithThreads with(count);
    Background background;
    background.run([] { throw DataError("gone"); });
    CHECK_THROWS_WITH(background.wait(), "gone");
    CHECK_NOTHROW(background.wait());
    int result = 0;
    background.run([&] { result = 1; });
    background.wait();
    CHECK(result == 1);
    background.run([] { throw DataError("not waited for"); });
  }
}

TEST_CASE("the destructor of Background waits for its work") {
  for (const int count : {1, 2}) {
    const WithThreads with(count);
    std::atomic<int> finished{0};
    {
      Background background;
      background.run([&] { parallel_for(10, 1, [&](int64_t, int64_t) { ++finished; }); });
    }
    CHECK(finished == 10);
  }
}

TEST_CASE("background work that waits for a thread survives set_threads()") {
  const WithThreads with(1);
  Background background;
  int result = 0;
  background.run([&] { result = 1; });
  set_threads(2);
  background.wait();
  CHECK(result == 1);
}
