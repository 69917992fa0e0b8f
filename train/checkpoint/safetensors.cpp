// safetensors: 8 bytes with the length of the header, little-endian; the header, a JSON object
// {"__metadata__": {"key": "…"}, "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}
// whose offsets count from its end; the values, row-major and little-endian.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "longhand/data/bytes.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/results/json.h"

namespace longhand::train {

using data::Bytes, data::ByteView, data::get, data::part, data::put, data::text_of;

namespace {

constexpr const char* metadata_key = "__metadata__";
/// A header of 16 MiB names some 100,000 tensors. Parsed JSON is many times larger than its text.
constexpr uint64_t longest_header = uint64_t{16} << 20;

/// An entry of the header.
struct Entry {
  std::string name;
  const NumberType* type = nullptr;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
};

/// Returns a list of non-negative integers.
std::vector<uint64_t> integers(const SortedJson& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  check<DataError>(found != entry.end() && found->is_array(), where, ": expected a list \"", key,
                   "\"");
  std::vector<uint64_t> out;
  for (const SortedJson& each : *found) {
    check<DataError>(each.is_number_unsigned(), where, ": \"", key,
                     "\" has an element that is not an integer of at least 0");
    out.push_back(each.get<uint64_t>());
  }
  return out;
}

Entry entry_of(const std::string& name, const SortedJson& from, uint64_t available,
               const std::string& file) {
  const std::string where = file + ": tensor " + name;
  check<DataError>(from.is_object(), where, ": expected an object in the header");
  Entry out{.name = name, .shape = integers(from, "shape", where)};
  const auto dtype = from.find("dtype");
  check<DataError>(dtype != from.end() && dtype->is_string(), where, ": expected a text \"dtype\"");
  const auto& type = dtype->get_ref<const std::string&>();
  out.type = find_number_type(&NumberType::safetensors, type);
  check<DataError>(out.type, where, ": dtype ", type,
                   " is not supported; expected F64, F32, F16, BF16, I64, I32, I16, I8, U32, U16, "
                   "U8 or BOOL");
  const std::vector<uint64_t> offsets = integers(from, "data_offsets", where);
  check<DataError>(offsets.size() == 2, where, ": expected 2 data_offsets, got ", offsets.size());
  out.begin = offsets[0];
  out.end = offsets[1];
  const uint64_t bytes = checked_bytes(out.shape, *out.type, available, file, "tensor " + name);
  check<DataError>(out.begin <= out.end && out.end - out.begin == bytes, where,
                   ": its shape takes ", bytes, " bytes, but its data_offsets are ", out.begin,
                   " and ", out.end);
  return out;
}

}  // namespace

Bytes to_safetensors(const TensorFile& file) {
  // Large elements first, so that all are aligned.
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, tensor] : file.tensors) {
    check<DataError>(name != metadata_key, "safetensors: ", name, " cannot name a tensor");
    tensors.emplace_back(name, tensor.contiguous());
  }
  std::ranges::stable_sort(tensors, std::greater(),
                           [](const auto& each) { return size_of(each.second.dtype()); });
  SortedJson header = SortedJson::object();
  if (!file.metadata.empty()) header[metadata_key] = file.metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const uint64_t end = offset + values_of(tensor).size();
    header[name] = {{"dtype", number_type(tensor.dtype()).safetensors},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  check<DataError>(text.size() <= longest_header, "safetensors: the header has ", text.size(),
                   " bytes, expected at most ", longest_header);
  Bytes out;
  out.reserve(8 + text.size() + offset);
  put(out, uint64_t{text.size()});
  put(out, text);
  for (const auto& [name, tensor] : tensors) put(out, values_of(tensor));
  return out;
}

TensorFile from_safetensors(ByteView bytes, const std::string& name) {
  const uint64_t length = get<uint64_t>(bytes, 0, name, "the length of the header");
  check<DataError>(length >= 2 && length <= longest_header, name, ": the header would have ",
                   length, " bytes, expected 2 to ", longest_header, ": not a safetensors file");
  const std::string_view text = text_of(part(bytes, 8, length, name, "the header"));
  check<DataError>(text.front() == '{', name,
                   ": the header does not begin with {: not a safetensors file");
  const SortedJson header = parse_sorted_json(text, name + ": the header is");
  const ByteView values = bytes.subspan(8 + length);
  TensorFile out;
  std::vector<Entry> entries;
  for (const auto& [key, value] : header.items()) {
    if (key != metadata_key) {
      entries.push_back(entry_of(key, value, values.size(), name));
      continue;
    }
    check<DataError>(value.is_object(), name, ": ", metadata_key, ": expected an object");
    for (const auto& [about, each] : value.items()) {
      check<DataError>(each.is_string(), name, ": ", metadata_key, ": ", about,
                       ": expected a text");
      out.metadata[about] = each.get<std::string>();
    }
  }
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    check<DataError>(entry.begin == end, name, ": tensor ", entry.name, " begins at byte ",
                     entry.begin, ", expected ", end, ", where the one before it ends");
    end = entry.end;
  }
  check<DataError>(end == values.size(), name, ": its tensors take ", end, " bytes, but there are ",
                   values.size(), " after the header");
  for (const Entry& entry : entries)
    out.tensors[entry.name] =
        entry.type->read(entry.shape, values.subspan(entry.begin, entry.end - entry.begin));
  return out;
}

}  // namespace longhand::train
