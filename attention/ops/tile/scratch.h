// Scratch memory of one task.
#pragma once

#include <cstddef>
#include <cstdint>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"

namespace longhand::attention::tile {

/// Memory for one task. Throws Error where more is taken than there is.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : memory_(bytes), next_(memory_.data()) {}
  template <class U>
  U* take(int64_t n) {
    U* const p = reinterpret_cast<U*>(next_);
    const size_t size = static_cast<size_t>(n) * sizeof(U), end = next_ - memory_.data() + size;
    check(end <= memory_.bytes(), "scratch: ", end, " bytes are wanted of ", memory_.bytes());
    next_ += (size + 63) / 64 * 64;
    return p;
  }

 private:
  Storage memory_;
  std::byte* next_;
};

}  // namespace longhand::attention::tile
