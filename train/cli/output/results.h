// Shared by the subcommands that give Results: how these are printed and written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/train/cli/common.h"
#include "longhand/train/results/table.h"

namespace longhand::cli {

/// Adds to results of the chosen command where they are from, and returns their JSON.
std::string json_of_results(train::Results& results);

/// Throws ConfigError for a format of --table that is unknown, and for a caption or a label of another one
/// than tex: before a command begins.
void check_table(const Common& arguments);
/// The table of results that a command prints with --table, else as text. Caption and label follow from the
/// titles unless they are given.
std::string printed_table(const Common& arguments, const train::Results& results,
                          const train::Table& table, const train::Table& readable);

/// How finish() prints tables.
struct Shown {
  std::vector<std::string> hidden{};  // tables that are only written
  /// What readers see of a table; by default, with_intervals() of all of it.
  std::function<train::Table(const train::Table&)> readable = train::with_intervals;
};

/// Adds to results where they are from, prints them (as text, as JSON with --json, or only the first table
/// with --table), and writes them to --out. Returns the exit code.
int finish(const Common& arguments, train::Results results, const Shown& shown = {});

}  // namespace longhand::cli
