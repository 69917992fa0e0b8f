// longhand analyse error: how far variants are from exact attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/registry.h"
#include "longhand/train/cli/analyse.h"

namespace longhand::cli {
namespace {

namespace analysis = attention::analysis;
using analysis::Candidate;
using analysis::VariantError;
using train::Cell;
using train::Table;

struct Arguments : SourceArguments {
  std::vector<std::string> attention;
  std::vector<int64_t> sizes{16, 64, 256};
  int64_t draws = 8, landmarks = 64, steps = 20;
};

/// A candidate, and the number of its features, landmarks or slots; 0: it has none.
struct Sized {
  Candidate candidate;
  int64_t size = 0;
};

/// "performer:features=64:kernel=hyperbolic"
Candidate parse(const std::string& text) {
  std::istringstream parts(text);
  Candidate out;
  std::getline(parts, out.variant, ':');
  attention::spec(out.variant);  // throws
  for (std::string option; std::getline(parts, option, ':');) {
    train::Config config;
    config.assign("attention." + option, "--attention");
    for (const auto& [name, value] : config.given())
      out.options.emplace_back(name.substr(name.find('.') + 1), value);
  }
  return out;
}

/// The option that sets the size of a variant's approximation.
const std::map<std::string, std::string>& size_options() {
  static const std::map<std::string, std::string> options = {
      {"linformer", "k"},  {"performer", "features"},  {"nystrom", "landmarks"},
      {"rff", "features"}, {"skyformer", "landmarks"}, {"window", "window"}};
  return options;
}

std::vector<Sized> candidates_of(const Arguments& a, const Source& source) {
  std::vector<Sized> out;
  for (const std::string& text : a.attention) {
    Sized sized{parse(text)};
    if (const auto option = size_options().find(sized.candidate.variant);
        option != size_options().end())
      for (const auto& [key, value] : sized.candidate.options)
        if (const auto* const size = std::get_if<int64_t>(&value); size && key == option->second)
          sized.size = *size;
    out.push_back(sized);
  }
  if (!out.empty()) return out;
  const auto add = [&](const std::string& variant, attention::OptionSet options, int64_t size) {
    const attention::Capabilities can = attention::capabilities(variant);
    if (source.causal ? can.causal : !can.causal_only)
      out.push_back({{variant, std::move(options)}, size});
  };
  for (const int64_t size : a.sizes) {
    if (size >= source.length) continue;
    add("linformer", {{"k", size}, {"projection", std::string("mean_pool")}}, size);
    add("nystrom", {{"landmarks", size}}, size);
    add("window", {{"window", size / 2}}, size);
  }
  for (const int64_t size : a.sizes) {
    add("performer", {{"features", size}}, size);
    add("performer", {{"features", size}, {"kernel", std::string("hyperbolic")}}, size);
    add("rff", {{"features", size}}, size);
  }
  for (const char* const variant : {"linear", "efficient", "gaussian"}) add(variant, {}, 0);
  return out;
}

Table error_table(bool of_run) {
  Table table{
      "errors", "Relative errors against exact softmax attention",
      "|approximate - exact| / |exact| (Frobenius norms) of the result, the N x N weights and "
      "the gradients of a random linear function of the result; means over the inputs with "
      "95 % intervals. uniform: equal weights for all visible keys, the error of an "
      "approximation that has learned nothing of q and k. svd floor: the least error of "
      "weights of the variant's rank. bias², variance: parts of the squared error of the "
      "result over draws of the variant's random numbers.",
      source_columns()};
  for (const auto& [name, heading] : {std::pair("variant", "variant"),
                                      {"options", "options"},
                                      {"size", "size"},
                                      {"rank", "rank"},
                                      {"draws", "draws"}})
    table.columns.push_back({name, heading});
  for (const auto& [name, heading] : {std::pair("output", "output"),
                                      {"weights", "weights"},
                                      {"svd_floor", "svd floor"},
                                      {"dq", "dq"},
                                      {"dk", "dk"},
                                      {"dv", "dv"},
                                      {"bias_squared", "bias²"},
                                      {"variance", "variance"}})
    add_estimate(table.columns, name, heading);
  table.columns.push_back({"algorithm", "algorithm"});
  auto series = source_series(of_run);
  series.insert(series.begin(), {"variant", "options"});
  for (const auto& [y, title] :
       {std::pair("output", "Error of the result"), {"weights", "Error of the weights"}})
    table.charts.push_back({std::string(title) + " against features, landmarks or slots", "size", y,
                            series, std::string(y) + "_low", std::string(y) + "_high", true, true});
  return table;
}

/// "kernel=hyperbolic", without the size.
std::string options_text(const Sized& sized) {
  const auto option = size_options().find(sized.candidate.variant);
  return sized.candidate.options_text(option == size_options().end() ? "" : option->second);
}

std::vector<Cell> row_of(const Source& source, const VariantError& e, const std::string& variant,
                         const std::string& options, int64_t size) {
  std::vector<Cell> row = source_cells(source);
  row.emplace_back(variant);
  row.emplace_back(options);
  row.push_back(size ? Cell(size) : Cell());
  row.emplace_back(e.rank);
  row.emplace_back(e.draws);
  for (const Estimate* const each : {&e.output, &e.weights, &e.svd_floor, &e.dq, &e.dk, &e.dv})
    add_estimate(row, *each);
  if (e.draws > 1) {
    add_estimate(row, e.bias_squared);
    add_estimate(row, e.variance);
  } else {
    add_nothing(row);
    add_nothing(row);
  }
  row.emplace_back(e.algorithm);
  return row;
}

/// The best rank-r weights: the floor of every other row.
void add_ranks(const Source& source, const std::vector<int64_t>& sizes, Table& table) {
  std::vector<int64_t> ranks;
  for (const int64_t size : sizes)
    if (size < source.length) ranks.push_back(size);
  for (const auto& r : analysis::rank_errors(source.heads, ranks, source.causal)) {
    std::vector<Cell> row = source_cells(source);
    row.insert(row.end(), {"svd", "", r.rank, r.rank, int64_t{1}});
    add_estimate(row, r.output);
    add_estimate(row, r.weights);
    add_estimate(row, r.weights);
    for (int i = 0; i < 5; ++i) add_nothing(row);
    row.emplace_back("");
    table.rows.push_back(row);
  }
}

/// How errors decrease with size, next to what is expected of random features.
Table slope_table(const Table& errors) {
  Table table{
      "slopes", "Exponents of errors against size: error ~ size^exponent",
      "Least squares of logarithms. Errors of random features decrease as size^-0.5 once they "
      "are well below that of uniform attention; at larger norms more features are needed "
      "before they do.",
      source_columns()};
  for (const char* const name : {"variant", "options"}) table.columns.push_back({name, ""});
  for (const auto& [name, heading] : {std::pair("output", "output"), {"weights", "weights"}})
    add_estimate(table.columns, name, heading);
  table.columns.push_back({"theory", "theory"});
  std::map<std::string, std::vector<size_t>> curves;
  const size_t size = errors.column("size"), variant = errors.column("variant"),
               options = errors.column("options");
  std::vector<std::string> order;
  for (size_t i = 0; i < errors.rows.size(); ++i) {
    const auto& row = errors.rows[i];
    if (!std::holds_alternative<int64_t>(row[size])) continue;
    std::string key;
    for (size_t c = 0; c < source_columns().size(); ++c) key += train::to_text(row[c], 17) + " ";
    key += std::get<std::string>(row[variant]) + " " + std::get<std::string>(row[options]);
    if (!curves.contains(key)) order.push_back(key);
    curves[key].push_back(i);
  }
  for (const std::string& key : order) {
    const std::vector<size_t>& rows = curves[key];
    if (rows.size() < 3) continue;
    const auto& first = errors.rows[rows[0]];
    std::vector<Cell> row(first.begin(), first.begin() + source_columns().size());
    row.push_back(first[variant]);
    row.push_back(first[options]);
    for (const char* const y : {"output", "weights"}) {
      std::vector<double> sizes, values;
      for (const size_t i : rows) {
        const double error = std::get<double>(errors.rows[i][errors.column(y)]);
        if (!(error > 0) || !std::isfinite(error)) continue;
        sizes.push_back(static_cast<double>(std::get<int64_t>(errors.rows[i][size])));
        values.push_back(error);
      }
      if (sizes.size() < 2) {
        add_nothing(row);
        continue;
      }
      const Line line = fit_power(sizes, values);
      add_estimate(row, {line.slope, line.low, line.high, static_cast<int64_t>(sizes.size())});
    }
    const std::optional<double> rate = attention::spec(std::get<std::string>(first[variant])).rate;
    row.push_back(rate ? Cell(*rate) : Cell());
    table.rows.push_back(row);
  }
  return table;
}

struct InverseTables {
  Table steps{
      "inverse", "The iterative pseudo-inverse of nystrom, step by step",
      "residual: |A Z A - A| / |A| for A = softmax of the landmarks' scores; 0 for A⁺. output: "
      "the error of the attention that uses Z. A truncated iteration is a regularised "
      "inverse: its output is often better than that of A⁺.",
      source_columns()};
  Table facts{
      "inverse_summary", "What the iteration has to invert",
      "condition: log10 of σ_max / σ_min of A. expected steps: until σ_min is inverted, as it "
      "grows 3.25-fold at each step.",
      source_columns()};

