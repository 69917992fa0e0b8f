// Checkpoint: the complete state of a run in one file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/nn/module.h"
#include "longhand/train/plugin/load_plugin.h"
#include "longhand/train/step/training_state.h"

namespace longhand::train {

/// Returns the compute backend of this process: OpenBLAS with its CPU kernel, and Longhand's
/// instruction set. The last bits of all results depend on it.
std::string machine_description();
/// Likewise with the number of threads, for results that include times.
std::string machine_and_threads();

struct Checkpoint {
  nn::StateDict model;      // parameters and buffers
  nn::StateDict optimizer;  // empty: none
  nn::StateDict ema;        // averaged parameters; empty: none
  TrainingState training;
  std::string config;  // the complete effective configuration, as TOML
  // data::Dataset::fingerprint() by split of the data for training and evaluation; empty: unknown,
  // in files of earlier versions.
  std::map<std::string, std::string> data{};
  std::vector<PluginRecord> plugins{};  // plugins that define its variants or its task
  // The backend that computed it; checked by resume_warning().
  std::string machine = machine_description();
  std::string version = longhand::version();

  /// Returns the model state used for evaluation: with averaged parameters, if there are any.
  nn::StateDict weights() const;
};

/// Returns the bytes of the file, in the format described in README.md: an HDF5 image, readable by
/// h5dump and h5py, followed by a trailer (data/trailer.h). Equal checkpoints give equal bytes.
std::vector<std::byte> to_bytes(const Checkpoint& checkpoint);
/// Returns the checkpoint in these bytes. The digest is verified before anything is parsed. Throws
/// a DataError that begins with `name` and states the defect: not a checkpoint, cut off, damaged,
/// of a later format, or of version 1, which only load() reads.
Checkpoint from_bytes(std::span<const std::byte> bytes, const std::string& name);

/// Writes a file durably: once this returns, the new file survives a power cut; until then, the old
/// file of that name does. Throws DataError.
void save(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Reads a file of any format version; version 1 only behind a guard (see data::FileGuard), which
/// is called first. Uses at most three times the file size as memory, plus 15 KB per tensor. Throws
/// DataError if the file cannot be read or is not a valid checkpoint.
Checkpoint load(const std::filesystem::path& path);
Checkpoint load(data::RegularFile file);

/// Returns the digest of a file written by save(), as 32 hexadecimal digits, from its last bytes
/// only: the file is not verified. Throws DataError if it is not a checkpoint.
std::string stored_digest(const std::filesystem::path& path);

/// Returns an empty string if resuming from this checkpoint is bitwise identical to an
/// uninterrupted run, else why it may not be: other OpenBLAS kernels, an instruction set with
/// different results (only the baseline's differ), or another version of Longhand.
std::string resume_warning(const Checkpoint& checkpoint);

}  // namespace longhand::train
