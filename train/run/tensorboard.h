// The metrics of a run as an event file of TensorBoard.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "longhand/train/trainer.h"

namespace longhand::train {

/// Whether a file of this name is one that EventFile has written.
bool is_event_file(const std::string& name);

/// A file of events in a folder. It has the metrics of the whole run, also of the processes before this
/// one: metrics.jsonl is what they are made from, and nothing of the file is in a checkpoint. So a run
/// that is resumed from an earlier step has no step twice.
class EventFile {
 public:
  /// Creates the folder and writes the metrics so far to a new file in it, then empties the files of
  /// earlier processes of the run. TensorBoard drops what it has read from those. `begin` is the time at
  /// which the run began, in seconds since 1970, as if it had not been interrupted: that of an event is
  /// `begin` and Record::seconds. Throws DataError if a file cannot be written.
  EventFile(const std::filesystem::path& folder, const std::vector<Record>& records, double begin);

  /// Adds the metrics of a record, which flush() writes. Throws DataError if that fails; the next call
  /// writes them then.
  void add(const Record& record);
  void flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  double begin_;
  std::string unwritten_;
};

}  // namespace longhand::train
