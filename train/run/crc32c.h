// The cyclic redundancy check CRC-32C, as TensorBoard uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhand::train {

inline uint32_t crc32c(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < out.size(); ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = (out[i] >> 1) ^ ((out[i] & 1) ? 0x82f63b78 : 0);
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ table[(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~crc;
}

}  // namespace longhand::train
