#include "longhand/core/utf8.h"

#include <string>

#include "tests/support/catch.h"

using namespace longhand;
using namespace std::string_literals;

TEST_CASE("utf8: the first and last character of every length, and what is none") {
  struct Case {
    std::string text;
    size_t length;
    uint32_t value;
  };
  const std::vector<Case> cases = {
      {"\0"s, 1, 0},
      {"\x7f", 1, 0x7f},
      {"\xc2\x80", 2, 0x80},
      {"\xdf\xbf", 2, 0x7ff},
      {"\xe0\xa0\x80", 3, 0x800},
      {"\xed\x9f\xbf", 3, 0xd7ff},
      {"\xee\x80\x80", 3, 0xe000},
      {"\xef\xbf\xbf", 3, 0xffff},
      {"\xf0\x90\x80\x80", 4, 0x10000},
      {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
      {"\x80", 0, 0},              // continues nothing
      {"\xc1\xbf", 0, 0},          // overlong
      {"\xe0\x9f\xbf", 0, 0},      // overlong
      {"\xf0\x8f\xbf\xbf", 0, 0},  // overlong
      {"\xed\xa0\x80", 0, 0},      // surrogates
      {"\xed\xbf\xbf", 0, 0},
      {"\xf4\x90\x80\x80", 0, 0},  // above 0x10ffff
      {"\xf5\x80\x80\x80", 0, 0},
      {"\xc3", 0, 0},  // cut off
      {"\xe2\x82", 0, 0},
      {"\xc3("s, 0, 0},
      {"\xe2\x82("s, 0, 0},
  };
  for (const Case& each : cases) {
    CAPTURE(each.text, each.value);
    const Utf8Character found = utf8_character(each.text + "tail");
    CHECK(found.length == each.length);
    if (each.length > 0) CHECK(found.value == each.value);
    CHECK(is_utf8("a" + each.text) == (each.length > 0));
    CHECK(is_utf8(each.text + "tail") == (each.length > 0));
  }
  CHECK(is_utf8(""));
}

TEST_CASE("utf8: characters are counted and cut whole") {
  CHECK(width_of("") == 0);
  CHECK(width_of("aé€𝄞") == 4);
  CHECK(first_characters("aé€𝄞b", 0).empty());
  CHECK(first_characters("aé€𝄞b", 2) == "aé");
  CHECK(first_characters("aé€𝄞b", 4) == "aé€𝄞");
  CHECK(first_characters("aé€𝄞b", 9) == "aé€𝄞b");
}

TEST_CASE("utf8: control characters and bytes that are no character are escaped") {
  CHECK(printable("é\n\t ~") == "é\n\t ~");
  CHECK(printable("\x1b[31m\r\x7f\0"s) == "\\x1b[31m\\x0d\\x7f\\x00");
  CHECK(printable("\xff\xe2\x82x") == "\\xff\\xe2\\x82x");
  CHECK(printable("\xc2\x9b\xc2\xa0") == "\\xc2\\x9b\xc2\xa0");  // U+009B begins a code as well
}

TEST_CASE("utf8: text is wrapped at spaces, and words that are too long anywhere") {
  using Lines = std::vector<std::string>;
  CHECK(wrapped("one two  three", 7) == Lines{"one two", "three"});
  CHECK(wrapped("one two three", 6) == Lines{"one", "two", "three"});
  CHECK(wrapped("één tweeëndertig", 6) == Lines{"één", "tweeën", "dertig"});
  CHECK(wrapped("abc", 0) == Lines{"a", "b", "c"});
  CHECK(wrapped(" \n ", 5).empty());
  CHECK(wrapped_lines("one two\n  three four\n", 7) == "one two\n  three\n  four\n");
  CHECK(wrapped_lines("one two", 3) == "one\ntwo");
  CHECK(wrapped_lines("    ab cd", 3) == "    a\n    b\n    c\n    d");
  CHECK(wrapped_lines("\n\n", 3) == "\n\n");
}
