// Analyses: what attention and its approximations do, on random inputs or on those of a run. Each returns
// the tables and charts that longhand analyse prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/attention/analysis/kernel.h"
#include "longhand/attention/analysis/landmarks.h"
#include "longhand/data/heuristics.h"
#include "longhand/train/analyse/source.h"
#include "longhand/train/cost/efficiency.h"
#include "longhand/train/results/table.h"

namespace longhand::train::analyse {

/// Called with what is done of all, and what comes next.
using OnProgress = std::function<void(int64_t done, int64_t all, const std::string& next)>;

/// How far variants are from exact attention.
struct ErrorOptions : SourceOptions {
  std::vector<std::string> attention;  // "performer:features=64"; empty: the usual ones
  std::vector<int64_t> sizes{16, 64, 256};
  int64_t draws = 8, landmarks = 64, steps = 20;
};
/// `run`: null for random inputs.
Results error(const ErrorOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// How many singular values of attention's weights matter.
Results spectrum(const SourceOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// Approximations from a random subset of tokens, against its size. Queries and keys are random, or those of
/// `count` sequences of a run, cut to `length` tokens (0: up to 256).
struct LandmarksOptions {
  attention::analysis::LandmarkOptions landmarks;
  int64_t count = 4, length = 0;
};
Results landmarks(const LandmarksOptions& options, const LoadedRun* run);

/// Kernels by random features and by landmarks, next to theory.
struct KernelOptions : SourceOptions {
  std::string kernel = "both";  // "softmax", "gaussian"
  attention::analysis::KernelOptions kernels{.sizes = {8, 16, 32, 64}};
  bool keys = false;  // take keys for points, not queries
};
/// Throws ConfigError for another kernel.
void check_kernel(const KernelOptions& options);
Results kernel(const KernelOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// The weights of a model on one input, by layer and head, or those of variants on a random one.
struct AttentionOptions {
  int64_t index = 0;   // the sequence
  int64_t length = 0;  // its first tokens; 0: all, of a random one 48
  int64_t size = 64;   // longer maps are averaged to so many queries and keys
  std::string split = "test";
  std::vector<std::string> attention{};        // of a random input: variants with options
  attention::analysis::RandomInputs inputs{};  // its norm, width and correlation
  bool causal = false;
  bool state = false;  // what the state after the last token holds of each, by channel; of variants
  uint64_t seed = 0;
};
struct AttentionMaps {
  Results results;
  std::string drawn;  // the maps in five shades
};
/// `run`: null for a random input. Throws ConfigError for a variant whose result is not linear in the values.
AttentionMaps attention(const AttentionOptions& options, const LoadedRun* run,
                        const OnProgress& on_progress);

/// What a task can be answered with without reading it whole; `model` answers, too, unless it is null.
Results heuristics(data::HeuristicOptions options, const data::Task& task, Experiment* model,
                   const OnProgress& on_progress);

/// Measured time and memory against length and size.
struct EfficiencyOptions {
  std::string what = "attention", model = "L";
  std::vector<std::string> attention{"linformer", "nystrom", "performer", "linear"};
  std::vector<int64_t> sizes{32, 64, 128, 256}, length{512, 1024, 2048, 4096};
  bool naive = false;  // softmax keeps its weights
};
/// A measurement. `option` sets the size of the variant; empty: it has none.
struct PlannedCost {
  std::string attention, option;
  int64_t size, length;
};
std::vector<PlannedCost> planned_costs(const EfficiencyOptions& options);
Results efficiency(const EfficiencyOptions& options, const std::vector<Cost>& costs);

}  // namespace longhand::train::analyse
