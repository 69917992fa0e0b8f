#include "longhand/data/token_lines.h"

#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

std::string error(const std::string& name, const std::string& text) {
  const TemporaryDirectory folder;
  write_text(folder / name, text);
  return message_of<DataError>([&] { make("tokens", {{"path", (folder / name).string()}}); });
}

}  // namespace

TEST_CASE("tokens: CSV and JSON Lines are the same data") {
  const TemporaryDirectory folder;
  std::string csv = "id,targets,tokens\n", json;
  for (int i = 0; i < 20; ++i) {
    std::string blanks, commas;
    for (int j = 0; j <= i % 3; ++j) {
      blanks += (j > 0 ? " " : "") + std::to_string(10 * i + j);
      commas += (j > 0 ? ", " : "") + std::to_string(10 * i + j);
    }
    csv += std::to_string(i) + "," + std::to_string(i % 2) + ",\"" + blanks + "\"\n";
    json += "{\"tokens\": [" + commas + "], \"targets\": " + std::to_string(i % 2) + "}\n";
  }
  write_text(folder / "a.csv", csv);
  write_text(folder / "a.jsonl", json);
  const auto settings = [&](const char* name) {
    return Settings{{"path", (folder / name).string()}, {"test_fraction", 0.2}};
  };
  const Task task = make("tokens", settings("a.csv"));
  CHECK(task.info.vocabulary == 192);
  CHECK(task.info.classes == 2);
  CHECK(task.info.max_length == 3);
  CHECK_FALSE(task.info.per_token);
  CHECK(task.train->size() == 14);
  CHECK(task.validation->size() == 2);
  CHECK(task.test->size() == 4);
  std::set<int32_t> first;
  for (const std::string split : {"train", "validation", "test"})
    for (const Example& e : examples(task.split(split), task.split(split).size())) {
      const int32_t i = e.tokens[0] / 10;
      first.insert(i);
      CHECK(static_cast<int32_t>(e.tokens.size()) == i % 3 + 1);
      CHECK(e.targets == Row{i % 2});
    }
  CHECK(first.size() == 20);
  const Batch batch = task.train->collate(std::vector<int64_t>{0, 1, 2, 3});
  CHECK(batch.lengths.defined());
  CHECK(hashes("tokens", settings("a.csv"), 0) == hashes("tokens", settings("a.jsonl"), 0));
  CHECK(task.train->fingerprint() == content_hash(*task.train));
}

TEST_CASE("tokens: a folder of JSON Lines with classes of tokens") {
  const TemporaryDirectory folder;
  write_text(folder / "train.jsonl",
             "{\"tokens\": [5], \"targets\": [1]}\n{\"tokens\": [1, 2], \"targets\": [-100, 3]}\n");
  write_text(folder / "dev.jsonl", "{\"tokens\": [9, 0, 1], \"targets\": [0, 1, 2]}\n");
  const Settings path = {{"path", folder.path().string()}, {"causal", true}};
  const Task task = make("tokens", path);
  CHECK(task.info.per_token);
  CHECK(task.info.causal);
  CHECK(task.info.vocabulary == 10);
  CHECK(task.info.classes == 4);
  CHECK(task.splits() == std::vector<std::string>{"train", "validation"});
  CHECK(example(*task.train, 1).targets == Row{-100, 3});
  const Batch batch = task.train->collate(std::vector<int64_t>{0, 1});
  CHECK(batch.targets.to_vector<int32_t>() == Row{1, -100, -100, 3});

  // Only what is used must be there.
  write_text(folder / "dev.jsonl", "{\"tokens\": [9, 0, 1], \"targets\": 2}\n");
  CHECK_THAT(message_of<DataError>([&] { make("tokens", path); }),
             Contains("dev.jsonl:1:23: 1 targets for 3 tokens; expected one for each token"));
  std::filesystem::remove(folder / "dev.jsonl");
  CHECK_THAT(message_of<DataError>([&] { make("tokens", path); }),
             Contains("has no validation.jsonl or val.jsonl or dev.jsonl; it holds train.jsonl"));
}

