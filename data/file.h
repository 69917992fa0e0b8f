// Whole files: reading, crash-safe replacement, and digests that detect damage.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longhand::data {

/// Describes a system error number, with a remedy where there is one: "No space left on device;
/// free some space there, or choose another disk".
std::string system_reason(int error = errno);

/// A regular file, open for reading. Reading anything else, such as a pipe, may block or never end:
/// the constructor rejects it. All functions throw DataError with the system's reason.
class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path);
  /// Takes over an open file, whose name in errors is `path`.
  RegularFile(int descriptor, const std::filesystem::path& path);
  /// Returns a copy in memory that can no longer be changed, or the file itself if the system has
  /// no such copies, or no room for one.
  static RegularFile sealed(RegularFile file);
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return fd_; }

  /// The size when it was opened, in bytes.
  uint64_t size() const { return size_; }
  /// Returns all bytes that the file has at the time of the call.
  std::vector<std::byte> read_all() const;
  /// Fills `to` with the bytes from `begin` on; throws if the file ends earlier.
  void read(uint64_t begin, std::span<std::byte> to) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// Returns all bytes of a file. Throws DataError if it is missing, unreadable or not regular.
std::vector<std::byte> read_file(const std::filesystem::path& path);

/// The same as text.
std::string read_text_file(const std::filesystem::path& path);

/// Replaces the file `path` atomically: after a crash of the process or the machine at any moment,
/// either the complete old or the complete new file exists; once this function returns, the new
/// one. The directory must exist. If `keep_old_as` is not empty, the old file, if there is one,
/// remains under this name in the same directory, replacing any file of that name. Throws DataError
/// with the system's reason; the old file is then unchanged and no temporary file remains, unless
/// the last step fails (making the rename durable), when the new file is already in place.
void write_file_durably(const std::filesystem::path& path, std::span<const std::byte> bytes,
                        const std::filesystem::path& keep_old_as = {});

/// The same for text.
void write_file_durably(const std::filesystem::path& path, std::string_view text);

/// Appends text to a file, which is created if it does not exist. Throws DataError with the
/// system's reason; the file then ends where it did before, as far as the file system still allows.
/// The text survives a crash of the process, but a power cut only after sync_file().
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// Makes the contents of a file, and its entry in its directory, durable. Throws DataError.
void sync_file(const std::filesystem::path& path);

/// Creates a directory, and those above it that do not exist, durably. Throws DataError.
void create_directories_durably(const std::filesystem::path& path);

/// Removes temporary files and folders, .tmp-PID-…, that killed processes left in a directory, such
/// as those of write_file_durably(), except those of processes running on this machine. Must not be
/// called while this process writes there.
void remove_stale_temporaries(const std::filesystem::path& directory);

/// XXH3-128, big-endian: it detects damage, but not tampering.
using Digest = std::array<std::byte, 16>;
/// 32 hexadecimal digits.
std::string hex(const Digest& digest);
/// The digest of a text, in hexadecimal digits.
std::string text_digest(std::string_view text);

/// A digest of bytes given in pieces; how they are split does not affect it.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  void update(std::span<const std::byte> bytes);
  /// The digest of all bytes so far.
  Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest(std::span<const std::byte> bytes);

/// The size of a file, or of all files in a folder, in bytes; 0 for anything that cannot be read.
double bytes_of_files(const std::filesystem::path& path);

}  // namespace longhand::data
