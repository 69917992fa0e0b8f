#include <filesystem>
#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

Row bytes(const std::string& text) {
  Row row;
  for (const char c : text) row.push_back(static_cast<unsigned char>(c));
  return row;
}

// 200 lines; the label is in the text.
std::string many_reviews() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += std::to_string(i % 4) + "\tthis is line " + std::to_string(i) + " of class " +
            static_cast<char>('0' + i % 4) + "\n";
  return text;
}

}  // namespace

TEST_CASE("text_classification: a single file is split, each line with its label") {
  const TemporaryDirectory folder;
  write_text(folder / "a.tsv", many_reviews());
  const Task task = make("text_classification",
                         {{"path", (folder / "a.tsv").string()}, {"validation_fraction", 0.2}});
  CHECK(task.info.vocabulary == 256);
  CHECK(task.info.classes == 4);
  CHECK(task.info.max_length == 1024);
  CHECK_FALSE(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  CHECK(task.train->size() == 140);
  CHECK(task.validation->size() == 40);
  CHECK(task.test->size() == 20);
  std::set<Row> different;
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    for (const Example& e : examples(**split, (*split)->size())) {
      CHECK(e.tokens.back() - '0' == e.targets[0]);
      different.insert(e.tokens);
    }
  }
  CHECK(different.size() == 200);
}

TEST_CASE("text_classification: the split of a text depends on the text and the seed") {
  const TemporaryDirectory folder;
  std::string backwards, line;
  const std::string forwards = many_reviews();
  for (const char c : forwards) {
    line += c;
    if (c == '\n') backwards = line + backwards, line.clear();
  }
  write_text(folder / "a.tsv", forwards);
  write_text(folder / "b.tsv", backwards + backwards);  // each text twice
  const auto test_texts = [&](const char* name, uint64_t seed) {
    std::set<Row> texts;
    const Task task = make("text_classification", {{"path", (folder / name).string()}}, seed);
    for (const Example& e : examples(*task.test, task.test->size())) texts.insert(e.tokens);
    return texts;
  };
  CHECK(test_texts("a.tsv", 1).size() == 20);
  CHECK(test_texts("a.tsv", 1) == test_texts("b.tsv", 1));
  CHECK(test_texts("a.tsv", 1) != test_texts("a.tsv", 2));
}

TEST_CASE("text_classification: a folder has a file for each split") {
  const TemporaryDirectory folder;
  write_text(folder / "train.tsv",
             "\xef\xbb\xbf"
             "10\tten\n9\tnine\r\n-1\tminus\n");
  write_text(folder / "test.tsv", "9\tnine again\n");
  const std::string path = folder.path().string();
  CHECK_THAT(message_of<DataError>([&] {
               make("text_classification", {{"path", path}});
             }),
             Contains("has no validation.tsv"));
  const std::string name = GENERATE("validation.tsv", "val.tsv", "dev.tsv");
  write_text(folder / name, "-1\tone\n10\ttwo\n");
  const Task task = make("text_classification", {{"path", path}});
  CHECK(task.info.classes == 3);
  // integers in the order of numbers, not of their digits
  CHECK(example(*task.train, 0).targets[0] == 2);
  CHECK(example(*task.train, 1).targets[0] == 1);
  CHECK(example(*task.train, 1).tokens == bytes("nine"));
  CHECK(example(*task.train, 2).targets[0] == 0);
  CHECK(task.validation->size() == 2);
  CHECK(example(*task.test, 0).targets[0] == 1);

  const Batch batch = task.train->collate(std::vector<int64_t>{0, 2});
  CHECK(batch.tokens.to_vector<int32_t>() == Row{'t', 'e', 'n', 0, 0, 'm', 'i', 'n', 'u', 's'});
  CHECK(batch.lengths.to_vector<int32_t>() == Row{3, 5});
  CHECK(batch.targets.to_vector<int32_t>() == Row{2, 0});
  CHECK(task.train->length(2) == 5);

  CHECK(make("text_classification", {{"path", path}, {"train_size", 2}}).train->size() == 2);
  write_text(folder / "test.tsv", "9\tnine again\n8\teight\n");
  CHECK_THAT(message_of<DataError>([&] {
               make("text_classification", {{"path", path}});
             }),
             Contains("test.tsv:2:1: ") && Contains("'8'") && Contains("does not occur"));
}

