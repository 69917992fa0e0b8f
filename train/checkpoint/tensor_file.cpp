#include "longhand/train/checkpoint/tensor_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::train {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are stored as they are in memory");

/// Converts a 16-bit number with this many exponent bits to f32, which holds all of them.
template <int exponent_bits>
float widened(uint16_t bits) {
  constexpr int mantissa_bits = 15 - exponent_bits;
  constexpr uint32_t largest = (1u << exponent_bits) - 1, bias = largest / 2;
  const uint32_t sign = static_cast<uint32_t>(bits >> 15) << 31;
  const uint32_t exponent = (bits >> mantissa_bits) & largest;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  if (exponent == 0 && exponent_bits < 8) {  // a multiple of the smallest number, exact in f32
    const float smallest = std::bit_cast<float>((127 - bias + 1 - mantissa_bits) << 23);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(mantissa) * smallest) |
                                sign);
  }
  const uint32_t wide = exponent == largest ? 255 : exponent + 127 - bias;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << (23 - mantissa_bits));
}

template <class To, class From = To, To (*convert)(From) = nullptr>
Tensor read_as(std::span<const uint64_t> sizes, std::span<const std::byte> values) {
  Shape shape;
  for (const uint64_t size : sizes) shape.push_back(static_cast<int64_t>(size));
  Tensor out = Tensor::empty(shape, dtype_of<To>);
  To* const to = out.data<To>();
  for (size_t i = 0; i < values.size() / sizeof(From); ++i) {
    From from;
    std::memcpy(&from, values.data() + i * sizeof(From), sizeof(From));
    if constexpr (convert != nullptr)
      to[i] = convert(from);
    else
      to[i] = from;
  }
  return out;
}

/// Types of tensors come first, in the order of DType.
constexpr NumberType types[] = {{4, "F32", "<f4", read_as<float>},
                                {8, "F64", "<f8", read_as<double>},
                                {4, "I32", "<i4", read_as<int32_t>},
                                {8, "I64", "<i8", read_as<int64_t>},
                                {1, "U8", "|u1", read_as<uint8_t>},
                                {2, "F16", "<f2", read_as<float, uint16_t, widened<5>>},
                                {2, "BF16", "", read_as<float, uint16_t, widened<8>>},
                                {2, "I16", "<i2", read_as<int32_t, int16_t>},
                                {1, "I8", "|i1", read_as<int32_t, int8_t>},
                                {4, "U32", "<u4", read_as<int64_t, uint32_t>},
                                {2, "U16", "<u2", read_as<int32_t, uint16_t>},
                                {1, "BOOL", "|b1", read_as<uint8_t>}};
static_assert(static_cast<int>(DType::u8) == 4);

struct Format {
  const char* extension;
  std::vector<std::byte> (*write)(const TensorFile&);
  TensorFile (*read)(std::span<const std::byte>, const std::string&);
};
constexpr Format formats[] = {{".safetensors", to_safetensors, from_safetensors},
                              {".npz", to_npz, from_npz}};

const Format& format_of(const std::filesystem::path& path) {
  for (const Format& format : formats)
    if (path.extension() == format.extension) return format;
  throw ConfigError(path.string() + ": expected a name that ends in .safetensors or .npz");
}

}  // namespace

const NumberType& number_type(DType dtype) { return types[static_cast<size_t>(dtype)]; }

const NumberType* find_number_type(const char* NumberType::*format, std::string_view name) {
  const auto* const found = std::ranges::find(types, name, format);
  return name.empty() || found == std::end(types) ? nullptr : found;
}

uint64_t checked_bytes(std::span<const uint64_t> sizes, const NumberType& type, uint64_t available,
                       const std::string& file, const std::string& tensor) {
  check<DataError>(sizes.size() <= size_t{Shape::max_rank}, file, ": ", tensor, " has ",
                   sizes.size(), " axes, expected at most ", Shape::max_rank);
  // Sizes next to a 0 are bounded too, since products of some of them are computed.
  constexpr uint64_t most = uint64_t{1} << 48;
  uint64_t positive = 1, numbers = 1;
  for (const uint64_t size : sizes) {
    const uint64_t factor = size == 0 ? 1 : size;
    check<DataError>(factor <= most / positive, file, ": the shape of ", tensor,
                     " has more than 2^48 elements");
    positive *= factor;
    numbers *= size;
  }
  const uint64_t bytes = numbers * type.bytes;  // below 2^51
  check<DataError>(bytes <= available, file, ": ", tensor, " would take ", bytes,
                   " bytes, but the file has only ", available);
  return bytes;
}

std::span<const std::byte> values_of(const Tensor& contiguous) {
  return {static_cast<const std::byte*>(contiguous.address()),
          static_cast<size_t>(contiguous.bytes())};
}

bool is_tensor_file(const std::filesystem::path& path) {
  return std::ranges::count(formats, path.extension(), &Format::extension) > 0;
}

TensorFile read_tensor_file(const std::filesystem::path& path) {
  return format_of(path).read(data::read_file(path), path.string());
}

void write_tensor_file(const std::filesystem::path& path, const TensorFile& file) {
  data::write_file_durably(path, format_of(path).write(file));
}

}  // namespace longhand::train
