#include "longhand/train/checkpoint/difference.h"

#include <cmath>
#include <set>
#include <type_traits>

namespace longhand::train {
namespace {

template <class A, class B>
bool is_equal(A a, B b) {
  if constexpr (std::is_same_v<A, B> && std::is_integral_v<A>) return a == b;
  const auto x = static_cast<double>(a), y = static_cast<double>(b);
  return x == y || (std::isnan(x) && std::isnan(y));
}

template <class A, class B>
void compare(const A* a, const B* b, int64_t count, TensorDifference& out) {
  double squares = 0, norm = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    norm += x * x;
    if (is_equal(a[i], b[i])) continue;
    const double difference = std::abs(x - y);
    ++out.differing;
    squares += difference * difference;
    // NaN stays.
    if (!(difference <= out.largest) && !std::isnan(out.largest)) out.largest = difference;
  }
  if (out.differing > 0) out.relative = std::sqrt(squares / norm);
}

}  // namespace

std::vector<TensorDifference> differences(const nn::StateDict& first, const nn::StateDict& second) {
  std::set<std::string> names;
  for (const nn::StateDict* state : {&first, &second})
    for (const auto& [name, tensor] : *state) names.insert(name);
  std::vector<TensorDifference> out;
  for (const std::string& name : names) {
    TensorDifference& each = out.emplace_back();
    each.name = name;
    if (const auto a = first.find(name); a != first.end()) each.first = a->second.contiguous();
    if (const auto b = second.find(name); b != second.end()) each.second = b->second.contiguous();
    if (!each.same_shape()) continue;
    dispatch_any(each.first.dtype(), [&]<class A>() {
      dispatch_any(each.second.dtype(), [&]<class B>() {
        compare(each.first.data<A>(), each.second.data<B>(), each.first.numel(), each);
      });
    });
  }
  return out;
}

}  // namespace longhand::train
