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

/// Shortens text to at most `longest` bytes, keeping its beginning and its end.
std::string bounded(const std::string& text, size_t longest);

/// Writes text to a file, or prints it if the name is empty; CSV lines then end like other text.
void write_or_print(const std::string& file, const std::string& text);

/// Quotes a command line word if a shell would not take it literally.
std::string shell_word(const std::string& word);
/// Returns " --set A.B=C" for each assignment, to repeat a command.
std::string set_flags(const Common& common);
/// Returns the command line of this process, quoted for a shell.
std::string command_line();

/// Returns --seed, or LONGHAND_SEED, or 0.
uint64_t seed_or_default(const Common& common);

/// Applies the command line to a configuration: LONGHAND_SEED, then --set, then --seed.
void apply(const Common& common, train::Config& config);

/// Likewise for a command that trains nothing: the seed is the data's, unless data.seed is given.
void apply_to_data(const Common& common, train::Config& config);

/// Returns a run's checkpoint for evaluation. Throws DivergedError if its weights are not finite,
/// which makes metrics meaningless; ConfigError as SavedModel::check_paths(), unless --trust-paths.
train::SavedModel load_run(const Common& common, const std::string& run);
/// Returns a checkpoint's model with the data of --split, changed by --set. Unless `quiet`, shows
/// progress and reports ignored options.
train::LoadedRun open_run(const Common& common, train::SavedModel saved, bool quiet,
                          train::RunOptions options = {});
/// Throws DivergedError unless a loss on a split is finite.
void check_loss(double loss, const std::string& checkpoint, const std::string& split);
/// Lists on stderr the options of the file that were ignored because the command line chose a
/// different type.
void report_ignored(const std::vector<std::string>& ignored, bool quiet);

}  // namespace longhand::cli
