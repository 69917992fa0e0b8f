#include "longhand/core/communicator.h"

#include "longhand/core/error.h"
#include "longhand/core/worker.h"
#include "tests/support/catch.h"
#include "tests/support/communicator_check.h"
#include "tests/support/thread_ranks.h"

using namespace longhand;

TEST_CASE("one process is a group that sends nothing") {
  test::check_communicator(alone());
  CHECK(alone().traffic().bytes == 0);
}

TEST_CASE("threads as ranks keep what a communicator promises") {
  for (const int count : {1, 2, 3, 4, 8}) test::run_ranks(count, test::check_communicator);
}

TEST_CASE("a tree sum adds neighbours first, and refuses what does not fit") {
  // 1e8 + 1 = 1e8 in f32: the order decides.
  Tensor x = Tensor::from(std::vector<float>{1e8f, 1, -1e8f, 1}, {4, 1});
  Tensor sum = Tensor::empty({1});
  tree_sum(sum, x);
  CHECK(sum.item() == 0);
  CHECK_THROWS_AS(tree_sum(sum, sum), ShapeError);
}

TEST_CASE("a rank that fails ends the others") {
  CHECK_THROWS_WITH(test::run_ranks(3,
                                    [](Communicator& ranks) {
                                      if (ranks.rank() == 2) throw Error("rank 2 fails");
                                      ranks.barrier();
                                    }),
                    "rank 2 fails");
}

TEST_CASE("a worker runs jobs in order, passes exceptions on and finishes what it was given") {
  std::vector<int> order;
  {
    Worker worker;
    std::vector<std::future<void>> ends;
    for (int i = 0; i < 100; ++i)
      ends.push_back(worker.run(std::packaged_task<void()>([&order, i] { order.push_back(i); })));
    std::future<void> failing = worker.run(std::packaged_task<void()>([] { throw Error("no"); }));
    CHECK_THROWS_WITH(failing.get(), "no");
    ends.back().get();
    worker.run(std::packaged_task<void()>([&order] { order.push_back(100); }));
  }
  REQUIRE(order.size() == 101);
  for (int i = 0; i < 101; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}
