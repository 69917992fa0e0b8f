// SavedModel: a checkpoint named by a run or a user, with its configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config/config.h"

namespace longhand::train {

/// A checkpoint that another run has read.
struct Source {
  std::string checkpoint;  // the file
  std::string digest;      // stored_digest()
  int64_t step = 0;
};

/// Returns the complete checkpoints in a folder, which need not exist, by name.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// Returns the checkpoints in folders named `checkpoints`, in the directory `all` or below it, and
/// the folders that cannot be read. Throws ConfigError, naming --all, if there are none.
std::vector<std::string> checkpoints_below(const std::string& all);

/// Returns the path of a run's checkpoint: `name` is "best", "last", or a file in its checkpoints
/// folder, where leading zeros may be omitted ("step-5"). Before the first evaluation, "best" is
/// the last. `run` may also be a checkpoint file, whatever `name` is. Throws ConfigError if none.
std::filesystem::path find_checkpoint(const std::filesystem::path& run, const std::string& name);

/// Throws ConfigError, naming `option`, if a user names a checkpoint other than "best" but `run` is
/// a checkpoint file. Configurations of existing runs may name both: see find_checkpoint().
void check_checkpoint_name(const std::filesystem::path& run, const std::string& name,
                           const std::string& option);

/// A run's checkpoint with the configuration stored in it.
struct SavedModel {
  std::string file;
  Checkpoint checkpoint;
  Config config;
  std::string digest;        // stored_digest()
  bool accept_data = false;  // whether check_data() does nothing

  Source source() const { return {file, digest, checkpoint.training.step}; }
  /// An untrusted checkpoint could name any file. Throws ConfigError if one of these options, whose
  /// files are about to be opened, is neither the one in config.toml of its run directory, where it
  /// can be seen, nor replaced by an assignment ("data.path=mine.h5") where the user may give one.
  void check_paths(std::initializer_list<std::string_view> options = {"data.path"},
                   const std::vector<std::string>* assignments = nullptr) const;
  /// Compares the data of `task`, made from the section [data] of `used`, with the checkpoint's.
  /// Throws DataError if the sections are equal but a split of the task has a different hash. If
  /// their options differ, the data is expected to differ, and nothing is compared.
  void check_data(const data::Task& task, const Config& used) const;
};

/// Returns one sentence about the first split whose hash in a checkpoint, `then`, differs from the
/// current data's, `now`, described by section [data] of `used`; empty if none differs.
std::string data_difference(const std::map<std::string, std::string>& then,
                            const std::map<std::string, std::string>& now, const std::string& file,
                            const Config& used);
/// Remedies for the user.
inline constexpr const char* data_remedy =
    "; restore the data, or name them with --set data.path=PATH; --accept-data uses them as they "
    "are";

/// Loads and verifies the checkpoint that --checkpoint names: see check_checkpoint_name() and
/// find_checkpoint(). Throws DataError if it is invalid.
SavedModel load_model(const std::filesystem::path& run, const std::string& name = "best");

}  // namespace longhand::train
