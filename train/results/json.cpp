#include "longhand/train/results/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "longhand/core/error.h"

namespace longhand::train {

namespace {

bool nests_too_deep(std::string_view text) {
  constexpr int deepest = 64;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') --depth;
      if (depth > deepest) return true;
    }
  }
  return false;
}

template <class T>
T parse_as(std::string_view text) {
  check<DataError>(!nests_too_deep(text), "not JSON of Longhand: values are nested too deeply");
  try {
    return T::parse(text);
  } catch (const typename T::exception& error) {
    throw DataError(plain_message(error));
  }
}

}  // namespace

Json parse_json(std::string_view text) { return parse_as<Json>(text); }

SortedJson parse_sorted_json(std::string_view text, const std::string& subject) {
  try {
    return parse_as<SortedJson>(text);
  } catch (const DataError& error) {
    throw DataError(subject + " no JSON: " + error.what());
  }
}

Json try_parse_json(std::string_view text) {
  return Json::parse(nests_too_deep(text) ? "" : text, nullptr, false);
}

std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string plain_message(const std::exception& error) {
  const std::string text = error.what();
  return text.starts_with("[json.") ? text.substr(text.find("] ") + 2) : text;
}

const char* name_of_not_finite(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return name_of_not_finite(value);
}

std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double each : {infinity, -infinity, std::numeric_limits<double>::quiet_NaN()})
    if (value == name_of_not_finite(each)) return each;
  return std::nullopt;
}

int64_t integer_in(const Json& value) {
  check<DataError>(value.is_number_integer(), "expected an integer, got ",
                   value.dump().substr(0, 40));
  return value.get<int64_t>();
}

Json json_option(const OptionValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

OptionValue option_in(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  if (!value.empty() && !value.front().is_number()) return value.get<std::vector<std::string>>();
  std::vector<int64_t> integers;
  for (const Json& each : value) integers.push_back(integer_in(each));
  return integers;
}

}  // namespace longhand::train
