// What longhand analyse error computes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/registry.h"
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/results/rows.h"

namespace longhand::train::analyse {
namespace {

namespace analysis = attention::analysis;
using analysis::Candidate;
using analysis::VariantError;

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
    Config config;
    config.assign("attention." + option, "--attention");
    for (const auto& [name, value] : config.given())
      out.options.emplace_back(name.substr(name.find('.') + 1), value);
  }
  return out;
}

/// The option that sets its size; the rank of lowrank is one like others here.
std::string size_of(const Candidate& candidate) {
  return candidate.variant == "lowrank" ? "" : size_option(candidate.variant);
}

std::vector<Sized> candidates_of(const ErrorOptions& a, const Source& source) {
  std::vector<Sized> out;
  for (const std::string& text : a.attention) {
    Sized sized{parse(text)};
    const std::string option = size_of(sized.candidate);
    for (const auto& [key, value] : sized.candidate.options)
      if (const auto* const size = std::get_if<int64_t>(&value); size && key == option)
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

Table error_table() {
  Table table{
      "errors", "Relative errors against exact softmax attention",
      "|approximate - exact| / |exact| (Frobenius norms) of the result, the N x N weights and "
      "the gradients of a random linear function of the result; means over the inputs with "
      "95 % intervals. uniform: equal weights for all visible keys, the error of an "
      "approximation that has learned nothing of q and k. svd floor: the least error of "
      "weights of the variant's rank. bias², variance: parts of the squared error of the "
      "result over draws of the variant's random numbers.",
      source_columns()};
  return table;
}

/// "kernel=hyperbolic", without the size.
std::string options_text(const Sized& sized) {
  return sized.candidate.options_text(size_of(sized.candidate));
}

void add_error(Table& table, const Source& source, const VariantError& e,
               const std::string& variant, const std::string& options, int64_t size) {
  const bool drawn = e.draws > 1;
  add_row(table, source_cells(source),
          {{"variant", variant},
           {"options", options},
           {"size", size ? Cell(size) : Cell()},
           {"rank", e.rank},
           {"draws", e.draws},
           {"output", e.output, "output"},
           {"weights", e.weights, "weights"},
           {"svd_floor", e.svd_floor, "svd floor"},
           {"dq", e.dq, "dq"},
           {"dk", e.dk, "dk"},
           {"dv", e.dv, "dv"},
           {"bias_squared", drawn ? e.bias_squared : Estimate(), "bias²"},
           {"variance", drawn ? e.variance : Estimate(), "variance"},
           {"algorithm", e.algorithm}});
}

/// The best rank-r weights: the floor of every other row.
void add_ranks(const Source& source, const std::vector<int64_t>& sizes, Table& table) {
  std::vector<int64_t> ranks;
  for (const int64_t size : sizes)
    if (size < source.length) ranks.push_back(size);
  for (const auto& r : analysis::rank_errors(source.heads, ranks, source.causal)) {
    VariantError floor;
    floor.rank = r.rank;
    floor.draws = 1;
    floor.output = r.output;
    floor.weights = floor.svd_floor = r.weights;
    add_error(table, source, floor, "svd", "", r.rank);
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
  std::map<std::string, std::vector<size_t>> curves;
  const size_t size = errors.column("size"), variant = errors.column("variant"),
               options = errors.column("options");
  std::vector<std::string> order;
  for (size_t i = 0; i < errors.rows.size(); ++i) {
    const auto& row = errors.rows[i];
    if (!std::holds_alternative<int64_t>(row[size])) continue;
    std::string key;
    for (size_t c = 0; c < source_columns().size(); ++c) key += to_text(row[c], 17) + " ";
    key += std::get<std::string>(row[variant]) + " " + std::get<std::string>(row[options]);
    if (!curves.contains(key)) order.push_back(key);
    curves[key].push_back(i);
  }
  for (const std::string& key : order) {
    const std::vector<size_t>& rows = curves[key];
    if (rows.size() < 3) continue;
    const auto& first = errors.rows[rows[0]];
    const auto slope = [&](const char* y) {
      std::vector<double> sizes, values;
      for (const size_t i : rows) {
        const double error = std::get<double>(errors.rows[i][errors.column(y)]);
        if (!(error > 0) || !std::isfinite(error)) continue;
        sizes.push_back(static_cast<double>(std::get<int64_t>(errors.rows[i][size])));
        values.push_back(error);
      }
      return sizes.size() < 2 ? Estimate() : estimate_of(fit_power(sizes, values), sizes.size());
    };
    const std::string& name = std::get<std::string>(first[variant]);
    const std::optional<double> rate = attention::spec(name).rate;
    add_row(table, {first.begin(), first.begin() + std::ssize(source_columns())},
            {{"variant", name},
             {"options", first[options]},
             {"output", slope("output"), "output"},
             {"weights", slope("weights"), "weights"},
             {"theory", rate ? Cell(*rate) : Cell(), "theory"}});
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

  void add(const Source& source, int64_t landmarks, int64_t most) {
    const analysis::InverseError e = analysis::inverse_errors(source.heads, landmarks, most);
    for (const analysis::InverseStep& step : e.steps)
      add_row(steps, source_cells(source),
              {{"landmarks", landmarks},
               {"iteration", step.iteration},
               {"residual", step.residual, "residual"},
               {"output", step.output, "output"}});
    add_row(facts, source_cells(source),
            {{"landmarks", landmarks},
             {"condition", e.condition, "log10 condition"},
             {"expected_steps", e.expected_steps, "expected steps"},
             {"pseudo_inverse", e.pseudo_inverse, "output with A⁺"}});
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
  const std::string of =
      std::holds_alternative<int64_t>((*row)[size]) ? " of size " + to_text((*row)[size]) : "";
  return fmt::format(
      "In the last group, {}{} comes closest to exact attention: an error of {}, where "
      "uniform weights have {}.",
      std::get<std::string>((*row)[variant]), of, to_text(*best, 3), to_text(*uniform, 3));
}

}  // namespace

Results error(const ErrorOptions& a, const LoadedRun* run, const OnProgress& on_progress) {
  const std::vector<Source> all = sources(a, run, {256}, {1, 4});
  Table errors = error_table();
  InverseTables inverse;
  for (size_t i = 0; i < all.size(); ++i) {
    const Source& source = all[i];
    const std::vector<Sized> sized = candidates_of(a, source);
    std::vector<Candidate> candidates;
    for (const Sized& each : sized) candidates.push_back(each.candidate);
    const std::vector<VariantError> found =
        analysis::errors(source.heads, candidates,
                         {.causal = source.causal,
                          .draws = a.draws,
                          .seed = a.seed,
                          .on_progress = [&](int64_t done, int64_t parts) {
                            on_progress(static_cast<int64_t>(i) * parts + done,
                                        static_cast<int64_t>(all.size()) * parts,
                                        fmt::format("{} tokens", source.length));
                          }});
    add_error(errors, source, found[0], "uniform", "", 0);
    for (size_t c = 0; c < sized.size(); ++c)
      add_error(errors, source, found[c + 1], sized[c].candidate.variant, options_text(sized[c]),
                sized[c].size);
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
        const auto found = analysis::errors_of_layer(run->model().kernel(layer.layer), layer,
                                                     run->model().config().causal, a.seed);
        for (size_t h = 0; h < found.size(); ++h) {
          const auto source = std::find_if(all.begin(), all.end(), [&](const Source& s) {
            return s.length == length && s.layer == layer.layer &&
                   s.head == static_cast<int64_t>(h);
          });
          add_error(errors, *source, found[h], layer.variant, "as trained", 0);
        }
      }
  }
  auto series = source_series(run != nullptr);
  series.insert(series.begin(), {"variant", "options"});
  for (const auto& [y, title] :
       {std::pair("output", "Error of the result"), {"weights", "Error of the weights"}})
    add_chart(errors, std::string(title) + " against features, landmarks or slots", "size", y,
              series, true, true);
  Results results{.title = run ? "Errors of approximations on " + run->file
                               : "Errors of approximations on random inputs",
                  .summary = summary_of(errors)};
  results.tables.push_back(errors);
  if (Table slopes = slope_table(errors); !slopes.rows.empty()) results.tables.push_back(slopes);
  if (!inverse.steps.rows.empty()) {
    add_chart(inverse.steps, "Residual of the pseudo-inverse by iteration", "iteration", "residual",
              source_series(run != nullptr), false, true);
    add_chart(inverse.steps, "Error of nystrom's result by iteration", "iteration", "output",
              source_series(run != nullptr), false, true);
    results.tables.push_back(inverse.steps);
    results.tables.push_back(inverse.facts);
  }
  return results;
}

}  // namespace longhand::train::analyse
