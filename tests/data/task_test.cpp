#include <algorithm>
#include <numeric>
#include <set>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/parallel.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/registry.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using Catch::Contains;
using longhand::test::message_of;

namespace {

// Examples given as rows of tokens and targets; targets of one number are classes of sequences.
struct Listed final : Dataset {
  struct Example {
    std::vector<int32_t> tokens, targets;
  };
  explicit Listed(std::vector<Example> given, bool per_token = false)
      : examples(std::move(given)), is_per_token(per_token) {}

  int64_t size() const override { return static_cast<int64_t>(examples.size()); }
  int64_t length(int64_t i) const override {
    return static_cast<int64_t>(examples[i].tokens.size());
  }
  Batch collate(std::span<const int64_t> indices) const override {
    int64_t longest = 0;
    for (const int64_t i : indices) longest = std::max(longest, length(i));
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{Tensor::zeros({count, longest}, DType::i32),
                Tensor::full(is_per_token ? Shape{count, longest} : Shape{count}, -100, DType::i32),
                Tensor::empty({count}, DType::i32)};
    for (int64_t b = 0; b < count; ++b) {
      const auto& [tokens, targets] = examples[indices[b]];
      std::copy(tokens.begin(), tokens.end(), batch.tokens.data<int32_t>() + b * longest);
      std::copy(targets.begin(), targets.end(),
                batch.targets.data<int32_t>() + b * (is_per_token ? longest : 1));
      batch.lengths.data<int32_t>()[b] = static_cast<int32_t>(tokens.size());
    }
    return batch;
  }

  std::vector<Example> examples;
  bool is_per_token;
};

std::vector<Listed::Example> many() {
  std::vector<Listed::Example> examples(1000);
  for (int i = 0; i < 1000; ++i) {
    examples[i].tokens.resize(1 + i * 37 % 90);
    std::iota(examples[i].tokens.begin(), examples[i].tokens.end(), i);
    examples[i].targets = {i % 10};
  }
  return examples;
}

}  // namespace

TEST_CASE("tasks are listed by name, and each has a summary") {
  const auto names = task_names();
  CHECK(std::find(names.begin(), names.end(), "tokens") != names.end());
  CHECK(std::find(names.begin(), names.end(), "listops") != names.end());
  for (const std::string& name : names) {
    INFO(name);
    const std::string summary = task_summary(name);
    CHECK(summary.size() > 10);
    CHECK(summary.find('\n') == std::string::npos);
    CHECK(summary.find('=') == std::string::npos);  // options are declared
    const std::vector<std::string> options = names_of(task_options(name));
    CHECK(std::find(options.begin(), options.end(), "seed") != options.end());
    CHECK(std::find(options.begin(), options.end(), "task") == options.end());
    for (const Field& field : task_options(name)) CHECK(field.meaning.size() > 3);
  }
}

TEST_CASE("a task is checked without its data") {
  const auto check = [](const std::vector<std::pair<std::string, OptionValue>>& settings,
                        int64_t max_length = 0) {
    Options options("data");
    for (const auto& [key, value] : settings) options.set(key, value, "c.toml:2:1");
    return check_task(options, 0, max_length);
  };
  const auto copy = check({{"task", "copy"}, {"length", 40}, {"train_size", int64_t{1} << 40}});
  REQUIRE(copy.has_value());
  CHECK(copy->name == "copy");
  CHECK(copy->max_length == 40);
  CHECK(copy->vocabulary == 10);
  // Expressions of ListOps take a while to draw, and files need not be there.
  CHECK(check({{"task", "listops"}, {"train_size", int64_t{1} << 40}})->max_length == 2000);
  CHECK(check({{"task", "text_lm"}, {"path", "none"}})->max_length == 1024);
  CHECK(check({{"task", "text_lm"}, {"path", "none"}}, 64)->max_length == 64);
  CHECK(check({{"task", "text_lm"}, {"path", "none"}, {"length", 32}}, 64)->max_length == 32);
  CHECK_FALSE(check({{"task", "tokens"}, {"path", "none"}}).has_value());
  CHECK_FALSE(check({{"task", "text_classification"}, {"path", "none"}}).has_value());
  const auto error = [&](const std::vector<std::pair<std::string, OptionValue>>& settings) {
    return message_of<ConfigError>([&] { check(settings); });
  };
  CHECK_THAT(error({{"task", "copy"}, {"lenght", 40}}),
             Contains("c.toml:2:1: data.lenght: unknown option; did you mean length?"));
  CHECK_THAT(error({{"task", "listops"}, {"path", "x"}, {"max_depth", 3}}),
             Contains("data.max_depth = 3: this option applies only with no path"));
  CHECK_THAT(error({{"task", "listops"}, {"test_fraction", 0.2}}),
             Contains("this option applies only with path of a file"));
  CHECK_THAT(error({{"task", "tokens"}}), Contains("data.path"));
}

