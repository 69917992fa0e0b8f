// Storage: the memory behind tensors, 64-byte aligned, reference-counted, from an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace longhand {

namespace detail {
struct DryPool;
}

/// A block of uninitialised memory, aligned to 64 bytes. Freed blocks return to an arena of huge
/// pages and are reused: the first touch of new pages costs more than most kernels. The constructor
/// throws std::bad_alloc; the destructor allocates nothing and never fails. The first block of a
/// process also raises glibc's thresholds for returning memory (mallopt) to the values that glibc
/// itself sets after the first large block.
class Storage {
 public:
  explicit Storage(size_t bytes);
  /// Borrows memory of any alignment, which `owner` keeps alive. It is not counted in MemoryStats.
  Storage(std::byte* data, size_t bytes, std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool borrowed() const { return !dry_ && dry_.use_count() > 0; }

 private:
  // Null outside of dry runs. For borrowed memory, owns what the owner does, but points to null.
  std::shared_ptr<detail::DryPool> dry_{};
  std::byte* data_ = nullptr;
  size_t bytes_;
};

/// State of the arena, in bytes, for the process or this thread's dry run (dry_run.h). Sanitized
/// builds have no arena: freed memory returns to the system, so that use after free is detected.
struct MemoryStats {
  size_t in_use;    // currently allocated, in multiples of the alignment
  size_t peak;      // maximum of in_use
  size_t reserved;  // pages obtained from the system and not returned
};
MemoryStats memory_stats();
/// Sets MemoryStats::peak to the memory in use now, to measure the peak of the code that follows.
void reset_memory_peak();

/// Returns all pages without memory in use to the system.
void release_free_memory();

/// Peak resident memory of this process in bytes, including its code.
int64_t peak_resident_memory();

}  // namespace longhand
