// Analyses of attention and its approximations on random inputs or on the inputs of a run. Each
// returns the tables and charts that longhand analyse prints.
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

/// Called with the number of parts done, of all parts, and the name of the next one.
using OnProgress = std::function<void(int64_t done, int64_t all, const std::string& next)>;

/// How far variants are from exact attention.
struct ErrorOptions : SourceOptions {
  std::vector<std::string> attention;  // "performer:features=64"; empty: the defaults
  std::vector<int64_t> sizes{16, 64, 256};
  int64_t draws = 8, landmarks = 64, steps = 20;
};
/// `run`: null for random inputs.
Results error(const ErrorOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// How many singular values of attention's weights matter.
Results spectrum(const SourceOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// Approximations from a random subset of tokens, by its size. Queries and keys are random, or come
/// from `count` sequences of a run, cut to `length` tokens (0: up to 256).
struct LandmarksOptions {
  attention::analysis::LandmarkOptions landmarks;
  int64_t count = 4, length = 0;
};
Results landmarks(const LandmarksOptions& options, const LoadedRun* run);

/// Kernel approximations by random features and by landmarks, compared with theory.
struct KernelOptions : SourceOptions {
  std::string kernel = "both";  // "softmax", "gaussian"
  attention::analysis::KernelOptions kernels{.sizes = {8, 16, 32, 64}};
  bool keys = false;  // points are keys, not queries
};
/// Throws ConfigError for any other kernel.
void check_kernel(const KernelOptions& options);
Results kernel(const KernelOptions& options, const LoadedRun* run, const OnProgress& on_progress);

/// The weights of a model on one input, by layer and head, or of variants on a random input.
struct AttentionOptions {
  int64_t index = 0;   // the sequence
  int64_t length = 0;  // its first tokens; 0: all, or 48 of a random one
  int64_t size = 64;   // longer maps are averaged to this many queries and keys
  std::string split = "test";
  std::vector<std::string> attention{};        // on a random input: variants with options
  attention::analysis::RandomInputs inputs{};  // its norm, width and correlation
  bool causal = false;
  bool state = false;  // variants: what the final state holds of each token, by channel
  uint64_t seed = 0;
};
struct AttentionMaps {
  Results results;
  std::string drawn;  // the maps in five shades
};
/// `run`: null for a random input. Throws ConfigError if a variant is not linear in values.
AttentionMaps attention(const AttentionOptions& options, const LoadedRun* run,
                        const OnProgress& on_progress);

/// Shortcut baselines: accuracy without reading the whole input, and of `model`, unless it is null.
Results heuristics(data::HeuristicOptions options, const data::Task& task, Experiment* model,
                   const OnProgress& on_progress);

/// Measured time and memory by length and size.
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
