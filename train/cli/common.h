// What several subcommands do alike.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "longhand/train/cli/command.h"
#include "longhand/train/config.h"

namespace longhand::cli {

using Json = nlohmann::ordered_json;

/// A number, or, as JSON has no such numbers, the text "NaN", "Infinity" or "-Infinity".
Json json_number(double value);

/// Prints to stdout, with bytes that are no UTF-8 replaced.
void print_json(const Json& json);

/// The command line's part of a configuration: LONGHAND_SEED, then --set, then --seed.
void apply(const Common& common, train::Config& config);

/// Says on stderr which options of the file were left out, because the command line chose another
/// type than the file did.
void report_ignored(const std::vector<std::string>& ignored, bool quiet);

/// "12,345,678"
std::string with_commas(int64_t value);

}  // namespace longhand::cli
