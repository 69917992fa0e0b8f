#include "longhand/train/lab/report/charts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>

#include "longhand/core/options.h"
#include "longhand/core/statistics.h"
#include "longhand/train/cost/efficiency.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/headline.h"

namespace longhand::train {
namespace {

using Rows = std::vector<size_t>;

std::optional<size_t> find(const Table& table, const std::string& name) {
  return name.empty() ? std::nullopt : table.find(name);
}
bool is_text(const Table& table, size_t column) {
  return std::ranges::any_of(table.rows, [&](const auto& row) {
    return std::holds_alternative<std::string>(row[column]);
  });
}
bool varies(const Table& table, const Rows& rows, size_t column) {
  return std::ranges::any_of(
      rows, [&](size_t r) { return table.rows[r][column] != table.rows[rows[0]][column]; });
}

/// Returns the column of names that share a colour.
std::optional<size_t> family_column(const Table& table) {
  Rows all(table.rows.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (const char* const name : {"attention_type", "attention", "variant"})
    if (const auto at = table.find(name);
        at && is_text(table, *at) &&
        (varies(table, all, *at) || name == std::string_view("variant")))
      return at;
  return std::nullopt;
}

bool is_theory(const std::string& label) {
  for (const char* const word :
       {"theor", "Theor", "floor", "bound", "closed form", "expected", "predict"})
    if (label.find(word) != std::string::npos) return true;
  return false;
}

/// Groups rows by a name, in the order of their first rows.
std::vector<std::pair<std::string, Rows>> grouped(const Rows& rows,
                                                  const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Rows>> out;
  for (const size_t r : rows) {
    auto found = std::ranges::find(out, names[r], &std::pair<std::string, Rows>::first);
    if (found == out.end()) found = out.insert(out.end(), {names[r], {}});
    found->second.push_back(r);
  }
  return out;
}

/// Describes curves with two logarithmic axes in sentences: the exponent of a power law fitted to
/// each curve with at least three points, and from where on curves stay below softmax attention.
std::vector<std::string> slopes(const Plot& plot) {
  if (!plot.log_x || !plot.log_y || plot.kind != Plot::Kind::lines) return {};
  std::vector<std::map<double, double>> curves;  // means of the points with the same x
  const std::map<double, double>* softmax = nullptr;
  curves.reserve(plot.series.size());
  for (const Series& series : plot.series) {
    std::map<double, std::vector<double>> points;
    for (const PlotPoint& point : series.points) points[point.x].push_back(point.y);
    auto& curve = curves.emplace_back();
    for (const auto& [x, ys] : points) curve[x] = estimate(ys).mean;
    if (!softmax && series.label.starts_with("softmax")) softmax = &curve;
  }
  std::vector<std::string> fitted, crossed, out;
  for (size_t s = 0; s < curves.size(); ++s) {
    std::vector<double> x, y;
    for (const auto& [at, value] : curves[s]) {
      x.push_back(at);
      y.push_back(value);
    }
    const std::string& label = plot.series[s].label;
    if (x.size() >= 3)
      fitted.push_back(
          fmt::format("{}{:.2f}", label.empty() ? label : label + " ", fit_power(x, y).slope));
    if (softmax)
      if (const Crossover at = crossover(*softmax, curves[s]); at.kind == Crossover::Kind::at)
        crossed.push_back(fmt::format("{} from about {:.3g}", label, at.length));
  }
  if (!fitted.empty()) out.push_back(fmt::format("Fitted exponents: {}.", comma_list(fitted)));
  if (!crossed.empty()) out.push_back(fmt::format("Below softmax: {}.", comma_list(crossed)));
  return out;
}

/// Assigns names to colours regardless of which is best: these have the same colour in every
/// report, others take the remaining ones in alphabetical order. Some may be empty.
std::vector<std::string> in_order_of_colours(std::set<std::string> names) {
  std::vector<std::string> out = {"softmax",    "deltanet",       "linear",       "gla",
                                  "mamba2",     "gated_deltanet", "deltaproduct", "window",
                                  "forgetting", "retnet"};
  for (std::string& known : out)
    if (!names.erase(known)) known.clear();
  for (const std::string& name : names) {
    const auto empty = std::ranges::find(out, "");
    if (empty == out.end())
      out.push_back(name);
    else
      *empty = name;
  }
  return out;
}

class TableCharts {
 public:
  TableCharts(const Table& table, const Chart& chart, const ChartContext& context)
      : table_(table),
        chart_(chart),
        context_(context),
        x_(find(table, chart.x)),
        y_(find(table, chart.colour.empty() ? chart.y : chart.colour)),
        low_(find(table, chart.low)),
        high_(find(table, chart.high)),
        metric_(table.find("metric")),
        family_(family_column(table)),
        all_(table.rows.size()),
        columns_(chart.series) {
    std::iota(all_.begin(), all_.end(), size_t{0});
    for (const std::string& name :
         {chart.x, chart.y, chart.low, chart.high, chart.theory, chart.colour, chart.end})
      if (!name.empty()) index_in(columns_, name);
    for (const std::string& name : chart.series) series_columns_.push_back(table.column(name));
  }

  std::vector<Figure> figures() {
    if (!chart_.colour.empty() && is_text(table_, *x_))
      matrices();
    else if (!chart_.colour.empty())
      add(chart_.title, heat_maps(), all_);
    else if (!chart_.end.empty())
      add(chart_.title, timeline(), all_);
    else
      lines_and_bars();
    return std::move(out_);
  }

 private:
  void add(const std::string& title, Plot plot, const Rows& rows) {
    if (plot.empty()) return;
    plot.title = title;
    Figure figure{
        .title = title, .plots = {std::move(plot)}, .chart = chart_.title, .columns = columns_};
    if (rows.size() < all_.size()) figure.rows = rows;
    out_.push_back(std::move(figure));
  }

  /// Finds the task name and the series name of each row.
  void find_names() {
    const bool keys = std::ranges::all_of(series_columns_, [&](size_t c) {
      return table_.columns[c].name == "variant" || is_key(table_.columns[c]);
    });
    std::vector<size_t> options;
    for (size_t c = 0; c < table_.columns.size(); ++c)
      if (is_key(table_.columns[c]) && c != *x_ && varies(table_, all_, c)) options.push_back(c);
    by_options_ = keys && !options.empty();
    tasks_.assign(table_.rows.size(), "");
    series_.assign(table_.rows.size(), "");
    if (!by_options_) {
      for (const size_t r : all_) series_[r] = joined(r);
      split_ = series_columns_;
      return;
    }
    // Plotted against costs, variants that differ only in a size form one curve.
    std::vector<std::map<std::string, std::string>> rows(table_.rows.size());
    for (const size_t c : options) {
      const std::string& key = table_.columns[c].heading;
      const bool size =
          (key.starts_with("model.") || key.starts_with("attention.")) && !is_text(table_, c);
      if (costs_ && size) {
        sizes_.push_back(c);
        continue;
      }
      if (!key.starts_with("data.")) split_.push_back(c);
      for (const size_t r : all_) rows[r][key] = text_at(table_, r, c);
    }
    RowNames names = row_names(rows);
    tasks_ = std::move(names.task);
    series_ = std::move(names.variant);
    for (const size_t r : all_)
      if (series_[r].empty()) series_[r] = text_at(table_, r, family_);
  }

  /// "linear", or "size 32"
  std::string shown(size_t row, size_t column) const {
    const std::string text = text_at(table_, row, column);
    return std::holds_alternative<std::string>(table_.rows[row][column])
               ? text
               : table_.columns[column].shown() + " " + text;
  }
  /// Joins the varying values of the series columns: "linear · size 32".
  std::string joined(size_t row) const {
    std::vector<std::string> parts;
    for (const size_t c : series_columns_)
      if (!text_at(table_, row, c).empty() && varies(table_, all_, c))
        parts.push_back(shown(row, c));
    return fmt::format("{}", fmt::join(parts, " · "));
  }

  /// Returns whether nothing visible depends on x: a cost that is nearly the same for all, or an
  /// option with a single value in each curve.
  bool explains_nothing(const Rows& rows) const {
    std::set<double> places;
    std::map<std::string, std::set<double>> of_curve;
    for (const size_t r : rows) {
      const double x = value_at(table_, r, x_);
      if (chart_.bars || !std::isfinite(x)) continue;
      places.insert(x);
      of_curve[series_[r]].insert(x);
    }
    if (costs_)
      return !places.empty() && *places.begin() > 0 && *places.rbegin() / *places.begin() < 1.05;
    return by_options_ && is_key(table_.columns[*x_]) && of_curve.size() > 1 &&
           std::ranges::all_of(of_curve, [](const auto& each) { return each.second.size() == 1; });
  }

  std::string y_title(const Rows& rows) const {
    if (metric_ && !rows.empty()) return text_at(table_, rows[0], metric_);
    return table_.columns[*y_].shown();
  }

  int64_t hue_of(size_t row, const std::string& label,
                 std::map<std::string, int64_t>& local) const {
    for (const std::string& name : {text_at(table_, row, family_), label})
      if (const int64_t hue = context_.hue_of(name); hue >= 0) return hue;
    return local.try_emplace(label, std::ssize(local)).first->second;
  }

  void lines_and_bars() {
    costs_ = !chart_.bars && chart_.series == std::vector<std::string>{"variant"} &&
             !is_key(table_.columns[*x_]);
    find_names();
    if (!chart_.bars || !context_.matrix || grouped(all_, tasks_).size() < 2)
      panels(all_, chart_.title, "");
  }

  /// Draws rows in one or several panels.
  void panels(const Rows& rows, const std::string& title, const std::string& task) {
    if (task.empty())
      if (const auto tasks = grouped(rows, tasks_); tasks.size() > 1) {
        for (const auto& [name, own] : tasks) panels(own, title + ", " + name, name);
        return;
      }
    if (explains_nothing(rows)) return;
    const auto series = grouped(rows, series_);
    if (chart_.bars || series.size() <= hues) return add(title, lines_or_bars(rows), rows);
    if (const auto column = column_to_split(rows, series.size())) {
      std::vector<std::string> values(table_.rows.size());
      for (const size_t r : rows)
        values[r] = text_at(table_, r, *column).empty() ? table_.columns[*column].shown() + ": none"
                                                        : shown(r, *column);
      for (const auto& [name, own] : grouped(rows, values)) panels(own, title + ", " + name, "-");
      return;
    }
    std::map<std::string, int64_t> local;
    Rows places(series.size());
    std::iota(places.begin(), places.end(), size_t{0});
    const std::vector<Rows> cut = cut_by_hue(
        places, [&](size_t s) { return hue_of(series[s].second[0], series[s].first, local); });
    for (size_t i = 0; i < cut.size(); ++i) {
      Rows part;
      for (const size_t s : cut[i])
        part.insert(part.end(), series[s].second.begin(), series[s].second.end());
      add(fmt::format("{}, {} of {}", title, i + 1, cut.size()), lines_or_bars(part), part);
    }
  }

  /// Returns the series column, except families, that has the fewest values and reduces the series.
  std::optional<size_t> column_to_split(const Rows& rows, size_t series) const {
    constexpr size_t most = 12;
    std::optional<size_t> best;
    size_t fewest = most + 1;
    for (const size_t c : split_) {
      if (c == family_ || table_.columns[c].name == "variant") continue;
      std::map<std::string, std::set<std::string>> values;
      for (const size_t r : rows) values[text_at(table_, r, c)].insert(series_[r]);
      size_t largest = 0;
      for (const auto& [value, names] : values) largest = std::max(largest, names.size());
      if (values.size() < 2 || values.size() >= fewest || 3 * largest > 2 * series) continue;
      best = c;
      fewest = values.size();
    }
    return best;
  }

  PlotPoint point(size_t r) const {
    PlotPoint out{.x = value_at(table_, r, x_),
                  .y = value_at(table_, r, y_),
                  .low = value_at(table_, r, low_),
                  .high = value_at(table_, r, high_)};
    const std::string variant = text_at(table_, r, table_.find("variant"));
    if (!sizes_.empty()) out.name = variant;
    const auto found = context_.seeds.find(variant);
    if (found == context_.seeds.end()) return out;
    const double mean = estimate(found->second).mean;
    if (std::abs(mean - out.y) <= 1e-9 * (std::abs(mean) + 1)) out.seeds = found->second;
    return out;
  }

  /// Returns whether a curve joins rows that differ in one size.
  bool is_curve(const Rows& rows) const {
    if (rows.size() < 2) return false;
    std::set<double> places;
    for (const size_t r : rows)
      places.insert(value_at(table_, r, sizes_.size() == 1 ? std::optional(sizes_[0]) : x_));
    return places.size() == rows.size() &&
           std::ranges::count_if(sizes_, [&](size_t c) { return varies(table_, rows, c); }) <= 1;
  }

  Plot lines_or_bars(const Rows& rows) const {
    Plot plot{.x = table_.columns[*x_].shown(),
              .y = y_title(rows),
              .kind = chart_.bars ? Plot::Kind::bars : Plot::Kind::lines,
              .log_x = chart_.log_x,
              .log_y = chart_.log_y};
    plot.unit_y = plot.y.find("accuracy") != std::string::npos;
    std::map<std::string, int64_t> local;
    std::map<int64_t, size_t> seen;  // number of series, by hue
    // Bars of variants form one series, coloured by variant.
    const bool one_series = chart_.bars && chart_.series.empty();
    const std::vector<std::string> unnamed(table_.rows.size());
    for (auto [label, own] : grouped(rows, one_series ? unnamed : series_)) {
      // Through a variant's sizes in order, whatever they cost.
      for (const size_t size : sizes_)
        std::ranges::stable_sort(own, {}, [&](size_t r) { return value_at(table_, r, size); });
      Series series{.label = label};
      series.hue = is_theory(label) ? -1 : hue_of(own[0], label, local);
      if (series.hue >= 0) series.variation = seen[series.hue % hues]++;
      for (const size_t r : own) {
        PlotPoint at = point(r);
        if (!std::isfinite(at.y) || (chart_.log_y && at.y <= 0)) continue;
        if (plot.unit_y && (at.y < 0 || at.y > 1)) plot.unit_y = false;
        if (chart_.bars) {
          const std::string name = text_at(table_, r, *x_);
          at.x = static_cast<double>(index_in(plot.categories, name));
          at.name = label.empty() ? name : name + ", " + label;
          if (one_series) at.hue = hue_of(r, name, local);
        } else if (!std::isfinite(at.x) || (chart_.log_x && at.x <= 0)) {
          continue;
        }
        series.points.push_back(std::move(at));
      }
      if (!chart_.bars) {
        if (sizes_.empty()) std::ranges::stable_sort(series.points, {}, &PlotPoint::x);
        series.line = is_curve(own);
      }
      if (!series.points.empty()) plot.series.push_back(std::move(series));
    }
    plot.facts = slopes(plot);
    add_theories(rows, plot);
    return plot;
  }

  void add_theories(const Rows& rows, Plot& plot) const {
    const auto theory = find(table_, chart_.theory);
    if (!theory) return;
    std::vector<Series> lines;
    for (const auto& [label, own] : grouped(rows, series_)) {
      Series line{.label = label.empty() ? "theory" : label + " · theory", .hue = -1};
      for (const size_t r : own)
        if (const double y = value_at(table_, r, theory);
            std::isfinite(y) && (!chart_.log_y || y > 0))
          line.points.push_back({value_at(table_, r, x_), y, std::nan(""), std::nan("")});
      std::ranges::stable_sort(line.points, {}, &PlotPoint::x);
      const bool known = std::ranges::any_of(lines, [&](const Series& other) {
        return std::ranges::equal(
            line.points, other.points,
            [](const PlotPoint& a, const PlotPoint& b) { return a.x == b.x && a.y == b.y; });
      });
      if (known || line.points.empty()) continue;
      for (const Series& series : plot.series)
        if (series.label == label) line.hue = series.hue;
      lines.push_back(std::move(line));
    }
    const bool one = lines.size() == 1;
    for (Series& line : lines) {
      if (one) line.label = "theory";
      if (one) line.hue = -1;
      line.faint = !one;
      plot.series.push_back(std::move(line));
    }
  }

  /// Draws heat maps of tasks and variants, one per metric.
  void matrices() {
    std::vector<std::string> groups(table_.rows.size());
    for (const size_t r : all_)
      for (const size_t c : series_columns_) groups[r] += text_at(table_, r, c);
    const auto parts = grouped(all_, groups);
    const size_t y = table_.column(chart_.y);
    for (const auto& [label, rows] : parts) {
      HeatMap map;
      for (const size_t r : rows) {
        index_in(map.rows, text_at(table_, r, y));
        index_in(map.columns, text_at(table_, r, *x_));
      }
      map.width = std::ssize(map.columns);
      map.height = std::ssize(map.rows);
      map.values.assign(map.rows.size() * map.columns.size(), std::nan(""));
      map.texts.resize(map.values.size());
      for (const size_t r : rows) {
        const size_t at = index_in(map.rows, text_at(table_, r, y)) * map.columns.size() +
                          index_in(map.columns, text_at(table_, r, *x_));
        map.values[at] = value_at(table_, r, y_);
        map.texts[at] = std::isfinite(map.values[at]) ? rounded(map.values[at]) : "– no score";
        const double low = value_at(table_, r, low_), high = value_at(table_, r, high_);
        if (std::isfinite(low) && std::isfinite(high))
          map.texts[at] += fmt::format(" (95 %: {} to {})", rounded(low), rounded(high));
        if (const auto seeds = table_.find("seeds"))
          map.texts[at] += fmt::format(" of {} seeds", text_at(table_, r, *seeds));
      }
      Plot plot{.x = table_.columns[*x_].shown(), .y = y_title(rows), .kind = Plot::Kind::heat};
      plot.falls = plot.y.find("accuracy") == std::string::npos;
      plot.maps.push_back(std::move(map));
      add(parts.size() == 1 ? chart_.title : capital(label) + " by task and variant",
          std::move(plot), rows);
    }
  }

  /// Returns heat maps of numbered rows and columns.
  Plot heat_maps() const {
    constexpr int64_t most = 1 << 20;
    Plot plot{.x = table_.columns[*x_].shown(), .y = y_title(all_), .kind = Plot::Kind::heat};
    const size_t y = table_.column(chart_.y);
    std::vector<std::string> names;
    for (const size_t r : all_) names.push_back(joined(r));
    for (const auto& [label, rows] : grouped(all_, names)) {
      const auto range = [&](size_t column) {
        std::set<double> values;
        for (const size_t r : rows)
          if (const double value = value_at(table_, r, column); std::isfinite(value))
            values.insert(value);
        const double step = values.size() > 1 ? *std::next(values.begin()) - *values.begin() : 1;
        const double first = values.empty() ? 0 : *values.begin();
        const double last = values.empty() ? 0 : *values.rbegin();
        return std::tuple(first, step, std::llround((last - first) / step) + 1);
      };
      const auto [x0, dx, width] = range(*x_);
      const auto [y0, dy, height] = range(y);
      if (width * height > most) continue;
      HeatMap map{.label = label, .width = width, .height = height};
      map.values.assign(static_cast<size_t>(width * height), std::nan(""));
      for (const size_t r : rows) {
        const double column = value_at(table_, r, x_), row = value_at(table_, r, y);
        if (!std::isfinite(column) || !std::isfinite(row)) continue;
        map.values[static_cast<size_t>(std::llround((row - y0) / dy) * width +
                                       std::llround((column - x0) / dx))] = value_at(table_, r, y_);
      }
      plot.maps.push_back(std::move(map));
    }
    plot.facts.push_back(fmt::format("Rows: {}, columns: {}.", table_.columns[y].shown(), plot.x));
    return plot;
  }

  Plot timeline() const {
    Plot plot{.x = table_.columns[*x_].shown(), .kind = Plot::Kind::timeline};
    const auto end = find(table_, chart_.end);
    const size_t lane = table_.column(chart_.y);
    std::map<std::string, int64_t> local;
    for (const size_t r : all_) {
      const std::string label = joined(r);
      auto series = std::ranges::find(plot.series, label, &Series::label);
      if (series == plot.series.end())
        series = plot.series.insert(series, {.label = label, .hue = hue_of(r, label, local)});
      plot.spans.push_back({index_in(plot.categories, text_at(table_, r, lane)),
                            static_cast<size_t>(series - plot.series.begin()),
                            value_at(table_, r, x_), value_at(table_, r, end)});
    }
    return plot;
  }

  const Table& table_;
  const Chart& chart_;
  const ChartContext& context_;
  std::optional<size_t> x_, y_, low_, high_, metric_, family_;
  Rows all_, series_columns_;
  std::vector<std::string> columns_;
  bool by_options_ = false;                  // series are variants, distinguished by their options
  bool costs_ = false;                       // x is a cost of variants
  std::vector<std::string> tasks_, series_;  // by row
  std::vector<size_t> split_;                // columns that may distinguish panels
  std::vector<size_t> sizes_;                // columns that vary along a curve
  std::vector<Figure> out_;
};

}  // namespace

int64_t ChartContext::hue_of(const std::string& family) const {
  const auto found = std::ranges::find(families, family);
  return family.empty() || found == families.end() ? -1 : found - families.begin();
}

std::vector<std::vector<size_t>> cut_by_hue(const std::vector<size_t>& all,
                                            const std::function<int64_t(size_t)>& hue_of) {
  std::map<int64_t, std::vector<size_t>> parts;
  for (const size_t each : all) parts[hue_of(each) / hues].push_back(each);
  std::vector<std::vector<size_t>> cut;
  for (const auto& [part, own] : parts)
    for (size_t i = 0; i < own.size(); ++i) {
      if (i % hues == 0) cut.emplace_back();
      cut.back().push_back(own[i]);
    }
  return cut;
}

std::vector<Figure> figures_of(const Table& table, const Chart& chart,
                               const ChartContext& context) {
  return TableCharts(table, chart, context).figures();
}

Figures figures_of(const ReportInputs& inputs, const Board& board) {
  ChartContext context;
  context.matrix = !board.matrix.rows.empty();
  std::set<std::string> names;
  const auto enrol = [&](const Table& table) {
    if (const auto column = family_column(table))
      for (size_t r = 0; r < table.rows.size(); ++r)
        if (const std::string name = text_at(table, r, *column);
            !name.empty() && !name.starts_with("heuristic:"))
          names.insert(name);
  };
  enrol(board.leaderboard);
  for (const auto& [path, results] : inputs.results)
    for (const Table& table : results.tables)
      if (!table.charts.empty()) enrol(table);
  context.families = in_order_of_colours(std::move(names));
  std::vector<int64_t> hue_of;  // by variant
  const auto column = family_column(board.leaderboard);
  for (size_t v = 0; v < board.variants.size(); ++v) {
    hue_of.push_back(
        context.hue_of(column ? text_at(board.leaderboard, v, *column) : board.variants[v]));
    context.seeds[board.variants[v]] = values_of(board.scores[v]);
  }
  Figures out;
  const auto add = [&](const Table& table, std::vector<Figure>& figures) {
    for (const Chart& chart : table.charts)
      for (Figure& figure : figures_of(table, chart, context)) figures.push_back(std::move(figure));
  };
  add(board.matrix, out.matrix);
  add(board.leaderboard, out.leaderboard);
  std::tie(out.curves, out.curve_steps) = learning_curves(inputs, board, hue_of);
  for (const int64_t hue : hue_of) out.hues.push_back(hue % hues);
  for (const ReportedResults& each : inputs.results) {
    auto& figures = out.results.emplace_back();
    for (size_t i = 0; i < inputs.runs.size(); ++i)
      if (inputs.runs[i].sweep == each.name() && board.variant_of[i])
        context.seeds[inputs.runs[i].variant] = values_of(board.scores[*board.variant_of[i]]);
    for (const Table& table : each.results.tables) add(table, figures.emplace_back());
  }
  return out;
}

std::string unique_name(const std::string& title, std::map<std::string, size_t>& seen) {
  std::string out = slug(title);
  if (out.empty()) out = "figure";
  const size_t before = seen[out]++;
  return before == 0 ? out : fmt::format("{}-{}", out, before + 1);
}

std::vector<FigureFile> figure_files(const ReportInputs& inputs, const FigureFormat& format) {
  const Figures figures = figures_of(inputs, compare(inputs));
  std::map<std::string, size_t> seen;
  std::vector<FigureFile> out;
  const auto add = [&](const std::vector<Figure>& all) {
    for (const Figure& figure : all)
      for (const Plot& plot : figure.plots) {
        const auto svg = svg_canvas(format), pdf = pdf_canvas(format);
        out.push_back(
            {unique_name(plot.log_y && !figure.views.empty() ? plot.title + " log" : plot.title,
                         seen),
             draw(plot, *svg), draw(plot, *pdf)});
      }
  };
  for (const auto* const part : {&figures.matrix, &figures.leaderboard, &figures.curves})
    add(*part);
  for (const auto& tables : figures.results)
    for (const auto& table : tables) add(table);
  return out;
}

}  // namespace longhand::train
