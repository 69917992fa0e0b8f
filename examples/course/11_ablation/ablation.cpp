// Chapter 11: intervals of few seeds, paired differences, windows of learning rates, and shortcuts.
#include <cmath>
#include <cstdio>

#include "longhand/core/random.h"
#include "longhand/core/statistics.h"
#include "longhand/data/heuristics.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/search.h"

using namespace longhand;
using namespace longhand::train;

// How many of 5,000 intervals contain the true mean, of normal accuracies and of seeds that solve a task or not.
void coverage() {
  std::puts("seeds  t     1.96  t, solved or not  Wilson");
  RandomStream random{Generator(11)};
  for (size_t n = 2; n <= 9; ++n) {
    std::vector<double> normal(n), bimodal(n), hits(4);
    for (int run = 0; run < 5000; ++run) {
      double solved = 0;
      for (size_t i = 0; i < n; ++i) {
        bimodal[i] = (random.uniform() < 0.7 ? 0.95 : 0.25) + 0.02 * random.normal();
        solved += bimodal[i] > 0.6;
        normal[i] = 0.8 + 0.02 * random.normal();
      }
      const Estimate a = estimate(normal), b = estimate(bimodal);
      const Estimate w = proportion(solved, int64_t(n));
      const double t = std::abs(a.mean - 0.8) / (a.high - a.mean);
      hits[0] += t <= 1;
      hits[1] += t <= 1.96 / student_quantile(0.975, double(n - 1));
      hits[2] += b.low <= 0.74 && 0.74 <= b.high;
      hits[3] += w.low <= 0.7 && 0.7 <= w.high;
    }
    for (double& hit : hits) hit /= 5000;
    std::printf("%-5d  %4.2f  %4.2f  %16.2f  %6.2f\n", int(n), hits[0], hits[1], hits[2], hits[3]);
  }
}

// Two variants with the same seeds, and so with the same data: what is hard for one is hard for the other.
void pairs() {
  RandomStream random{Generator(12)};
  std::vector<double> a, b;
  std::puts("\nseed  a      b      b - a");
  for (int seed = 0; seed < 5; ++seed) {
    const double shared = 0.8 + 0.05 * random.normal();
    a.push_back(shared + 0.01 * random.normal());
    b.push_back(shared + 0.03 + 0.01 * random.normal());
    std::printf("%-4d  %.3f  %.3f  %.3f\n", seed, a.back(), b.back(), b.back() - a.back());
  }
  const Estimate of_a = estimate(a), of_b = estimate(b), d = paired_test(b, a).difference;
  const double half = std::hypot(of_a.high - of_a.mean, of_b.high - of_b.mean) *
                      student_quantile(0.975, 8) / student_quantile(0.975, 4);
  std::printf("mean  %.3f  %.3f  %.3f\nas two groups: %.3f to %.3f; paired: %.3f to %.3f\n",
              of_a.mean, of_b.mean, d.mean, d.mean - half, d.mean + half, d.low, d.high);
}

// A search in which a formula stands for training: accuracies are bells over the logarithm of the rate.
void windows() {
  const char* const text = R"(
    axis = [{ attention.type = ["softmax", "linear"] }]
    search = { optimizer.lr = [0.001, 0.002, 0.004, 0.008], extend = 3 }
    data = { task = "copy", length = 8, count = 3 })";
  const Sweep sweep = Sweep::parse(text, "chapter 11");
  const Grid grid = expand(sweep);
  CellStates states;
  for (const SweepCell& cell : grid.cells) states[cell.hash];
  const auto rate = [&](size_t trial) { return std::stod(grid.trials[trial].substr(3)); };
  const auto accuracy = [](size_t variant, double lr) {
    const double z = std::log10(lr / (variant ? 0.016 : 0.002)) / (variant ? 2 : 1);
    return (variant ? 0.97 : 0.94) * std::exp(-z * z);
  };
  SearchState found[2];
  for (size_t v = 0; v < 2; ++v)
    while (!(found[v] = search_state(grid, v, states)).best)
      for (const CellTask& task : found[v].tasks) {
        states[task.cell->hash].summary.emplace().status = "finished";
        states[task.cell->hash].validation.emplace().accuracy = accuracy(v, rate(task.cell->trial));
      }
  std::puts("\nlearning rate  softmax  linear");
  for (size_t trial = 0; trial < grid.trials.size(); ++trial) {
    const auto a = found[0].trials[trial].metric, b = found[1].trials[trial].metric;
    std::printf("%-13g", rate(trial));
    a ? std::printf("  %7.2f", *a) : std::printf("  %7s", "-");
    b ? std::printf("  %6.2f\n", *b) : std::printf("  %6s\n", "-");
  }
  const int64_t a = *window_of(sweep, found[0]), b = *window_of(sweep, found[1]);
  std::printf("window         %7d  %6d\n", int(a), int(b));
}

int main() {
  coverage(), pairs(), windows();
  const char* const mqar = "data = { task = \"mqar\", length = 16, pairs = 2, vocabulary = 32 }";
  const data::Task task = read_task(Config::parse(mqar, "chapter 11"));
  std::puts("\nshortcut       accuracy  interval");
  for (const auto& h : data::heuristics(task, {.train_limit = 1000, .limit = 1000})) {
    const Estimate e = h.accuracies.all.value();
    std::printf("%-13s  %-8.2f  %.2f to %.2f\n", h.name.c_str(), e.mean, e.low, e.high);
  }
}
