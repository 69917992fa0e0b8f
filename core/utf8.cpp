#include "longhand/core/utf8.h"

#include <algorithm>
#include <utility>

namespace longhand {

Utf8Character utf8_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {1, first};
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first > 0xf4 || text.size() < length) return {};
  uint32_t value = first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid =
      value >= least[length] && value <= 0x10ffff && (value < 0xd800 || value > 0xdfff);
  return {valid ? length : 0, value};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_character(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }

}  // namespace

size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

std::string_view first_characters(std::string_view text, size_t width) {
  size_t end = 0;
  for (size_t begun = 0; end < text.size(); ++end)
    if (begins_character(text[end]) && begun++ == width) break;
  return text.substr(0, end);
}

std::string printable(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const auto [length, value] = utf8_character(text);
    const bool is_control =
        (value < 0x20 && value != '\n' && value != '\t') || (value >= 0x7f && value < 0xa0);
    const size_t taken = std::max<size_t>(length, 1);
    if (length > 0 && !is_control)
      out += text.substr(0, taken);
    else
      for (const char c : text.substr(0, taken))
        out.append("\\x").append({digits[static_cast<uint8_t>(c) >> 4], digits[c & 0xf]});
    text.remove_prefix(taken);
  }
  return out;
}

std::vector<std::string> wrapped(std::string_view text, size_t width) {
  width = std::max<size_t>(width, 1);
  std::vector<std::string> lines;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) lines.push_back(std::exchange(line, {}));
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!line.empty() && width_of(line) + 1 + width_of(word) > width) end_line();
    if (!line.empty()) line += ' ';
    line += word;
    while (width_of(line) > width) {
      lines.emplace_back(first_characters(line, width));
      line.erase(0, lines.back().size());
    }
  }
  end_line();
  return lines;
}

std::string wrapped_lines(std::string_view text, size_t width) {
  std::string out;
  for (bool more = true; more;) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
    const size_t indent = std::min(line.find_first_not_of(' '), line.size());
    if (width_of(line) <= width) {
      out += line;
    } else {
      bool first = true;
      for (const std::string& part : wrapped(line, width - std::min(indent, width - 1))) {
        if (!std::exchange(first, false)) out += '\n';
        out.append(indent, ' ').append(part);
      }
    }
    if (more) out += '\n';
  }
  return out;
}

}  // namespace longhand
