// SavedModel: a checkpoint that a run or a user names, with its configuration.
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

/// The checkpoint of a run that another run has read.
struct Source {
  std::string checkpoint;  // the file
  std::string digest;      // stored_digest()
  int64_t step = 0;
};

/// The complete checkpoints in a folder, which need not exist, by name.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// The checkpoints in folders named `checkpoints`: the directory `all`, or any below it, and folders that
/// may not be read. Throws ConfigError, naming --all, if there are none.
std::vector<std::string> checkpoints_below(const std::string& all);

/// Returns the path of a checkpoint of a run: `name` is "best", "last", or the name of a file in its
/// checkpoints folder, in which zeros before a number may be omitted ("step-5"). Without a best one (before the first evaluation) it is the last. `run` may
/// also be a checkpoint file itself, whatever `name` is. Throws ConfigError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& run, const std::string& name);

/// Throws ConfigError, naming `option`, if a user has named one checkpoint of a run, other than "best", but
/// `run` is a checkpoint file. Configurations of runs that exist may name both: see find_checkpoint().
void check_checkpoint_name(const std::filesystem::path& run, const std::string& name,
                           const std::string& option);

/// A checkpoint of a run with the configuration stored in it.
struct SavedModel {
  std::string file;
  Checkpoint checkpoint;
  Config config;
  std::string digest;        // stored_digest()
  bool accept_data = false;  // check_data() does nothing

  Source source() const { return {file, digest, checkpoint.training.step}; }
  /// A checkpoint made by others could name any file. Throws ConfigError if one of these options, whose
  /// files are going to be opened, is neither that of config.toml of its run directory, where it can be
  /// seen, nor replaced by an assignment ("data.path=mine.h5") where the user may give them.
  void check_paths(std::initializer_list<std::string_view> options = {"data.path"},
                   const std::vector<std::string>* assignments = nullptr) const;
  /// Compares the data of `task`, made from the section [data] of `used`, with that of the checkpoint.
  /// Throws DataError if the sections are the same, but a split of the task has another hash. If their
  /// options differ, the data is expected to differ, and nothing is compared.
  void check_data(const data::Task& task, const Config& used) const;
};

/// Returns one sentence about the first split whose hash in a checkpoint, `then`, is not that of the data
/// at hand, `now`, which the section [data] of `used` describes; an empty string if there is none.
std::string data_difference(const std::map<std::string, std::string>& then,
                            const std::map<std::string, std::string>& now, const std::string& file,
                            const Config& used);
/// What the user can do about it.
inline constexpr const char* data_remedy =
    "; restore the data, or name them with --set data.path=PATH; --accept-data uses them as they "
    "are";

/// Loads and verifies the checkpoint that --checkpoint names: see check_checkpoint_name() and
/// find_checkpoint(). Throws DataError if it is invalid.
SavedModel load_model(const std::filesystem::path& run, const std::string& name = "best");

}  // namespace longhand::train
