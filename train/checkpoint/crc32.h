// Cyclic redundancy checks of 32 bits, as zip archives and TensorBoard use them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace longhand::train {

/// The CRC of bytes for a polynomial in reversed form: with 0xedb88320, that of zip; with 0x82f63b78,
/// CRC-32C.
template <uint32_t polynomial>
uint32_t crc32(std::span<const std::byte> bytes) {
  static constexpr std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> out{};
    for (uint32_t i = 0; i < out.size(); ++i) {
      out[i] = i;
      for (int bit = 0; bit < 8; ++bit) out[i] = (out[i] >> 1) ^ ((out[i] & 1) ? polynomial : 0);
    }
    return out;
  }();
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes)
    crc = (crc >> 8) ^ table[(crc ^ std::to_integer<uint32_t>(byte)) & 0xff];
  return ~crc;
}

inline uint32_t crc32_zip(std::span<const std::byte> bytes) { return crc32<0xedb88320>(bytes); }
inline uint32_t crc32c(std::span<const std::byte> bytes) { return crc32<0x82f63b78>(bytes); }

}  // namespace longhand::train
