#include "longhand/data/listops.h"

#include <algorithm>
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

const std::filesystem::path sample =
    std::filesystem::path(LONGHAND_TEST_DATA) / "listops_sample.tsv";

// The value of the expression at `at`, from the definition: by recursion, on sorted lists.
template <class Tokens>
int listops_oracle(const Tokens& tokens, size_t& at) {
  const int head = static_cast<int>(tokens.at(at++));
  if (head <= 10) return head - 1;
  std::multiset<int> values;
  while (tokens.at(at) != 15) values.insert(listops_oracle(tokens, at));
  ++at;
  const std::vector<int> sorted(values.begin(), values.end());
  const size_t n = sorted.size();
  int sum = 0;
  for (const int v : sorted) sum += v;
  if (head == 11) return sorted.front();
  if (head == 12) return sorted.back();
  if (head == 14) return sum % 10;
  if (n % 2 == 1) return sorted[n / 2];
  return static_cast<int>(0.5 * (sorted[n / 2 - 1] + sorted[n / 2]));
}

int value_of(const char* text) { return listops::evaluate(listops::parse(text)); }

Row tokens_of(const Sequences& sequences, int64_t i) {
  const auto tokens = sequences.tokens(i);
  return {tokens.begin(), tokens.end()};
}

}  // namespace

TEST_CASE("listops: values follow the definition") {
  CHECK(value_of("7") == 7);
  CHECK(value_of("[MIN 3 2 9 ]") == 2);
  CHECK(value_of("[MAX 3 2 9 ]") == 9);
  CHECK(value_of("[SM 8 9 7 ]") == 4);
  CHECK(value_of("[MED 9 1 5 ]") == 5);
  CHECK(value_of("[MED 9 1 ]") == 5);
  CHECK(value_of("[MED 2 5 ]") == 3);          // 3.5 rounded down
  CHECK(value_of("[MED 0 9 3 4 ]") == 3);      // 3.5 again, from unsorted values
  CHECK(value_of("[MED 9 0 0 0 8 7 ]") == 3);  // (0 + 7) / 2
  CHECK(value_of("[MAX 2 [SM 7 8 ] 0 ]") == 5);
  CHECK(value_of("[MIN 4 ]") == 4);
  CHECK(listops::to_text(listops::parse("  ( ( ( [MAX 2 ) 9 )  ] ) ")) == "[MAX 2 9 ]");
}

TEST_CASE("listops: text that is not an expression is rejected") {
  const auto [text, reason] = GENERATE(table<const char*, const char*>({
      {"", "not complete"},
      {"(", "not complete"},
      {"[MAX 2 9", "not complete"},
      {"[MAX ]", "word 2, ']': operator without arguments"},
      {"]", "closes nothing"},
      {"3 4", "word 2, '4': more words"},
      {"[MAX 2 ] ]", "word 4, ']': more words"},
      {"[FIRST 2 ]", "word 1, '[FIRST': not a word"},
      {"[MAX 12 ]", "word 2, '12': not a word"},
      {"[MAX ( 2 ) ]", "word 2, '(': parentheses"},
      {"( [MAX 2 ) ] )", "operator with 1 arguments and 1 '('"},
      {"( ( ( [MAX 2 ) ] )", "operator with 1 arguments and 3 '('"},
      {"( ( ( [MAX 2 9 ) ] )", "word 6, '9': ')' is missing"},
      {"( ( [MAX 2 ) ]", "not complete"},
      {"( ( [MAX ( 2 ) ] )", "word 5, '2': '(' before"},
      {"( ( [MAX 2 ) ) ] )", "word 6, ')': ')' that closes nothing"},
      {"( ( [MAX 2 ) ] ) )", "word 8, ')': more words"},
      {"( ( ( [MAX [MIN 2 ) 9 ) ] )", "operator without '('"},
  }));
  INFO(text);
  CHECK_THAT(message_of<DataError>([&] { listops::parse(text); }), Contains(reason));
}

TEST_CASE("listops: evaluate rejects tokens that are not exactly one expression") {
  using Tokens = std::vector<uint8_t>;
  const Tokens broken =
      GENERATE(Tokens{}, Tokens{0}, Tokens{16}, Tokens{1, 1}, Tokens{15}, Tokens{11, 15},
               Tokens{11, 1}, Tokens{11, 1, 15, 15}, Tokens{11, 1, 15, 0}, Tokens{11, 0, 15});
  CHECK_THROWS_AS(listops::evaluate(broken), DataError);
}

