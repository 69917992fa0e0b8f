#include "longhand/core/memory/recycled.h"

#include <tbb/spin_mutex.h>

#include <mutex>
#include <new>

namespace longhand::detail {
namespace {

struct FreeBlock {
  FreeBlock* next;
};

// The free blocks of one size, for all threads. Never destroyed: static objects may outlive it.
class FreeBlocks {
 public:
  void* take() {
    const std::lock_guard lock(mutex_);
    FreeBlock* const block = first_;
    if (block) first_ = block->next;
    return block;
  }
  void give(void* memory) noexcept {
    const std::lock_guard lock(mutex_);
    first_ = new (memory) FreeBlock{first_};
  }

 private:
  tbb::spin_mutex mutex_;
  FreeBlock* first_ = nullptr;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t sizes = 0;
#else
constexpr size_t sizes = 64;
#endif
constexpr size_t unit = 64;  // bytes between two sizes

size_t index_of(size_t bytes) { return (bytes + unit - 1) / unit; }

FreeBlocks& blocks_of(size_t index) {
  static FreeBlocks* const all = new FreeBlocks[sizes + 1];
  return all[index];
}

}  // namespace

void* take_recycled(size_t bytes) {
  const size_t index = index_of(bytes);
  if (index < sizes)
    if (void* const block = blocks_of(index).take()) return block;
  return ::operator new(index* unit);
}

void recycle(void* memory, size_t bytes) noexcept {
  const size_t index = index_of(bytes);
  if (index < sizes)
    blocks_of(index).give(memory);
  else
    ::operator delete(memory);
}

}  // namespace longhand::detail
