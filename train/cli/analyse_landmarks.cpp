// longhand analyse landmarks: approximations from a random subset of tokens, against its size.
#include <fmt/format.h>

#include "longhand/attention/analysis/landmarks.h"
#include "longhand/train/cli/analyse.h"

namespace longhand::cli {
namespace {

namespace analysis = attention::analysis;
using train::Table;

struct Arguments : ResultsArguments {
  analysis::LandmarkOptions options;
};

int analyse(const Arguments& a) {
  analysis::LandmarkOptions options = a.options;
  options.seed = seed_or_default(a);
  const auto found = [&] {
    const Waiting waiting(a.progress(), "analyse landmarks");
    return analysis::landmark_errors(options);
  }();
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
      {{"kernel", ""}, {"landmarks", ""}}};
  add_estimate(table.columns, "mean", "mean");
  for (const auto& [name, heading] :
       {std::pair("q10", "10 %"), {"median", "median"}, {"q90", "90 %"}, {"exact", "exact draws"}})
    table.columns.push_back({name, heading, 3});
  table.charts.push_back(
      {"Error against landmarks", "landmarks", "median", {"kernel"}, "q10", "q90", false, true});
  int64_t exact_from = 0;
  for (const analysis::LandmarkError& e : found) {
    auto& row = table.rows.emplace_back();
    row.emplace_back(analysis::name_of(e.target));
    row.emplace_back(e.landmarks);
    add_estimate(row, e.mean);
    for (const double each : {e.low, e.median, e.high, e.exact}) row.emplace_back(each);
    if (e.target == analysis::LandmarkTarget::linear && e.exact == 1 && exact_from == 0)
      exact_from = e.landmarks;
  }
  train::Results results =
      new_results("Landmarks on linear and softmax kernels",
                  exact_from ? fmt::format("The linear kernel is exact in all {} draws from {} "
                                           "landmarks on (D = {}).",
                                           options.draws, exact_from, options.dim)
                             : "The linear kernel needs more landmarks than these to be exact.");
  results.tables = {table};
  return finish(a, results);
}

}  // namespace

void add_analyse_landmarks(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("landmarks",
                            "Error against random landmarks, on the linear kernel and on softmax",
                            [a] { return analyse(*a); });
  c.add("--tokens", a->options.tokens, "N", "Tokens [50]").positive();
  c.add("--head-dim", a->options.dim, "D", "Head dimension [10]").positive();
  c.add("--landmarks", a->options.landmarks, "M,...", "Numbers of landmarks [1 to 2 D]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->options.draws, "N", "Draws of queries, keys and landmarks [200]").positive();
  c.add("--norm", a->options.norm, "X", "Root mean square norm of queries and keys [sqrt(D)]")
      .not_negative();
  add_common(c, *a);
}

}  // namespace longhand::cli