TEST_CASE("listops: the length bounds are strict, the expressions all different") {
  const listops::Limits limits{.min_length = 4, .max_length = 9, .max_depth = 3, .max_args = 3};
  const Sequences found = listops::generate(limits, 4000, Generator(3));
  std::set<Row> different;
  std::set<size_t> lengths;
  for (int64_t i = 0; i < found.size(); ++i) {
    different.insert(tokens_of(found, i));
    lengths.insert(found.tokens(i).size());
  }
  CHECK(found.size() == 4000);
  CHECK(different.size() == 4000);
  CHECK(lengths == std::set<size_t>{5, 7, 8});  // 6 would require an operator of one argument
  CHECK_THAT(message_of<ConfigError>(
                 [&] { listops::generate({.min_length = 0, .max_length = 2}, 11, Generator(3)); }),
             Contains("only 10 of 11"));
}

TEST_CASE("listops: a node is an operator with probability 1/4, all choices equally likely") {
  const listops::Limits limits{.min_length = 0, .max_length = 1000, .max_depth = 2};
  const int candidates = 40000;
  std::map<int, double> operators, digits, arguments;
  double all_operators = 0, all_digits = 0;
  std::vector<uint8_t> tokens;
  for (int i = 0; i < candidates; ++i) {
    RandomStream random(Generator(5).fork(i));
    REQUIRE(listops::draw_candidate(limits, random, tokens));
    for (const uint8_t t : tokens)
      if (t < 11) ++digits[t - 1], ++all_digits;
    if (tokens.size() == 1) continue;
    ++all_operators;
    ++operators[tokens[0]];
    ++arguments[static_cast<int>(tokens.size()) - 2];
  }
  CHECK(std::abs(all_operators / candidates - 0.25) <= 0.01);
  CHECK(operators.size() == 4);
  CHECK(arguments.size() == 9);
  CHECK(arguments.begin()->first == 2);
  CHECK(digits.size() == 10);
  for (const auto& [op, n] : operators) CHECK(std::abs(n / all_operators - 1. / 4) <= 0.015);
  for (const auto& [count, n] : arguments) CHECK(std::abs(n / all_operators - 1. / 9) <= 0.011);
  for (const auto& [value, n] : digits) CHECK(std::abs(n / all_digits - 0.1) <= 0.005);
}

