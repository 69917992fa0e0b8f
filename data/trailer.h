// The trailer that ends every file of Longhand: it shows that all bytes before it are as written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/data/file.h"

namespace longhand::data {

/// A kind of file: an HDF5 image followed by 32 bytes, the magic, the format version (u32), the
/// length of the image (u64), both little-endian, and the XXH3-128 digest of all bytes before it.
/// HDF5 tools ignore what follows the image. A digest detects damage; it is not a signature.
struct FileKind {
  std::string_view name;   // in errors: "Longhand checkpoint"
  std::string_view magic;  // 4 characters
  uint32_t version;        // written; older ones can be read
};

inline constexpr size_t trailer_size = 32;

struct Trailer {
  uint32_t version = 0;
  uint64_t length = 0;
  Digest digest{};
};

/// Appends the trailer of an image.
void append_trailer(std::vector<std::byte>& image, const FileKind& kind);

/// Returns the trailer of a file, after comparing all of its bytes with the digest. Throws a
/// DataError that begins with `name` and states the defect: another kind of file, cut off, damaged,
/// or of a later version.
Trailer verify_trailer(std::span<const std::byte> file, const FileKind& kind,
                       const std::string& name);
/// The same for a file on disk, in constant memory. Defects that its first and last bytes show are
/// found without reading the rest.
Trailer verify_trailer(const RegularFile& file, const FileKind& kind);

/// Returns the trailer of a file without reading or verifying anything else.
Trailer read_trailer(const RegularFile& file, const FileKind& kind);
/// Whether a file ends with a trailer of this kind.
bool has_trailer(const RegularFile& file, const FileKind& kind);

}  // namespace longhand::data