  InverseTables() {
    for (const char* const name : {"landmarks", "iteration"}) steps.columns.push_back({name, ""});
    for (const auto& [name, heading] : {std::pair("residual", "residual"), {"output", "output"}})
      add_estimate(steps.columns, name, heading);
    facts.columns.push_back({"landmarks", ""});
    for (const auto& [name, heading] : {std::pair("condition", "log10 condition"),
                                        {"expected_steps", "expected steps"},
                                        {"pseudo_inverse", "output with A⁺"}})
      add_estimate(facts.columns, name, heading);
  }

  void add(const Source& source, int64_t landmarks, int64_t most) {
    const analysis::InverseError e = analysis::inverse_errors(source.heads, landmarks, most);
    for (const analysis::InverseStep& step : e.steps) {
      auto& row = steps.rows.emplace_back(source_cells(source));
      row.emplace_back(landmarks);
      row.emplace_back(step.iteration);
      add_estimate(row, step.residual);
      add_estimate(row, step.output);
    }
    auto& row = facts.rows.emplace_back(source_cells(source));
    row.emplace_back(landmarks);
    for (const Estimate* const each : {&e.condition, &e.expected_steps, &e.pseudo_inverse})
      add_estimate(row, *each);
  }
};

/// The variant with the least error of the result in the last source, and uniform attention's.
std::string summary_of(const Table& table) {
  const size_t output = table.column("output"), variant = table.column("variant"),
               size = table.column("size");
  const Cell *best = nullptr, *uniform = nullptr;
  const std::vector<Cell>* row = nullptr;
  for (const auto& each : table.rows) {
    const std::string& name = std::get<std::string>(each[variant]);
    if (name == "uniform") best = nullptr, uniform = &each[output];
    if (name == "uniform" || name == "svd") continue;
    if (!best || std::get<double>(each[output]) < std::get<double>(*best))
      best = &each[output], row = &each;
  }
  if (!best || !uniform) return "";
  const std::string of = std::holds_alternative<int64_t>((*row)[size])
                             ? " of size " + train::to_text((*row)[size])
                             : "";
  return fmt::format(
      "In the last group, {}{} comes closest to exact attention: an error of {}, where "
      "uniform weights have {}.",
      std::get<std::string>((*row)[variant]), of, train::to_text(*best, 3),
      train::to_text(*uniform, 3));
}

int analyse(const Arguments& a) {
  std::optional<LoadedRun> run;
  if (!a.run.empty()) run = load_run(a);
  const std::vector<Source> all = sources(a, run ? &*run : nullptr, {256}, {1, 4});
  Table errors = error_table(run.has_value());
  InverseTables inverse;
  Progress progress(a.progress(), "analyse error", 2);
  for (size_t i = 0; i < all.size(); ++i) {
    const Source& source = all[i];
    const std::vector<Sized> sized = candidates_of(a, source);
    std::vector<Candidate> candidates;
    for (const Sized& each : sized) candidates.push_back(each.candidate);
    const std::vector<VariantError> found =
        analysis::errors(source.heads, candidates,
                         {.causal = source.causal,
                          .draws = a.draws,
                          .seed = seed_or_default(a),
                          .on_progress = [&](int64_t done, int64_t parts) {
                            progress.update(static_cast<int64_t>(i) * parts + done,
                                            static_cast<int64_t>(all.size()) * parts,
                                            fmt::format("{} tokens", source.length));
                          }});
    errors.rows.push_back(row_of(source, found[0], "uniform", "", 0));
    for (size_t c = 0; c < sized.size(); ++c)
      errors.rows.push_back(row_of(source, found[c + 1], sized[c].candidate.variant,
                                   options_text(sized[c]), sized[c].size));
    add_ranks(source, a.sizes, errors);
    if (!source.causal)
      inverse.add(source, std::min(a.landmarks, std::max<int64_t>(1, source.length / 2)), a.steps);
  }
  if (run && run->model().config().attention_name() != "softmax") {
    std::vector<int64_t> lengths;
    for (const Source& source : all)
      if (lengths.empty() || lengths.back() != source.length) lengths.push_back(source.length);
    for (const int64_t length : lengths)
      for (const analysis::LayerInputs& layer : probe_run(*run, a.count, length)) {
        const auto found =
            analysis::errors_of_layer(run->model().kernel(layer.layer), layer,
                                      run->model().config().causal, seed_or_default(a));
        for (size_t h = 0; h < found.size(); ++h) {
          const auto source = std::find_if(all.begin(), all.end(), [&](const Source& s) {
            return s.length == length && s.layer == layer.layer &&
                   s.head == static_cast<int64_t>(h);
          });
          errors.rows.push_back(row_of(*source, found[h], layer.variant, "as trained", 0));
        }
      }
  }
  progress.clear();
  train::Results results = new_results(run ? "Errors of approximations on " + run->file
                                           : "Errors of approximations on random inputs",
                                       summary_of(errors));
  results.tables.push_back(errors);
  if (Table slopes = slope_table(errors); !slopes.rows.empty()) results.tables.push_back(slopes);
  if (!inverse.steps.rows.empty()) {
    inverse.steps.charts.push_back({"Residual of the pseudo-inverse by iteration", "iteration",
                                    "residual", source_series(run.has_value()), "residual_low",
                                    "residual_high", false, true});
    inverse.steps.charts.push_back({"Error of nystrom's result by iteration", "iteration", "output",
                                    source_series(run.has_value()), "output_low", "output_high",
                                    false, true});
    results.tables.push_back(inverse.steps);
    results.tables.push_back(inverse.facts);
  }
  return finish(a, results);
}

}  // namespace

void add_analyse_error(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "error", "Errors of variants against exact attention, on random inputs or on those of a run",
      [a] { return analyse(*a); });
  c.add("--attention", a->attention, "NAME[:OPTION=VALUE...]",
        "A variant with options, such as performer:features=64; may be repeated [the usual ones, "
        "with each of --sizes]")
      .repeated();
  c.add("--sizes", a->sizes, "M,...",
        "Features, landmarks, slots and ranks of the usual variants [16,64,256]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->draws, "N", "Draws of each variant's random numbers [8]").positive();
  c.add("--landmarks", a->landmarks, "M",
        "Landmarks of the pseudo-inverse, up to half the tokens [64]")
      .positive();
  c.add("--steps", a->steps, "N", "Steps of the pseudo-inverse [20]").positive();
  add_source(c, *a, "256", "1,4");
  add_common(c, *a);
}

}  // namespace longhand::cli
