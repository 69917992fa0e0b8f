// Files of named tensors shared with other programs: safetensors, and NumPy's npz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/nn/module.h"

namespace longhand::train {

/// Named tensors with text metadata.
struct TensorFile {
  nn::StateDict tensors;
  std::map<std::string, std::string> metadata{};
};

/// Returns a file in the format of https://github.com/huggingface/safetensors: the length of the
/// header (u64), a JSON header, and the values. Equal tensors give equal bytes.
std::vector<std::byte> to_safetensors(const TensorFile& file);
/// Reads a safetensors file. Integers of up to 32 bits become i32 (unsigned bytes and booleans u8),
/// larger ones i64; F16 and BF16 become f32. `name` is the name of the file in errors. Throws
/// DataError for anything the format does not allow: offsets must cover the values without gaps or
/// overlaps. Uses a small multiple of the file size as memory, and some twenty times its header.
TensorFile from_safetensors(std::span<const std::byte> bytes, const std::string& name);

/// Returns an archive as numpy.savez writes it: one file NAME.npy per tensor in an uncompressed
/// zip64 archive. The metadata is an entry __metadata__.json. Equal tensors give equal bytes.
std::vector<std::byte> to_npz(const TensorFile& file);
/// Reads an npz archive, converting as from_safetensors() does. Entries must be stored, as by
/// numpy.savez, not compressed. Throws DataError for damaged entries and for arrays of anything but
/// little-endian numbers.
TensorFile from_npz(std::span<const std::byte> bytes, const std::string& name);

/// Returns whether a file name ends in .safetensors or .npz.
bool is_tensor_file(const std::filesystem::path& path);
/// Reads or writes the format given by the file extension. Throws ConfigError for another one, and
/// DataError as the functions above do, or if the file is not regular or cannot be written.
TensorFile read_tensor_file(const std::filesystem::path& path);
void write_tensor_file(const std::filesystem::path& path, const TensorFile& file);

/// A numeric type in files of other programs.
struct NumberType {
  size_t bytes;
  const char *safetensors, *npy;  // its name in each format; empty: unsupported
  /// Makes a tensor from row-major little-endian values, as many as checked_bytes() returns.
  Tensor (*read)(std::span<const uint64_t> sizes, std::span<const std::byte> values);
};

/// Returns the type of the elements of a tensor.
const NumberType& number_type(DType dtype);
/// Returns the type with this name, where `format` is one of the names in NumberType; null if none.
const NumberType* find_number_type(const char* NumberType::*format, std::string_view name);

/// Returns the size in bytes of a tensor with these sizes. Throws DataError, naming file and
/// tensor, if that exceeds `available`, and for sizes that no Tensor can have.
uint64_t checked_bytes(std::span<const uint64_t> sizes, const NumberType& type, uint64_t available,
                       const std::string& file, const std::string& tensor);

/// Returns the values of a tensor in row-major order. The tensor must outlive them.
std::span<const std::byte> values_of(const Tensor& contiguous);

}  // namespace longhand::train
