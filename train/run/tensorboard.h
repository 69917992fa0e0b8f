// The metrics of a run as a TensorBoard event file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "longhand/train/trainer.h"

namespace longhand::train {

/// Returns whether a file of this name was written by EventFile.
bool is_event_file(const std::string& name);

/// An event file in a folder. It holds the metrics of the whole run, including earlier processes:
/// it is derived from metrics.jsonl, and checkpoints store none of it. A run that is resumed from
/// an earlier step therefore has no step twice.
class EventFile {
 public:
  /// Creates the folder, writes the metrics so far to a new file in it, and empties the files of
  /// earlier processes of the run, so that TensorBoard drops what it read from them. `begin` is the
  /// start of the run in seconds since 1970, as if it had not been interrupted: an event has time
  /// `begin` + Record::seconds. Throws DataError if a file cannot be written.
  EventFile(const std::filesystem::path& folder, const std::vector<Record>& records, double begin);

  /// Adds the metrics of a record, which flush() writes. Throws DataError on failure; the next call
  /// then writes them.
  void add(const Record& record);
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  double begin_;
  std::string unwritten_;
};

}  // namespace longhand::train
