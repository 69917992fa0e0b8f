#include "longhand/data/trailer.h"

#include <algorithm>

#include "longhand/data/bytes.h"

namespace longhand::data {
namespace {

constexpr std::string_view hdf5_signature = "\x89HDF\r\n\x1a\n";
constexpr size_t digest_size = sizeof(Digest);

/// Checks the first and the last bytes of a file of `size` bytes.
Trailer check_ends(ByteView first, ByteView last, uint64_t size, const FileKind& kind,
                   const std::string& name) {
  check<DataError>(text_of(first).starts_with(hdf5_signature), name, " is not a ", kind.name,
                   ": it does not begin with an HDF5 image");
  check<DataError>(last.size() == trailer_size && text_of(last).starts_with(kind.magic), name,
                   " is cut off, or not a ", kind.name, ": no trailer \"", kind.magic,
                   "\" in the last ", trailer_size, " of its ", size, " bytes");
  Trailer trailer{
      get<uint32_t>(last, 4, name, "the version"), get<uint64_t>(last, 8, name, "the length"), {}};
  std::ranges::copy(last.last(digest_size), trailer.digest.begin());
  check<DataError>(trailer.length == size - trailer_size, name,
                   " is damaged: it holds an image of ", size - trailer_size, " bytes, expected ",
                   trailer.length);
  return trailer;
}

void check_digest(const Trailer& trailer, const Digest& found, const FileKind& kind,
                  const std::string& name) {
  check<DataError>(found == trailer.digest, name,
                   " is damaged: its contents do not match the stored digest");
  check<DataError>(trailer.version <= kind.version, name, " is a ", kind.name,
                   " of format version ", trailer.version,
                   "; this version of Longhand reads up to ", kind.version, ": use a later one");
}

/// The first or last bytes of a file, fewer if it is shorter.
std::vector<std::byte> part(const RegularFile& file, uint64_t begin, uint64_t size) {
  std::vector<std::byte> bytes(std::min(size, file.size() - begin));
  file.read(begin, bytes);
  return bytes;
}

std::vector<std::byte> last_of(const RegularFile& file) {
  return part(file, file.size() - std::min<uint64_t>(file.size(), trailer_size), trailer_size);
}

}  // namespace

void append_trailer(Bytes& image, const FileKind& kind) {
  const uint64_t length = image.size();
  put(image, kind.magic);
  put(image, kind.version);
  put(image, length);
  put(image, digest(image));
}

Trailer verify_trailer(ByteView file, const FileKind& kind, const std::string& name) {
  const Trailer trailer =
      check_ends(file, file.last(std::min(file.size(), trailer_size)), file.size(), kind, name);
  check_digest(trailer, digest(file.first(file.size() - digest_size)), kind, name);
  return trailer;
}

Trailer verify_trailer(const RegularFile& file, const FileKind& kind) {
  const Trailer trailer = read_trailer(file, kind);
  Digester digester;
  std::vector<std::byte> block(size_t{1} << 20);
  const uint64_t end = file.size() - digest_size;
  for (uint64_t begin = 0; begin < end; begin += block.size()) {
    const auto piece = std::span(block).first(std::min<uint64_t>(block.size(), end - begin));
    file.read(begin, piece);
    digester.update(piece);
  }
  check_digest(trailer, digester.digest(), kind, file.path().string());
  return trailer;
}

Trailer read_trailer(const RegularFile& file, const FileKind& kind) {
  return check_ends(part(file, 0, hdf5_signature.size()), last_of(file), file.size(), kind,
                    file.path().string());
}

bool has_trailer(const RegularFile& file, const FileKind& kind) {
  const std::vector<std::byte> last = last_of(file);
  return last.size() == trailer_size && text_of(last).starts_with(kind.magic);
}

}  // namespace longhand::data
