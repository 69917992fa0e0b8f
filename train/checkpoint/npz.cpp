// npz: a zip archive (https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT) without compression,
// of which each entry NAME.npy is an array (https://numpy.org/doc/stable/reference/generated/
// numpy.lib.format.html): a magic, a version, the length of a header, the header, a Python dictionary
//   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
// and the values.
#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "longhand/train/checkpoint/bytes.h"
#include "longhand/train/checkpoint/crc32.h"
#include "longhand/train/checkpoint/tensor_file.h"
#include "longhand/train/results/json.h"

namespace longhand::train {
namespace {

constexpr const char* metadata_entry = "__metadata__.json";
constexpr std::string_view npy_magic{"\x93NUMPY", 6};

constexpr uint32_t local_signature = 0x04034b50, central_signature = 0x02014b50,
                   end_signature = 0x06054b50, end64_signature = 0x06064b50,
                   locator64_signature = 0x07064b50;
constexpr uint64_t local_size = 30, central_size = 46, end_size = 22, end64_size = 56,
                   locator64_size = 20;
constexpr uint16_t version64 = 45;         // of zip: with fields of 64 bits
constexpr uint16_t utf8_names = 1 << 11;   // a flag
constexpr uint16_t encrypted = 1;          // a flag
constexpr uint16_t first_of_1980 = 0x21;   // a date
constexpr uint16_t extra64 = 1;            // the field with sizes of 64 bits
constexpr uint32_t in_extra = 0xffffffff;  // a size that is in that field

constexpr std::array<std::pair<const char*, Stored>, 11> descriptions = {
    {{"<f8", Stored::f64},
     {"<f4", Stored::f32},
     {"<f2", Stored::f16},
     {"<i8", Stored::i64},
     {"<i4", Stored::i32},
     {"<i2", Stored::i16},
     {"|i1", Stored::i8},
     {"<u4", Stored::u32},
     {"<u2", Stored::u16},
     {"|u1", Stored::u8},
     {"|b1", Stored::boolean}}};

Bytes npy_of(const Tensor& tensor) {
  const char* const description =
      std::find_if(descriptions.begin(), descriptions.end(), [&](const auto& each) {
        return each.second == stored_type(tensor.dtype());
      })->first;
  std::string header =
      concat_message("{'descr': '", description, "', 'fortran_order': False, ", "'shape': (");
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
  put(out, values_of(tensor));
  return out;
}

/// Reads the dictionary at the beginning of an array.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, std::string where) : rest_(text), where_(std::move(where)) {
    expect('{');
    while (!skip('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && description.empty())
        description = quoted();
      else if (key == "fortran_order" && !fortran)
        fortran = boolean();
      else if (key == "shape" && !shape)
        shape = tuple();
      else
        fail();
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    blanks();
    if (!rest_.empty() || description.empty() || !fortran || !shape) fail();
  }

  std::string description{};
  std::optional<bool> fortran{};
  std::optional<std::vector<uint64_t>> shape{};

 private:
  [[noreturn]] void fail() const {
    throw DataError(where_ +
                    ": the header of the array is not {'descr': '<f4', 'fortran_order': False, "
                    "'shape': (2, 3), }, with numbers of its own");
  }
  void blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size())); }
  bool skip(std::string_view word) {
    blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool skip(char c) { return skip(std::string_view(&c, 1)); }
  void expect(char c) {
    if (!skip(c)) fail();
  }
  std::string quoted() {
    expect('\'');
    const size_t end = rest_.find('\'');
    if (end == std::string_view::npos) fail();
    std::string out(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return out;
  }
  bool boolean() {
    if (skip("True")) return true;
    if (skip("False")) return false;
    fail();
  }
  std::vector<uint64_t> tuple() {
    std::vector<uint64_t> out;
    expect('(');
    while (!skip(')')) {
      blanks();
      uint64_t value = 0;
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc()) fail();
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      out.push_back(value);
      if (!skip(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view rest_;
  std::string where_;
};

Tensor tensor_of_npy(ByteView bytes, const std::string& file, const std::string& entry) {
  const std::string where = file + ": " + entry;
  check<DataError>(text_of(bytes).starts_with(npy_magic), where, " is no array of NumPy");
  const auto version = get<uint8_t>(bytes, 6, where, "the version");
  check<DataError>(version >= 1 && version <= 3, where, ": version ", int{version},
                   ", expected 1 to 3");
  const uint64_t begin = version == 1 ? 10 : 12;
  const uint64_t length =
      version == 1 ? uint64_t{get<uint16_t>(bytes, 8, where, "the length of the header")}
                   : uint64_t{get<uint32_t>(bytes, 8, where, "the length of the header")};
  const NpyHeader header(text_of(part(bytes, begin, length, where, "the header")), where);
  const auto type = std::find_if(descriptions.begin(), descriptions.end(), [&](const auto& each) {
    return header.description == each.first;
  });
  check<DataError>(type != descriptions.end(), where, ": values of type '", header.description,
                   "'; expected little-endian numbers, such as '<f4' or '<i8'");
  const ByteView values = bytes.subspan(begin + length);
  std::vector<uint64_t> shape = *header.shape;
  const uint64_t size = checked_bytes(shape, type->second, values.size(), file, entry);
  check<DataError>(size == values.size(), where, ": its shape takes ", size,
                   " bytes, but there are ", values.size());
  if (!*header.fortran) return tensor_of(type->second, shape, values);
  std::reverse(shape.begin(), shape.end());
  const Tensor reversed = tensor_of(type->second, shape, values);
  std::vector<int> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(order.size() - 1 - i);
  return reversed.permute(order).contiguous();
}

/// What both headers of an entry have in common, and its sizes.
void put_common(Bytes& out, uint32_t crc) {
  put(out, version64);
  put(out, utf8_names);
  put(out, uint16_t{0});  // stored
  put(out, uint16_t{0});
  put(out, first_of_1980);
  put(out, crc);
  put(out, in_extra);
  put(out, in_extra);
}

struct Written {
  std::string name;
  uint32_t crc;
  uint64_t size, offset;
};

void add(Bytes& out, std::vector<Written>& entries, const std::string& name, ByteView contents) {
  check<DataError>(name.size() < 0xffff, "npz: the name ", name.substr(0, 40), "... is too long");
  const Written entry{name, crc32_zip(contents), contents.size(), out.size()};
  put(out, local_signature);
  put_common(out, entry.crc);
  put(out, static_cast<uint16_t>(name.size()));
  put(out, uint16_t{20});
  put(out, name);
  put(out, extra64);
  put(out, uint16_t{16});
  put(out, entry.size);
  put(out, entry.size);
  put(out, contents);
  entries.push_back(entry);
}

/// An entry of the central directory.
struct Found {
  std::string name;
  uint32_t crc = 0;
  uint64_t size = 0, begin = 0;  // of the contents
  uint64_t local = 0;            // where its own header begins
};

/// Where the central directory is, and how many entries it has.
struct Directory {
  uint64_t begin, size, entries;
};

Directory directory_of(ByteView bytes, const std::string& name) {
  check<DataError>(bytes.size() >= end_size, name, " is too short for an archive");
  uint64_t end = bytes.size() - end_size;
  const uint64_t last = end > 0xffff ? end - 0xffff : 0;
  const auto is_end = [&](uint64_t at) {
    return get<uint32_t>(bytes, at, name, "the end") == end_signature &&
           at + end_size + get<uint16_t>(bytes, at + 20, name, "the end") == bytes.size();
  };
  while (!is_end(end)) {
    check<DataError>(end > last, name, " is no zip archive, or is cut off: it has no end");
    --end;
  }
  Directory out{get<uint32_t>(bytes, end + 16, name, "the end"),
                get<uint32_t>(bytes, end + 12, name, "the end"),
                get<uint16_t>(bytes, end + 10, name, "the end")};
  if (end >= locator64_size &&
      get<uint32_t>(bytes, end - locator64_size, name, "the end") == locator64_signature) {
    const auto at = get<uint64_t>(bytes, end - locator64_size + 8, name, "the end");
    const ByteView record = part(bytes, at, end64_size, name, "the end of 64 bits");
    check<DataError>(get<uint32_t>(record, 0, name, "the end") == end64_signature, name,
                     ": the end of the archive is damaged");
    out = {get<uint64_t>(record, 48, name, "the end"), get<uint64_t>(record, 40, name, "the end"),
           get<uint64_t>(record, 32, name, "the end")};
  }
  part(bytes, out.begin, out.size, name, "the list of entries");
  return out;
}

/// Reads sizes that do not fit their fields from the field of 64 bits.
void read_extra(ByteView extra, uint64_t& size, uint64_t& stored, uint64_t& offset,
                const std::string& where) {
  while (extra.size() >= 4) {
    const auto id = get<uint16_t>(extra, 0, where, "a field");
    const ByteView field =
        part(extra, 4, get<uint16_t>(extra, 2, where, "a field"), where, "a field");
    uint64_t at = 0;
    for (uint64_t* const value : {&size, &stored, &offset})
      if (id == extra64 && *value == in_extra) {
        *value = get<uint64_t>(field, at, where, "a size");
        at += 8;
      }
    extra = extra.subspan(4 + field.size());
  }
}

std::vector<Found> entries_of(ByteView bytes, const std::string& name) {
  const Directory directory = directory_of(bytes, name);
  const ByteView list = bytes.subspan(directory.begin, directory.size);
  std::vector<Found> out;
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const ByteView fixed = part(list, at, central_size, name, "an entry of the archive");
    const auto number = [&]<class T>(uint64_t place, T) {
      return get<T>(fixed, place, name, "an entry");
    };
    check<DataError>(number(0, uint32_t{}) == central_signature, name,
                     ": the list of entries is damaged");
    const uint64_t name_size = number(28, uint16_t{}), extra_size = number(30, uint16_t{});
    Found entry;
    entry.name = text_of(part(list, at + central_size, name_size, name, "a name"));
    const std::string where = name + ": " + entry.name;
    check<DataError>((number(8, uint16_t{}) & encrypted) == 0, where, " is encrypted");
    check<DataError>(number(10, uint16_t{}) == 0, where,
                     " is compressed; expected an archive of numpy.savez, not of "
                     "numpy.savez_compressed");
    entry.crc = number(16, uint32_t{});
    uint64_t stored = number(20, uint32_t{});
    entry.size = number(24, uint32_t{});
    entry.local = number(42, uint32_t{});
    read_extra(part(list, at + central_size + name_size, extra_size, where, "a field"), entry.size,
               stored, entry.local, where);
    check<DataError>(stored == entry.size, where, ": sizes ", stored, " and ", entry.size,
                     " of an entry that is not compressed");
    // The entry itself, of whose header only the sizes of its parts matter.
    const ByteView local = part(bytes.first(directory.begin), entry.local, local_size, where,
                                "the header of the entry");
    check<DataError>(get<uint32_t>(local, 0, where, "a header") == local_signature, where,
                     ": the header of the entry is damaged");
    const uint64_t own_name = get<uint16_t>(local, 26, where, "a header");
    const uint64_t own_extra = get<uint16_t>(local, 28, where, "a header");
    check<DataError>(
        text_of(part(bytes, entry.local + local_size, own_name, where, "a name")) == entry.name,
        where, ": the entry has another name than the list of entries says");
    entry.begin = entry.local + local_size + own_name + own_extra;
    part(bytes.first(directory.begin), entry.begin, entry.size, where, "the contents");
    out.push_back(std::move(entry));
    at += central_size + name_size + extra_size + number(32, uint16_t{});
  }
  check<DataError>(at == list.size(), name, ": the list of entries has ", list.size(),
                   " bytes, but its ", directory.entries, " entries take ", at);
  std::sort(out.begin(), out.end(),
            [](const Found& a, const Found& b) { return a.local < b.local; });
  for (size_t i = 1; i < out.size(); ++i)
    check<DataError>(out[i].local >= out[i - 1].begin + out[i - 1].size, name, ": the entries ",
                     out[i - 1].name, " and ", out[i].name, " overlap");
  return out;
}

}  // namespace

Bytes to_npz(const TensorFile& file) {
  Bytes out;
  std::vector<Written> entries;
  for (const auto& [name, tensor] : file.tensors)
    add(out, entries, name + ".npy", npy_of(tensor.contiguous()));
  if (!file.metadata.empty()) {
    const std::string text = dump(Json(file.metadata), 2);
    add(out, entries, metadata_entry, bytes_of(text));
  }
  const uint64_t begin = out.size();
  for (const Written& entry : entries) {
    put(out, central_signature);
    put(out, version64);
    put_common(out, entry.crc);
    put(out, static_cast<uint16_t>(entry.name.size()));
    put(out, uint16_t{28});
    for (int i = 0; i < 3; ++i) put(out, uint16_t{0});  // no comment, first disk, binary
    put(out, uint32_t{0});
    put(out, in_extra);
    put(out, entry.name);
    put(out, extra64);
    put(out, uint16_t{24});
    put(out, entry.size);
    put(out, entry.size);
    put(out, entry.offset);
  }
  const uint64_t end64 = out.size(), size = end64 - begin, count = entries.size();
  put(out, end64_signature);
  put(out, uint64_t{end64_size - 12});
  put(out, version64);
  put(out, version64);
  put(out, uint64_t{0});  // the first disk, twice
  put(out, count);
  put(out, count);
  put(out, size);
  put(out, begin);
  put(out, locator64_signature);
  put(out, uint32_t{0});
  put(out, end64);
  put(out, uint32_t{1});
  put(out, end_signature);
  put(out, uint32_t{0});
  put(out, uint32_t{in_extra});  // two counts
  put(out, in_extra);
  put(out, in_extra);
  put(out, uint16_t{0});
  return out;
}

TensorFile from_npz(ByteView bytes, const std::string& name) {
  TensorFile out;
  for (const Found& entry : entries_of(bytes, name)) {
    const std::string where = name + ": " + entry.name;
    const ByteView contents = bytes.subspan(entry.begin, entry.size);
    check<DataError>(crc32_zip(contents) == entry.crc, where,
                     " is damaged: its CRC differs from the stored one");
    if (entry.name == metadata_entry) {
      SortedJson metadata;
      try {
        metadata = parse_sorted_json(text_of(contents));
      } catch (const DataError& error) {
        throw DataError(where + ": no JSON: " + error.what());
      }
      check<DataError>(metadata.is_object(), where, ": expected a JSON object");
      for (const auto& [key, value] : metadata.items()) {
        check<DataError>(value.is_string(), where, ": ", key, ": expected a text");
        out.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    check<DataError>(entry.name.ends_with(".npy"), where,
                     ": expected arrays, whose names end in .npy");
    const std::string key = entry.name.substr(0, entry.name.size() - 4);
    check<DataError>(out.tensors.try_emplace(key, tensor_of_npy(contents, name, entry.name)).second,
                     name, ": there are two arrays ", key);
  }
  return out;
}

}  // namespace longhand::train
