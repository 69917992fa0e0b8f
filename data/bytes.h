// Little-endian integers in files: written to the end of a buffer, read with checked bounds.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/error.h"

namespace longhand::data {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

inline std::string_view text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline ByteView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Appends an integer in its own size.
template <std::unsigned_integral T>
void put(Bytes& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

inline void put(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }
inline void put(Bytes& out, std::string_view text) { put(out, bytes_of(text)); }

/// The `size` bytes from `begin` on. Throws DataError, naming `file` and `what`, if they are not
/// all there.
inline ByteView part(ByteView bytes, uint64_t begin, uint64_t size, const std::string& file,
                     const char* what) {
  check<DataError>(begin <= bytes.size() && size <= bytes.size() - begin, file, ": ", what,
                   " would be bytes ", begin, " to ", begin, " + ", size, " of ", bytes.size());
  return bytes.subspan(begin, size);
}

/// The integer at `begin`; see part().
template <std::unsigned_integral T>
T get(ByteView bytes, uint64_t begin, const std::string& file, const char* what) {
  T out = 0;
  const ByteView all = part(bytes, begin, sizeof(T), file, what);
  for (size_t i = 0; i < sizeof(T); ++i)
    out = static_cast<T>(out | static_cast<T>(std::to_integer<T>(all[i]) << (8 * i)));
  return out;
}

}  // namespace longhand::data
