// Properties: assertions about random inputs, which rapidcheck draws, and shrinks when one fails.
#pragma once

#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "longhand/core/dtype.h"
#include "longhand/core/shape.h"
#include "tests/support/catch.h"

namespace longhand::test {

/// Requires a property of `cases` random inputs, the same ones in every run. The property takes no
/// arguments, draws what it needs with `*generator`, and fails by RC_ASSERT or an exception. The
/// variable RC_PARAMS changes the search, for example RC_PARAMS="max_success=100000 seed=7".
template <class Property>
void require_always(const std::string& what, Property&& property, int cases = 100) {
  rc::detail::Configuration configuration;
  configuration.testParams.seed = 1;
  configuration.testParams.maxSuccess = cases;
  if (const char* const given = std::getenv("RC_PARAMS"))
    configuration = rc::detail::configFromString(given, configuration);
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = what;
  rc::detail::TestListenerAdapter listener;
  const auto result =
      rc::detail::checkProperty(rc::detail::toProperty(std::forward<Property>(property)), metadata,
                                configuration.testParams, listener, configuration.reproduce);
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  INFO(what << ": " << message.str());
  REQUIRE(result.template is<rc::detail::SuccessResult>());
}

/// A number from low to high, both inclusive; all are equally likely.
inline int64_t any_of(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1));
}

/// One of several values.
template <class T>
T one_of(const std::vector<T>& values) {
  return values[static_cast<size_t>(any_of(0, static_cast<int64_t>(values.size()) - 1))];
}

/// The numbers 0 … n-1 in any order.
inline std::vector<int> any_order(int n) {
  std::vector<int> order;
  for (int i = 0; i < n; ++i)
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(any_of(0, i)), i);
  return order;
}

/// A shape of up to max_rank axes, each of a size of up to max_size; sizes of 0 are rare.
inline Shape any_shape(int max_rank, int64_t max_size) {
  Shape shape;
  for (int64_t rank = any_of(0, max_rank); rank > 0; --rank)
    shape.push_back(any_of(0, 15) == 15 ? 0 : any_of(1, max_size));
  return shape;
}

/// Text of any bytes.
inline std::string any_bytes(int64_t longest) {
  std::string text;
  for (int64_t n = any_of(0, longest); n > 0; --n)
    text += static_cast<char>(any_of(0, 2) == 2 ? any_of(0, 255) : any_of('a', 'e'));
  return text;
}

}  // namespace longhand::test
