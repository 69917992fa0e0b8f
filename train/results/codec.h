// A single description of a struct gives its JSON in both directions: a function in the struct's
// namespace that names its members in file order.
//
//     void fields(Is<Score> auto& s, auto& f) {
//       f.number("loss", s.loss);
//       f.number("accuracy", s.accuracy);
//     }
//
// It is called with a const struct to write it. Members may be structs with such a function, lists
// and maps of them, and optionals, omitted if empty. Not installed, like json.h.
#pragma once

#include <cmath>
#include <concepts>
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

void read_value(const Json& from, Cell& to);
void read_value(const Json& from, std::set<std::pair<size_t, size_t>>& to);

/// A type with its own functions json_of(value) and read_value(json, value).
template <class T>
concept ReadsItself = requires(const Json& from, T& value) {
  read_value(from, value);
};
template <class T>
concept HasFields = requires(T& value, JsonWriter& writer) {
  fields(value, writer);
};

// ---- tables

void fields(Is<Column> auto& c, auto& f) {
  f("name", c.name);
  if (std::string shown = c.shown(); f.writes)
    f("heading", shown);
  else
    f("heading", c.heading);
  f("digits", c.digits);
}

void fields(Is<Chart> auto& c, auto& f) {
  f("title", c.title);
  f("x", c.x);
  f("y", c.y);
  f("series", c.series);
  f("low", c.low);
  f("high", c.high);
  f("log_x", c.log_x);
  f("log_y", c.log_y);
  f("bars", c.bars);
  f.added("theory", c.theory);
  f.added("colour", c.colour);
  f.added("end", c.end);
}

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

  /// A value that is always present.
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
  /// A value that is omitted if it is `empty`.
  template <class T>
  void filled(const char* key, const T& value, const std::type_identity_t<T>& empty = {}) {
    if (Json json = json_of(value); json != json_of(empty)) out_[key] = std::move(json);
  }
  /// A value that files of earlier versions lack.
  template <class T>
  void added(const char* key, const T& value) {
    (*this)(key, value);
  }
  /// A derived value, which is not read.
  template <class T>
  void derived(const char* key, const T& value) {
    (*this)(key, value);
  }
  /// Returns whether to continue with members that are written only if `condition` holds.
  bool when(bool condition) const { return condition; }
  /// A nested object, whose members fill(f) describes, if it is `there`.
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

/// Reads Longhand's own output: throws JSON library exceptions, or DataError, for anything else.
struct Strict {};
/// Reads what may be of another version or edited: ignores what is missing or of another type.
struct Lenient {};

template <class T>
concept List = requires(T& list) {
  list.emplace_back();
};
template <class T>
concept Map = requires {
  typename T::mapped_type;
};

/// Returns whether a value has the type of T.
template <class T>
bool fits(const Json& from) {
  if constexpr (std::same_as<T, std::string>) return from.is_string();
  if constexpr (std::same_as<T, bool>) return from.is_boolean();
  if constexpr (std::same_as<T, double>) return number_in(from).has_value();
  if constexpr (std::integral<T>) return from.is_number_integer();
  if constexpr (List<T>) return from.is_array();
  return from.is_object();
}

template <class How>
class JsonReader {
 public:
  static constexpr bool writes = false;

  explicit JsonReader(const Json& from) : from_(from) {}

  static void read(const Json& from, auto& to) {
    using T = std::remove_reference_t<decltype(to)>;
    if (!strict && !fits<T>(from)) return;
    if constexpr (HasFields<T>) {
      JsonReader reader(from);
      fields(to, reader);
    } else if constexpr (ReadsItself<T>) {
      read_value(from, to);
    } else if constexpr (List<T>) {
      for (const Json& each : from.get_ref<const Json::array_t&>())
        if (strict || fits<typename T::value_type>(each)) read(each, to.emplace_back());
    } else if constexpr (Map<T>) {
      for (const auto& [key, value] : from.items())
        if constexpr (std::same_as<typename T::mapped_type, double>)
          to[key] = number_or_nan(&value);
        else if (strict || fits<typename T::mapped_type>(value))
          read(value, to[key]);
    } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
      to = static_cast<T>(integer_in(from));
    } else if constexpr (std::same_as<T, double> && !strict) {
      to = *number_in(from);
    } else {
      from.get_to(to);
    }
  }

  template <class T>
  void operator()(const char* key, T& value, double = 0) {
    read_member(key, value, false);
  }
  template <class T>
  void number(const char* key, T& value, double = 0) {
    value = number_or_nan(find(key, false));
  }
  template <class T>
  void filled(const char* key, T& value, const std::type_identity_t<T>& = {}) {
    read_member(key, value, true);
  }
  template <class T>
  void added(const char* key, T& value) {
    read_member(key, value, true);
  }
  template <class T>
  void derived(const char*, const T&) {}
  bool when(bool) const { return true; }
  template <class F>
  void object(const char* key, bool, F fill) {
    const Json* const found = find(key, true);
    if (!found || !found->is_object()) return;
    JsonReader inner(*found);
    fill(inner);
  }

 private:
  static constexpr bool strict = std::same_as<How, Strict>;

  static double number_or_nan(const Json* value) {
    return (value ? number_in(*value) : std::nullopt)
        .value_or(std::numeric_limits<double>::quiet_NaN());
  }

  const Json* find(const char* key, bool optional) const {
    if (strict && !optional) return &from_.at(key);
    const auto found = from_.find(key);
    return found == from_.end() ? nullptr : &*found;
  }
  template <class T>
  void read_member(const char* key, T& value, bool optional) {
    if (const Json* const found = find(key, optional)) read(*found, value);
  }
  template <class T>
  void read_member(const char* key, std::optional<T>& value, bool) {
    if (const Json* const found = find(key, true); found && fits<T>(*found))
      read(*found, value.emplace());
  }

  const Json& from_;
};

/// Reads a struct in one of these ways.
template <class How, class T>
T read_json(const Json& from) {
  T out{};
  JsonReader<How>::read(from, out);
  return out;
}

}  // namespace longhand::train
