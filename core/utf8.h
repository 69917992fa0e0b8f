// UTF-8, the encoding of configurations and of terminals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhand {

struct Utf8Character {
  size_t length = 0;  // in bytes
  uint32_t value = 0;
};

/// The first character of a text that is not empty. Its length is 0 if the bytes are not UTF-8.
Utf8Character utf8_character(std::string_view text);

bool is_utf8(std::string_view text);

/// Number of characters of UTF-8 text.
size_t width_of(std::string_view text);

/// The first `width` characters of UTF-8 text.
std::string_view first_characters(std::string_view text, size_t width);

/// Text from outside, such as the name of a file, for a terminal or a page: control characters
/// other than line breaks and tabs, and bytes that are not valid UTF-8, are written as `\xNN`.
std::string printable(std::string_view text);

/// The words of a text in lines of at most `width` characters; a longer word is broken. Empty for
/// text without words.
std::vector<std::string> wrapped(std::string_view text, size_t width);
/// The same as one text, with a line break between lines. Line breaks in `text` are kept, and so is
/// the indentation of each line, which its continuation lines repeat.
std::string wrapped_lines(std::string_view text, size_t width);

}  // namespace longhand
