// Functions shared by several subcommands.
#pragma once

#include <string>
#include <string_view>

#include "longhand/train/cli/command.h"
#include "longhand/train/config/config.h"
#include "longhand/train/results/json.h"
#include "longhand/train/results/table.h"

namespace longhand::cli {

using train::Json;
using train::json_number;
using train::with_commas;

/// Text of at most `longest` bytes: of a longer one, its beginning and its end.
std::string bounded(const std::string& text, size_t longest);

/// Prints the result of a command with --json: one object, of `result` and of what every result says
/// about itself: "kind" (the command, such as "bench step"), "command" (that repeats it), "machine",
/// "date" and "version" (of Longhand), as in train::Results. Bytes that are not valid UTF-8 are replaced.
void print_json(const Json& result);

/// A word of a command line, quoted if a shell would not take it as it is.
std::string shell_word(const std::string& word);
/// The command line of this process, for a shell.
std::string command_line();

/// --seed, or LONGHAND_SEED, or 0.
uint64_t seed_or_default(const Common& common);

/// Applies the command line to a configuration: LONGHAND_SEED, then --set, then --seed.
void apply(const Common& common, train::Config& config);

/// The same for a command that trains nothing: the seed is that of the data, unless data.seed is given.
void apply_to_data(const Common& common, train::Config& config);

/// Lists on stderr the options of the file that were ignored because the command line chose a type
/// different from that of the file.
void report_ignored(const std::vector<std::string>& ignored, bool quiet);

}  // namespace longhand::cli
