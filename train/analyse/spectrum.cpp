// Implements longhand analyse spectrum.
#include <fmt/format.h>

#include "longhand/attention/analysis/spectrum.h"
#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {

namespace analysis = attention::analysis;

Results spectrum(const SourceOptions& options, const LoadedRun* run,
                 const OnProgress& on_progress) {
  const bool of_run = run != nullptr;
  const std::vector<Source> all = sources(options, run, {32, 64, 128, 256, 512}, {1, 4});
  Table ranks{"ranks", "Effective rank of attention's weights P against length",
              "rank 90 %: the singular values that hold 90 % of Σ σ, or of Σ σ² (the squared "
              "Frobenius norm). entropy: e^H of σ / Σ σ. share: of the length, for Σ σ. Means over "
              "the sequences with 95 % intervals."};
  Table values{"spectrum", "Singular values of P and their cumulative energy",
               "value: σ_i / σ_1. energy: Σ of the first i over Σ of all, of σ as in figure 1 of "
               "Linformer, and of σ²."};
  double share = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Source& source = all[i];
    on_progress(static_cast<int64_t>(i), static_cast<int64_t>(all.size()),
                fmt::format("{} tokens", source.length));
    const analysis::Spectrum s = analysis::spectrum(source.heads, source.causal);
    share = s.rank90.mean / static_cast<double>(source.length);
    add_row(ranks, {source_fields(source),
                    {"rank90", s.rank90, "rank 90 % σ"},
                    {"rank90_squared", s.rank90_squared, "rank 90 % σ²"},
                    {"entropy_rank", s.entropy_rank, "entropy rank"},
                    {"share", share, "share", 3}});
    // At most 128 points per curve.
    const size_t step = (s.points.size() + 127) / 128;
    for (size_t p = 0; p < s.points.size(); p += p < 16 ? 1 : step)
      add_row(values, {source_fields(source),
                       {"index", s.points[p].index},
                       {"value", s.points[p].value, "σ_i / σ_1"},
                       {"energy", s.points[p].energy, "energy of σ"},
                       {"energy_squared", s.points[p].energy_squared, "energy of σ²"}});
  }
  const auto without_length =
      of_run ? std::vector<std::string>{"layer", "head"} : std::vector<std::string>{"norm"};
  add_chart(ranks, "Singular values that hold 90 % of Σ σ against length", "length", "rank90",
            without_length, true, true);
  add_chart(ranks, "Entropy rank against length", "length", "entropy_rank", without_length, true,
            true);
  add_chart(values, "Cumulative energy of singular values (Linformer, figure 1)", "index", "energy",
            source_series(of_run));
  add_chart(values, "Singular values", "index", "value", source_series(of_run), false, true);
  return {
      .title = of_run ? "Spectra of attention in " + run->source.checkpoint
                      : "Spectra of attention on random inputs",
      .summary = fmt::format("At {} tokens, {:.0f} % of the singular values hold 90 % of their sum "
                             "(last group).",
                             all.back().length, 100 * share),
      .tables = {ranks, values}};
}

}  // namespace longhand::train::analyse
