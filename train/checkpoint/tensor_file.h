// Files of named tensors that other programs read and write: safetensors, and npz of NumPy.
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

/// Named tensors, and texts about them.
struct TensorFile {
  nn::StateDict tensors;
  std::map<std::string, std::string> metadata{};
};

/// A file in the format of https://github.com/huggingface/safetensors: the length of a header (u64), the
/// header, in JSON, and the values. The same tensors give the same bytes.
std::vector<std::byte> to_safetensors(const TensorFile& file);
/// Reads such a file. Integers of up to 32 bits become i32 (unsigned bytes and booleans u8), larger
/// ones i64; F16 and BF16 become f32. `name` is the name of the file in errors. Throws DataError for
/// anything that the format does not allow: offsets must cover the values without gaps and overlaps.
/// Takes a small multiple of the file as memory, and some twenty times its header.
TensorFile from_safetensors(std::span<const std::byte> bytes, const std::string& name);

/// An archive as numpy.savez writes it: a file NAME.npy for each tensor, in a zip64 archive without
/// compression. The metadata are an entry __metadata__.json. The same tensors give the same bytes.
std::vector<std::byte> to_npz(const TensorFile& file);
/// Reads such an archive, converting as from_safetensors() does. Entries must be stored, as
/// numpy.savez writes them, not compressed. Throws DataError for damaged entries, and for arrays of
/// other kinds than little-endian numbers.
TensorFile from_npz(std::span<const std::byte> bytes, const std::string& name);

/// Whether the end of a file's name says that it holds tensors: .safetensors or .npz.
bool is_tensor_file(const std::filesystem::path& path);
/// Reads or writes the format that the end of the name says. Throws ConfigError for another one, and
/// DataError as the functions above do, or if the file is no regular file or cannot be written.
TensorFile read_tensor_file(const std::filesystem::path& path);
void write_tensor_file(const std::filesystem::path& path, const TensorFile& file);

/// A type of numbers in files of other programs.
struct NumberType {
  size_t bytes;
  const char *safetensors, *npy;  // its names in the formats; empty: a format does not have it
  /// Makes a tensor of values in row-major order, little-endian, as many as checked_bytes() says.
  Tensor (*read)(std::span<const uint64_t> sizes, std::span<const std::byte> values);
};

/// The type of the elements of a tensor.
const NumberType& number_type(DType dtype);
/// The type of this name, where `format` is one of the names of NumberType; null if there is none.
const NumberType* find_number_type(const char* NumberType::*format, std::string_view name);

/// The bytes that a tensor of these sizes takes. Throws DataError, naming file and tensor, unless there
/// are at most `available`, and for sizes that no Tensor has.
uint64_t checked_bytes(std::span<const uint64_t> sizes, const NumberType& type, uint64_t available,
                       const std::string& file, const std::string& tensor);

/// The values of a tensor in row-major order. The tensor must outlive them.
std::span<const std::byte> values_of(const Tensor& contiguous);

}  // namespace longhand::train
