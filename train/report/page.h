// Report: a comparison of runs as one self-contained HTML file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace longhand::train {

/// Returns a page with a table of the runs (results and costs), charts of loss and accuracy against
/// the step, and the configuration of every run, without scripts or other files. Throws ConfigError
/// if a directory holds no run, DataError for unreadable metrics (naming file and line).
std::string html_report(const std::vector<std::filesystem::path>& runs);

}  // namespace longhand::train
