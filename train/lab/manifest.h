// Manifest: the digests of the files that the results of a sweep depend on, which show damage.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace longhand::train {

/// Digests of the files of a cell, by name. That of a checkpoint is its own, stored_digest().
using FileDigests = std::map<std::string, std::string>;

/// The file `manifest` of a sweep: one line, with a digest of its own, for each cell that has ended,
/// however it ended. A cell that runs has none, and neither has one of earlier versions.
struct Manifest {
  std::map<std::string, FileDigests> cells;  // by hash
  std::vector<std::string> damage;           // of the manifest itself: a sentence for each line

  /// Those of a cell; empty if it has no line.
  FileDigests of(const std::string& hash) const {
    const auto found = cells.find(hash);
    return found == cells.end() ? FileDigests() : found->second;
  }
  /// What is wrong with the files of a cell; empty if nothing is, or if it has no line.
  std::string damage_of(const std::filesystem::path& cell) const;
};

/// Empty if there is no manifest. Throws DataError if it cannot be read.
Manifest read_manifest(const std::filesystem::path& sweep);

/// Records the files of cells as they are now, durably, for those who hold the claims of these cells;
/// the last step after their files have been written. Several processes may call it at once: it
/// locks the file `manifest-lock` of the sweep. Damaged lines go. Throws DataError.
void record_cells(const std::filesystem::path& sweep, const std::vector<std::string>& hashes);
/// Removes the line of a cell, durably: the first step before its files change. As record_cells().
void forget_cell(const std::filesystem::path& sweep, const std::string& hash);

/// What is wrong with the first file of a cell that is missing or not as recorded; empty if all that
/// results depend on are as recorded, or none is recorded. Checkpoints, which are large, are not compared.
std::string damage_of(const std::filesystem::path& cell, const FileDigests& recorded);
/// The same of best.h5 of a trained cell, which is read as a whole. Without a recorded digest it is
/// compared with its own.
std::string damage_of_checkpoint(const std::filesystem::path& cell, const FileDigests& recorded);

/// Ends a sentence about damage of a cell.
std::string repair_remedy(const std::filesystem::path& sweep);

/// A sweep file with a comment before it that holds its digest.
std::string with_digest(const std::string& toml);
/// Throws DataError, naming the file, if a sweep file has such a comment, which is not of the rest.
void check_digest(const std::filesystem::path& file);

}  // namespace longhand::train