// Reference figures: 100,000 expressions of the Long Range Arena's own generator, and, by depth, 300.
TEST_CASE("listops: statistics are those of the Long Range Arena") {
  const listops::Limits limits;
  const int candidates = 40000;
  std::vector<uint8_t> tokens;
  std::vector<double> lengths, classes(10), by_root(16 * 10), root(16);
  std::vector<double> nodes(12), operators(12);  // by depth
  double deepest = 0;
  for (int i = 0; i < candidates; ++i) {
    RandomStream random(Generator(7).fork(i));
    if (!listops::draw_candidate(limits, random, tokens)) continue;
    int depth = 1, most = 1;
    for (const uint8_t t : tokens) {
      const bool is_operator = t >= 11 && t < 15;
      if (t != 15) ++nodes[depth], operators[depth] += is_operator;
      depth += is_operator ? 1 : t == 15 ? -1 : 0;
      most = std::max(most, depth);
    }
    deepest += most == 10;
    lengths.push_back(static_cast<double>(tokens.size()));
    const int value = listops::evaluate(tokens);
    ++classes[value];
    ++root[tokens[0]];
    ++by_root[tokens[0] * 10 + value];
  }
  const double n = static_cast<double>(lengths.size());
  CHECK(std::abs(n / candidates - 0.0826) <= 0.004);
  CHECK(deepest == n);

  std::sort(lengths.begin(), lengths.end());
  double mean = 0;
  for (const double length : lengths) mean += length / n;
  const auto quantile = [&](double q) { return lengths[static_cast<size_t>(q * n)]; };
  CHECK(lengths.front() > 500);
  CHECK(lengths.back() < 2000);
  CHECK(std::abs(mean - 1034) <= 25);
  CHECK(std::abs(quantile(0.25) - 702) <= 25);
  CHECK(std::abs(quantile(0.5) - 953) <= 35);
  CHECK(std::abs(quantile(0.75) - 1310) <= 45);

  const std::vector<double> shares = {.168, .090, .078, .083, .090, .087, .076, .073, .088, .168};
  for (int c = 0; c < 10; ++c) CHECK(std::abs(classes[c] / n - shares[c]) <= 0.02);
  for (const int op : {listops::min, listops::max, listops::med, listops::sm})
    CHECK(std::abs(root[op] / n - .25) <= 0.03);
  CHECK(std::abs(by_root[listops::min * 10 + 0] / root[listops::min] - .566) <= 0.05);
  CHECK(std::abs(by_root[listops::max * 10 + 9] / root[listops::max] - .564) <= 0.05);

  // How many nodes an expression has at each depth, and how many of them are operators. Long expressions
  // are kept, so that more than 1/4 of the upper nodes are. Tolerances: 4 standard errors of 300.
  const std::vector<double> nodes_at = {1,    6.91, 14.45, 23.7,  37.7,
                                        58.2, 89.7, 133.7, 204.8, 310.1};
  const std::vector<double> share = {1, .336, .266, .263, .256, .256, .249, .253, .253, 0};
  const std::vector<double> within = {0, .042, .027, .021, .017, .014, .011, .009, .008, 0};
  for (int d = 1; d <= 10; ++d) {
    INFO("depth " << d);
    CHECK(nodes[d] / n == Approx(nodes_at[d - 1]).epsilon(0.12));
    CHECK(std::abs(operators[d] / nodes[d] - share[d - 1]) <= within[d - 1]);
  }
}

TEST_CASE("listops: the oracle solves every example of every split") {
  const Task task =
      make("listops", {{"train_size", 300}, {"validation_size", 50}, {"test_size", 50}});
  CHECK(task.info.vocabulary == listops::vocabulary);
  CHECK(task.info.classes == 10);
  CHECK(task.info.max_length == 2000);
  CHECK_FALSE(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  std::set<Row> different;
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    for (const Example& e : examples(**split, (*split)->size())) {
      size_t at = 0;
      CHECK(listops_oracle(e.tokens, at) == e.targets[0]);
      CHECK(at == e.tokens.size());
      different.insert(e.tokens);
    }
  }
  CHECK(different.size() == 400);
}

TEST_CASE("listops: examples are fixed, for any number of threads") {
  const Settings sizes = {{"train_size", 200}, {"validation_size", 100}, {"test_size", 100}};
  CHECK(hashes("listops", sizes, 0) == std::vector<std::string>{
                                           "544fd91a28fabea3a9befcbb7ab0f060",
                                           "d215e96c36f15c78e8a5a48007a5c961",
                                           "8c8615ff50e1795954a26baab49513fa",
                                       });
  CHECK(hashes("listops", sizes, 0, 2) != hashes("listops", sizes, 0));
  // More training examples do not change the other splits.
  CHECK(content_hash(
            *make("listops", {{"train_size", 1}, {"validation_size", 100}, {"test_size", 100}})
                 .test) == hashes("listops", sizes, 0)[2]);
}

TEST_CASE("listops: options out of range are rejected") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("listops", settings); });
  };
  CHECK_THAT(message({{"min_length", 1999}}), Contains("data.min_length"));
  CHECK_THAT(message({{"max_length", 500}}), Contains("data.min_length"));
  CHECK_THAT(message({{"max_args", 1}}), Contains("data.max_args"));
  CHECK_THAT(message({{"max_depth", 0}}), Contains("data.max_depth"));
  CHECK_THAT(message({{"train_size", 0}}), Contains("data.train_size"));
  CHECK_THAT(message({{"test_size", -5}}), Contains("data.test_size"));
}

TEST_CASE("listops: a file of the Long Range Arena is read, its targets recomputed") {
  const auto report = listops::check_tsv(sample);
  CHECK(report.expressions == 12);
  CHECK(report.agreeing == 12);
  CHECK(report.first.empty());
  int64_t count = 0;
  listops::read_tsv(sample, [&](int64_t line, std::span<const uint8_t> tokens, int target) {
    CHECK(line == ++count + 1);
    size_t at = 0;
    const std::vector<uint8_t> copy(tokens.begin(), tokens.end());
    CHECK(listops_oracle(copy, at) == target);
    CHECK(listops::parse(listops::to_text(tokens)) == copy);
  });
}

