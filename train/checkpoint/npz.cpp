// npz: an uncompressed zip archive whose entries NAME.npy are arrays
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a magic, a version, the
// length of a header, the header, a Python dictionary such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, and the values.
#include <zip.h>

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "longhand/data/bytes.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/results/json.h"

namespace longhand::train {

using data::Bytes, data::ByteView, data::bytes_of, data::get, data::part, data::put, data::text_of;

namespace {

constexpr const char* metadata_entry = "__metadata__.json";
constexpr std::string_view npy_magic{"\x93NUMPY", 6};

constexpr uint16_t first_of_1980 = 0x21;  // a date

/// Longest header of version 1, whose length is a u16. NumPy writes some 100 bytes.
constexpr uint64_t longest_header = 65535;

/// Returns what precedes the values of an array.
Bytes npy_header(const Tensor& tensor) {
  std::string header = concat_message("{'descr': '", number_type(tensor.dtype()).npy,
                                      "', 'fortran_order': False, ", "'shape': (");
  for (const int64_t size : tensor.shape()) header += std::to_string(size) + ", ";
  header += "), }";
  constexpr size_t before = 10, alignment = 64;
  header.resize((before + header.size() + 1 + alignment - 1) / alignment * alignment - before - 1,
                ' ');
  header += '\n';
  Bytes out;
  put(out, npy_magic);
  put(out, uint8_t{1});
  put(out, uint8_t{0});
  put(out, static_cast<uint16_t>(header.size()));
  put(out, header);
  return out;
}

struct NpyHeader {
  std::string type;
  bool fortran = false;
  std::vector<uint64_t> shape;
};

/// Converts the dictionary to JSON, which has other quotes, brackets for tuples, "true" and
/// "false", and no comma after the last element.
std::string json_of_python(std::string_view text) {
  constexpr std::string_view python = "'()TF", json = "\"[]tf";
  std::string out;
  for (const char c : text) {
    if (c == ')' || c == '}') {
      out.resize(out.find_last_not_of(" \n") + 1);
      if (out.ends_with(',')) out.pop_back();
    }
    const size_t at = python.find(c);
    out += at == std::string_view::npos ? c : json[at];
  }
  return out;
}

NpyHeader read_header(std::string_view text, const std::string& where) {
  try {
    const SortedJson header = parse_sorted_json(json_of_python(text), where);
    const SortedJson& shape = header.at("shape");
    check<DataError>(header.size() == 3 && shape.is_array() &&
                         std::ranges::all_of(shape, &SortedJson::is_number_unsigned),
                     where);
    return {header.at("descr"), header.at("fortran_order"), shape};
  } catch (const std::exception&) {
    throw DataError(where +
                    ": the header of the array is not {'descr': '<f4', 'fortran_order': False, "
                    "'shape': (2, 3), }, with numbers of its own");
  }
}

Tensor tensor_of_npy(ByteView bytes, const std::string& file, const std::string& entry) {
  const std::string where = file + ": " + entry;
  check<DataError>(text_of(bytes).starts_with(npy_magic), where, " is not a NumPy array");
  const auto version = get<uint8_t>(bytes, 6, where, "the version");
  check<DataError>(version >= 1 && version <= 3, where, ": version ", int{version},
                   ", expected 1 to 3");
  const uint64_t begin = version == 1 ? 10 : 12;
  const uint64_t length =
      version == 1 ? uint64_t{get<uint16_t>(bytes, 8, where, "the length of the header")}
                   : uint64_t{get<uint32_t>(bytes, 8, where, "the length of the header")};
  check<DataError>(length <= longest_header, where, ": the header would have ", length,
                   " bytes, expected at most ", longest_header);
  const NpyHeader header =
      read_header(text_of(part(bytes, begin, length, where, "the header")), where);
  const NumberType* const type = find_number_type(&NumberType::npy, header.type);
  check<DataError>(type, where, ": values of type '", header.type,
                   "'; expected little-endian numbers, such as '<f4' or '<i8'");
  const ByteView values = bytes.subspan(begin + length);
  const uint64_t size = checked_bytes(header.shape, *type, values.size(), file, entry);
  check<DataError>(size == values.size(), where, ": its shape takes ", size,
                   " bytes, but there are ", values.size());
  std::vector<uint64_t> sizes = header.shape;
  if (!header.fortran) return type->read(sizes, values);
  std::ranges::reverse(sizes);
  const Tensor reversed = type->read(sizes, values);
  std::vector<int> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(order.size() - 1 - i);
  return reversed.permute(order).contiguous();
}

/// An archive that exists only in memory.
class Archive {
 public:
  /// Opens these bytes, which must outlive it. Without bytes, a new archive.
  Archive(ByteView bytes, std::string name) : name_(std::move(name)) {
    source_ = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error_);
    if (source_)
      zip_ = zip_open_from_source(
          source_, bytes.empty() ? ZIP_TRUNCATE : ZIP_RDONLY | ZIP_CHECKCONS, &error_);
    if (zip_) {
      zip_source_keep(source_);
      return;
    }
    zip_source_free(source_);
    throw DataError(name_ + " is not a zip archive, or is damaged: " + zip_error_strerror(&error_));
  }
  ~Archive() {
    if (zip_) zip_discard(zip_);
    zip_source_free(source_);
    zip_error_fini(&error_);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  int64_t size() const { return zip_get_num_entries(zip_, 0); }

  zip_stat_t entry(int64_t i) const {
    zip_stat_t out;
    verify(zip_stat_index(zip_, static_cast<uint64_t>(i), ZIP_FL_ENC_RAW, &out) == 0, name_);
    return out;
  }

  Bytes contents(int64_t i, uint64_t size, const std::string& where) const {
    Bytes out(size + 1);  // reading to the end checks the CRC
    zip_file_t* const file = zip_fopen_index(zip_, static_cast<uint64_t>(i), 0);
    verify(file, where);
    uint64_t read = 0;
    int64_t now = 0;
    while ((now = zip_fread(file, out.data() + read, out.size() - read)) > 0)
      read += static_cast<uint64_t>(now);
    const std::string reason = zip_file_strerror(file);
    zip_fclose(file);
    check<DataError>(now == 0 && read == size, where, " is damaged: ", reason);
    out.resize(size);
    return out;
  }

  /// Adds an entry from these parts, which must stay alive until bytes().
  void add(const std::string& entry, std::initializer_list<ByteView> parts) {
    std::vector<zip_buffer_fragment_t> fragments;
    for (const ByteView part : parts)
      fragments.push_back(
          {reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(part.data())), part.size()});
    zip_source_t* const source =
        zip_source_buffer_fragment(zip_, fragments.data(), fragments.size(), 0);
    verify(source, entry);
    const int64_t i = zip_file_add(zip_, entry.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (i < 0) zip_source_free(source);
    verify(i >= 0, entry.substr(0, 40));
    const auto index = static_cast<uint64_t>(i);
    verify(zip_set_file_compression(zip_, index, ZIP_CM_STORE, 0) == 0 &&
               zip_file_set_dostime(zip_, index, 0, first_of_1980, 0) == 0,
           entry);
  }

  Bytes bytes() {
    verify(zip_close(zip_) == 0, name_);
    zip_ = nullptr;
    zip_stat_t stat;
    const bool opened = zip_source_stat(source_, &stat) == 0 && zip_source_open(source_) == 0;
    check<DataError>(opened, name_, ": ", zip_error_strerror(zip_source_error(source_)));
    Bytes out(stat.size);
    const int64_t read = zip_source_read(source_, out.data(), out.size());
    zip_source_close(source_);
    check<DataError>(read == std::ssize(out), name_, ": the archive was not written whole");
    return out;
  }

 private:
  void verify(bool ok, const std::string& where) const {
    check<DataError>(ok, where, ": ", zip_strerror(zip_));
  }

  std::string name_;
  zip_error_t error_{};
  zip_source_t* source_ = nullptr;
  zip_t* zip_ = nullptr;
};

}  // namespace

Bytes to_npz(const TensorFile& file) {
  Archive archive({}, "npz");
  std::deque<Tensor> tensors;
  std::deque<Bytes> headers;
  for (const auto& [name, tensor] : file.tensors) {
    const Tensor& values = tensors.emplace_back(tensor.contiguous());
    archive.add(name + ".npy", {headers.emplace_back(npy_header(values)), values_of(values)});
  }
  const std::string metadata = dump(Json(file.metadata), 2);
  if (!file.metadata.empty()) archive.add(metadata_entry, {bytes_of(metadata)});
  if (archive.size() > 0) return archive.bytes();
  Bytes empty;  // libzip writes none
  put(empty, std::string_view("PK\5\6", 4));
  empty.resize(22);
  return empty;
}

TensorFile from_npz(ByteView bytes, const std::string& name) {
  check<DataError>(!bytes.empty(), name, " is empty");
  const Archive archive(bytes, name);
  TensorFile out;
  uint64_t total = 0;
  for (int64_t i = 0; i < archive.size(); ++i) {
    const zip_stat_t entry = archive.entry(i);
    const std::string own_name = entry.name, where = name + ": " + own_name;
    check<DataError>(entry.encryption_method == ZIP_EM_NONE, where, " is encrypted");
    check<DataError>(entry.comp_method == ZIP_CM_STORE, where,
                     " is compressed; expected an archive of numpy.savez, not of "
                     "numpy.savez_compressed");
    check<DataError>(entry.size <= bytes.size() - total, where, ": its ", entry.size,
                     " bytes and those of other entries are more than the ", bytes.size(),
                     " of the archive");
    total += entry.size;
    const Bytes contents = archive.contents(i, entry.size, where);
    if (own_name == metadata_entry) {
      const SortedJson metadata = parse_sorted_json(text_of(contents), where + ":");
      check<DataError>(metadata.is_object(), where, ": expected a JSON object");
      for (const auto& [key, value] : metadata.items()) {
        check<DataError>(value.is_string(), where, ": ", key, ": expected a text");
        out.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    check<DataError>(own_name.ends_with(".npy"), where,
                     ": expected arrays, whose names end in .npy");
    const std::string key = own_name.substr(0, own_name.size() - 4);
    check<DataError>(out.tensors.try_emplace(key, tensor_of_npy(contents, name, own_name)).second,
                     name, ": there are two arrays ", key);
  }
  return out;
}

}  // namespace longhand::train
