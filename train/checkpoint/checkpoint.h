// Checkpoint: all of a run that is not code, in one file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/core/version.h"
#include "longhand/data/loader.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// Where a training run stands. Together with the tensors of a Checkpoint and the configuration
/// this is everything: all random numbers of a step come from the seed and the step.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  data::Loader::Cursor cursor;  // the next batch

  // Sums over the steps since the last training record.
  struct Interval {
    int64_t steps = 0;
    double loss = 0;
    int64_t correct = 0, targets = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  } interval;

  int64_t evaluated_step = 0;  // the last evaluation came after this many steps
  std::optional<double> best;  // value of the metric that decides
  int64_t best_step = 0;
  int64_t evaluations_since_best = 0;
  double last_accuracy = 0;  // of that evaluation

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// What computes here and now: OpenBLAS with its CPU kernel, and our own instruction set. The last
/// bits of all results depend on it.
std::string machine_description();

struct Checkpoint {
  nn::StateDict model;      // parameters and buffers
  nn::StateDict optimizer;  // empty: none
  nn::StateDict ema;        // averaged parameters; empty: none
  TrainingState training;
  std::string config;  // the whole effective configuration, as TOML
  // What computed it; checked by resume_warning().
  std::string machine = machine_description();
  std::string version = longhand::version();

  /// The model's state as evaluation uses it: with averaged parameters, if there are any.
  nn::StateDict weights() const;
};

/// The file: an HDF5 image, which h5dump and h5py read, and behind it 32 bytes: the magic "LHCK",
/// the format version (u32), the length of the image (u64), both little-endian, and the XXH3-128
/// digest of all bytes before it. Equal checkpoints give equal bytes.
std::vector<std::byte> to_bytes(const Checkpoint& checkpoint);
/// The checkpoint in these bytes. The digest is compared before anything is parsed. Throws
/// DataError that begins with `name` and says what is wrong: not a checkpoint, cut off, damaged, of
/// a later format.
Checkpoint from_bytes(std::span<const std::byte> bytes, const std::string& name);

/// Writes a file durably: after this returns it survives a power cut, and until then the old file
/// of that name does. Throws DataError.
void save(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Throws DataError for a file that cannot be read or is no sound checkpoint.
Checkpoint load(const std::filesystem::path& path);

/// Empty if going on from this checkpoint gives the bits of an uninterrupted run, else why it may
/// not: it comes from another kind of CPU or from another version.
std::string resume_warning(const Checkpoint& checkpoint);

}  // namespace longhand::train