TEST_CASE("listops: disagreements are counted and the first of them reported") {
  const TemporaryDirectory folder;
  std::string text = "Source\tTarget\n";
  for (int i = 0; i < 20; ++i) text += i % 2 ? "[MIN 1 2 ]\t1\n" : "( ( ( [MAX 1 ) 2 ) ] )\t7\n";
  write_text(folder / "a.tsv", text);
  const auto report = listops::check_tsv(folder / "a.tsv", 3);
  CHECK(report.expressions == 20);
  CHECK(report.agreeing == 10);
  REQUIRE(report.first.size() == 3);
  CHECK(report.first[1].line == 4);
  CHECK(report.first[1].target == 7);
  CHECK(report.first[1].value == 2);
  CHECK_THAT(message_of<DataError>([&] {
               make("listops", {{"path", (folder / "a.tsv").string()}});
             }),
             Contains("a.tsv:2: the target is 7") && Contains("expression is 2"));
}

TEST_CASE("listops: errors in files name the file and the line") {
  const TemporaryDirectory folder;
  const std::string path = (folder / "a.tsv").string();
  const auto message = [&](const std::string& text) {
    write_text(path, text);
    return message_of<DataError>([&] { listops::check_tsv(path); });
  };
  const std::string good = "Source\tTarget\r\n[MIN 1 2 ]\t1\r\n";
  CHECK_THAT(message(good + "[MIN 1 2\t1\n"), Contains(path + ":3: ") && Contains("complete"));
  CHECK_THAT(message(good + good), Contains(path + ":3: word 1"));
  CHECK_THAT(message(good + "[MIN 1 2 ]\n"), Contains(path + ":3: expected 2 columns, got 1"));
  CHECK_THAT(message(good + "[MIN 1 2 ]\t1\t1\n"), Contains(path + ":3: ") && Contains("got 3"));
  CHECK_THAT(message(good + "[MIN 1 2 ]\t10\n"), Contains(path + ":3: target '10'"));
  CHECK_THAT(message(good + "[MIN 1 2 ]\t\n"), Contains(path + ":3: target ''"));
  CHECK_THAT(message(good + "\n"), Contains(path + ":3: "));
  CHECK_THAT(message("[MIN 1 2 ]\t1\n"), Contains(path + ":1: expected the header"));
  CHECK_THAT(message(""), Contains(path + ": the file is empty"));
  CHECK_THAT(message_of<DataError>([&] { listops::check_tsv(folder / "none.tsv"); }),
             Contains("none.tsv: ") && Contains("No such file"));
  CHECK_THAT(message_of<DataError>([&] { listops::check_tsv(folder.path()); }), Contains("folder"));
}

TEST_CASE("listops: a single file is split, a folder keeps its own splits") {
  const std::string path = sample.string();
  const Task task = make("listops", {{"path", path}, {"validation_fraction", 0.25}});
  CHECK(task.train->size() == 8);
  CHECK(task.validation->size() == 3);
  CHECK(task.test->size() == 1);
  CHECK_THAT(message_of<DataError>([&] {
               make("listops", {{"path", path}, {"max_length", 5}});
             }),
             Contains("listops_sample.tsv:") && Contains("data.max_length = 5"));

  const TemporaryDirectory folder;
  CHECK_THAT(message_of<DataError>([&] {
               make("listops", {{"path", folder.path().string()}});
             }),
             Contains("basic_train.tsv"));
  for (const char* name : {"basic_train.tsv", "basic_val.tsv"})
    std::filesystem::copy_file(sample, folder / name);
  write_text(folder / "basic_test.tsv", "Source\tTarget\n3\t3\n");
  const Task files = make("listops", {{"path", folder.path().string()}, {"validation_size", 5}});
  CHECK(files.train->size() == 12);
  CHECK(files.validation->size() == 5);
  CHECK(files.test->size() == 1);
  CHECK(example(*files.test, 0).tokens == Row{4});
}
