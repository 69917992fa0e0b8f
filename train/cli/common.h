// Functions shared by several subcommands.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "longhand/train/cli/command.h"
#include "longhand/train/config.h"

namespace longhand::cli {

using Json = nlohmann::ordered_json;

/// A number, or the text "NaN", "Infinity" or "-Infinity", which JSON cannot represent as numbers.
Json json_number(double value);

/// Prints to stdout; bytes that are not valid UTF-8 are replaced.
void print_json(const Json& json);

/// Applies the command line to a configuration: LONGHAND_SEED, then --set, then --seed.
void apply(const Common& common, train::Config& config);

/// Lists on stderr the options of the file that were ignored because the command line chose a type
/// different from that of the file.
void report_ignored(const std::vector<std::string>& ignored, bool quiet);

/// "12,345,678"
std::string with_commas(int64_t value);

}  // namespace longhand::cli
