// HDF5 files: written as images in memory, read from images or from disk. The only door to libhdf5.
//
// libhdf5 never writes to a disk here: when a disk is full it crashes the process at exit, and it
// does not notice damage. Whoever wants a file writes an image with write_file_durably(), and
// whoever wants damage noticed puts a digest over the image (see file.h).
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

namespace longhand::data {

/// What an attribute may hold. Booleans are stored as integers 0 and 1.
using AttributeValue = std::variant<int64_t, double, std::string>;

/// How numbers lie in a file.
enum class StoredType : uint8_t { u8, i8, u16, i16, i32, i64, f32, f64 };

/// The smallest integer type that holds every value from low to high.
StoredType narrowest(int64_t low, int64_t high);

/// Builds a file in memory. Paths are "group/group/name"; groups come into being as they are named.
/// The same calls give the same bytes. Everything throws DataError with libhdf5's reason if it
/// fails, such as for a path that is taken.
class Hdf5Writer {
 public:
  Hdf5Writer();
  ~Hdf5Writer();
  Hdf5Writer(Hdf5Writer&&) noexcept;
  Hdf5Writer& operator=(Hdf5Writer&&) noexcept;

  /// An empty group.
  void create_group(const std::string& path);
  /// A dataset of the tensor's shape and dtype, uncompressed.
  void put(const std::string& path, const Tensor& value);
  /// A dataset to be filled by put_rows(), compressed, with checksums. rank >= 1.
  void create_rows(const std::string& path, StoredType type, const Shape& shape);
  /// Rows begin, begin + 1, … along the first axis of a dataset made by create_rows(). Integer
  /// values that do not fit the stored type throw DataError.
  void put_rows(const std::string& path, int64_t begin, const Tensor& rows);
  /// An attribute of a group or dataset; "/" is the root. Below 64 KB.
  void attribute(const std::string& path, const std::string& key, const AttributeValue& value);

  /// The file as it is now.
  std::vector<std::byte> image() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads a file. Safe to use from several threads, which take turns. Everything throws DataError
/// naming file, path and libhdf5's reason for what is missing, damaged or refused. Refused are
/// links and storage that lead out of the file, and sizes that the file is too small to hold: a
/// reader allocates no more than the file can account for.
///
/// libhdf5 itself may crash on a file that was damaged on purpose or by chance: give it only what a
/// digest has approved, or what the user vouches for.
class Hdf5Reader {
 public:
  /// From the bytes of a file, which are copied; `name` is what errors call it.
  static Hdf5Reader from_image(std::span<const std::byte> image, const std::string& name);
  /// From disk, piece by piece, so that the file may exceed memory.
  static Hdf5Reader open(const std::filesystem::path& path);

  ~Hdf5Reader();
  Hdf5Reader(Hdf5Reader&&) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) noexcept;

  /// What errors call the file.
  const std::string& name() const;

  /// There is a group or dataset of this path.
  bool has(const std::string& path) const;
  bool is_group(const std::string& path) const;
  /// Names in a group, in alphabetical order.
  std::vector<std::string> children(const std::string& path) const;
  /// Paths, relative to a group, of all datasets below it, in alphabetical order of their parts.
  std::vector<std::string> datasets(const std::string& path) const;

  /// Shape of a dataset.
  Shape shape(const std::string& path) const;
  /// The dtype that read() gives: u8 for booleans and unsigned bytes, i32 for other integers that
  /// fit, else i64; f32 for floats of up to 4 bytes, else f64.
  DType dtype(const std::string& path) const;
  /// A whole dataset. Integers beyond i64 throw.
  Tensor read(const std::string& path) const;
  /// Rows begin … end-1 along the first axis, as `dtype`. Integers that do not fit throw, and so do
  /// floats where integers are wanted.
  Tensor read_rows(const std::string& path, int64_t begin, int64_t end, DType dtype) const;

  bool has_attribute(const std::string& path, const std::string& key) const;
  std::vector<std::string> attributes(const std::string& path) const;
  /// An attribute of one value; throws if there is none. Text may be of fixed or variable length.
  AttributeValue attribute(const std::string& path, const std::string& key) const;
  /// An attribute of type T: int64_t, double (integers count) or std::string.
  template <class T>
  T attribute_as(const std::string& path, const std::string& key) const;

 private:
  struct State;
  explicit Hdf5Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace longhand::data
