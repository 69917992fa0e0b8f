// Fuzz targets: functions that read untrusted bytes. An input may be refused by an exception of the
// library; anything else, such as another exception or a crash, is a defect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace longhand::fuzz {

using Bytes = std::span<const uint8_t>;

/// One target. Throws only longhand::Error.
using Target = void (*)(Bytes input);

/// Where the targets are listed.
struct Entry {
  const char* name;
  Target run;
  /// Inputs to begin with besides those of corpus/NAME; null: none.
  std::vector<std::string> (*seeds)();
};

// One a line: TARGET(name, seeds).
#define LONGHAND_FUZZ_TARGETS(TARGET)    \
  TARGET(config, nullptr)                \
  TARGET(sweep, nullptr)                 \
  TARGET(listops, nullptr)               \
  TARGET(labelled_text, nullptr)         \
  TARGET(csv, nullptr)                   \
  TARGET(jsonl, nullptr)                 \
  TARGET(idx, idx_seeds)                 \
  TARGET(hdf5, hdf5_seeds)               \
  TARGET(checkpoint, checkpoint_seeds)   \
  TARGET(safetensors, safetensors_seeds) \
  TARGET(npz, npz_seeds)                 \
  TARGET(text, text_seeds)               \
  TARGET(assignments, assignment_seeds)  \
  TARGET(drop_in_grid, grid_seeds)       \
  TARGET(metrics, metrics_seeds)         \
  TARGET(summary, summary_seeds)         \
  TARGET(cell, cell_seeds)               \
  TARGET(results, results_seeds)         \
  TARGET(bench_results, bench_seeds)     \
  TARGET(plugins, plugin_seeds)

#define DECLARE(name, seeds) void fuzz_##name(Bytes input);
LONGHAND_FUZZ_TARGETS(DECLARE)
#undef DECLARE
std::vector<std::string> idx_seeds();
std::vector<std::string> hdf5_seeds();
std::vector<std::string> checkpoint_seeds();
std::vector<std::string> safetensors_seeds();
std::vector<std::string> npz_seeds();
std::vector<std::string> text_seeds();
std::vector<std::string> assignment_seeds();
std::vector<std::string> grid_seeds();
std::vector<std::string> metrics_seeds();
std::vector<std::string> summary_seeds();
std::vector<std::string> cell_seeds();
std::vector<std::string> results_seeds();
std::vector<std::string> bench_seeds();
std::vector<std::string> plugin_seeds();

inline std::string text_of(Bytes input) { return {input.begin(), input.end()}; }

/// A folder of this process in memory, or else in the folder of temporary files; removed at exit.
const std::filesystem::path& scratch();
/// Writes a file there and returns its path.
std::filesystem::path scratch_file(const std::string& name, Bytes contents);

}  // namespace longhand::fuzz
