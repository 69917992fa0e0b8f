// Efficiency: how measured time and memory scale with length and size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "longhand/core/statistics.h"

namespace longhand::train {

/// Groups items with the same key, in order of first appearance.
template <class T, class Key>
std::vector<std::vector<const T*>> in_groups(const std::vector<T>& all, const Key& key_of) {
  std::vector<std::vector<const T*>> out;
  std::map<std::invoke_result_t<Key, const T&>, size_t> index;
  for (const T& each : all) {
    const auto [at, is_new] = index.try_emplace(key_of(each), out.size());
    if (is_new) out.emplace_back();
    out[at->second].push_back(&each);
  }
  return out;
}

/// The measured cost of one variant at one length, per sequence.
struct Cost {
  std::string attention;
  int64_t size = 0;  // features, landmarks or slots; 0: none
  int64_t length = 0;
  double seconds = 0, seconds_low = 0, seconds_high = 0;  // median and quartiles
  double seconds_forward = 0;
  double bytes = 0;  // peak bytes of tensors
};

/// Exponents of costs against length: for long sequences, 2 for exact attention and 1 for linear
/// attention; for short ones less, because other costs dominate. Or against size; `size` then holds
/// the length. Each is the slope of fit_power().
struct CostSlope {
  std::string attention;
  int64_t size = 0;
  Line seconds, forward, bytes;
};
/// Returns the exponents against `varied` (Cost::length or Cost::size) for each variant and value
/// of `fixed`, the other one, with at least two measurements, in order of first appearance.
std::vector<CostSlope> slopes_of(const std::vector<Cost>& costs, int64_t Cost::*fixed,
                                 int64_t Cost::*varied);

/// Where one cost falls below another and stays below.
struct Crossover {
  enum class Kind {
    unknown,  // no common length
    always,   // at every measured length; `length` is the shortest
    never,    // not at the longest one, `length`
    at        // from `length` on, interpolated between logarithms
  } kind = Kind::unknown;
  double length = 0;
};
/// Returns where `other` falls below `exact`; both are costs by length, all above 0.
Crossover crossover(const std::map<double, double>& exact, const std::map<double, double>& other);
/// Returns "faster from about 812 tokens", or empty if unknown. `better` is "faster" or similar.
std::string to_text(const Crossover& crossover, const std::string& better);

}  // namespace longhand::train
