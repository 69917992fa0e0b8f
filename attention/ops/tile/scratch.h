// Scratch memory of one task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/storage.h"

namespace longhand::attention::tile {

/// Memory for one task, handed out in arrays aligned to 64 bytes. Default-constructed it has none
/// and only measures: take() then returns null and counts what was asked for.
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(size_t bytes) : memory_(std::in_place, bytes) {}

  /// Room for n objects, uninitialised. Throws Error where more is taken than there is.
  template <class U>
  U* take(int64_t n) {
    const size_t begin = used_, end = begin + static_cast<size_t>(n) * sizeof(U);
    used_ = (end + 63) / 64 * 64;
    if (!memory_) return nullptr;
    check(end <= memory_->bytes(), "scratch: got ", memory_->bytes(), " bytes, expected at least ",
          end);
    return reinterpret_cast<U*>(memory_->data() + begin);
  }
  /// What has been taken so far, in bytes.
  size_t used() const { return used_; }

 private:
  std::optional<Storage> memory_;
  size_t used_ = 0;
};

/// A Layout, constructed as Layout(args..., scratch), together with its memory. It is constructed
/// twice: first to measure, so that sizes need no adding up by hand. Its constructor takes memory
/// and does not write to it.
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

}  // namespace longhand::attention::tile
