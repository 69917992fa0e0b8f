// Implements longhand analyse error.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/registry.h"
#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {
namespace {

namespace analysis = attention::analysis;
using analysis::Candidate;
using analysis::VariantError;

/// The errors of a variant on a source.
struct Found {
  const Source* source;
  std::string variant, options;
  int64_t size;  // 0: none
  VariantError error;
};

/// The option that sets its size; the rank of lowrank is treated like other options here.
std::string size_of(const Candidate& candidate) {
  return candidate.variant == "lowrank" ? "" : size_option(candidate.variant);
}

/// "kernel=hyperbolic", without the size.
std::string options_text(const Candidate& candidate) {
  std::string text;
  for (const auto& [key, value] : candidate.options) {
    if (key == size_of(candidate)) continue;
    const auto* const word = std::get_if<std::string>(&value);
    text += concat_message(text.empty() ? "" : " ", key, "=", word ? *word : to_string(value));
  }
  return text;
}

std::vector<Candidate> candidates_of(const ErrorOptions& a, const Source& source) {
  std::vector<Candidate> out;
  for (const std::string& text : a.attention) {
    Candidate& candidate = out.emplace_back(candidate_of(text));
    for (const auto& [key, value] : candidate.options)
      if (const auto* const size = std::get_if<int64_t>(&value); size && key == size_of(candidate))
        candidate.size = *size;
  }
  if (!out.empty()) return out;
  const auto add = [&](const std::string& variant, attention::OptionSet options, int64_t size) {
    const attention::Capabilities can = attention::capabilities(variant);
    if (source.causal ? can.causal : !can.causal_only)
      out.push_back({variant, std::move(options), size});
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

Table error_table(const std::vector<Found>& all) {
  Table table{
      "errors", "Relative errors against exact softmax attention",
      "|approximate - exact| / |exact| (Frobenius norms) of the result, the N x N weights and "
      "the gradients of a random linear function of the result; means over the inputs with "
      "95 % intervals. uniform: equal weights for all visible keys, the error of an "
      "approximation that has learned nothing of q and k. svd floor: the least error of "
      "weights of the variant's rank. bias², variance: parts of the squared error of the "
      "result over draws of the variant's random numbers."};
  for (const auto& [source, variant, options, size, e] : all) {
    const bool drawn = e.draws > 1;
    add_row(table, {source_fields(*source),
                    {"variant", variant},
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
  return table;
}

/// How errors decrease with size, compared with the expectation for random features.
Table slope_table(const std::vector<Found>& all) {
  Table table{
      "slopes", "Exponents of errors against size: error ~ size^exponent",
      "Least squares of logarithms. Errors of random features decrease as size^-0.5 once they "
      "are well below that of uniform attention; at larger norms more features are needed "
      "before they do."};
  for (const auto& curve : in_groups(all, [](const Found& f) {
         return std::tuple(f.source, f.variant, f.options, f.size > 0);
       })) {
    const Found& first = *curve[0];
    if (first.size == 0 || curve.size() < 3) continue;
    const auto slope = [&](Estimate VariantError::*error) {
      std::vector<double> sizes, values;
      for (const Found* const each : curve)
        if (const double value = (each->error.*error).mean; value > 0 && std::isfinite(value)) {
          sizes.push_back(static_cast<double>(each->size));
          values.push_back(value);
        }
      return sizes.size() < 2 ? Estimate() : estimate_of(fit_power(sizes, values), sizes.size());
    };
    const std::optional<double> rate = attention::spec(first.variant).rate;
    add_row(table, {source_fields(*first.source),
                    {"variant", first.variant},
                    {"options", first.options},
                    {"output", slope(&VariantError::output), "output"},
                    {"weights", slope(&VariantError::weights), "weights"},
                    {"theory", rate ? Cell(*rate) : Cell(), "theory"}});
  }
  return table;
}

struct InverseTables {
  Table steps{
      "inverse", "The iterative pseudo-inverse of nystrom, step by step",
      "residual: |A Z A - A| / |A| for A = softmax of the landmarks' scores; 0 for A⁺. output: "
      "the error of the attention that uses Z. A truncated iteration is a regularised "
      "inverse: its output is often better than that of A⁺."};
  Table facts{
      "inverse_summary", "What the iteration has to invert",
      "condition: log10 of σ_max / σ_min of A. expected steps: until σ_min is inverted, as it "
      "grows 3.25-fold at each step."};

  void add(const Source& source, int64_t landmarks, int64_t most) {
    const analysis::InverseError e = analysis::inverse_errors(source.heads, landmarks, most);
    for (const analysis::InverseStep& step : e.steps)
      add_row(steps, {source_fields(source),
                      {"landmarks", landmarks},
                      {"iteration", step.iteration},
                      {"residual", step.residual, "residual"},
                      {"output", step.output, "output"}});
    add_row(facts, {source_fields(source),
                    {"landmarks", landmarks},
                    {"condition", e.condition, "log10 condition"},
                    {"expected_steps", e.expected_steps, "expected steps"},
                    {"pseudo_inverse", e.pseudo_inverse, "output with A⁺"}});
  }
};

/// The variant with the least error of the result in the last source, and uniform attention's.
std::string summary_of(const std::vector<Found>& all) {
  const Found *best = nullptr, *uniform = nullptr;
  for (const Found& each : all) {
    if (each.variant == "uniform")
      best = nullptr, uniform = &each;
    else if (each.variant != "svd" && (!best || each.error.output.mean < best->error.output.mean))
      best = &each;
  }
  if (!best || !uniform) return "";
  return fmt::format(
      "In the last group, {}{} comes closest to exact attention: an error of {}, where "
      "uniform weights have {}.",
      best->variant, best->size ? fmt::format(" of size {}", best->size) : "",
      to_text(best->error.output.mean, 3), to_text(uniform->error.output.mean, 3));
}

}  // namespace

Results error(const ErrorOptions& a, const LoadedRun* run, const OnProgress& on_progress) {
  const std::vector<Source> all = sources(a, run, {256}, {1, 4});
  std::vector<Found> found;
  InverseTables inverse;
  for (size_t i = 0; i < all.size(); ++i) {
    const Source& source = all[i];
    const std::vector<Candidate> candidates = candidates_of(a, source);
    const std::vector<VariantError> errors =
        analysis::errors(source.heads, candidates,
                         {.causal = source.causal,
                          .draws = a.draws,
                          .seed = a.seed,
                          .on_progress = [&](int64_t done, int64_t parts) {
                            on_progress(static_cast<int64_t>(i) * parts + done,
                                        static_cast<int64_t>(all.size()) * parts,
                                        fmt::format("{} tokens", source.length));
                          }});
    found.push_back({&source, "uniform", "", 0, errors[0]});
    for (size_t c = 0; c < candidates.size(); ++c)
      found.push_back({&source, candidates[c].variant, options_text(candidates[c]),
                       candidates[c].size, errors[c + 1]});
    // The best weights of each rank: the floor of every other row.
    std::vector<int64_t> ranks = a.sizes;
    std::erase_if(ranks, [&](int64_t rank) { return rank >= source.length; });
    for (const VariantError& e : analysis::rank_errors(source.heads, ranks, source.causal))
      found.push_back({&source, "svd", "", e.rank, e});
    if (!source.causal)
      inverse.add(source, std::min(a.landmarks, std::max<int64_t>(1, source.length / 2)), a.steps);
  }
  if (run && run->model().config().attention_name() != "softmax") {
    std::vector<int64_t> lengths;
    for (const Source& source : all)
      if (lengths.empty() || lengths.back() != source.length) lengths.push_back(source.length);
    for (const int64_t length : lengths)
      for (const analysis::LayerInputs& layer : probe_run(*run, a.count, length)) {
        const auto errors = analysis::errors_of_layer(run->model().kernel(layer.layer), layer,
                                                      run->model().config().causal, a.seed);
        for (const Source& source : all)
          if (source.length == length && source.layer == layer.layer)
            found.push_back({&source, layer.variant, "as trained", 0, errors[source.head]});
      }
  }
  Table errors = error_table(found);
  auto series = source_series(run != nullptr);
  series.insert(series.begin(), {"variant", "options"});
  for (const auto& [y, title] :
       {std::pair("output", "Error of the result"), {"weights", "Error of the weights"}})
    add_chart(errors, std::string(title) + " against features, landmarks or slots", "size", y,
              series, true, true);
  Results results{.title = run ? "Errors of approximations on " + run->source.checkpoint
                               : "Errors of approximations on random inputs",
                  .summary = summary_of(found)};
  results.tables.push_back(errors);
  if (Table slopes = slope_table(found); !slopes.rows.empty()) results.tables.push_back(slopes);
  if (!inverse.steps.rows.empty()) {
    const auto by_iteration = [&](const char* title, const char* y) {
      add_chart(inverse.steps, title, "iteration", y, source_series(run != nullptr), false, true);
    };
    by_iteration("Residual of the pseudo-inverse by iteration", "residual");
    by_iteration("Error of nystrom's result by iteration", "output");
    results.tables.push_back(inverse.steps);
    results.tables.push_back(inverse.facts);
  }
  return results;
}

}  // namespace longhand::train::analyse
