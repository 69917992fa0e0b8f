// Dry runs: memory as in real ones, and no computation.
#include "longhand/core/dry_run.h"

#include <new>
#include <vector>

#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/core/measure/multiply_adds.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "longhand/core/storage.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("dry run: memory is counted but not taken, and nothing is computed") {
  const size_t before = memory_stats().in_use;
  Tensor left;
  {
    const DryRun dry(double{int64_t{1} << 44});
    CHECK(is_dry());
    CHECK(memory_stats().in_use == 0);
    {
      Tensor a = Tensor::empty({1 << 20, 1 << 18});  // 1 TiB
      fill_normal(a, Generator(1));
      CHECK(memory_stats().in_use == size_t{1} << 40);
      CHECK(a.at({5, 7}) == 0);
      MultiplyAdds count;
      Tensor c = Tensor::zeros({1 << 20, 64});
      matmul_into(c, a, Tensor::empty({1 << 18, 64}));
      CHECK(count.count() == int64_t{1} << 44);
      CHECK(memory_stats().peak > size_t{1} << 40);
    }
    CHECK(memory_stats().in_use == 0);
    bool called = false;
    parallel_for(4, 1, [&](int64_t, int64_t) { called = true; });
    CHECK_FALSE(called);
    CHECK(svd(Tensor::empty({3000, 3000})).s.numel() == 3000);
    Background job;  // at once, on this thread
    job.run([&] { called = is_dry(); });
    CHECK(called);
    job.wait();
    CHECK_THROWS_AS(Tensor::empty({int64_t{1} << 50}), std::bad_alloc);
    CHECK_THROWS_AS(DryRun(1), Error);
    left = Tensor::empty({1000});
  }
  CHECK_FALSE(is_dry());
  CHECK(memory_stats().in_use == before);
  left = Tensor();
  CHECK(memory_stats().in_use == before);
}

// Sanitized builds have no arena to compare with.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("dry run: the arena gives blocks as the real one does") {
  const auto grown = [] {
    const size_t before = memory_stats().reserved;
    std::vector<Tensor> kept;
    for (int64_t i = 1; i <= 40; ++i) {
      kept.push_back(Tensor::empty({i << 19}));
      if (i % 3 == 0) kept.erase(kept.begin() + i / 3);
    }
    return memory_stats().reserved - before;
  };
  release_free_memory();
  const size_t real = grown();
  release_free_memory();
  const DryRun dry(double{int64_t{1} << 40});
  const size_t found = grown(), page = size_t{2} << 20;
  CHECK(found <= real + page);
  CHECK(real <= found + page);
}
#endif
