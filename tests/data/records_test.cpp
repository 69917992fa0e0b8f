#include "longhand/data/records.h"

#include <sys/stat.h>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

using Rows = std::vector<std::vector<std::string>>;

struct Reading {
  TemporaryDirectory folder;

  Rows operator()(const std::string& name, const std::string& text,
                  std::vector<FieldChoice> choices, bool header = false) const {
    write_text(folder / name, text);
    Rows rows;
    for_each_record(
        folder / name,
        {.format = record_format(name), .header = header, .choices = std::move(choices)},
        [&](const Record& record) {
          rows.emplace_back();
          for (const Record::Field& field : record.fields) rows.back().push_back(field.text);
        });
    return rows;
  }
  std::string error(const std::string& name, const std::string& text,
                    std::vector<FieldChoice> choices, bool header = false) const {
    return message_of<DataError>([&] { (*this)(name, text, std::move(choices), header); });
  }
};

const std::vector<FieldChoice> two = {{.column = 0}, {.column = 1}};
const std::vector<FieldChoice> fields_by_name = {{.name = "a"}, {.name = "b"}};

}  // namespace

TEST_CASE("records: CSV as RFC 4180 defines it") {
  const Reading read;
  CHECK(read("a.csv", "x,y\r\n\"1,2\",\"say \"\"hi\"\"\"\r\n", two) ==
        Rows{{"x", "y"}, {"1,2", "say \"hi\""}});
  CHECK(read("a.csv", "\"two\r\nlines\",\"three\n\nlines\"\n", two) ==
        Rows{{"two\r\nlines", "three\n\nlines"}});
  CHECK(read("a.csv", ",\n\"\",\"\"\n", two) == Rows{{"", ""}, {"", ""}});
  CHECK(read("a.csv", "\xef\xbb\xbf\"x\", y \tz", two) == Rows{{"x", " y \tz"}});
  CHECK(read("a.csv", "c,b,a\n1,2,3\n", fields_by_name, true) == Rows{{"3", "2"}});
  CHECK(read("a.csv", "", two).empty());
  // Columns separated by tabs have no quotes.
  CHECK(read("a.tsv", "\"x\ty,\"z\"\n", two) == Rows{{"\"x", "y,\"z\""}});
}

TEST_CASE("records: errors of CSV name line and column") {
  const Reading read;
  const auto error = [&](const std::string& text) { return read.error("a.csv", text, two); };
  CHECK_THAT(error("a,b\nc,d \"e\n"), Contains("a.csv:2:5: a quote inside of a field without"));
  CHECK_THAT(error("a,b\n\"c\"d,e\n"), Contains("a.csv:2:4: expected a comma or the end"));
  CHECK_THAT(error("a,b\n\"c\nd\"e,f\n"), Contains("a.csv:3:3: expected a comma or the end"));
  CHECK_THAT(error("a,b\nc,\"d\ne,f\n"), Contains("a.csv:2:3: the quote that opens this field"));
  CHECK_THAT(error("a,b\n\"c\nd\",e,f\ng,h\n"), Contains("a.csv:2: 3 columns, line 1 has 2"));
  CHECK_THAT(error("a,b\n\n"), Contains("a.csv:2: 1 columns, line 1 has 2"));
  CHECK_THAT(error("a,b\nc\rd,e\n"), Contains("a.csv:2:2: a carriage return"));
  CHECK_THAT(error("a\tb\n"), Contains("a.csv:1: 1 columns separated by commas"));
  CHECK_THAT(error(std::string(10001, ',')), Contains("more than 10000 columns"));
  CHECK_THAT(read.error("a.csv", "A,b,colour\n1,2,3\n", fields_by_name, true),
             Contains("a.csv:1: the header line has no column \"a\"; found A, b, colour"));
  CHECK_THAT(read.error("a.csv", "a,b,a\n1,2,3\n", fields_by_name, true),
             Contains("two columns \"a\""));
}

TEST_CASE("records: JSON Lines") {
  const Reading read;
  CHECK(read("a.jsonl",
             "{\"a\": \"x\\n\\u00e9\", \"b\": 3}\r\n"
             "{\"c\": {\"a\": [1, {\"b\": 2}]}, \"b\": [1, -2, 3], \"a\": 0.50}\n"
             "{\"a\": true, \"b\": []}",
             fields_by_name) == Rows{{"x\n\xc3\xa9", "3"}, {"0.50", "1 -2 3"}, {"true", ""}});
}

TEST_CASE("records: errors of JSON Lines name line and column") {
  const Reading read;
  const auto error = [&](const std::string& text) {
    return read.error("a.jsonl", "{\"a\": 1, \"b\": 2}\n" + text, fields_by_name);
  };
  CHECK_THAT(error("{\"a\": 1, \"b\": }\n"), Contains("a.jsonl:2:15: not JSON: syntax error"));
  CHECK_THAT(error("\n"), Contains("a.jsonl:2:1: not JSON"));
  CHECK_THAT(error("[1]\n"), Contains("a.jsonl:2:1: expected an object, got a list"));
  CHECK_THAT(error("3\n"), Contains("expected an object, got 3"));
  CHECK_THAT(error("{\"a\": 1}{}\n"), Contains("a.jsonl:2:9: not JSON"));
  CHECK_THAT(error("{\"a\": 1, \"B\": 2}\n"),
             Contains("a.jsonl:2:1: the object has no \"b\"; found a, B"));
  CHECK_THAT(error("{\"a\": 1, \"a\": 2}\n"), Contains("the key \"a\" occurs twice"));
  CHECK_THAT(error("{\"a\": null}\n"), Contains("list of numbers, got null"));
  CHECK_THAT(error("{\"a\": {}}\n"), Contains("got an object"));
  CHECK_THAT(error("{\"a\": [1, [2]]}\n"), Contains("a list in a list"));
  CHECK_THAT(error("{\"a\": [1, true]}\n"), Contains("expected numbers, got true"));
  CHECK_THAT(error("{\"a\": 1e999}\n"), Contains("a.jsonl:2:") && Contains("1e999"));
  CHECK_THAT(error("{\"a\": \"\xff\"}\n"), Contains("not JSON") && Contains("UTF-8"));
  CHECK_THAT(error("{\"c\": " + std::string(100000, '[')), Contains("nested too deeply"));
}

TEST_CASE("records: a file that is not regular, or has an endless line, is refused") {
  const TemporaryDirectory folder;
  const auto read = [&](const char* name) {
    return message_of<DataError>([&] {
      for_each_record(folder / name, {.format = record_format(name), .choices = two},
                      [](const Record&) {});
    });
  };
  REQUIRE(mkfifo((folder / "pipe.csv").c_str(), 0600) == 0);
  CHECK_THAT(read("pipe.csv"), Contains("pipe.csv"));
  CHECK_THAT(read("none.csv"), Contains("none.csv"));
  write_text(folder / "long.csv", "");
  std::filesystem::resize_file(folder / "long.csv", size_t{1} << 32);  // takes no space
  CHECK_THAT(read("long.csv"), Contains("long.csv:1: a line of more than 67108864 bytes"));
  // Lines that an open quote joins.
  std::string text = "a,\"";
  for (int i = 0; i < 1100; ++i) text.append(size_t{1} << 16, 'x') += '\n';
  write_text(folder / "open.csv", text);
  CHECK_THAT(read("open.csv"), Contains("open.csv:1:3: a record of more than 67108864 bytes"));
}
