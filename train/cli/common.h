// Functions shared by several subcommands.
#pragma once

#include <string>

#include "longhand/train/cli/command.h"
#include "longhand/train/config/config.h"
#include "longhand/train/results/json.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/loaded_run.h"

namespace longhand::cli {

using train::counted;
using train::Json;
using train::json_number;
using train::with_commas;

/// Text of at most `longest` bytes: of a longer one, its beginning and its end.
std::string bounded(const std::string& text, size_t longest);

/// Writes text to a file, or prints it if the name is empty: lines of CSV then end as those of other text.
void write_or_print(const std::string& file, const std::string& text);

/// A word of a command line, quoted if a shell would not take it as it is.
std::string shell_word(const std::string& word);
/// " --set A.B=C" for each assignment, to repeat a command.
std::string set_flags(const Common& common);
/// The command line of this process, for a shell.
std::string command_line();

/// --seed, or LONGHAND_SEED, or 0.
uint64_t seed_or_default(const Common& common);

/// Applies the command line to a configuration: LONGHAND_SEED, then --set, then --seed.
void apply(const Common& common, train::Config& config);

/// The same for a command that trains nothing: the seed is that of the data, unless data.seed is given.
void apply_to_data(const Common& common, train::Config& config);

/// The checkpoint of a run, for its evaluation. Throws DivergedError if its weights are not finite: their
/// metrics would mean nothing; ConfigError as SavedModel::check_paths(), without --trust-paths.
train::SavedModel load_run(const Common& common, const std::string& run);
/// The model of a checkpoint with the data of --split, changed by --set. Unless `quiet`, shows that it is
/// being made, and reports options that were ignored.
train::LoadedRun open_run(const Common& common, train::SavedModel saved, bool quiet,
                          train::RunOptions options = {});
/// Throws DivergedError unless a loss on a split is finite.
void check_loss(double loss, const std::string& checkpoint, const std::string& split);
/// Lists on stderr the options of the file that were ignored because the command line chose a type
/// different from that of the file.
void report_ignored(const std::vector<std::string>& ignored, bool quiet);

}  // namespace longhand::cli