TEST_CASE("unknown tasks are refused, with the nearest and the known ones") {
  CHECK_THAT(
      message_of<ConfigError>([] { task_summary("listop"); }),
      Contains("unknown task \"listop\"") && Contains("did you mean listops?") && Contains("mqar"));
  Options options("data");
  CHECK_THAT(message_of<ConfigError>([&] { make_task(options, 0); }),
             Contains("data.task") && Contains("mqar"));
  options.set("task", "mqqar", "c.toml:3:1");
  CHECK_THAT(message_of<ConfigError>([&] { make_task(options, 0); }),
             Contains("c.toml:3:1") && Contains("did you mean mqar?"));
}

TEST_CASE("splits are selected by name") {
  Task task;
  task.train = std::make_unique<Listed>(std::vector<Listed::Example>(1));
  task.validation = std::make_unique<Listed>(std::vector<Listed::Example>(2));
  task.test = std::make_unique<Listed>(std::vector<Listed::Example>(3));
  CHECK(task.split("train").size() == 1);
  CHECK(task.split("validation").size() == 2);
  CHECK(task.split("test").size() == 3);
  CHECK_THAT(message_of<ConfigError>([&] { task.split("valid"); }),
             Contains("unknown split \"valid\"") && Contains("validation"));
}

TEST_CASE("content hashes are the same on every machine") {
  const std::vector<Listed::Example> examples{{{1, 2, 300}, {7}}, {{70000}, {-100}}};
  CHECK(content_hash(Listed(examples)) == "168a3816a49ec880935b813bbf4b0d30");
  // The stream that is hashed, byte by byte.
  std::vector<std::byte> bytes;
  for (const int b : {3, 0, 0, 0, 1,   0,   0,   0,  2, 0, 0, 0, 44, 1, 0, 0,  // 3 tokens
                      1, 0, 0, 0, 7,   0,   0,   0,                            // 1 target
                      1, 0, 0, 0, 112, 17,  1,   0,                            // 1 token
                      1, 0, 0, 0, 156, 255, 255, 255})                         // 1 target
    bytes.push_back(static_cast<std::byte>(b));
  CHECK(content_hash(Listed(examples)) == hex(digest(bytes)));
}

TEST_CASE("content hashes depend on every number and every boundary") {
  const auto hash = [](std::vector<Listed::Example> examples, bool per_token = false) {
    return content_hash(Listed(std::move(examples), per_token));
  };
  const std::string base = hash({{{1, 2}, {3}}, {{4}, {5}}});
  CHECK(hash({{{1, 2}, {3}}, {{4}, {5}}}) == base);
  CHECK(hash({{{1, 9}, {3}}, {{4}, {5}}}) != base);     // a token
  CHECK(hash({{{1, 2}, {3}}, {{4}, {6}}}) != base);     // a target
  CHECK(hash({{{1, 2, 0}, {3}}, {{4}, {5}}}) != base);  // a token as large as padding
  CHECK(hash({{{4}, {5}}, {{1, 2}, {3}}}) != base);     // order
  CHECK(hash({{{1, 2}, {3}}}) != base);                 // number of examples
  CHECK(hash({{{1}, {3}}}, false) == hash({{{1}, {3}}}, true));
  CHECK(hash({{{1, 2}, {3, 4}}}, true) != hash({{{1, 2}, {3, 5}}}, true));
}

