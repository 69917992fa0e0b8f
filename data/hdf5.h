// HDF5 files: written as images in memory, read from images or from disk. The only interface to
// libhdf5.
//
// libhdf5 never writes to disk here: it crashes the process at exit if the disk is full, and it
// does not detect damage. To write a file, pass the image to write_file_durably(); to detect
// damage, store a digest of the image (see file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "longhand/core/tensor.h"
#include "longhand/data/file.h"

namespace longhand::data {

/// The value of an attribute. Booleans are stored as integers 0 and 1.
using AttributeValue = std::variant<int64_t, double, std::string>;

/// The type of numbers in a file.
enum class StoredType : uint8_t { f32, f64, i32, i64, u8, i8, u16, i16 };

/// The smallest integer type that holds every value from low to high.
StoredType narrowest(int64_t low, int64_t high);

/// The version of libhdf5 that is linked, such as "1.10.8".
std::string hdf5_version();

/// What a file holds.
struct Survey {
  int64_t groups = 0, datasets = 0, attributes = 0;
  int64_t refused = 0;          // of these, how many cannot be read
  std::string first_refusal{};  // the reason; empty: none
};
/// Reads everything in a file, of any style, and keeps nothing. Objects that cannot be read are
/// counted. Does not call the guard: libhdf5 may crash.
Survey survey(const RegularFile& file);

/// Builds a file in memory. Paths are "group/group/name"; groups are created when they are first
/// named. The same calls give the same bytes. All functions throw DataError with libhdf5's reason
/// if they fail, for example because the path exists.
class Hdf5Writer {
 public:
  Hdf5Writer();

  /// An empty group.
  void create_group(const std::string& path);
  /// A dataset of the tensor's shape and dtype, uncompressed.
  void put(const std::string& path, const Tensor& value);
  /// A dataset to be filled by put_rows(), compressed, with checksums. rank >= 1.
  void create_rows(const std::string& path, StoredType type, const Shape& shape);
  /// Writes rows begin, begin + 1, … along the first axis of a dataset made by create_rows().
  /// Throws DataError for integers that do not fit the stored type.
  void put_rows(const std::string& path, int64_t begin, const Tensor& rows);
  /// An attribute of a group or dataset; "/" is the root. Below 64 KB; text without NUL.
  void attribute(const std::string& path, const std::string& key, const AttributeValue& value);

  /// Returns the current contents of the file.
  std::vector<std::byte> image() const;

 private:
  struct State;
  std::unique_ptr<State, void (*)(State*)> state_;
};

/// Reads a file. Thread-safe; accesses are serialised. All functions throw DataError, naming file,
/// path and libhdf5's reason, for contents that are missing, damaged or refused. Links and storage
/// outside of the file are refused, and so are sizes that the file is too small to hold: a reader
/// allocates no more than the file can contain.
///
/// Objects in the formats that libver='latest' writes, and groups that are not tables of symbols
/// ("new style": with order of creation, or a name that is not ASCII), are refused before libhdf5
/// searches them, because that may crash it. It may still crash on a malicious file: see FileGuard.
class Hdf5Reader {
 public:
  /// Opens the bytes of a file, which are copied; `name` is its name in errors.
  static Hdf5Reader from_image(std::span<const std::byte> image, const std::string& name);
  /// Opens a file on disk, read in blocks, so that it may exceed memory. Calls the guard.
  static Hdf5Reader open(RegularFile file);
  static Hdf5Reader open(const std::filesystem::path& path);

  /// From now on, also reads groups of the new style. Only for files of earlier versions of
  /// Longhand, which wrote such groups, and only behind a guard.
  void allow_new_style_groups();

  /// The name of the file in errors.
  const std::string& name() const;

  /// Whether a group or dataset of this path exists.
  bool has(const std::string& path) const;
  /// Names in a group, in alphabetical order.
  std::vector<std::string> children(const std::string& path) const;
  /// Paths, relative to a group, of all datasets below it, in alphabetical order of their parts.
  std::vector<std::string> datasets(const std::string& path) const;

  /// Whether a dataset is stored in chunks, possibly compressed.
  bool is_chunked(const std::string& path) const;
  /// Shape of a dataset.
  Shape shape(const std::string& path) const;
  /// The dtype that read() returns: u8 for booleans and unsigned bytes, i32 for other integers that
  /// fit, else i64; f32 for floats of up to 4 bytes, else f64.
  DType dtype(const std::string& path) const;
  /// Reads a whole dataset. Throws for integers beyond i64.
  Tensor read(const std::string& path) const;
  /// Reads rows begin … end-1 along the first axis, as `dtype`. Throws for integers that do not
  /// fit, and for floats if `dtype` is an integer type.
  Tensor read_rows(const std::string& path, int64_t begin, int64_t end, DType dtype) const;

  bool has_attribute(const std::string& path, const std::string& key) const;
  /// Names in alphabetical order. Damaged attributes may crash libhdf5: only behind a guard.
  std::vector<std::string> attributes(const std::string& path) const;
  /// Reads an attribute of one value; throws if there is none. Text may have fixed length or, in
  /// files on disk, variable length; libhdf5 may crash on the latter.
  AttributeValue attribute(const std::string& path, const std::string& key) const;
  /// An attribute of type T: int64_t, double (integers count) or std::string.
  template <class T>
  T attribute_as(const std::string& path, const std::string& key) const;

 private:
  struct State;
  Hdf5Reader();
  std::unique_ptr<State, void (*)(State*)> state_;
};

}  // namespace longhand::data
