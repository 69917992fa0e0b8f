// Expressions of any shape: text and tokens are the same expression, and a second evaluator agrees.
#include <algorithm>
#include <numeric>

#include "longhand/core/error.h"
#include "longhand/data/listops.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::test;
using namespace longhand::data;

namespace {

/// Appends an expression to the tokens and returns its value, computed while it is made.
int any_expression(std::vector<uint8_t>& tokens, int depth) {
  if (depth == 0 || any_of(0, 2) == 0) {
    const auto value = static_cast<int>(any_of(0, 9));
    tokens.push_back(static_cast<uint8_t>(listops::digit + value));
    return value;
  }
  const auto op = one_of<uint8_t>({listops::min, listops::max, listops::med, listops::sm});
  tokens.push_back(op);
  std::vector<int> values;
  for (int64_t n = any_of(1, 5); n > 0; --n) values.push_back(any_expression(tokens, depth - 1));
  tokens.push_back(listops::close);
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  switch (op) {
    case listops::min:
      return values.front();
    case listops::max:
      return values.back();
    case listops::med:
      return (values[(n - 1) / 2] + values[n / 2]) / 2;
    default:
      return std::accumulate(values.begin(), values.end(), 0) % 10;
  }
}

}  // namespace

TEST_CASE("property: ListOps expressions have one value, as text and as tokens") {
  require_always(
      "expressions",
      [] {
        std::vector<uint8_t> tokens;
        const int value = any_expression(tokens, static_cast<int>(any_of(0, 5)));
        RC_ASSERT(listops::evaluate(tokens) == value);
        RC_ASSERT(listops::parse(listops::to_text(tokens)) == tokens);
        // One token less, more, or another one in its place is another expression or none.
        std::vector<uint8_t> wrong = tokens;
        const auto place = wrong.begin() + static_cast<std::ptrdiff_t>(
                                               any_of(0, static_cast<int64_t>(wrong.size()) - 1));
        const int64_t kind = any_of(0, 2);
        if (kind == 0 && (*place >= listops::min)) {  // brackets no longer match
          wrong.erase(place);
          RC_ASSERT_THROWS_AS(listops::evaluate(wrong), DataError);
        } else if (kind == 1) {
          wrong.push_back(static_cast<uint8_t>(any_of(1, 15)));
          RC_ASSERT_THROWS_AS(listops::evaluate(wrong), DataError);
        } else if (kind == 2) {
          *place = one_of<uint8_t>({0, 16, 255});
          RC_ASSERT_THROWS_AS(listops::evaluate(wrong), DataError);
        }
      },
      200);
}

TEST_CASE("property: ListOps candidates are within their limits") {
  require_always(
      "candidates",
      [] {
        listops::Limits limits;
        limits.min_length = any_of(0, 10);
        limits.max_length = limits.min_length + any_of(2, 60);
        limits.max_depth = any_of(1, 6);
        limits.max_args = any_of(2, 6);
        RandomStream random(Generator(static_cast<uint64_t>(any_of(0, 1 << 30))));
        std::vector<uint8_t> tokens;
        if (!listops::draw_candidate(limits, random, tokens)) return;
        const auto length = static_cast<int64_t>(tokens.size());
        RC_ASSERT(limits.min_length < length);
        RC_ASSERT(length < limits.max_length);
        const int value = listops::evaluate(tokens);
        RC_ASSERT(0 <= value);
        RC_ASSERT(value <= 9);
        int64_t depth = 0, deepest = 0;
        std::vector<int64_t> arguments;
        for (const uint8_t token : tokens) {
          if (token == listops::close) {
            RC_ASSERT(arguments.back() >= 2);
            RC_ASSERT(arguments.back() <= limits.max_args);
            arguments.pop_back();
            --depth;
            continue;
          }
          if (!arguments.empty()) ++arguments.back();
          deepest = std::max(deepest, depth + 1);
          if (token < listops::min) continue;
          ++depth;
          arguments.push_back(0);
        }
        RC_ASSERT(deepest <= limits.max_depth);
      },
      200);
}
