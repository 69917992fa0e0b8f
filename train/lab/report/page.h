// Report: runs, sweeps and analyses as one self-contained HTML file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "longhand/train/lab/report/reader.h"

namespace longhand::train {

/// Returns a page with a summary, a leaderboard, learning curves, every chart and table of results,
/// and the provenance of every run. It needs no other files and no network; its script builds the
/// tables. With thousands of records, curves and tables are thinned to keep the page below 2 MB for
/// up to some thousand runs.
std::string html_report(const ReportInputs& inputs);

/// page.js and page.css, which are part of every report: embed.cmake generates these functions.
std::string_view page_js();
std::string_view page_css();

enum class ReportFormat { html, csv, json, figure };

/// Returns whether a report may be written there: no file, an empty one, or a report like it.
bool may_replace(const std::filesystem::path& file, ReportFormat format = ReportFormat::html);

}  // namespace longhand::train
