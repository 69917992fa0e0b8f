// What longhand analyse landmarks computes.
#include <fmt/format.h>

#include "longhand/train/analyse/analyse.h"
#include "longhand/train/results/rows.h"

namespace longhand::train::analyse {

namespace analysis = longhand::attention::analysis;

Results landmarks(const analysis::LandmarkOptions& options) {
  const auto found = analysis::landmark_errors(options);
  Table table{
      "landmarks",
      fmt::format("Error against the number of landmarks: {} tokens, D = {}, {} draws",
                  options.tokens, options.dim, options.draws),
      "Relative error |S - C W⁺ R| / |S| (Frobenius norms), C, R and W being the columns, the rows "
      "and the block of S at random tokens. linear: S = Q Kᵀ has rank D, because Q and K have D "
      "columns. A block of m >= D random tokens has the same rank, and then C W⁺ R = S: D "
      "landmarks are exact, whatever the number of tokens. That says nothing about attention: exp "
      "and softmax make S of full rank, and only m = N landmarks are exact. nystrom: softmax(Q "
      "K̃ᵀ) softmax(Q̃ K̃ᵀ)⁺ softmax(Q̃ Kᵀ), each with its own normaliser. Errors have long tails "
      "where W is close to singular: compare medians.",
      {}};
  int64_t exact_from = 0;
  for (const analysis::LandmarkError& e : found) {
    add_row(table, {},
            {{"kernel", analysis::name_of(e.target)},
             {"landmarks", e.landmarks},
             {"mean", e.mean, "mean"},
             {"q10", e.low, "10 %", 3},
             {"median", e.median, "median", 3},
             {"q90", e.high, "90 %", 3},
             {"exact", e.exact, "exact draws", 3}});
    if (e.target == analysis::LandmarkTarget::linear && e.exact == 1 && exact_from == 0)
      exact_from = e.landmarks;
  }
  table.charts.push_back(
      {"Error against landmarks", "landmarks", "median", {"kernel"}, "q10", "q90", false, true});
  Results results{
      .title = "Landmarks on linear and softmax kernels",
      .summary = exact_from ? fmt::format("The linear kernel is exact in all {} draws from {} "
                                          "landmarks on (D = {}).",
                                          options.draws, exact_from, options.dim)
                            : "The linear kernel needs more landmarks than these to be exact."};
  results.tables = {table};
  return results;
}

}  // namespace longhand::train::analyse
