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

/// The compute backend of this process: OpenBLAS with its CPU kernel, and Longhand's instruction
/// set. The last bits of all results depend on it.
std::string machine_description();
/// The same with the number of threads, for results of which some are times.
std::string machine_and_threads();

struct Checkpoint {
  nn::StateDict model;      // parameters and buffers
  nn::StateDict optimizer;  // empty: none
  nn::StateDict ema;        // averaged parameters; empty: none
  TrainingState training;
  std::string config;  // the whole effective configuration, as TOML
  // By split, data::Dataset::fingerprint() of what it was trained and evaluated on; empty: unknown, in
  // files of earlier versions.
  std::map<std::string, std::string> data{};
  std::vector<PluginRecord> plugins{};  // that define its variants or its task
  // The backend that computed it; checked by resume_warning().
  std::string machine = machine_description();
  std::string version = longhand::version();

  /// The model's state used for evaluation: with averaged parameters, if there are any.
  nn::StateDict weights() const;
};

/// Returns the bytes of the file, whose format README.md describes: an HDF5 image, readable by h5dump
/// and h5py, followed by a trailer (data/trailer.h). Equal checkpoints give equal bytes.
std::vector<std::byte> to_bytes(const Checkpoint& checkpoint);
/// Returns the checkpoint in these bytes. The digest is verified before anything is parsed. Throws
/// a DataError that begins with `name` and states the defect: not a checkpoint, cut off, damaged,
/// of a later format, or of version 1, which only load() reads.
Checkpoint from_bytes(std::span<const std::byte> bytes, const std::string& name);

/// Writes a file durably: once this returns, the new file survives a power cut; until then the old
/// file of that name does. Throws DataError.
void save(const std::filesystem::path& path, const Checkpoint& checkpoint);
/// Reads a file of any format version; version 1 only behind a guard (see data::FileGuard), which is
/// called first. Takes at most three times the size of the file as memory, and 15 KB for each tensor.
/// Throws DataError if the file cannot be read or is not a valid checkpoint.
Checkpoint load(const std::filesystem::path& path);
Checkpoint load(data::RegularFile file);

/// Returns the digest of a file that save() has written, as 32 hexadecimal digits, from its last
/// bytes alone: the file is not verified. Throws DataError if it is no checkpoint.
std::string stored_digest(const std::filesystem::path& path);

/// Returns an empty string if resuming from this checkpoint gives the bits of an uninterrupted run,
/// else the reason why it may not: other kernels of OpenBLAS, an instruction set with other bits (only
/// those of the baseline differ), or another version of Longhand.
std::string resume_warning(const Checkpoint& checkpoint);

}  // namespace longhand::train
