// Scratch memory of one task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"

namespace longhand {

/// Memory for one task, allocated in arrays aligned to 64 bytes. A default-constructed Scratch has
/// no memory and only measures: take() returns null and adds up the sizes.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t bytes) {
    if (bytes > 0) memory_.emplace(bytes);
  }

  /// Uninitialised memory for n objects. Throws Error if the memory is exhausted.
  template <class U>
  U* take(int64_t n) {
    const size_t begin = used_, end = begin + static_cast<size_t>(n) * sizeof(U);
    used_ = (end + 63) / 64 * 64;
    if (!memory_) return nullptr;
    check(end <= memory_->bytes(), "scratch: expected at least ", end, " bytes, got ",
          memory_->bytes());
    return reinterpret_cast<U*>(memory_->data() + begin);
  }
  /// Sets each pointer to memory for n objects.
  template <class... U>
  void take_each(int64_t n, U*&... to) {
    ((to = take<U>(n)), ...);
  }
  /// Bytes taken so far.
  size_t used() const { return used_; }

 private:
  std::optional<Storage> memory_;
  size_t used_ = 0;
};

/// A Layout, constructed as Layout(args..., scratch), together with its memory. The Layout is
/// constructed twice, first to measure its size, so its constructor must not write to the memory
/// that it takes.
template <class Layout>
class Workspace {
 public:
  template <class... Args>
  explicit Workspace(const Args&... args) : memory_(measure(args...)), layout_(args..., memory_) {}
  Layout& operator*() { return layout_; }
  Layout* operator->() { return &layout_; }

 private:
  template <class... Args>
  static size_t measure(const Args&... args) {
    Scratch scratch;
    const Layout layout(args..., scratch);
    return scratch.used();
  }

  Scratch memory_;
  Layout layout_;
};

}  // namespace longhand
