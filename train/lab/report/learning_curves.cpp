// Figures of loss and accuracy against steps and seconds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/report/charts.h"

namespace longhand::train {
namespace {

using Rows = std::vector<size_t>;

// Approximate limits for all learning curves together: pictures, and bytes of their lines.
constexpr size_t most_pictures = 100;
constexpr double curve_bytes = 600000;

/// Derives times of records that lack them from speeds and from the run's duration.
std::vector<double> seconds_of(const ReportedRun& run) {
  std::vector<double> recorded, estimated;
  double time = 0;
  int64_t step = 0;
  for (const Record& record : run.record.metrics) {
    if (record.seconds) recorded.push_back(*record.seconds);
    if (record.split == "train") {
      const double speed = record.tokens_per_second;
      if (speed > 0) time += static_cast<double>(record.step - step) / speed;
      step = record.step;
    }
    estimated.push_back(time);
  }
  if (recorded.size() == estimated.size()) return recorded;
  const auto& summary = run.record.summary;
  const bool known = time > 0 && summary && summary->seconds > 0;
  for (double& each : estimated) each *= known ? summary->seconds / time : std::nan("");
  return estimated;
}

/// The records of one split, at most one (the last) per `width` steps.
struct CurvePoint {
  int64_t step;
  double seconds, loss, accuracy;
};
using Curve = std::vector<CurvePoint>;
Curve curve_of(const ReportedRun& run, const std::string& split, int64_t width) {
  const std::vector<double> seconds = seconds_of(run);
  Curve out;
  for (size_t i = 0; i < run.record.metrics.size(); ++i) {
    const Record& record = run.record.metrics[i];
    if (record.split != split) continue;
    if (out.size() > 1 && out.back().step / width == record.step / width) out.pop_back();
    out.push_back({record.step, seconds[i], record.loss, record.accuracy});
  }
  return out;
}

struct RunCurves {
  bool running = false;
  Curve train, validation;
};
struct View {
  bool validation = true, by_step = true, log = false, loss = false;
};
/// If there is no room for all views, only the first ones are shown.
constexpr View views[] = {{true, true, false}, {false, true, false}, {true, false, false},
                          {true, true, true},  {false, true, true},  {false, false, false},
                          {true, false, true}, {false, false, true}};

/// Returns the mean curve of runs, with minimum and maximum. A run that ended keeps its last value.
std::vector<PlotPoint> mean_curve(const std::vector<const RunCurves*>& runs, const View& view) {
  std::set<int64_t> steps;
  std::vector<std::pair<const Curve*, bool>> curves;
  for (const RunCurves* run : runs) {
    const Curve& curve = view.validation ? run->validation : run->train;
    for (const CurvePoint& point : curve) steps.insert(point.step);
    if (!curve.empty()) curves.emplace_back(&curve, run->running);
  }
  std::vector<size_t> at(curves.size(), 0);
  std::vector<PlotPoint> out;
  for (const int64_t step : steps) {
    double sum = 0, time = 0, count = 0, timed = 0;
    PlotPoint point{.low = std::numeric_limits<double>::infinity()};
    point.high = -point.low;
    for (size_t i = 0; i < curves.size(); ++i) {
      const auto& [curve, running] = curves[i];
      while (at[i] < curve->size() && (*curve)[at[i]].step < step) ++at[i];
      const bool ended = at[i] == curve->size();
      const CurvePoint& own = (*curve)[ended ? at[i] - 1 : at[i]];
      if (ended ? running : own.step != step) continue;
      const double y = view.loss ? own.loss : own.accuracy;
      if (!std::isfinite(y)) continue;
      sum += y;
      ++count;
      point.low = std::min(point.low, y);
      point.high = std::max(point.high, y);
      if (!ended && std::isfinite(own.seconds)) {
        time += own.seconds;
        ++timed;
      }
    }
    point.x = view.by_step ? static_cast<double>(step) : time / timed;
    point.y = sum / count;
    if (count > 0 && std::isfinite(point.x)) out.push_back(point);
  }
  return out;
}

class LearningCurves {
 public:
  LearningCurves(const ReportInputs& inputs, const Board& board, const std::vector<int64_t>& hue_of)
      : inputs_(inputs), board_(board), hues_(hue_of) {
    int64_t last = 1;
    for (const ReportedRun& run : inputs.runs)
      if (!run.record.metrics.empty()) last = std::max(last, run.record.metrics.back().step);
    const auto variants = static_cast<double>(std::max<size_t>(board.variants.size(), 1));
    bands_ = board.variants.size() <= 40;
    cut_into_panels();
    views_ = std::clamp<size_t>(most_pictures / std::max<size_t>(2 * panels_.size(), 1), 1,
                                std::size(views));
    const double point = 14 * (bands_ ? 3 : 1);  // bytes
    const auto points = static_cast<int64_t>(std::clamp(
        curve_bytes / (variants * 2 * static_cast<double>(views_) * point), 15.0, 150.0));
    width_ = (last + points - 1) / points;
    for (const ReportedRun& run : inputs.runs)
      curves_.push_back({run.status == "running", curve_of(run, "train", width_),
                         curve_of(run, "validation", width_)});
  }

  std::vector<Figure> figures() const {
    std::vector<Figure> out;
    for (const auto& [suffix, variants] : panels_)
      for (const bool loss : {false, true})
        if (Figure drawn = figure(variants, loss, suffix); !drawn.plots.empty())
          out.push_back(std::move(drawn));
    return out;
  }

  int64_t width() const { return width_; }

