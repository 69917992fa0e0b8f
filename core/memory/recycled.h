// Small objects and short lists whose memory is reused.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace longhand {
namespace detail {

void* take_recycled(size_t bytes);
void recycle(void* memory, size_t bytes) noexcept;

template <class T>
struct Recycling {
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  using value_type = T;

  Recycling() = default;
  template <class U>
  Recycling(const Recycling<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(take_recycled(n * sizeof(T))); }
  void deallocate(T* memory, size_t n) noexcept { recycle(memory, n * sizeof(T)); }
  template <class U>
  bool operator==(const Recycling<U>&) const {
    return true;
  }
};

}  // namespace detail

// Operations create and destroy many of both. The process keeps their memory for reuse, for
// sizes up to 4 KiB. Sanitized builds do not keep it, so that use after free is detected.

template <class T>
using ShortVector = std::vector<T, detail::Recycling<T>>;

/// Like std::make_shared, with recycled memory.
template <class T, class... Args>
std::shared_ptr<T> make_recycled(Args&&... args) {
  return std::allocate_shared<T>(detail::Recycling<T>(), std::forward<Args>(args)...);
}

}  // namespace longhand
