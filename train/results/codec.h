// One description of a struct gives its JSON in both directions: a function of the struct's namespace
// that names its members in the order of the file.
//
//     void fields(Is<Score> auto& s, auto& f) {
//       f.number("loss", s.loss);
//       f.number("accuracy", s.accuracy);
//     }
//
// It is called with a const struct to write it. Members may be structs with such a function themselves,
// lists and maps of them, and optionals, which are left out if they are empty. Not installed, as json.h.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "longhand/train/results/json.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// T or const T.
template <class S, class T>
concept Is = std::same_as<std::remove_const_t<S>, T>;

class JsonWriter;

/// A type that has functions of its own: json_of(value), and read_value(json, value).
template <class T>
concept ReadsItself = requires(const Json& from, T& value) {
  read_value(from, value);
};
template <class T>
concept HasFields = requires(T& value, JsonWriter& writer) {
  fields(value, writer);
};

// ---- writing

Json json_of(const Cell& cell);
template <HasFields T>
Json json_of(const T& value);
template <class T>
Json json_of(const std::vector<T>& list);
template <class T>
Json json_of(const std::map<std::string, T>& map);
inline Json json_of(double value) { return json_number(value); }
template <class T>
requires std::constructible_from<Json, const T&> Json json_of(const T& value) { return value; }

class JsonWriter {
 public:
  static constexpr bool writes = true;

  /// A value that files have.
  template <class T>
  void operator()(const char* key, const T& value) {
    out_[key] = json_of(value);
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  /// A number with 1 / `unit` as its last digit.
  void operator()(const char* key, double value, double unit) {
    (*this)(key, std::round(value * unit) / unit);
  }
  void operator()(const char* key, const std::optional<double>& value, double unit) {
    if (value) (*this)(key, *value, unit);
  }
  /// A number that is NaN where a file lacks it.
  template <class... T>
  void number(const char* key, const T&... value) {
    (*this)(key, value...);
  }
  /// A value that is left out if it is `empty`.
  template <class T>
  void filled(const char* key, const T& value, const std::type_identity_t<T>& empty = {}) {
    if (value != empty) (*this)(key, value);
  }
  template <HasFields T>
  void filled(const char* key, const std::vector<T>& list) {
    if (!list.empty()) (*this)(key, list);
  }
  /// A value that files of earlier versions lack.
  template <class T>
  void added(const char* key, const T& value) {
    (*this)(key, value);
  }
  /// What follows from the rest, and is not read.
  template <class T>
  void derived(const char* key, const T& value) {
    (*this)(key, value);
  }
  /// Whether to go on with members that are written only if `condition` holds.
  bool when(bool condition) const { return condition; }
  /// An object in the object, whose members fill(f) describes, if it is `there`.
  template <class F>
  void object(const char* key, bool there, F fill) {
    if (!there) return;
    JsonWriter inner;
    fill(inner);
    out_[key] = std::move(inner.out_);
  }

  Json& result() { return out_; }

 private:
  Json out_;
};

template <HasFields T>
Json json_of(const T& value) {
  JsonWriter writer;
  fields(value, writer);
  return std::move(writer.result());
}
template <class T>
Json json_of(const std::vector<T>& list) {
  Json out = Json::array();
  for (const auto& each : list) out.push_back(json_of(each));
  return out;
}
template <class T>
Json json_of(const std::map<std::string, T>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map) out[key] = json_of(value);
  return out;
}

// ---- reading

/// Reads what Longhand has written: throws exceptions of the JSON library, or DataError, for anything else.
struct Strict {
  static const Json* find(const Json& from, const char* key, bool optional) {
    return optional && !from.contains(key) ? nullptr : &from.at(key);
  }
  static void read(const Json& from, int64_t& to) { to = integer_in(from); }
  static void read(const Json& from, int& to) { to = static_cast<int>(integer_in(from)); }
  static void read(const Json& from, Cell& to);
  static void read(const Json& from, std::set<std::pair<size_t, size_t>>& to) {
    for (const Json& each : from) to.emplace(integer_in(each.at(0)), integer_in(each.at(1)));
  }
  static void read(const Json& from, std::vector<std::string>& to) { from.get_to(to); }
  template <class T>
  static void read(const Json& from, T& to);
  template <class T>
  requires(!ReadsItself<std::vector<T>>) static void read(const Json& from, std::vector<T>& to) {
    for (const Json& each : from) read(each, to.emplace_back());
  }
};