TEST_CASE("text_classification: columns, header, text labels, truncation, unusual line ends") {
  const TemporaryDirectory folder;
  const std::string text =
      "\xef\xbb\xbfid\ttext\tlabel\r\n1\tsch\xc3\xb6n\tpos\r\n2\tugly\tneg\r\n3\tso "
      "so\t10\n4\tlast\tneg";
  for (const char* name : {"train.tsv", "validation.tsv", "test.tsv"})
    write_text(folder / name, text);
  const Task task = make("text_classification", {{"path", folder.path().string()},
                                                 {"label_column", 2},
                                                 {"text_column", 1},
                                                 {"header", true},
                                                 {"max_length", 5}});
  CHECK(task.info.classes == 3);  // "10", "neg", "pos"
  CHECK(task.info.max_length == 5);
  REQUIRE(task.train->size() == 4);
  CHECK(example(*task.train, 0).tokens == bytes("sch\xc3\xb6"));
  CHECK(example(*task.train, 0).targets == Row{2});
  CHECK(example(*task.train, 2).targets == Row{0});
  CHECK(example(*task.train, 3).tokens == bytes("last"));
  CHECK(example(*task.train, 3).targets == Row{1});
}

TEST_CASE("text_classification: errors in files name the file and the line") {
  const TemporaryDirectory folder;
  const std::string path = (folder / "a.tsv").string();
  const auto message = [&](const std::string& text) {
    write_text(path, text);
    return message_of<DataError>([&] { make("text_classification", {{"path", path}}); });
  };
  CHECK_THAT(message("0\ta\n1\tb\nc\n"), Contains(path + ":3: 1 columns, line 1 has 2"));
  CHECK_THAT(message("0\ta\n1\tb\tc\n"), Contains(path + ":2: 3 columns, line 1 has 2"));
  CHECK_THAT(message("0 a\n1 b\n"), Contains(path + ":1: 1 columns"));
  CHECK_THAT(message("0\ta\n\n1\tb\n"), Contains(path + ":2: "));
  CHECK_THAT(message("0\ta\n1\t\n"), Contains(path + ":2:3: the text is empty"));
  CHECK_THAT(message("0\ta\n\tb\n"), Contains(path + ":2:1: the label is empty"));
  CHECK_THAT(message("0\ta\n0\tb\n0\tc\n"), Contains(path) && Contains("every line"));
  CHECK_THAT(message("0\ta\n1\ta\n1\tb\n"), Contains(path + ": holds 2 different"));
  CHECK_THAT(message(""), Contains(path + ": expected at least one example"));
  CHECK_THAT(message_of<DataError>([&] {
               make("text_classification", {{"path", path + ".none"}});
             }),
             Contains(".none"));
  CHECK_THAT(message_of<ConfigError>([&] { make("text_classification", {}); }),
             Contains("data.path") && Contains("train.tsv"));
  CHECK_THAT(message_of<ConfigError>([&] {
               make("text_classification", {{"path", path}, {"text_column", 0}});
             }),
             Contains("data.text_column"));
}

