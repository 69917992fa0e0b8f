// A report: runs side by side, as one HTML file that needs nothing else.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace longhand::train {

/// A page with a table of the runs (what they reached, at what cost), charts of loss and accuracy
/// against the step, and every run's configuration; no scripts, no other files. Throws ConfigError
/// if a directory holds no run, DataError for metrics that cannot be read (naming file and line).
std::string html_report(const std::vector<std::filesystem::path>& runs);

}  // namespace longhand::train