TEST_CASE("content hashes do not depend on threads, and respect the limit") {
  const Listed all(many());
  const int before = threads();
  set_threads(1);
  const std::string one = content_hash(all);
  set_threads(4);
  CHECK(content_hash(all) == one);
  set_threads(before);

  for (const int i : {0, 15, 16, 255, 256, 700, 999}) {
    Listed changed(many());
    ++changed.examples[i].tokens[0];
    CHECK(content_hash(changed) != one);
  }

  auto part = many();
  part.resize(300);
  CHECK(content_hash(all, 300) == content_hash(Listed(part)));
  CHECK(content_hash(all, 300) != one);
  CHECK(content_hash(all, 1000) == one);
  CHECK(content_hash(all, 5000) == one);
  CHECK_THROWS_AS(content_hash(all, -1), ConfigError);
}

TEST_CASE("a split is the same, whether the others are asked for or not") {
  const std::string name = GENERATE("listops", "mqar", "mqar_stacked", "mqar_overwrite", "copy",
                                    "selective_copy", "induction", "parity");
  CAPTURE(name);
  Options options("data");
  options.set("task", name);
  for (const char* key : {"train_size", "validation_size", "test_size"})
    options.set(key, int64_t{20});
  if (name == "listops") {
    options.set("min_length", int64_t{5});
    options.set("max_length", int64_t{40});
  }
  const Task all = make_task(options, 3);
  for (const char* split : {"train", "validation", "test"}) {
    const Task one = make_task(options, 3, Splits::only(split));
    CHECK(content_hash(one.split(split)) == content_hash(all.split(split)));
  }
}

TEST_CASE("a task defined outside the library is made, documented and refused by name") {
  struct Ones {
    int64_t length = 3;
    void describe(OptionVisitor& v) { v.integer("length", length, {1, 8}, "tokens per example"); }
  };
  const auto spec = make_spec<Ones>(
      "ones",
      [](const Ones& o) -> std::optional<TaskInfo> {
        return TaskInfo{.vocabulary = 2, .classes = 2, .max_length = o.length};
      },
      [](const Ones& o, uint64_t, const Splits&) {
        Task task;
        task.train = std::make_unique<Listed>(
            std::vector<Listed::Example>{{std::vector<int32_t>(o.length, 1), {1}}});
        return task;
      });
  add("ones", spec);
  CHECK(task_names().back() == "ones");
  CHECK(task_summary("ones") == "ones");
  Options options("data");
  options.set("task", "ones");
  options.set("length", int64_t{5});
  CHECK(make_task(options, 1).train->length(0) == 5);
  CHECK(check_task(options, 1)->max_length == 5);
  CHECK_THAT(message_of<ConfigError>([&] { add("ones", spec); }), Contains("already registered"));
  CHECK_THAT(message_of<ConfigError>([&] { add("twos", TaskSpec{}); }), Contains("make_spec()"));
}

TEST_CASE("one file that would be divided is the split that is asked for") {
  const test::TemporaryDirectory folder;
  std::string csv = "tokens,targets\n", operations = "Source\tTarget\n", text;
  for (int i = 0; i < 9; ++i) {
    const std::string digit = std::to_string(i);
    csv += digit + " 7," + std::to_string(i % 2) + "\n";
    operations += "( ( ( [MAX " + digit + " ) " + digit + " ) ] )\t" + digit + "\n";
    text += digit + "234";
  }
  test::write_text(folder / "a.csv", csv);
  test::write_text(folder / "a.tsv", operations);
  test::write_text(folder / "a.txt", text + ".");
  for (const auto& [name, file] :
       {std::pair{"tokens", "a.csv"}, {"listops", "a.tsv"}, {"text_lm", "a.txt"}}) {
    CAPTURE(name);
    Options options("data");
    options.set("task", std::string(name));
    options.set("path", (folder / file).string());
    if (std::string(name) == "text_lm") options.set("length", int64_t{4});
    Splits whole = Splits::only("test");
    whole.undivided = true;
    const Task task = make_task(options, 1, whole);
    CHECK(task.splits() == std::vector<std::string>{"test"});
    REQUIRE(task.test->size() == 9);
    std::set<int32_t> differences;  // of what follows the number of the row
    for (int64_t i = 0; i < 9; ++i) {
      const Batch batch = task.test->collate(std::vector{i});
      const int64_t at = std::string(name) == "listops" ? 1 : 0;
      differences.insert(batch.tokens.to_vector<int32_t>()[at] - static_cast<int32_t>(i));
    }
    CHECK(differences.size() == 1);  // in their order
  }
}
