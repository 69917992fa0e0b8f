// Manifest: digests of the files that a sweep's results depend on, to detect damage.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace longhand::train {

/// Digests of a cell's files, by name. A checkpoint's digest is its own stored_digest().
using FileDigests = std::map<std::string, std::string>;

/// A sweep's file `manifest`: one line, with its own digest, for each cell that has ended, however
/// it ended. Running cells have none, nor do those of earlier versions.
struct Manifest {
  std::map<std::string, FileDigests> cells;  // by hash
  std::vector<std::string> damage;           // of the manifest itself: a sentence per line

  /// Returns the digests of a cell; empty if it has no line.
  FileDigests of(const std::string& hash) const {
    const auto found = cells.find(hash);
    return found == cells.end() ? FileDigests() : found->second;
  }
  /// Returns what is wrong with a cell's files; empty if nothing is, or if it has no line.
  std::string damage_of(const std::filesystem::path& cell) const;
};

/// Reads the manifest; empty if there is none. Throws DataError if it cannot be read.
Manifest read_manifest(const std::filesystem::path& sweep);

/// Durably records the current files of cells whose claims the caller holds, as the last step after
/// writing the files. Safe to call from several processes at once: it locks the sweep's file
/// `manifest-lock`. Drops damaged lines. Throws DataError.
void record_cells(const std::filesystem::path& sweep, const std::vector<std::string>& hashes);
/// Durably removes a cell's line: the first step before its files change. As record_cells().
void forget_cell(const std::filesystem::path& sweep, const std::string& hash);

/// Returns what is wrong with a cell's first file that is missing or not as recorded; empty if all
/// that results depend on match, or none is recorded. Checkpoints, being large, are not compared.
std::string damage_of(const std::filesystem::path& cell, const FileDigests& recorded);
/// Likewise for best.h5 of a trained cell, which is read completely. Without a recorded digest, it
/// is compared with its own.
std::string damage_of_checkpoint(const std::filesystem::path& cell, const FileDigests& recorded);

/// Returns the end of a sentence about damage to a cell.
std::string repair_remedy(const std::filesystem::path& sweep);

/// Returns a sweep file preceded by a comment that holds its digest.
std::string with_digest(const std::string& toml);
/// Throws DataError, naming the file, if a sweep file has such a comment that does not match.
void check_digest(const std::filesystem::path& file);

}  // namespace longhand::train