/// Reads what may be of another version, or edited: leaves what is missing or of another type as it is.
struct Lenient {
  static const Json* find(const Json& from, const char* key, bool) {
    const auto found = from.find(key);
    return found == from.end() ? nullptr : &*found;
  }
  static void read(const Json& from, std::string& to) {
    if (from.is_string()) from.get_to(to);
  }
  static void read(const Json& from, bool& to) {
    if (from.is_boolean()) from.get_to(to);
  }
  static void read(const Json& from, double& to) { to = number_in(from).value_or(to); }
  template <std::integral T>
  static void read(const Json& from, T& to) {
    if (from.is_number_integer()) from.get_to(to);
  }
  template <HasFields T>
  static void read(const Json& from, T& to);
  template <class T>
  static void read(const Json& from, std::vector<T>& to) {
    if (!from.is_array()) return;
    for (const Json& each : from)
      if (HasFields<T> ? each.is_object() : each.is_string()) read(each, to.emplace_back());
  }
  static void read(const Json& from, std::map<std::string, double>& to) {
    if (!from.is_object()) return;
    for (const auto& [key, value] : from.items())
      to[key] = number_in(value).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  static void read(const Json& from, std::map<std::string, std::string>& to) {
    if (!from.is_object()) return;
    for (const auto& [key, value] : from.items())
      if (value.is_string()) value.get_to(to[key]);
  }
};

template <class How>
class JsonReader {
 public:
  static constexpr bool writes = false;

  explicit JsonReader(const Json& from) : from_(from) {}

  template <class T>
  void operator()(const char* key, T& value, double = 0) {
    read(key, value, false);
  }
  template <class T>
  void number(const char* key, T& value, double = 0) {
    const Json* const found = How::find(from_, key, false);
    value = (found ? number_in(*found) : std::nullopt)
                .value_or(std::numeric_limits<double>::quiet_NaN());
  }
  template <class T>
  void filled(const char* key, T& value, const std::type_identity_t<T>& = {}) {
    read(key, value, true);
  }
  template <class T>
  void added(const char* key, T& value) {
    read(key, value, true);
  }
  template <class T>
  void derived(const char*, const T&) {}
  bool when(bool) const { return true; }
  template <class F>
  void object(const char* key, bool, F fill) {
    const Json* const found = How::find(from_, key, true);
    if (!found || !found->is_object()) return;
    JsonReader inner(*found);
    fill(inner);
  }

 private:
  template <class T>
  void read(const char* key, T& value, bool optional) {
    if (const Json* const found = How::find(from_, key, optional)) How::read(*found, value);
  }
  template <class T>
  void read(const char* key, std::optional<T>& value, bool) {
    const Json* const found = How::find(from_, key, true);
    if (!found) return;
    if constexpr (std::same_as<T, double>) {
      value = number_in(*found);
    } else if (found->is_object()) {
      How::read(*found, value.emplace());
    }
  }

  const Json& from_;
};

template <class T>
void Strict::read(const Json& from, T& to) {
  if constexpr (HasFields<T>) {
    JsonReader<Strict> reader(from);
    fields(to, reader);
  } else if constexpr (ReadsItself<T>) {
    read_value(from, to);
  } else {
    from.get_to(to);
  }
}

template <HasFields T>
void Lenient::read(const Json& from, T& to) {
  JsonReader<Lenient> reader(from);
  fields(to, reader);
}

/// Reads a struct in one of these ways.
template <class How, class T>
T read_json(const Json& from) {
  T out{};
  How::read(from, out);
  return out;
}

}  // namespace longhand::train