TEST_CASE("text_classification: CSV and JSON Lines, with names of fields") {
  const TemporaryDirectory folder;
  std::string csv = "review,sentiment\n", json;
  for (int i = 0; i < 20; ++i) {
    const std::string number = std::to_string(i);
    csv += "\"text, " + number + "\"," + (i % 2 ? "pos" : "neg") + "\n";
    json +=
        "{\"text\": \"text, " + number + "\", \"label\": \"" + (i % 2 ? "pos" : "neg") + "\"}\n";
  }
  write_text(folder / "a.csv", csv);
  write_text(folder / "a.jsonl", json);
  const std::string path = (folder / "a.csv").string();
  const Settings by_name = {{"path", path}, {"label_name", "sentiment"}, {"text_name", "review"}};
  const Settings by_key = {{"path", (folder / "a.jsonl").string()}};
  const Task task = make("text_classification", by_name);
  CHECK(task.info.labels == std::vector<std::string>{"neg", "pos"});
  CHECK(task.info.label_of(0) == "neg");
  CHECK(task.info.label_of(1) == "pos");
  CHECK(task.info.label_of(-1) == "-1");
  CHECK(task.info.label_of(7) == "7");
  CHECK(task.train->size() == 16);
  const auto found = hashes("text_classification", by_name, 0);
  CHECK(hashes("text_classification", by_key, 0) == found);
  CHECK(hashes("text_classification", {{"path", path}, {"label_column", 1}, {"text_column", 0}},
               0) == found);

  const auto wrong = [&](Settings settings) {
    settings.insert(settings.begin(), {"path", path});
    return message_of<Error>([&] { make("text_classification", settings); });
  };
  CHECK_THAT(wrong({{"label_name", "sentimant"}, {"text_name", "review"}}),
             Contains("a.csv:1: the header line has no column \"sentimant\"; found review, "
                      "sentiment; did you mean sentiment?"));
  CHECK_THAT(wrong({{"label_name", "sentiment"}, {"header", false}}),
             Contains("data.header = true"));
  CHECK_THAT(
      message_of<ConfigError>([&] {
        make("text_classification", {{"path", (folder / "a.jsonl").string()}, {"label_column", 1}});
      }),
      Contains("data.label_column") && Contains("path of TSV or CSV"));
  write_text(folder / "list.jsonl", "{\"text\": [1], \"label\": 0}\n");
  CHECK_THAT(message_of<DataError>([&] {
               make("text_classification", {{"path", (folder / "list.jsonl").string()}});
             }),
             Contains("list.jsonl:1:2: expected text in quotes"));
}

TEST_CASE("text_classification: header lines are noticed") {
  const TemporaryDirectory folder;
  const auto message = [&](const char* name, const std::string& text, bool header) {
    write_text(folder / name, text);
    try {
      make("text_classification", {{"path", (folder / name).string()}, {"header", header}});
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string rest = "0\ta\n1\tb\n0\tc\n1\td\n";
  CHECK_THAT(message("a.tsv", "label\ttext\n" + rest, false),
             Contains("a.tsv:1:1: this line looks like a header: no other one has the label "
                      "'label'; set data.header = true"));
  CHECK_THAT(message("a.tsv", "Stars\tWhat\n" + rest, false), Contains("looks like a header"));
  CHECK_THAT(message("a.tsv", "good\tREVIEW\nbad\ta\nso so\tb\n", false),
             Contains("looks like a header"));
  CHECK_THAT(message("a.tsv", "good\ta\n1\tb\n", false), Contains("looks like a header"));
  CHECK(message("a.tsv", "2\te\n" + rest, false).empty());
  CHECK(message("a.tsv", "good\ta\nbad\tb\nso so\tc\n", false).empty());
  CHECK(message("a.tsv", "target\ta\nother\tb\ntarget\tc\nother\td\n", false).empty());
  CHECK(message("a.tsv", "label\ttext\n" + rest, true).empty());
  CHECK_THAT(message("a.csv", "review,sentiment\na,0\nb,1\nc,0\nd,1\n", true),
             Contains("a.csv:1:1: the column of the label is named 'review', that of the text "
                      "'sentiment'; choose them with data.label_name"));
  CHECK_THAT(message("a.csv", "0,a\n1,b\n0,c\n1,d\n0,e\n", true),
             Contains("a.csv:1:1: this line looks like an example, not like a header: 2 others"));
}

TEST_CASE("text_classification: examples are fixed, for any number of threads") {
  const TemporaryDirectory folder;
  write_text(folder / "a.tsv", many_reviews());
  CHECK(hashes("text_classification", {{"path", (folder / "a.tsv").string()}}, 0) ==
        std::vector<std::string>{"dfb578cb81cdb3cc9424aa365b128468",
                                 "a16ccb42a9fac03554c2b1a62966f2a2",
                                 "a2e42e826eae312a29d3ea825c397ebb"});
}
