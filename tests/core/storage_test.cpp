#include "longhand/core/storage.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "longhand/core/tensor.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

constexpr size_t mib = size_t{1} << 20;

#ifdef __SANITIZE_ADDRESS__
constexpr bool blocks_are_kept = false;
#else
constexpr bool blocks_are_kept = true;
#endif

}  // namespace

TEST_CASE("blocks are aligned, large enough and writable") {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{127}, size_t{129},
        size_t{1000}, size_t{4097}, mib - 1, mib, 3 * mib + 1, 9 * mib - 1}) {
    Storage s(bytes);
    CHECK(reinterpret_cast<uintptr_t>(s.data()) % 64 == 0);
    CHECK(s.bytes() == bytes);
    std::memset(s.data(), 0xab, bytes);
  }
}

TEST_CASE("the pool counts what is in use and wastes at most a quarter") {
  release_free_memory();
  const MemoryStats before = memory_stats();
  for (size_t bytes = 64; bytes < 64 * mib; bytes = bytes * 5 / 4 + 1) {
    {
      Storage s(bytes);
      const size_t used = memory_stats().in_use - before.in_use;
      CHECK(used >= bytes);
      CHECK(static_cast<double>(used) <= 1.25 * static_cast<double>(bytes) + 64);
    }
    CHECK(memory_stats().in_use == before.in_use);
  }
  CHECK(memory_stats().peak >= before.in_use + 40 * mib);
  release_free_memory();
  CHECK(memory_stats().reserved == memory_stats().in_use);
}

TEST_CASE("freed blocks are handed out again") {
  release_free_memory();
  const size_t before = memory_stats().reserved;
  for (int round = 0; round < 10; ++round) {
    const Storage a(3 * mib), b(3 * mib);
    CHECK(a.data() != b.data());
    CHECK(memory_stats().reserved == before + 6 * mib);
  }
  if (blocks_are_kept) CHECK(memory_stats().reserved == before + 6 * mib);
  {
    const Storage smaller(3 * mib - 100);  // of the same class
    if (blocks_are_kept) CHECK(memory_stats().reserved == before + 6 * mib);
    release_free_memory();
    CHECK(memory_stats().reserved == before + 3 * mib);
  }
  release_free_memory();
  CHECK(memory_stats().reserved == before);
}

TEST_CASE("the peak is the most ever in use") {
  const size_t base = memory_stats().in_use;
  {
    const Storage a(200 * mib);
    CHECK(memory_stats().peak >= base + 200 * mib);
  }
  const size_t peak = memory_stats().peak;
  { const Storage b(mib); }
  CHECK(memory_stats().peak == peak);
  release_free_memory();
}

TEST_CASE("tensors give their memory back with the last handle") {
  const size_t before = memory_stats().in_use;
  {
    Tensor view;
    {
      const Tensor t = Tensor::empty({1024, 1024});
      view = t.slice(0, 0, 1);
    }
    CHECK(memory_stats().in_use == before + 4 * mib);
  }
  CHECK(memory_stats().in_use == before);
}

TEST_CASE("the pool serves many threads at once") {
  const size_t before = memory_stats().in_use;
  std::vector<std::thread> workers;
  std::vector<int> bad(4);
  for (int w = 0; w < 4; ++w)
    workers.emplace_back([w, &bad] {
      for (int i = 0; i < 2000; ++i) {
        Storage s(static_cast<size_t>(64 + i % 7 * 64));
        std::memset(s.data(), w, s.bytes());
        for (size_t k = 0; k < s.bytes(); ++k) bad[w] += s.data()[k] != static_cast<std::byte>(w);
      }
    });
  for (std::thread& t : workers) t.join();
  CHECK(bad == std::vector<int>(4));
  CHECK(memory_stats().in_use == before);
}
