// Damage to files, as disks, programs and attackers do it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/data/file.h"

namespace longhand::test {

using Bytes = std::vector<std::byte>;

inline void put(Bytes& bytes, size_t at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size && at + i < bytes.size(); ++i)
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
}

/// One of several kinds of damage, or a few of them, to the first `limit` bytes.
inline void damage(Bytes& bytes, size_t limit, Generator random) {
  uint64_t count = 0;
  const auto draw = [&](uint64_t n) { return random.bits(count++) % n; };
  const uint64_t special[] = {0,          1,       0xff,       0x7fff,    0xffff,    0x7fffffff,
                              1ull << 31, ~0ull,   ~0ull >> 1, limit,     limit - 1, limit / 2,
                              96,         1 << 20, 1ull << 40, 1ull << 63};
  for (uint64_t n = 1 + draw(3) * draw(4); n > 0; --n) {
    const size_t at = draw(limit);
    switch (draw(5)) {
      case 0:
        bytes[at] ^= std::byte(1 << draw(8));
        break;
      case 1:
        bytes[at] = std::byte(draw(256));
        break;
      case 2:  // a number
        put(bytes, at, special[draw(std::size(special))], size_t{1} << draw(4));
        break;
      case 3: {  // a part of the file in another place
        const size_t from = draw(limit), size = std::min({1 + draw(64), limit - from, limit - at});
        std::memmove(bytes.data() + at, bytes.data() + from, size);
        break;
      }
      default:  // where structures are: offsets are multiples of 8
        put(bytes, at / 8 * 8, draw(2) ? draw(limit) / 8 * 8 : special[draw(std::size(special))],
            8);
    }
  }
}

/// Makes the digest that ends a file that of its other bytes.
inline void write_digest(Bytes& bytes) {
  const data::Digest digest = data::digest(std::span(bytes).first(bytes.size() - 16));
  std::copy(digest.begin(), digest.end(), bytes.end() - 16);
}

}  // namespace longhand::test
