// Charts: the figures of a report, from the charts of tables and from learning curves.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/plot.h"

namespace longhand::train {

/// A plot, and where to find the table of its numbers.
struct Figure {
  std::string title;
  std::vector<Plot> plots{};         // one, or the views of a learning curve, shown one at a time
  std::vector<std::string> views{};  // "validation step linear", by plot; empty: only one
  std::string chart{};               // the common title of panels
  /// The source of its numbers: columns and rows (empty: all) of its table; a curve has its own.
  std::vector<std::string> columns{};
  std::vector<size_t> rows{};
  Table numbers{};
};

/// The figures of a report, in order. A variant has the same colour in all of them. A figure has at
/// most `hues` series; more are cut into panels: by task, by an option, or ten variants each.
struct Figures {
  std::vector<Figure> matrix, leaderboard, curves;
  std::vector<std::vector<std::vector<Figure>>> results;  // by results and table
  std::vector<int64_t> hues;                              // of the board's variants
  int64_t curve_steps = 1;  // learning curves show one record per this many steps
};
Figures figures_of(const ReportInputs& inputs, const Board& board);

/// Returns figures of loss and accuracy against steps and seconds, per task and ten variants, with
/// colours `hue_of`; and a number of steps: curves show one record per that many, to fit in a page.
std::pair<std::vector<Figure>, int64_t> learning_curves(const ReportInputs& inputs,
                                                        const Board& board,
                                                        const std::vector<int64_t>& hue_of);

/// Context for the figures of a table's chart. `families`: names in order of their colours.
/// `seeds`: the values whose means a table shows, by variant name. With `matrix`, bars of several
/// tasks are omitted, since a heat map of tasks and variants shows them.
struct ChartContext {
  std::vector<std::string> families{};
  std::map<std::string, std::vector<double>> seeds{};
  bool matrix = false;

  int64_t hue_of(const std::string& family) const;  // -1: unknown
};
std::vector<Figure> figures_of(const Table& table, const Chart& chart, const ChartContext& context);

/// Splits things into parts of at most `hues`, with no colour twice in a part if possible.
std::vector<std::vector<size_t>> cut_by_hue(const std::vector<size_t>& all,
                                            const std::function<int64_t(size_t)>& hue_of);

/// Returns a unique figure name, "test-accuracy-by-variant": letters, digits and hyphens. `seen`
/// counts the names given so far.
std::string unique_name(const std::string& title, std::map<std::string, size_t>& seen);

/// A figure's file, as SVG and as PDF.
struct FigureFile {
  std::string name;  // "test-accuracy-by-variant"
  std::string svg, pdf;
};
/// Returns all figures of a report.
std::vector<FigureFile> figure_files(const ReportInputs& inputs, const FigureFormat& format);

}  // namespace longhand::train
