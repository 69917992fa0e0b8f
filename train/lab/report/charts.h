// Charts: the figures of a report, made of the charts of tables and of learning curves.
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

/// A plot, and where the table is that holds its numbers.
struct Figure {
  std::string title;
  std::vector<Plot> plots{};  // one, or the views of a learning curve, of which the page shows one
  std::vector<std::string> views{};  // "validation step linear", by plot; empty: there is one
  std::string chart{};               // the title that panels have in common
  /// Where its numbers are: columns and rows (empty: all) of its table; of a curve, a table of its own.
  std::vector<std::string> columns{};
  std::vector<size_t> rows{};
  Table numbers{};
};

/// The figures of a report, in its order. Names of variants have the same colour in each of them. A figure has at
/// most `hues` series; what has more is cut into panels: by task, by an option, or ten variants each.
struct Figures {
  std::vector<Figure> matrix, leaderboard, curves;
  std::vector<std::vector<std::vector<Figure>>> results;  // by results and table
  std::vector<int64_t> hues;                              // of variants of the board
  int64_t curve_steps = 1;  // learning curves show the last record of so many steps
};
Figures figures_of(const ReportInputs& inputs, const Board& board);

/// A figure of the loss and one of the accuracy against steps and seconds for each task and ten variants, whose colours
/// are `hue_of`; and a number of steps: a curve shows the last record in each so many, so that all curves fit into a page.
std::pair<std::vector<Figure>, int64_t> learning_curves(const ReportInputs& inputs,
                                                        const Board& board,
                                                        const std::vector<int64_t>& hue_of);

/// The figures of one chart of a table. `families`: names in the order of their colours. `seeds`: the values whose
/// means a table shows, by the name of the variant. With `matrix`, bars of several tasks are left out, which a
/// heat map of tasks and variants shows.
struct ChartContext {
  std::vector<std::string> families{};
  std::map<std::string, std::vector<double>> seeds{};
  bool matrix = false;

  int64_t hue_of(const std::string& family) const;  // -1: not known
};
std::vector<Figure> figures_of(const Table& table, const Chart& chart, const ChartContext& context);

/// Cuts things into parts of at most `hues` of which none has a colour twice, as far as that is possible.
std::vector<std::vector<size_t>> cut_by_hue(const std::vector<size_t>& all,
                                            const std::function<int64_t(size_t)>& hue_of);

/// A name for a figure, "test-accuracy-by-variant": letters, digits and hyphens. `seen` counts the names given so
/// far, so that none is given twice.
std::string unique_name(const std::string& title, std::map<std::string, size_t>& seen);

/// A file of a figure, as SVG and as PDF.
struct FigureFile {
  std::string name;  // "test-accuracy-by-variant"
  std::string svg, pdf;
};
/// All figures of a report.
std::vector<FigureFile> figure_files(const ReportInputs& inputs, const FigureFormat& format);

}  // namespace longhand::train
