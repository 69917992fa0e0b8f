// UTF-8, the encoding of configurations and of terminals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhand {

struct Utf8Character {
  size_t length = 0;  // in bytes
  uint32_t value = 0;
};

/// The character at the start of a text that is not empty. Its length is 0 if the bytes are not UTF-8.
Utf8Character utf8_character(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace longhand
