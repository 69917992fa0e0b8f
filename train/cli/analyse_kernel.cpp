// longhand analyse kernel: kernels by random features and by landmarks, next to theory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "longhand/attention/analysis/kernel.h"
#include "longhand/train/cli/analyse.h"

namespace longhand::cli {
namespace {

namespace analysis = attention::analysis;
using analysis::KernelError;
using train::Table;

struct Arguments : SourceArguments {
  std::string kernel = "both";
  analysis::KernelOptions options{.sizes = {8, 16, 32, 64}};
  bool keys = false;
};

/// The queries or keys of a head times D^(-1/4), (N, D).
Tensor points_of(const attention::analysis::HeadInputs& head, bool keys) {
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

Table kernel_table(bool of_run) {
  Table table{
      "kernel", "Approximations of kernel matrices: error against rows of W, or landmarks, m",
      "|K̂ - K| / |K| (Frobenius norms). expected: for random features the closed form of the rms "
      "error of independent rows, (Σ variance / m)^(1/2) / |K|; for landmarks the least error of "
      "any matrix of rank m. ratio: squared errors relative to it; 1 for iid rows, below 1 where "
      "orthogonal rows help. least eigenvalue: of K̂ relative to the largest of K; both methods "
      "are positive semi-definite, so it is 0 but for rounding. ensemble: the mean of several "
      "matrices of this size; single: one matrix of as many rows or landmarks together. A mean of "
      "random features is as good as one large draw, a mean of Nyström matrices is not: averaging "
      "removes variance, but not the error that all have in common.",
      source_columns()};
  for (const char* const name : {"kernel", "method", "rows", "m", "features", "draws"})
    table.columns.push_back({name, ""});
  add_estimate(table.columns, "error", "error");
  table.columns.push_back({"rms", "rms", 3});
  table.columns.push_back({"expected", "expected", 3});
  add_estimate(table.columns, "ratio", "ratio");
  table.columns.push_back({"least_eigenvalue", "least eigenvalue", 2});
  table.columns.push_back({"ensemble", "of"});
  add_estimate(table.columns, "ensemble_error", "ensemble");
  add_estimate(table.columns, "single_error", "single");
  auto series = source_series(of_run);
  series.insert(series.begin(), {"kernel", "method", "rows"});
  table.charts.push_back({.title = "Error of kernel matrices",
                          .x = "m",
                          .y = "error",
                          .series = series,
                          .low = "error_low",
                          .high = "error_high",
                          .log_x = true,
                          .log_y = true,
                          .theory = "expected"});
  return table;
}

Table slope_table(const std::vector<std::pair<const Source*, KernelError>>& all) {
  Table table{
      "slopes", "Exponents of rms errors against m: error ~ m^exponent",
      "-0.5 for random features, by the closed form. Heavy-tailed estimators (positive "
      "features at large norms) approach it slowly. Landmarks decrease as the spectrum does.",
      source_columns()};
  for (const char* const name : {"kernel", "method", "rows"}) table.columns.push_back({name, ""});
  add_estimate(table.columns, "exponent", "exponent");
  table.columns.push_back({"theory", ""});
  std::map<std::pair<const Source*, std::string>, std::vector<const KernelError*>> curves;
  std::vector<std::pair<const Source*, std::string>> order;
  for (const auto& [source, e] : all) {
    const std::pair key(source, analysis::name_of(e.kernel) + e.method + e.draw);
    if (!curves.contains(key)) order.push_back(key);
    curves[key].push_back(&e);
  }
  for (const auto& key : order) {
    std::vector<double> sizes, errors;
    for (const KernelError* const e : curves[key])
      if (e->rms > 1e-12) {
        sizes.push_back(static_cast<double>(e->size));
        errors.push_back(e->rms);
      }
    if (sizes.size() < 3) continue;
    const Line line = fit_power(sizes, errors);
    const KernelError& first = *curves[key][0];
    auto& row = table.rows.emplace_back(source_cells(*key.first));
    row.insert(row.end(), {analysis::name_of(first.kernel), first.method, first.draw});
    add_estimate(row, {line.slope, line.low, line.high, static_cast<int64_t>(sizes.size())});
    row.push_back(first.draw.empty() ? train::Cell() : train::Cell(-0.5));
  }
  return table;
}

int analyse(const Arguments& a) {
  const std::vector<analysis::Kernel> kernels = kernels_of(a.kernel);
  std::optional<LoadedRun> run;
  if (!a.run.empty()) run = load_run(a);
  SourceArguments one = a;
  one.count = 1;  // repetitions are draws of the approximation, not of the points
  const std::vector<Source> all = sources(one, run ? &*run : nullptr, {128}, {1, 2});
  analysis::KernelOptions options = a.options;
  options.seed = seed_or_default(a);
  Table table = kernel_table(run.has_value());
  std::vector<std::pair<const Source*, KernelError>> found;
  Progress progress(a.progress(), "analyse kernel", 2);
  int64_t done = 0;
  double worst = 0, least = 0;
  for (const Source& source : all)
    for (const analysis::Kernel kernel : kernels) {
      progress.update(done++, static_cast<int64_t>(all.size() * kernels.size()),
                      fmt::format("{}, {} tokens", analysis::name_of(kernel), source.length));
      for (const KernelError& e :
           analysis::kernel_errors(points_of(source.heads[0], a.keys), kernel, options)) {
        found.emplace_back(&source, e);
        auto& row = table.rows.emplace_back(source_cells(source));
        row.insert(row.end(),
                   {analysis::name_of(kernel), e.method, e.draw, e.size, e.features, e.draws});
        add_estimate(row, e.error);
        row.insert(row.end(), {e.rms, e.expected});
        add_estimate(row, e.ratio);
        row.insert(row.end(), {e.least_eigenvalue, e.ensemble});
        add_estimate(row, e.ensemble_error);
        add_estimate(row, e.single_error);
        least = std::min(least, e.least_eigenvalue);
        if (e.draw == "iid") worst = std::max(worst, std::abs(e.ratio.mean - 1));
      }
    }
  progress.clear();
  train::Results results = new_results(
      run ? "Kernels on " + run->file : "Kernels on random points",
      fmt::format("Squared errors of independent rows are within {:.0f} % of their closed form; "
                  "the smallest eigenvalue of any approximation is {} of the largest of K.",
                  100 * worst, short_text(least)));
  results.tables = {table};
  if (Table slopes = slope_table(found); !slopes.rows.empty()) results.tables.push_back(slopes);
  return finish(a, results);
}

}  // namespace

void add_analyse_kernel(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "kernel", "Softmax and Gaussian kernels by random features and by landmarks, next to theory",
      [a] { return analyse(*a); });
  c.add("--kernel", a->kernel, "NAME", "softmax, gaussian or both [both]");
  c.add("--sizes", a->options.sizes, "M,...", "Rows of W, and landmarks [8,16,32,64]")
      .separated_by_commas()
      .positive();
  c.add("--draws", a->options.draws, "N", "Repetitions of each measurement [16]").positive();
  c.add("--ensemble", a->options.ensemble, "N", "Matrices that are averaged [4]").positive();
  c.flag("--keys", a->keys, "Take keys for points, not queries");
  add_source(c, *a, "128", "1,2");
  add_common(c, *a);
}

}  // namespace longhand::cli