TEST_CASE("tokens: errors in CSV and JSON Lines name line and column") {
  const std::string head = "tokens,targets\n1 2,0\n";
  CHECK_THAT(error("a.csv", head + "1 x,0\n"),
             Contains("a.csv:3:1: number 2, 'x', is not an integer below 2^31; expected integers "
                      "separated by blanks"));
  CHECK_THAT(error("a.csv", head + "1 2147483648,0\n"),
             Contains("'2147483648', is not an integer"));
  CHECK_THAT(error("a.csv", head + "1 -2,0\n"), Contains("a.csv:3:1: number 2, -2, is negative"));
  CHECK_THAT(error("a.csv", head + "1 2,-1\n"),
             Contains("a.csv:3:5: number 1, -1, is negative; expected 0 or more, or -100"));
  CHECK_THAT(error("a.csv", head + " ,1\n"), Contains("a.csv:3:1: expected at least one integer"));
  CHECK_THAT(error("a.csv", head + "1 2,0 1\n"),
             Contains("a.csv:3:5: 2 targets for 2 tokens; expected one for the sequence"));
  CHECK_THAT(error("a.csv", head), Contains("1 different examples; expected at least 3"));
  CHECK_THAT(error("a.csv", "tokens,targets\n1,-100\n"), Contains("no targets: every one is -100"));
  CHECK_THAT(error("a.csv", "token,targets\n1,0\n"),
             Contains("a.csv:1: the header line has no column \"tokens\"; found token, targets; "
                      "rename token to tokens"));
  CHECK_THAT(error("a.jsonl", "{\"tokens\": [1], \"tragets\": 0}\n"),
             Contains("found tokens, tragets; rename tragets to targets"));
  CHECK_THAT(error("a.csv", ""), Contains("a.csv: expected at least one example"));
  CHECK_THAT(error("a.jsonl", "{\"tokens\": [1], \"labels\": 0}\n"),
             Contains("a.jsonl:1:1: the object has no \"targets\"; found tokens, labels"));
  CHECK_THAT(error("a.jsonl", "{\"tokens\": [99999999999999999999], \"targets\": 0}\n"),
             Contains("a.jsonl:1:") && Contains("expected integers"));
}

TEST_CASE("tokens: numbers and labels in CSV and JSON Lines") {
  const TemporaryDirectory folder;
  std::string csv = "tokens,targets\n", json;
  for (int i = 0; i < 10; ++i) {
    const std::string token = std::to_string(i), half = std::to_string(i) + ".5";
    csv += token + ",-" + half + " 1e2\n";
    json += "{\"tokens\": [" + token + "], \"targets\": [-" + half + ", 100]}\n";
  }
  write_text(folder / "a.csv", csv);
  write_text(folder / "a.jsonl", json);
  const auto settings = [&](const char* name, const std::string& targets) {
    return Settings{{"path", (folder / name).string()}, {"targets", targets}};
  };
  const Task task = make("tokens", settings("a.csv", "numbers"));
  CHECK(task.info.classes == 2);
  CHECK(task.info.targets == TargetKind::numbers);
  CHECK_FALSE(task.info.per_token);
  CHECK(task.info.describe_targets() == "2 numbers per sequence");
  const Batch batch = task.train->collate(indices_from(0, task.train->size()));
  CHECK(batch.targets.dtype() == DType::f32);
  CHECK_FALSE(batch.per_token());
  CHECK(count_targets(batch.targets) == 2 * task.train->size());
  for (int64_t i = 0; i < task.train->size(); ++i) {
    CHECK(batch.targets.at({i, 0}) == -batch.tokens.at({i, 0}) - 0.5);
    CHECK(batch.targets.at({i, 1}) == 100);
  }
  CHECK(hashes("tokens", settings("a.csv", "numbers"), 0) ==
        hashes("tokens", settings("a.jsonl", "numbers"), 0));

  // The same tokens with other numbers are other data.
  std::string other = csv;
  for (size_t at = 0; (at = other.find("1e2", at)) != std::string::npos;)
    other.replace(at, 3, "1e3");
  write_text(folder / "b.csv", other);
  CHECK(hashes("tokens", settings("a.csv", "numbers"), 0) !=
        hashes("tokens", settings("b.csv", "numbers"), 0));

  write_text(folder / "labels.csv", "tokens,targets\n1,0 1 1\n2,0 0 0\n3,1 0 0\n4,1 1 1\n");
  const Task labels = make("tokens", settings("labels.csv", "labels"));
  CHECK(labels.info.classes == 3);
  CHECK(labels.train->collate(indices_from(0, 1)).targets.dtype() == DType::u8);

  const auto error_of = [&](const std::string& text, const std::string& targets) {
    write_text(folder / "wrong.csv", "tokens,targets\n1,0.5\n" + text);
    return message_of<DataError>([&] { make("tokens", settings("wrong.csv", targets)); });
  };
  CHECK_THAT(error_of("1,nan\n", "numbers"),
             Contains("wrong.csv:3:3: number 1, 'nan', is not a finite number; leave out examples "
                      "without a target"));
  CHECK_THAT(error_of("1,inf\n", "numbers"), Contains("is not a finite number"));
  CHECK_THAT(error_of("1,a\n", "numbers"), Contains("is not a finite number"));
  CHECK_THAT(error_of("1,\n", "numbers"), Contains("expected at least one number"));
  CHECK_THAT(error_of("1,1 2\n", "numbers"),
             Contains("wrong.csv:3:3: 2 targets; expected 1, as the first record has"));
  CHECK_THAT(error_of("", "labels"), Contains("number 1, 0.5, is not a label; with data.targets = "
                                              "\"labels\", expected 0 or 1"));
  CHECK_THAT(error_of("", "classes"), Contains("number 1, '0.5', is not an integer"));
}
