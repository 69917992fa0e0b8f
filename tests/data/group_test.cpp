#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// What the examples of a task say of products: (state, element) to the next state.
std::map<std::pair<int32_t, int32_t>, int32_t> products_in(const Task& task, int64_t examples_read,
                                                           size_t each = 1) {
  std::map<std::pair<int32_t, int32_t>, int32_t> table;
  for (const Example& e : examples(*task.train, examples_read)) {
    int32_t state = 0;
    for (size_t i = 0; i < e.tokens.size(); i += each) {
      const int32_t next = e.targets[i + each - 1];
      const auto known = table.emplace(std::pair{state, e.tokens[i]}, next).first;
      REQUIRE(known->second == next);
      state = next;
    }
  }
  return table;
}

}  // namespace

TEST_CASE("group: products are those of a group of the right order") {
  const auto [kind, degree, order, abelian] = GENERATE(
      std::tuple{"S", 3, 6, false}, std::tuple{"S", 4, 24, false}, std::tuple{"A", 4, 12, false},
      std::tuple{"Z", 12, 12, true}, std::tuple{"A", 3, 3, true});
  INFO(kind << degree);
  const Task task = make("group", {{"kind", kind}, {"degree", degree}, {"length", 60}});
  CHECK(task.info.vocabulary == order);
  CHECK(task.info.classes == order);
  const auto table = products_in(task, 1000);
  REQUIRE(std::ssize(table) == order * order);
  bool commutes = true;
  std::vector<std::set<int32_t>> rows(order), columns(order);
  for (const auto& [pair, product] : table) {
    const auto& [a, b] = pair;
    rows[a].insert(product), columns[b].insert(product);
    commutes &= product == table.at({b, a});
    for (int32_t c = 0; c < order; ++c)
      if (table.at({product, c}) != table.at({a, table.at({b, c})}))
        FAIL("(" << a << " " << b << ") " << c << " is not " << a << " (" << b << " " << c << ")");
  }
  CHECK(commutes == abelian);
  for (int32_t a = 0; a < order; ++a) {
    CHECK(table.at({0, a}) == a);
    CHECK(table.at({a, 0}) == a);
    CHECK(std::ssize(rows[a]) == order);
    CHECK(std::ssize(columns[a]) == order);
  }
}

TEST_CASE(
    "group: A5 has 60 elements, S5 120 of which 11 exchange at most two points and 31 move three") {
  const auto tokens_of = [](const Settings& settings) {
    std::set<int32_t> tokens;
    for (const Example& e : examples(*make("group", settings).train, 100))
      tokens.insert(e.tokens.begin(), e.tokens.end());
    return tokens;
  };
  CHECK(tokens_of({{"kind", "A"}}).size() == 60);
  CHECK(tokens_of({}).size() == 120);
  CHECK(tokens_of({{"elements", "swaps"}}).size() == 11);
  CHECK(tokens_of({{"elements", "up_to_3"}}).size() == 31);
  // With exchanges alone, applying the same twice is the identity.
  const auto table = products_in(make("group", {{"elements", "swaps"}, {"length", 200}}), 400);
  for (const int32_t a : tokens_of({{"elements", "swaps"}})) CHECK(table.at({a, a}) == 0);
}

TEST_CASE("group: several tokens for an element, and lengths that are drawn") {
  const Task task = make("group", {{"degree", 3},
                                   {"tokens_per_element", 4},
                                   {"length", std::vector<int64_t>{20, 64}},
                                   {"min_length", std::vector<int64_t>{3, 0}}});
  CHECK(task.info.vocabulary == 7);
  CHECK(task.info.classes == 6);
  CHECK(task.info.max_length == 256);
  CHECK(task.train->segments()[0].name == "length 3 to 20");
  CHECK(task.train->segments()[1].name == "length 64");
  std::map<size_t, int> lengths;
  for (const Example& e : examples(*task.train, 1800)) {
    ++lengths[e.tokens.size()];
    for (size_t i = 0; i < e.tokens.size(); ++i) {
      REQUIRE((e.tokens[i] == 6) == (i % 4 != 0));
      REQUIRE((e.targets[i] != ignore_index) == (i % 4 == 3));
    }
  }
  CHECK(lengths.size() == 18);
  CHECK(lengths.begin()->first == 12);
  CHECK(lengths.rbegin()->first == 80);
  for (const auto& [length, count] : lengths) CHECK(std::abs(count - 100) < 45);
  CHECK(products_in(task, 300, 4).size() == 36);
}

TEST_CASE("group: examples are fixed, for any number of threads") {
  CHECK(hashes("group", {}, 100) == std::vector<std::string>{"3bd806ead3f7b6348950f25016a42858",
                                                             "83460c1b6af1111a32359658898bcc35",
                                                             "d1a878097e0a7ccc861b94e5e4df23e6"});
  CHECK(hashes("group", {{"min_length", 3}}, 100) ==
        std::vector<std::string>{"c50cea83e14481adce76c6b37ddb7fce",
                                 "438b0d22ca1dfdcec77cdac94bd71c32",
                                 "31213e45f0caeb3aa690dcb3e899a7c3"});
}

TEST_CASE("group: options out of range are refused") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("group", settings); });
  };
  CHECK_THAT(message({{"degree", 7}}), Contains("data.degree") && Contains("at most 6"));
  CHECK_THAT(message({{"kind", "A"}, {"elements", "swaps"}}), Contains("data.elements"));
  CHECK_THAT(message({{"kind", "Z"}, {"elements", "swaps"}}), Contains("data.elements"));
  CHECK_THAT(message({{"min_length", 41}}),
             Contains("data.min_length") && Contains("at most length = 40"));
  CHECK_THAT(message({{"length", 1}, {"kind", "Z"}, {"degree", 2}}),
             Contains("so few different examples of length 1 ") && Contains("allow longer ones"));
}
