// An event file consists of records: the length of the payload (u64), the masked CRC-32C of these 8
// bytes, the payload, its masked CRC-32C, all little-endian. A payload is a protocol buffer:
//
// Event       { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
//               SessionLog session_log = 7; }
// Summary     { repeated Value value = 1; }    Value { string tag = 1; float simple_value = 2; }
// SessionLog  { Status status = 1; }             START = 1: discards later steps that were read
#include "longhand/train/run/tensorboard.h"

#include <fmt/format.h>

#include <bit>
#include <boost/crc.hpp>
#include <cmath>
#include <optional>
#include <string_view>

#include "longhand/data/bytes.h"
#include "longhand/data/file.h"

namespace longhand::train {

using data::Bytes, data::ByteView, data::bytes_of, data::put, data::text_of;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "events.out.tfevents.";
constexpr std::string_view suffix = ".longhand";

/// A protocol buffer message.
class Message {
 public:
  Message& integer(int field, int64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    put(bytes_, std::bit_cast<uint64_t>(value));
    return *this;
  }
  Message& number(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    put(bytes_, std::bit_cast<uint32_t>(value));
    return *this;
  }
  Message& text(int field, std::string_view value) { return raw(field, bytes_of(value)); }
  Message& message(int field, const Message& value) { return raw(field, value.bytes_); }

  const Bytes& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(bytes_, static_cast<uint8_t>(value | 0x80));
    put(bytes_, static_cast<uint8_t>(value));
  }
  Message& raw(int field, ByteView value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    put(bytes_, value);
    return *this;
  }

  Bytes bytes_;
};

uint32_t masked_crc(ByteView bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc32c;
  crc32c.process_bytes(bytes.data(), bytes.size());
  const auto crc = static_cast<uint32_t>(crc32c.checksum());
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string framed(const Message& event) {
  Bytes out;
  put(out, uint64_t{event.bytes().size()});
  put(out, masked_crc(out));
  put(out, event.bytes());
  put(out, masked_crc(event.bytes()));
  return std::string(text_of(out));
}

std::string event_of(const Record& r, double begin) {
  Message summary;
  const auto add = [&](const std::string& name, std::optional<double> value) {
    if (!value) return;
    summary.message(1,
                    Message().text(1, r.split + "/" + name).number(2, static_cast<float>(*value)));
  };
  add("loss", r.loss);
  const bool numbers = std::isnan(r.accuracy);  // numbers have only a loss
  if (!numbers) add("accuracy", r.accuracy);
  for (const auto& [name, value] : r.terms) add("terms/" + name, value);
  if (!numbers) add("perplexity", std::exp(r.cross_entropy()));
  add("bits_per_byte", r.bits_per_byte);
  add("learning_rate", r.learning_rate);
  add("gradient_norm", r.gradient_norm);
  add("tokens_per_second", r.tokens_per_second);
  for (const auto& [name, value] : r.model) add("model/" + name, value);
  if (r.skipped > 0) add("skipped", static_cast<double>(r.skipped));
  return framed(
      Message().number(1, begin + r.seconds.value_or(0)).integer(2, r.step).message(5, summary));
}

/// Returns the first event of a file.
std::string version_of(double begin) {
  return framed(Message().number(1, begin).text(3, "brain.Event:2"));
}

std::string start_of(double begin) {
  return framed(Message().number(1, begin).integer(2, 0).message(7, Message().integer(1, 1)));
}

/// Returns the next text after `digits` of the same length; after the last of them, a longer one.
std::string after(std::string digits) {
  for (size_t i = digits.size(); i > 0 && digits[i - 1] >= '0' && digits[i - 1] <= '9'; --i) {
    if (digits[i - 1] < '9') {
      ++digits[i - 1];
      return digits.replace(i, std::string::npos, digits.size() - i, '0');
    }
  }
  return digits + "0";
}

/// Returns a name that follows `others` alphabetically, the order in which TensorBoard reads files.
/// Their numbers may be of any size.
fs::path next_name(const fs::path& folder, const std::vector<fs::path>& others, double begin) {
  std::string name = fmt::format("{}{:010}{}", prefix, static_cast<int64_t>(begin), suffix);
  for (const fs::path& other : others)
    if (std::string theirs = other.filename().string(); theirs >= name) {
      theirs.resize(theirs.size() - suffix.size());
      name = fmt::format("{}{}{}", prefix, after(theirs.substr(prefix.size())), suffix);
    }
  return folder / name;
}

}  // namespace

bool is_event_file(const std::string& name) {
  return name.starts_with(prefix) && name.ends_with(suffix);
}

EventFile::EventFile(const fs::path& folder, const std::vector<Record>& records, double begin)
    : begin_(begin) {
  data::create_directories_durably(folder);
  std::vector<fs::path> others;  // files of earlier processes, unordered
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_event_file(entry.path().filename().string())) others.push_back(entry.path());
  path_ = next_name(folder, others, begin);
  std::string text = version_of(begin) + start_of(begin);
  for (const Record& record : records) text += event_of(record, begin);
  data::write_file_durably(path_, text);
  // Not removed: a TensorBoard that is reading one of them could not continue with the next.
  for (const fs::path& other : others) data::write_file_durably(other, version_of(begin));
}

void EventFile::add(const Record& record) { unwritten_ += event_of(record, begin_); }

void EventFile::flush() {
  if (unwritten_.empty()) return;
  data::append_to_file(path_, unwritten_);
  unwritten_.clear();
}

}  // namespace longhand::train
