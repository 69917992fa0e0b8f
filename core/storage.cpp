#include "longhand/core/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace longhand {
namespace {

constexpr size_t alignment = 64;
constexpr size_t huge_page = size_t{2} << 20;

// Four size classes to each power of two: at most a quarter of a block is wasted.
size_t class_size(size_t bytes) {
  if (bytes <= alignment) return alignment;
  const size_t step = std::max(alignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

class Pool {
 public:
  std::byte* take(size_t bytes) {
    const size_t size = class_size(bytes);
    std::lock_guard lock(mutex_);
    auto& free = free_[size];
    std::byte* block;
    if (free.empty()) {
      block = allocate(size);
      stats_.reserved += size;
    } else {
      block = free.back();
      free.pop_back();
    }
    stats_.in_use += size;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    return block;
  }

  void give(std::byte* block, size_t bytes) {
    const size_t size = class_size(bytes);
    std::lock_guard lock(mutex_);
    stats_.in_use -= size;
    if (keep_blocks) {
      free_[size].push_back(block);
    } else {
      stats_.reserved -= size;
      std::free(block);
    }
  }

  void release() {
    std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_) {
      stats_.reserved -= size * blocks.size();
      for (std::byte* block : blocks) std::free(block);
      blocks.clear();
    }
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr bool keep_blocks = false;  // so that a use after free is seen
#else
  static constexpr bool keep_blocks = true;
#endif

  static std::byte* allocate(size_t size) {
    const bool huge = size >= huge_page;
    // aligned_alloc wants a multiple of the alignment
    const size_t align = huge ? huge_page : alignment;
    void* block = std::aligned_alloc(align, (size + align - 1) / align * align);
    if (!block) throw std::bad_alloc();
    if (huge) madvise(block, size, MADV_HUGEPAGE);
    return static_cast<std::byte*>(block);
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::vector<std::byte*>> free_;
  MemoryStats stats_{};
};

// Never destroyed: tensors in static objects may outlive it.
Pool& pool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

Storage::Storage(size_t bytes) : data_(pool().take(bytes)), bytes_(bytes) {}
Storage::~Storage() { pool().give(data_, bytes_); }

MemoryStats memory_stats() { return pool().stats(); }
void release_free_memory() { pool().release(); }

}  // namespace longhand
