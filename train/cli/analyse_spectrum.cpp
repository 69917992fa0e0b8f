// longhand analyse spectrum: how many singular values of attention's weights matter.
#include <fmt/format.h>

#include <map>
#include <optional>

#include "longhand/attention/analysis/spectrum.h"
#include "longhand/train/cli/analyse.h"

namespace longhand::cli {
namespace {

namespace analysis = attention::analysis;
using train::Table;

int analyse(const SourceArguments& a) {
  std::optional<LoadedRun> run;
  if (!a.run.empty()) run = load_run(a);
  const bool of_run = run.has_value();
  const std::vector<Source> all =
      sources(a, of_run ? &*run : nullptr, {32, 64, 128, 256, 512}, {1, 4});
  Table ranks{"ranks", "Effective rank of attention's weights P against length",
              "rank 90 %: the singular values that hold 90 % of Σ σ, or of Σ σ² (the squared "
              "Frobenius norm). entropy: e^H of σ / Σ σ. share: of the length, for Σ σ. Means over "
              "the sequences with 95 % intervals.",
              source_columns()};
  add_estimate(ranks.columns, "rank90", "rank 90 % σ");
  add_estimate(ranks.columns, "rank90_squared", "rank 90 % σ²");
  add_estimate(ranks.columns, "entropy_rank", "entropy rank");
  ranks.columns.push_back({"share", "share", 3});
  const auto without_length =
      of_run ? std::vector<std::string>{"layer", "head"} : std::vector<std::string>{"norm"};
  for (const auto& [y, title] : {std::pair("rank90", "Singular values that hold 90 % of Σ σ"),
                                 {"entropy_rank", "Entropy rank"}})
    ranks.charts.push_back({std::string(title) + " against length", "length", y, without_length,
                            std::string(y) + "_low", std::string(y) + "_high", true, true});
  Table spectrum{"spectrum", "Singular values of P and their cumulative energy",
                 "value: σ_i / σ_1. energy: Σ of the first i over Σ of all, of σ as in figure 1 of "
                 "Linformer, and of σ².",
                 source_columns()};
  spectrum.columns.push_back({"index", ""});
  add_estimate(spectrum.columns, "value", "σ_i / σ_1");
  add_estimate(spectrum.columns, "energy", "energy of σ");
  add_estimate(spectrum.columns, "energy_squared", "energy of σ²");
  spectrum.charts.push_back({"Cumulative energy of singular values (Linformer, figure 1)", "index",
                             "energy", source_series(of_run), "energy_low", "energy_high"});
  spectrum.charts.push_back({"Singular values", "index", "value", source_series(of_run),
                             "value_low", "value_high", false, true});
  Progress progress(a.progress(), "analyse spectrum", 2);
  double share = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Source& source = all[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(all.size()),
                    fmt::format("{} tokens", source.length));
    const analysis::Spectrum s = analysis::spectra(source.heads, source.causal)[0];
    auto& row = ranks.rows.emplace_back(source_cells(source));
    for (const Estimate* const each : {&s.rank90, &s.rank90_squared, &s.entropy_rank})
      add_estimate(row, *each);
    share = s.rank90.mean / static_cast<double>(source.length);
    row.emplace_back(share);
    // At most 128 points a curve.
    const size_t step = (s.points.size() + 127) / 128;
    for (size_t p = 0; p < s.points.size(); p += p < 16 ? 1 : step) {
      auto& point = spectrum.rows.emplace_back(source_cells(source));
      point.emplace_back(s.points[p].index);
      for (const Estimate* const each :
           {&s.points[p].value, &s.points[p].energy, &s.points[p].energy_squared})
        add_estimate(point, *each);
    }
  }
  progress.clear();
  train::Results results = new_results(
      of_run ? "Spectra of attention in " + run->file : "Spectra of attention on random inputs",
      fmt::format("At {} tokens, {:.0f} % of the singular values hold 90 % of their sum "
                  "(last group).",
                  all.back().length, 100 * share));
  results.tables = {ranks, spectrum};
  return finish(a, results, {.hidden = {"spectrum"}});
}

}  // namespace

void add_analyse_spectrum(Command& group) {
  const auto a = std::make_shared<SourceArguments>();
  Command c = group.command(
      "spectrum",
      "Singular values of attention's weights by layer and head; effective rank by length",
      [a] { return analyse(*a); });
  add_source(c, *a, "32 to 512, as far as the sequences are that long", "1,4");
  add_common(c, *a);
}

}  // namespace longhand::cli
