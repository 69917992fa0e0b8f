// JSON as Longhand writes it: numbers that are not finite, which JSON does not have, are the strings
// "NaN", "Infinity" and "-Infinity". Not installed: nlohmann/json is no dependency of users.
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "longhand/core/options.h"

namespace longhand::train {

using Json = nlohmann::ordered_json;
using SortedJson = nlohmann::json;

/// Parses the text of a file. Throws DataError for anything else than JSON, and for values nested more
/// than 64 deep: Json copies and destroys them recursively.
Json parse_json(std::string_view text);
/// The same with keys in alphabetical order. For files of others with any number of keys: Json searches
/// them one by one, so reading n of them takes n² / 2 steps. Messages begin with `subject`:
/// "FILE: the header is", which is followed by " no JSON: " and the reason.
SortedJson parse_sorted_json(std::string_view text, const std::string& subject);
/// As parse_json(), but returns a discarded value (Json::is_discarded()) instead of throwing.
Json try_parse_json(std::string_view text);
/// JSON as text, on one line or indented. Bytes that are not UTF-8, which names of files may have, are
/// replaced by U+FFFD.
std::string dump(const Json& value, int indent = -1);
/// What an exception says, without the identifiers that those of the JSON library begin with.
std::string plain_message(const std::exception& error);

/// "NaN", "Infinity" or "-Infinity", for a number that is not finite.
const char* name_of_not_finite(double value);

/// A number, or its name if it is not finite.
Json json_number(double value);
/// The number that json_number() wrote; nothing for anything else.
std::optional<double> number_in(const Json& value);
/// Throws DataError for anything else than an integer: the JSON library would convert 1e300, too.
int64_t integer_in(const Json& value);

/// The value of an option, and back. Text for objects.
Json json_option(const OptionValue& value);
OptionValue option_in(const Json& value);

}  // namespace longhand::train
