#include "longhand/core/storage.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "longhand/core/tensor.h"
#include "tests/support/catch.h"

using namespace longhand;

// While it is set, operator new throws on this thread, in all of this program.
static thread_local bool allocations_fail = false;

// Not inlined: GCC would take free() for the wrong way to free what came from new.
[[gnu::noinline]] void* operator new(size_t size) {
  void* const memory = allocations_fail ? nullptr : std::malloc(std::max<size_t>(size, 1));
  if (!memory) throw std::bad_alloc();
  return memory;
}
// Its default calls the operator above, but the address sanitizer has one of its own.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return allocations_fail ? nullptr : std::malloc(std::max<size_t>(size, 1));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

constexpr size_t mib = size_t{1} << 20;

constexpr size_t page = 2 * mib;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
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

TEST_CASE("the arena counts what is in use, in units of 64 bytes") {
  const MemoryStats before = memory_stats();
  for (size_t bytes = 1; bytes < 64 * mib; bytes = bytes * 5 / 4 + 1) {
    {
      Storage s(bytes);
      const size_t used = memory_stats().in_use - before.in_use;
      CHECK(used >= bytes);
      CHECK(used < bytes + 64);
      CHECK(memory_stats().reserved >= memory_stats().in_use);
    }
    CHECK(memory_stats().in_use == before.in_use);
  }
  CHECK(memory_stats().peak >= before.in_use + 40 * mib);
}

TEST_CASE("what is more than there is cannot be had, and changes nothing") {
  if (!blocks_are_kept) return;  // sanitizers end the program
  const MemoryStats before = memory_stats();
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX - 64, SIZE_MAX / 2, size_t{1} << 46})
    CHECK_THROWS_AS(Storage(bytes), std::bad_alloc);
  CHECK(memory_stats().in_use == before.in_use);
  CHECK(memory_stats().reserved == before.reserved);
}

TEST_CASE("freed blocks are handed out again, and what nobody uses goes back when asked to") {
  release_free_memory();
  const size_t before = memory_stats().reserved;
  size_t most = 0;
  const auto pages = [&] { return memory_stats().reserved - before; };
  for (int round = 0; round < 10; ++round) {
    const Storage a(6 * mib), b(6 * mib);
    CHECK(a.data() != b.data());
    if (round == 0) most = pages();
    CHECK(pages() == most);
  }
  // The first pages may have been partly in use.
  CHECK(most >= 12 * mib - page);
  if (!blocks_are_kept) return;
  CHECK(most <= 12 * mib + page);
  CHECK(pages() == most);
  {
    Storage kept(6 * mib);
    CHECK(pages() == most);
    std::memset(kept.data(), 0xab, kept.bytes());
    release_free_memory();
    CHECK(pages() < most);
    CHECK(pages() >= 6 * mib - page);
    CHECK(kept.data()[kept.bytes() - 1] == std::byte{0xab});
    Storage again(6 * mib);
    std::memset(again.data(), 0xcd, again.bytes());
    CHECK(pages() == most);
    CHECK(kept.data()[kept.bytes() - 1] == std::byte{0xab});
  }
  release_free_memory();
  CHECK(pages() == 0);
}

TEST_CASE("what goes back to the system is no longer resident") {
  if (!blocks_are_kept) return;
  const auto resident = [] {  // bytes
    std::ifstream in("/proc/self/statm");
    size_t all = 0, in_memory = 0;
    in >> all >> in_memory;
    return in_memory * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  };
  release_free_memory();
  const size_t before = resident();
  {
    Storage used(40 * mib);
    std::memset(used.data(), 1, used.bytes());
    CHECK(resident() > before + 30 * mib);
  }
  CHECK(resident() > before + 30 * mib);
  release_free_memory();
  CHECK(resident() < before + 10 * mib);
}

TEST_CASE("free neighbours become one block, whatever the order they were freed in") {
  if (!blocks_are_kept) return;
  constexpr int count = 4;
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  size_t reserved = 0;
  do {
    const std::byte* begin = nullptr;
    {
      std::vector<std::unique_ptr<Storage>> blocks;
      for (int i = 0; i < count; ++i) blocks.push_back(std::make_unique<Storage>(8 * mib));
      begin = blocks[0]->data();
      if (!reserved) reserved = memory_stats().reserved;
      for (const int i : order) blocks[i].reset();
    }
    const Storage whole(count * 8 * mib);
    CHECK(whole.data() == begin);
    CHECK(memory_stats().reserved == reserved);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the smallest hole that is large enough is filled first") {
  if (!blocks_are_kept) return;
  std::vector<std::unique_ptr<Storage>> blocks;
  for (const size_t size : {12, 2, 8, 2, 10, 2})
    blocks.push_back(std::make_unique<Storage>(size * mib));
  const std::byte* const eight = blocks[2]->data();
  for (const int i : {0, 2, 4}) blocks[i].reset();
  CHECK(Storage(7 * mib).data() == eight);
  const Storage first(7 * mib), second(mib);  // which fills what the first one left
  CHECK(first.data() == eight);
  CHECK(second.data() == eight + 7 * mib);
}

TEST_CASE("blocks in use never overlap") {
  struct Block {
    std::unique_ptr<Storage> storage;
    std::byte mark;
  };
  std::mt19937 random(1);
  std::vector<Block> blocks;
  const auto is_whole = [](const Block& b) {
    const std::byte *const p = b.storage->data(), *const end = p + b.storage->bytes();
    return std::all_of(p, end, [&](std::byte x) { return x == b.mark; });
  };
  for (int i = 0; i < 600; ++i) {
    if (blocks.size() > 20) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      CHECK(is_whole(blocks.back()));
      blocks.pop_back();
    }
    // Of both kinds: below 1 MiB and above.
    const size_t bytes = random() % (random() % 4 ? 100'000 : 4 * mib);
    blocks.push_back({std::make_unique<Storage>(bytes), static_cast<std::byte>(i % 251)});
    std::memset(blocks.back().storage->data(), i % 251, bytes);
    if (i % 50 == 0) release_free_memory();
  }
  for (const Block& block : blocks) CHECK(is_whole(block));
}

TEST_CASE("blocks are freed when no memory is left for anything else") {
  const size_t before = memory_stats().in_use;
  std::vector<std::unique_ptr<Storage>> blocks;
  for (int i = 0; i < 300; ++i)
    blocks.push_back(std::make_unique<Storage>(i % 3 ? 64 + i % 7 * 64 : mib));
  allocations_fail = true;
  // Every other one first: their free neighbours are none, so that each stays a block of its own.
  for (const size_t first : {0, 1})
    for (size_t i = first; i < blocks.size(); i += 2) blocks[i].reset();
  allocations_fail = false;
  CHECK(memory_stats().in_use == before);
  // A block that could not be had has changed nothing. Entries of those above are left for some.
  std::vector<std::optional<Storage>> more(1000);
  size_t taken = 0;
  allocations_fail = true;
  try {
    for (std::optional<Storage>& block : more) block.emplace(64), ++taken;
  } catch (const std::bad_alloc&) {
  }
  allocations_fail = false;
  CHECK((taken < more.size() || !blocks_are_kept));
  CHECK(memory_stats().in_use == before + 64 * taken);
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

TEST_CASE("the arena serves many threads at once") {
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
