#include "longhand/train/transfer/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {
namespace {

/// Compares the values of tensors of the same shape as type T.
template <class T>
void add_values(TensorDifference& out) {
  const std::vector<T> a = out.first.to_vector<T>(), b = out.second.to_vector<T>();
  double squares = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    norm += x * x;
    if (a[i] == b[i] || (std::isnan(x) && std::isnan(y))) continue;
    // Integers beyond 2^53 may be equal in f64. A NaN, as the first argument, stays NaN.
    const double difference = std::max(std::abs(x - y), std::is_integral_v<T> ? 1.0 : 0.0);
    ++out.differing;
    squares += difference * difference;
    if (!(difference <= out.largest) && !std::isnan(out.largest)) out.largest = difference;
  }
  if (out.differing > 0) out.relative = std::sqrt(squares / norm);
}

/// One side: its states by name, and facts about its training.
struct Side {
  std::string file;
  std::map<std::string, nn::StateDict> states;
  std::map<std::string, OptionValue> facts;  // options, step, seed
};

/// Not a run directory, whatever its name.
bool names_tensors(const std::string& path) {
  return is_tensor_file(path) && !std::filesystem::is_directory(path);
}

/// `weights_only`: the other side is a tensor file, with the weights used in evaluation.
Side read(const CompareOptions& options, const std::string& path, bool weights_only) {
  if (names_tensors(path)) return {path, {{"weights", read_tensor_file(path).tensors}}, {}};
  const bool is_run = std::filesystem::is_directory(path);
  SavedModel saved = load_model(path, is_run ? options.checkpoint : "");
  const Checkpoint& c = saved.checkpoint;
  Side out{saved.file, {{"weights", c.weights()}}, saved.config.given()};
  if (!weights_only)
    out.states = {{"model", c.model}, {"optimizer", c.optimizer}, {"averaged weights", c.ema}};
  out.facts["step"] = c.training.step;
  out.facts["version"] = c.version;
  out.facts["machine"] = c.machine;
  return out;
}

}  // namespace

std::vector<TensorDifference> differences(const nn::StateDict& first, const nn::StateDict& second) {
  nn::StateDict all = first;
  all.insert(second.begin(), second.end());
  std::vector<TensorDifference> out;
  for (const auto& [name, tensor] : all) {
    TensorDifference& each = out.emplace_back();
    each.name = name;
    if (const auto a = first.find(name); a != first.end()) each.first = a->second;
    if (const auto b = second.find(name); b != second.end()) each.second = b->second;
    if (!each.same_shape()) continue;
    if (is_float(each.first.dtype()) || is_float(each.second.dtype()))
      add_values<double>(each);
    else
      add_values<int64_t>(each);
  }
  return out;
}

Comparison compare(const std::string& first, const std::string& second,
                   const CompareOptions& options) {
  const bool weights_only = options.weights || names_tensors(first) || names_tensors(second);
  const Side a = read(options, first, weights_only), b = read(options, second, weights_only);
  Comparison out{.first = a.file, .second = b.file};
  for (const auto& [name, state] : a.states) {
    const nn::StateDict& other = b.states.at(name);
    out.states.push_back({name, state.size(), other.size(), differences(state, other)});
    for (const TensorDifference& each : out.states.back().tensors)
      out.equal &= each.is_within(options.tolerance);
  }
  if (a.facts.empty() || b.facts.empty()) return out;  // a file of tensors
  for (const auto& [name, value] : a.facts) out.other[name].first = value;
  for (const auto& [name, value] : b.facts) out.other[name].second = value;
  std::erase_if(out.other,
                [](const auto& each) { return each.second.first == each.second.second; });
  return out;
}

}  // namespace longhand::train
