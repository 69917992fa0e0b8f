// JSON as Longhand writes it: non-finite numbers, which JSON lacks, are the strings "NaN",
// "Infinity" and "-Infinity". Not installed, so users do not depend on nlohmann/json.
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

/// Parses the text of a file. Throws DataError for anything but JSON, and for values nested more
/// than 64 deep, because Json copies and destroys them recursively.
Json parse_json(std::string_view text);
/// Likewise with keys in alphabetical order, for untrusted files with any number of keys: Json
/// searches them linearly, so reading n of them takes n² / 2 steps. Messages begin with `subject`:
/// "FILE: the header is", which is followed by " no JSON: " and the reason.
SortedJson parse_sorted_json(std::string_view text, const std::string& subject);
/// Like parse_json(), but returns a discarded value (Json::is_discarded()) instead of throwing.
Json try_parse_json(std::string_view text);
/// Returns JSON as text, on one line or indented. Bytes that are not UTF-8, possible in file names,
/// are replaced by U+FFFD.
std::string dump(const Json& value, int indent = -1);
/// Returns the message of an exception, without the identifier that the JSON library puts in front.
std::string plain_message(const std::exception& error);

/// Returns "NaN", "Infinity" or "-Infinity" for a non-finite number.
const char* name_of_not_finite(double value);

/// Returns a number, or its name if it is not finite.
Json json_number(double value);
/// Returns the number that json_number() wrote; nothing for anything else.
std::optional<double> number_in(const Json& value);
/// Throws DataError for anything but an integer: the JSON library would also convert 1e300.
int64_t integer_in(const Json& value);

/// Converts an option's value to JSON and back. Objects become text.
Json json_option(const OptionValue& value);
OptionValue option_in(const Json& value);

}  // namespace longhand::train
