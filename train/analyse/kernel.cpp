// Implements longhand analyse kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {
namespace {

namespace analysis = attention::analysis;
using analysis::KernelError;

struct Found {
  const Source* source;
  KernelError error;
};

/// The queries or keys of a head times D^(-1/4), (N, D).
Tensor points_of(const analysis::HeadInputs& head, bool keys) {
  Tensor points = (keys ? head.k : head.q).select(2, 0).select(0, 0).contiguous().clone();
  const double scale = std::pow(static_cast<double>(head.dim()), -0.25);
  double* const x = points.data<double>();
  for (int64_t i = 0; i < points.numel(); ++i) x[i] *= scale;
  return points;
}

std::vector<analysis::Kernel> kernels_of(const std::string& name) {
  check<ConfigError>(name == "both" || name == "softmax" || name == "gaussian", "--kernel ", name,
                     ": expected softmax, gaussian or both");
  std::vector<analysis::Kernel> out;
  for (const analysis::Kernel kernel : {analysis::Kernel::softmax, analysis::Kernel::gaussian})
    if (name == "both" || name == analysis::name_of(kernel)) out.push_back(kernel);
  return out;
}

Table slope_table(const std::vector<Found>& all) {
  Table table{
      "slopes", "Exponents of rms errors against m: error ~ m^exponent",
      "-0.5 for random features, by the closed form. Heavy-tailed estimators (positive "
      "features at large norms) approach it slowly. Landmarks decrease as the spectrum does."};
  for (const auto& curve : in_groups(all, [](const Found& f) {
         return std::tuple(f.source, f.error.kernel, f.error.method, f.error.draw);
       })) {
    std::vector<double> sizes, errors;
    for (const Found* const each : curve)
      if (each->error.rms > 1e-12) {
        sizes.push_back(static_cast<double>(each->error.size));
        errors.push_back(each->error.rms);
      }
    if (sizes.size() < 3) continue;
    const KernelError& first = curve[0]->error;
    add_row(table, {source_fields(*curve[0]->source),
                    {"kernel", analysis::name_of(first.kernel)},
                    {"method", first.method},
                    {"rows", first.draw},
                    {"exponent", estimate_of(fit_power(sizes, errors), sizes.size()), "exponent"},
                    {"theory", first.draw.empty() ? Cell() : Cell(-0.5)}});
  }
  return table;
}

}  // namespace

void check_kernel(const KernelOptions& options) { kernels_of(options.kernel); }

Results kernel(const KernelOptions& a, const LoadedRun* run, const OnProgress& on_progress) {
  const std::vector<analysis::Kernel> kernels = kernels_of(a.kernel);
  SourceOptions one = a;
  one.count = 1;  // repetitions are draws of the approximation, not of the points
  const std::vector<Source> all = sources(one, run, {128}, {1, 2});
  analysis::KernelOptions options = a.kernels;
  options.seed = a.seed;
  Table table{
      "kernel", "Approximations of kernel matrices: error against rows of W, or landmarks, m",
      "|K̂ - K| / |K| (Frobenius norms). expected: for random features the closed form of the rms "
      "error of independent rows, (Σ variance / m)^(1/2) / |K|; for landmarks the least error of "
      "any matrix of rank m. ratio: squared errors relative to it; 1 for iid rows, below 1 where "
      "orthogonal rows help. least eigenvalue: of K̂ relative to the largest of K; both methods "
      "are positive semi-definite, so it is 0 but for rounding. ensemble: the mean of several "
      "matrices of this size; single: one matrix of as many rows or landmarks together. A mean of "
      "random features is as good as one large draw, a mean of Nyström matrices is not: averaging "
      "removes variance, but not the error that all have in common."};
  std::vector<Found> found;
  int64_t done = 0;
  double worst = 0, least = 0;
  for (const Source& source : all)
    for (const analysis::Kernel each : kernels) {
      on_progress(done++, static_cast<int64_t>(all.size() * kernels.size()),
                  fmt::format("{}, {} tokens", analysis::name_of(each), source.length));
      for (const KernelError& e :
           analysis::kernel_errors(points_of(source.heads[0], a.keys), each, options)) {
        found.push_back({&source, e});
        add_row(table, {source_fields(source),
                        {"kernel", analysis::name_of(each)},
                        {"method", e.method},
                        {"rows", e.draw},
                        {"m", e.size},
                        {"features", e.features},
                        {"draws", e.draws},
                        {"error", e.error, "error"},
                        {"rms", e.rms, "rms", 3},
                        {"expected", e.expected, "expected", 3},
                        {"ratio", e.ratio, "ratio"},
                        {"least_eigenvalue", e.least_eigenvalue, "least eigenvalue", 2},
                        {"ensemble", e.ensemble, "of"},
                        {"ensemble_error", e.ensemble_error, "ensemble"},
                        {"single_error", e.single_error, "single"}});
        least = std::min(least, e.least_eigenvalue);
        if (e.draw == "iid") worst = std::max(worst, std::abs(e.ratio.mean - 1));
      }
    }
  auto series = source_series(run != nullptr);
  series.insert(series.begin(), {"kernel", "method", "rows"});
  add_chart(table, "Error of kernel matrices", "m", "error", series, true, true);
  table.charts.back().theory = "expected";
  Results results{
      .title = run ? "Kernels on " + run->source.checkpoint : "Kernels on random points",
      .summary = fmt::format(
          "Squared errors of independent rows are within {:.0f} % of their closed form; "
          "the smallest eigenvalue of any approximation is {} of the largest of K.",
          100 * worst, to_text(least, 3))};
  results.tables = {table};
  if (Table slopes = slope_table(found); !slopes.rows.empty()) results.tables.push_back(slopes);
  return results;
}

}  // namespace longhand::train::analyse
