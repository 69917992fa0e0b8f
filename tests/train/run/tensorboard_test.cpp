// Events for TensorBoard.
#include "longhand/train/run/tensorboard.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "longhand/data/bytes.h"
#include "longhand/data/file.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using data::ByteView, data::bytes_of, data::get, data::part, data::text_of;

namespace {

namespace fs = std::filesystem;

/// What a reader needs of an event.
struct BoardEvent {
  double time = 0;
  int64_t step = 0;
  std::string version;
  bool start = false;
  std::map<std::string, float> scalars;
};

/// Fields of a message: calls f(number, value or bytes).
template <class F>
void parse(ByteView message, F&& f) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = std::to_integer<uint64_t>(message[at++]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    const uint64_t wire = key & 7;
    const uint64_t size = wire == 0 ? 0 : wire == 1 ? 8 : wire == 5 ? 4 : varint();
    const uint64_t value = wire == 0 ? varint() : 0;
    f(static_cast<int>(key >> 3), value, message.subspan(at, size));
    at += size;
  }
}

template <class T>
T bits_as(ByteView bytes) {
  T out;
  REQUIRE(bytes.size() == sizeof(T));
  std::memcpy(&out, bytes.data(), sizeof(T));
  return out;
}

uint32_t crc32c(ByteView bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78 : 0);
  }
  return ~crc;
}

uint32_t masked(ByteView bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::vector<BoardEvent> board_events_of(const fs::path& file) {
  const auto bytes = data::read_file(file);
  std::vector<BoardEvent> out;
  for (ByteView rest = bytes; !rest.empty();) {
    const auto size = get<uint64_t>(rest, 0, "events", "length");
    REQUIRE(masked(rest.first(8)) == get<uint32_t>(rest, 8, "events", "CRC"));
    const ByteView payload = part(rest, 12, size, "events", "payload");
    REQUIRE(masked(payload) == get<uint32_t>(rest, 12 + size, "events", "CRC"));
    BoardEvent event;
    parse(payload, [&](int field, uint64_t value, ByteView in) {
      if (field == 1) event.time = bits_as<double>(in);
      if (field == 2) event.step = static_cast<int64_t>(value);
      if (field == 3) event.version = text_of(in);
      if (field == 7) event.start = true;
      if (field == 5)
        parse(in, [&](int, uint64_t, ByteView scalar) {
          std::string tag;
          parse(scalar, [&](int inner, uint64_t, ByteView content) {
            if (inner == 1) tag = text_of(content);
            if (inner == 2) event.scalars[tag] = bits_as<float>(content);
          });
        });
    });
    out.push_back(event);
    rest = rest.subspan(16 + size);
  }
  return out;
}

/// The newest event file of a run; all others must be empty.
fs::path event_file(const fs::path& run) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(run / "tensorboard"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the order in which TensorBoard reads them
  REQUIRE_FALSE(files.empty());
  for (size_t i = 0; i + 1 < files.size(); ++i) CHECK(board_events_of(files[i]).size() == 1);
  return files.back();
}

/// The events of a run, which must be those of its metrics.
std::vector<BoardEvent> check_events(const fs::path& run) {
  std::vector<BoardEvent> events = board_events_of(event_file(run));
  REQUIRE(events.size() >= 2);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[1].start);
  events.erase(events.begin(), events.begin() + 2);
  const std::vector<Record> metrics = read_run(run).metrics;
  REQUIRE(events.size() == metrics.size());
  for (size_t i = 0; i < metrics.size(); ++i) {
    CHECK(events[i].step == metrics[i].step);
    CHECK(events[i].scalars.at(metrics[i].split + "/loss") == static_cast<float>(metrics[i].loss));
    CHECK(events[i].scalars.contains("train/learning_rate") == (metrics[i].split == "train"));
    if (i > 0) CHECK(events[i].time >= events[i - 1].time);
    CHECK(events[i].time - events[0].time ==
          Approx(*metrics[i].seconds - *metrics[0].seconds).margin(0.01));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  CHECK(events.back().time <= std::chrono::duration<double>(now).count() + 0.01);
  return events;
}

}  // namespace

TEST_CASE("checksums are CRC-32C") { CHECK(crc32c(bytes_of("123456789")) == 0xe3069283); }

TEST_CASE("a run writes its metrics as events, and no step twice when it is resumed") {
  const TemporaryDirectory dir;
  const std::string more = "checkpoint_every = 4\ntensorboard = true\n";
  Run::create(tiny_run(more), dir / "whole")->train();
  check_events(dir / "whole");

  // It stops after step 5, but is resumed from the checkpoint of step 4.
  int64_t step = 0;
  Run::create(tiny_run(more), dir / "run")->train(stop_after(5, step));
  const fs::path first = event_file(dir / "run");
  fs::rename(dir / "run/checkpoints/previous.h5", dir / "run/checkpoints/last.h5");
  // As if the lost step had taken an hour.
  data::append_to_file(dir / "run/metrics.jsonl", R"({"step":5,"split":"train","seconds":3600})"
                                                  "\n");
  write_text(dir / "run/tensorboard/events.out.tfevents.0000000001.other",
             "");  // of another program
  fs::remove(dir / "run/tensorboard/events.out.tfevents.0000000001.other");
  Run::resume(dir / "run")->train();
  CHECK(event_file(dir / "run") > first);
  const auto events = check_events(dir / "run");
  std::vector<int64_t> steps;
  for (const BoardEvent& event : events)
    if (event.scalars.contains("train/loss")) steps.push_back(event.step);
  CHECK(steps == std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  // Events are no part of the state.
  CHECK(data::read_file(dir / "run/checkpoints/last.h5") ==
        data::read_file(dir / "whole/checkpoints/last.h5"));

  // They can be asked for later; without them there is no folder.
  Run::create(tiny_run(), dir / "plain")->train();
  CHECK_FALSE(fs::exists(dir / "plain/tensorboard"));
  Run::resume(dir / "plain", {"train.steps=8", "train.tensorboard=true"})->train();
  CHECK(check_events(dir / "plain").size() > 9);
}

TEST_CASE("a file of events is followed by a later one, whatever stands in its name") {
  const std::vector<std::pair<std::string, std::string>> numbers = {
      {"0000000009", "1700000000"},
      {"1700000000", "1700000001"},
      {"8888888999", "8888889000"},
      {"9223372036854775807", "9223372036854775808"},
      {"9999999999", "99999999990"},
      {"99999999999999999999999", "999999999999999999999990"},
      {"1700000000.host.9", "1700000000"},
      {"1700000000.zone.12", "1700000000.zone.13"},
      {"1700000000.zone", "1700000000.zone0"},
      {"-5", "1700000000"}};
  for (const auto& [number, next] : numbers) {
    CAPTURE(number);
    const TemporaryDirectory dir;
    const fs::path other = dir / ("events.out.tfevents." + number + ".longhand");
    write_text(other, "");
    const EventFile file(dir.path(), {}, 1.7e9);
    CHECK(file.path().filename().string() > other.filename().string());
    CHECK(file.path().filename() == "events.out.tfevents." + next + ".longhand");
  }
}