 private:
  /// Splits curves into panels by task and by ten colours.
  void cut_into_panels() {
    for (size_t task = 0; task < board_.tasks.size(); ++task) {
      Rows own;
      for (size_t v = 0; v < board_.variants.size(); ++v)
        if (board_.task_of[v] == task) own.push_back(v);
      const std::vector<Rows> cut = cut_by_hue(own, [&](size_t v) { return hues_[v]; });
      for (size_t i = 0; i < cut.size(); ++i) {
        std::string suffix = board_.tasks.size() > 1 ? ", " + board_.tasks[task] : std::string();
        if (cut.size() > 1) suffix += fmt::format(", {} of {}", i + 1, cut.size());
        panels_.emplace_back(suffix, cut[i]);
      }
    }
  }

  Figure figure(const Rows& variants, bool loss, const std::string& suffix) const {
    const std::string quantity = loss ? "loss" : "accuracy";
    Figure out{.title = capital(quantity) + " while training" + suffix, .chart = "Learning curves"};
    for (const auto& [validation, by_step, log, ignored] : std::span(views).first(views_)) {
      Plot each = plot(variants, {validation, by_step, log, loss});
      if (each.empty()) continue;
      out.views.push_back(fmt::format("{} {} {}", validation ? "validation" : "train",
                                      by_step ? "step" : "seconds", log ? "log" : "linear"));
      each.title = fmt::format("{} {} by {}{}", validation ? "Validation" : "Training", quantity,
                               by_step ? "step" : "seconds", suffix);
      out.plots.push_back(std::move(each));
    }
    out.numbers = numbers(variants, loss, out.title);
    return out;
  }

  Plot plot(const Rows& variants, const View& view) const {
    Plot out{.x = view.by_step ? "step" : "seconds of training and evaluation",
             .y = fmt::format("{} {}", view.validation ? "validation" : "training",
                              view.loss ? "loss" : "accuracy"),
             .log_y = view.log,
             .unit_y = !view.loss,
             .falls = view.loss,
             .markers = bands_ ? size_t{8} : size_t{3}};
    std::map<int64_t, size_t> seen;
    for (const size_t v : variants) {
      Series series{.label = board_.names[v], .hue = hues_[v]};
      series.variation = seen[series.hue]++;
      std::vector<const RunCurves*> sound;
      for (size_t i = 0; i < inputs_.runs.size(); ++i) {
        if (board_.variant_of[i] != v) continue;
        if (!inputs_.runs[i].has_failed()) {
          sound.push_back(&curves_[i]);
          continue;
        }
        // A failed run has its own line and is not part of the mean.
        out.series.push_back({.label = fmt::format("{}, seed {}: {}", series.label,
                                                   inputs_.runs[i].seed, inputs_.runs[i].status),
                              .hue = series.hue,
                              .points = mean_curve({&curves_[i]}, view),
                              .faint = true});
      }
      series.points = mean_curve(sound, view);
      series.band = bands_ && std::ranges::any_of(series.points, [](const PlotPoint& p) {
                      return p.low != p.high;
                    });
      if (!series.band)
        for (PlotPoint& point : series.points) point.low = point.high = std::nan("");
      out.series.push_back(std::move(series));
    }
    if (view.log)
      for (Series& series : out.series)
        std::erase_if(series.points, [](const PlotPoint& point) { return !(point.y > 0); });
    std::erase_if(out.series, [](const Series& series) { return series.points.empty(); });
    return out;
  }

  /// Returns one row per curve, with at most 8 steps.
  Table numbers(const Rows& variants, bool loss, const std::string& title) const {
    constexpr size_t most = 8;
    Table table{.name = "curve", .title = title, .columns = {{"variant", ""}, {"split", ""}}};
    std::vector<std::pair<const char*, Series>> curves;
    std::set<double> steps;
    for (const bool validation : {true, false})
      for (Series& series : plot(variants, {validation, true, false, loss}).series) {
        for (const PlotPoint& point : series.points) steps.insert(point.x);
        curves.emplace_back(validation ? "validation" : "training", std::move(series));
      }
    for (const auto& [split, series] : curves) table.rows.push_back({series.label, split});
    const std::vector<double> all(steps.begin(), steps.end());
    const size_t count = std::min(most, all.size());
    for (size_t i = 1; i <= count; ++i) {
      const double step = all[(i * all.size() + count - 1) / count - 1];
      table.columns.push_back({fmt::format("step_{:.0f}", step), fmt::format("step {:.0f}", step)});
      for (size_t r = 0; r < curves.size(); ++r) {
        const std::vector<PlotPoint>& points = curves[r].second.points;
        const auto at = std::ranges::find(points, step, &PlotPoint::x);
        Cell& cell = table.rows[r].emplace_back();
        if (at == points.end()) continue;
        cell = fmt::format("{:.3g}", at->y);
        if (at->low < at->high)
          cell = fmt::format("{:.3g} ({:.3g} to {:.3g})", at->y, at->low, at->high);
      }
    }
    return table;
  }

  const ReportInputs& inputs_;
  const Board& board_;
  std::vector<RunCurves> curves_;                     // by run
  const std::vector<int64_t>& hues_;                  // by variant
  std::vector<std::pair<std::string, Rows>> panels_;  // title suffixes and variants
  size_t views_ = 1;                                  // per panel
  int64_t width_ = 1;
  bool bands_ = true;
};

}  // namespace

std::pair<std::vector<Figure>, int64_t> learning_curves(const ReportInputs& inputs,
                                                        const Board& board,
                                                        const std::vector<int64_t>& hue_of) {
  const LearningCurves curves(inputs, board, hue_of);
  return {curves.figures(), curves.width()};
}

}  // namespace longhand::train
