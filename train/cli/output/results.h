// Shared by the subcommands that give Results: their flags, and how results are printed and written.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/progress.h"
#include "longhand/train/results/table.h"

namespace longhand::cli {

/// Flags of a command that gives Results.
struct ResultsArguments : Common {
  std::string out;  // file for the results; empty: none

  Progress::Mode progress() const { return Progress::mode_for_stderr(quiet || json); }
};
/// Adds -o.
void add_out(Command& command, ResultsArguments& arguments);

/// Results of the chosen command, without tables yet; finish() adds where they are from.
train::Results new_results(std::string title, std::string summary);

/// How finish() prints tables.
struct Shown {
  std::vector<std::string> hidden{};  // tables that are only written
  std::string format{};               // prints only the first table, in a format of to_format()
  /// What readers see of a table; by default, with_intervals() of all of it.
  std::function<train::Table(const train::Table&)> readable = train::with_intervals;
};

/// Adds to results where they are from, prints them (as text, or JSON with --json), and writes them to
/// --out. Returns the exit code.
int finish(const ResultsArguments& arguments, train::Results results, const Shown& shown = {});

}  // namespace longhand::cli
