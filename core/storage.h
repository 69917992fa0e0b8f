// Storage: the memory behind tensors, 64-byte aligned, reference-counted, from an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace longhand {

/// A block of uninitialised memory, aligned to 64 bytes. Freed blocks go back to an arena of huge
/// pages and are handed out again: the first touch of fresh pages costs more than most kernels.
/// The constructor throws std::bad_alloc; the destructor allocates nothing and never fails. The first one in a process also raises glibc's thresholds of giving
/// memory back (mallopt), to what it raises them to by itself once it has seen a large block.
class Storage {
 public:
  explicit Storage(size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

/// What the arena holds, in bytes. Sanitized builds have none: there everything that is freed goes
/// back to the system, so that its later use is seen.
struct MemoryStats {
  size_t in_use;    // handed out now, in multiples of the alignment
  size_t peak;      // the most ever handed out at once
  size_t reserved;  // pages taken from the system and not given back
};
MemoryStats memory_stats();

/// Gives every page of which nothing is in use back to the system.
void release_free_memory();

/// The most that was ever resident of this process, in bytes: its code and all else included.
int64_t peak_resident_memory();

}  // namespace longhand
