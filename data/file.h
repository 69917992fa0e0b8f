// Whole files: reading them, replacing them so that a crash leaves the old or the new one, and
// digests that show damage.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace longhand::data {

/// All bytes of a file. Throws DataError if it is missing, a directory or cannot be read.
std::vector<std::byte> read_file(const std::filesystem::path& path);

/// Puts a file in the place of `path`, such that after a crash at any moment, of the machine too,
/// the old file is there or the new one, whole; once this returns it is the new one. Its directory
/// must exist. Throws DataError with the system's reason; the old file is then untouched and
/// nothing is left behind, except that if the very last step fails (making the rename durable) the
/// new file is already in place.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

/// Removes what processes killed in write_file_durably() left in a directory. Files of processes
/// that still run on this machine stay. Not to be called while this process writes there.
void remove_stale_temporaries(const std::filesystem::path& directory);

/// XXH3-128, big-endian: it shows damage, not malice.
using Digest = std::array<std::byte, 16>;
/// 32 hexadecimal digits.
std::string hex(const Digest& digest);

/// A digest of bytes that come in pieces; how they are cut makes no difference.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far.
  Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest(std::span<const std::byte> bytes);

}  // namespace longhand::data
