// Implements longhand analyse landmarks.
#include <fmt/format.h>

#include <algorithm>

#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {

namespace analysis = longhand::attention::analysis;

Results landmarks(const LandmarksOptions& given, const LoadedRun* run) {
  analysis::LandmarkOptions options = given.landmarks;
  std::vector<Source> heads(1);
  if (run) {
    SourceOptions of_run{.count = given.count};
    if (given.length > 0) of_run.length = {given.length};
    heads = sources(of_run, run, {256}, {});
    options.tokens = heads[0].length;
    options.dim = heads[0].heads[0].dim();
    if (options.landmarks.empty())  // powers of 2: runs have many heads
      for (int64_t m = 1; m <= std::min(options.tokens, 2 * options.dim); m *= 2)
        options.landmarks.push_back(m);
  }
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
      "where W is close to singular: compare medians."};
  if (run)
    table.note += " Queries and keys are those of the run; S has no mask, also of causal models.";
  int64_t exact_from = 0;  // of all heads
  for (const Source& source : heads) {
    int64_t from = 0;
    for (const analysis::LandmarkError& e : analysis::landmark_errors(options, source.heads)) {
      add_row(table, {run ? RowField{"layer", source.layer} : RowField{},
                      run ? RowField{"head", source.head} : RowField{},
                      {"kernel", analysis::name_of(e.target)},
                      {"landmarks", e.landmarks},
                      {"mean", e.mean, "mean"},
                      {"q10", e.low, "10 %", 3},
                      {"median", e.median, "median", 3},
                      {"q90", e.high, "90 %", 3},
                      {"exact", e.exact, "exact draws", 3}});
      if (e.target == analysis::LandmarkTarget::linear && e.exact == 1 && from == 0)
        from = e.landmarks;
    }
    if (from == 0) from = options.tokens + 1;
    exact_from = std::max(exact_from, from);
  }
  std::vector<std::string> series = {"kernel"};
  if (run) series.insert(series.begin(), {"layer", "head"});
  table.charts.push_back(
      {"Error against landmarks", "landmarks", "median", series, "q10", "q90", false, true});
  return {.title = "Landmarks on linear and softmax kernels",
          .summary = exact_from <= options.tokens
                         ? fmt::format("The linear kernel is exact in all {} draws from {} "
                                       "landmarks on (D = {}).",
                                       options.draws, exact_from, options.dim)
                         : "The linear kernel needs more landmarks than these to be exact.",
          .tables = {table}};
}

}  // namespace longhand::train::analyse
