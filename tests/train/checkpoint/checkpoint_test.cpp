#include "longhand/train/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "longhand/core/random.h"
#include "longhand/data/file.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/trailer.h"
#include "tests/support/catch.h"
#include "tests/support/damage.h"
#include "tests/support/files.h"
#include "tests/support/guard_remover.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

Checkpoint small_checkpoint() {
  Checkpoint c;
  c.model["head.weight"] = Tensor::from(std::vector<float>{1, -0.0f, NAN}, {3});
  c.optimizer["step"] = Tensor::from(std::vector<int64_t>{3}, {});
  c.training.step = 3;
  c.config = "[train]\nsteps = 3\n";
  return c;
}

/// One of everything that a tensor can be.
Checkpoint large_checkpoint() {
  Checkpoint c;
  int seed = 0;
  for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8})
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{0}, Shape{3, 0, 2}, Shape{5, 7}, Shape{1, 2, 3, 4, 5, 6}}) {
      // Any bits: infinities, NaN with payloads, subnormal numbers.
      Tensor t = Tensor::empty(shape, dtype);
      dispatch_any(dtype, [&]<class T>() {
        for (int64_t i = 0; i < t.numel(); ++i) {
          const uint64_t bits = Generator(1).fork(seed).bits(i);
          std::memcpy(t.data<T>() + i, &bits, sizeof(T));
        }
      });
      c.model[concat_message("t", seed++, ".", dtype, ".weight")] = t;
    }
  Tensor strided = Tensor::empty({4, 6});
  fill_normal(strided, Generator(2));
  c.model["strided"] = strided.transpose(0, 1).slice(1, 0, 4, 2);
  c.optimizer["m.x"] = strided;
  c.ema["t0.f32.weight"] = Tensor::full({}, 3);
  c.training = {.step = int64_t{1} << 60,
                .seed = std::numeric_limits<uint64_t>::max(),
                .cursor = {.epoch = 7, .batch = 9},
                .interval = {},
                .evaluated_step = 90,
                .best = 1.0 / 3,
                .best_step = 80,
                .evaluations_since_best = 2,
                .last_accuracy = 0.7};
  TrainingState::Interval& interval = c.training.interval;
  interval.steps = 3;
  interval.loss = 0.1 + 0.2;
  interval.correct = 5;
  interval.targets = 6;
  interval.terms = {{"a", 0.5}, {"b.c", -1}};
  c.config = "# ä \"quoted\"\n[model]\nlayers = 2\n";
  return c;
}

void check_equal(const nn::StateDict& a, const nn::StateDict& b) {
  CHECK(a.size() == b.size());
  for (const auto& [name, tensor] : a) {
    INFO(name);
    REQUIRE(b.count(name));
    CHECK(identical(tensor, b.at(name)));
  }
}

void refused(const Bytes& bytes, const std::string& reason) {
  CHECK_THROWS_WITH(from_bytes(bytes, "x.h5"),
                    Catch::StartsWith("x.h5") && Catch::Contains(reason));
}

/// The digest of all but the last 16 bytes, where it belongs.
Bytes resealed(Bytes bytes) {
  test::write_digest(bytes);
  return bytes;
}

/// A checkpoint with these tensors as they are, in HDF5.
Bytes forged(const std::function<void(data::Hdf5Writer&)>& tensors) {
  data::Hdf5Writer out;
  out.attribute("/", "format", "longhand-checkpoint");
  for (const char* const key : {"longhand", "machine", "config"}) out.attribute("/", key, "x");
  for (const char* const group : {"training", "model", "optimizer", "ema"}) out.create_group(group);
  tensors(out);
  Bytes bytes = out.image();
  data::append_trailer(bytes, {"checkpoint", "LHCK", 2});
  return bytes;
}

const fs::path format_folder = LONGHAND_TEST_FORMATS;

}  // namespace

TEST_CASE("a checkpoint comes back bit for bit") {
  const test::TemporaryDirectory folder;
  const Checkpoint saved = GENERATE(0, 1) ? large_checkpoint() : small_checkpoint();
  save(folder / "a.h5", saved);
  const Checkpoint loaded = load(folder / "a.h5");
  check_equal(saved.model, loaded.model);
  check_equal(saved.optimizer, loaded.optimizer);
  check_equal(saved.ema, loaded.ema);
  CHECK(loaded.training == saved.training);
  CHECK(loaded.config == saved.config);
  CHECK(loaded.machine == machine_description());
  CHECK(loaded.version == longhand::version());
}

TEST_CASE("equal checkpoints are equal files") {
  const Bytes first = to_bytes(large_checkpoint());
  sleep(1);  // a timestamp would differ
  CHECK(to_bytes(large_checkpoint()) == first);
  CHECK(to_bytes(from_bytes(first, "x.h5")) == first);
  Checkpoint other = large_checkpoint();
  other.training.step += 1;
  CHECK(to_bytes(other) != first);
}

TEST_CASE("evaluation uses the averaged weights if there are any") {
  const Checkpoint c = large_checkpoint();
  CHECK(c.weights().size() == c.model.size());
  CHECK(c.weights().at("t0.f32.weight").item() == 3);
  CHECK(identical(c.weights().at("strided"), c.model.at("strided")));
}

TEST_CASE("every cut-off checkpoint is refused") {
  const Bytes whole = to_bytes(small_checkpoint());
  for (size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + size);
    try {
      from_bytes(cut, "x.h5");
      FAIL("accepted with " << size << " of " << whole.size() << " bytes");
    } catch (const DataError& e) {
      const std::string message = e.what();
      if (message.find(size < 8 ? "not a Longhand checkpoint" : "cut off") == std::string::npos)
        FAIL("with " << size << " bytes: " << message);
    }
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  CHECK_THROWS_AS(from_bytes(longer, "x.h5"), DataError);
}

TEST_CASE("every damaged checkpoint is refused") {
  const Bytes whole = to_bytes(small_checkpoint());
  const auto expect_refusal = [&](const Bytes& bytes, const std::string& what) {
    try {
      from_bytes(bytes, "x.h5");
    } catch (const DataError&) {
      return;
    }
    FAIL("accepted with " << what);
  };
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes = whole;
    const size_t bit = Generator(3).bits(i) % (8 * bytes.size());
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    expect_refusal(bytes, "bit " + std::to_string(bit) + " flipped");
  }
  for (size_t bit = 8 * (whole.size() - 32); bit < 8 * whole.size(); ++bit) {
    Bytes bytes = whole;
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    expect_refusal(bytes, "bit " + std::to_string(bit) + " of the trailer flipped");
  }
  Bytes bytes = whole;
  bytes[whole.size() / 2] ^= std::byte{1};
  refused(bytes, "is damaged");
}

TEST_CASE("files of other kinds are refused by name") {
  const auto text =
      std::as_bytes(std::span("step,loss\n1,2.3\n and some more text than a trailer"));
  refused({text.begin(), text.end()}, "not a Longhand checkpoint");
  refused({}, "not a Longhand checkpoint");

  data::Hdf5Writer data_file;
  data_file.put("train/tokens", Tensor::zeros({2, 3}, DType::i32));
  refused(data_file.image(), "not a Longhand checkpoint");

  // With a valid trailer, but without a checkpoint.
  Bytes bytes = data_file.image();
  const Bytes whole = to_bytes(small_checkpoint());
  const uint64_t length = bytes.size();
  bytes.insert(bytes.end(), whole.end() - 32, whole.end());
  std::memcpy(bytes.data() + bytes.size() - 24, &length, 8);
  refused(resealed(bytes), "not a Longhand checkpoint");

  Bytes later = whole;
  later[later.size() - 28] = std::byte{9};
  refused(resealed(later), "format version 9");

  CHECK_THROWS_AS(load("/nonexistent/last.h5"), DataError);
}

TEST_CASE("a missing part is an error that names it") {
  data::Hdf5Writer out;
  out.attribute("/", "format", std::string("longhand-checkpoint"));
  out.attribute("/", "longhand", std::string("0.1.0"));
  Bytes bytes = out.image();
  const Bytes whole = to_bytes(small_checkpoint());
  const uint64_t length = bytes.size();
  bytes.insert(bytes.end(), whole.end() - 32, whole.end());
  std::memcpy(bytes.data() + bytes.size() - 24, &length, 8);
  refused(resealed(bytes), "/model: not found in the file");
}

TEST_CASE("checkpoints of every format version are read") {
  const test::GuardRemover remover;
  const fs::path first = format_folder / "checkpoint-1.h5",
                 second = format_folder / "checkpoint-2.h5";
  CHECK_THROWS_WITH(load(first), Catch::StartsWith(first.string()) &&
                                     Catch::Contains("format version 1") &&
                                     Catch::Contains("data::set_file_guard"));
  std::vector<fs::path> guarded;
  data::set_file_guard([&](const data::RegularFile& file) { guarded.push_back(file.path()); });
  for (const fs::path& path : {first, second}) {
    const Checkpoint c = load(path);
    CHECK(c.training.step == 2);
    CHECK(c.model.size() == 22);
    CHECK(c.model.at("blocks.0.mlp.fc2.weight").shape() == Shape{8, 16});
    CHECK(c.optimizer.size() == 45);
    CHECK_THAT(c.config, Catch::Contains("[model]"));
  }
  CHECK(guarded == std::vector{first, second});
  // The same run, the same bits.
  check_equal(load(first).model, load(second).model);

  // Version 1 had no list of the terms of the loss.
  const test::TemporaryDirectory folder;
  Bytes bytes = to_bytes(large_checkpoint());
  const std::string list("interval_terms\0", 15);
  const auto bytes_of_list = std::as_bytes(std::span(list));
  const auto at =
      std::search(bytes.begin(), bytes.end(), bytes_of_list.begin(), bytes_of_list.end());
  REQUIRE(at != bytes.end());
  *at = std::byte('I');
  bytes[bytes.size() - 28] = std::byte{1};
  data::write_file_durably(folder / "terms.h5", resealed(bytes));
  CHECK(load(folder / "terms.h5").training == large_checkpoint().training);
}

TEST_CASE("a guard that throws keeps a checkpoint from being parsed") {
  const test::GuardRemover remover;
  const test::TemporaryDirectory folder;
  save(folder / "a.h5", small_checkpoint());
  data::set_file_guard(
      [](const data::RegularFile& file) { throw DataError("refused " + file.path().string()); });
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH(load(folder / "a.h5"), Catch::Contains("refused"));
}

TEST_CASE("what the guard has read is what is parsed, whatever happens to the file") {
  const test::GuardRemover remover;
  const test::TemporaryDirectory folder;
  const auto path = folder / "a.h5";
  Checkpoint other = small_checkpoint();
  other.training.step += 100;
  const Bytes changed = to_bytes(other);
  for (const bool in_place : {true, false}) {
    save(path, small_checkpoint());
    int calls = 0;
    data::set_file_guard([&](const data::RegularFile& file) {
      if (calls++ > 0) return;
      if (in_place) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(changed.data()), std::ssize(changed));
      } else {
        data::write_file_durably(path, changed);
      }
      CHECK(from_bytes(file.read_all(), "guarded").training == small_checkpoint().training);
    });
    CHECK(load(path).training == small_checkpoint().training);
    CHECK(calls == 1);
    CHECK(load(path).training == other.training);
  }
}

TEST_CASE("tensors that take more memory than the file are refused") {
  const Tensor zeros = Tensor::zeros({1 << 20}, DType::f32);
  refused(forged([&](data::Hdf5Writer& out) {
            out.create_rows("model/packed", data::StoredType::f32, zeros.shape());
            out.put_rows("model/packed", 0, zeros);
          }),
          "/model/packed: is stored in chunks, expected contiguous values");
  // Bytes that become integers of 4 bytes each.
  Bytes wide = forged(
      [&](data::Hdf5Writer& out) { out.put("model/a", Tensor::zeros({1 << 16}, DType::u8)); });
  refused(wide, "/training: has no attribute");  // found after sizes have been checked
  const std::string unsigned_byte("\x10\0\0\0\1\0\0\0", 8), signed_byte("\x10\x08\0\0\1\0\0\0", 8);
  const auto text = std::string(reinterpret_cast<const char*>(wide.data()), wide.size());
  const size_t at = text.find(unsigned_byte);
  REQUIRE(at != std::string::npos);
  std::memcpy(wide.data() + at, signed_byte.data(), signed_byte.size());
  refused(resealed(wide), "its tensors take more bytes than");
}

TEST_CASE("only regular files of the right length are read") {
  const test::TemporaryDirectory folder;
  const fs::path pipe = folder / "pipe.h5", sparse = folder / "sparse.h5";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(load(pipe), Catch::Contains("pipe.h5: not a regular file"));
  CHECK_THROWS_WITH(stored_digest(pipe), Catch::Contains("not a regular file"));
  // 2^40 bytes, of which nothing but the ends may be read.
  save(sparse, small_checkpoint());
  fs::resize_file(sparse, uintmax_t{1} << 40);
  CHECK_THROWS_WITH(load(sparse), Catch::Contains("is cut off"));
  std::ofstream(sparse, std::ios::in | std::ios::binary)
      .seekp((int64_t{1} << 40) - 32)
      .write("LHCK\2\0\0\0", 8);
  CHECK_THROWS_WITH(load(sparse),
                    Catch::Contains("holds an image of 1099511627744 bytes, expected 0"));
  CHECK_THROWS_AS(load(folder.path()), DataError);
}

TEST_CASE("resuming elsewhere is possible, with a warning") {
  Checkpoint c = small_checkpoint();
  CHECK(resume_warning(c).empty());
  c.machine = "OpenBLAS 0.3.0 pthread Other, baseline";
  CHECK_THAT(resume_warning(c), Catch::Contains("OpenBLAS 0.3.0 pthread Other, baseline") &&
                                    Catch::Contains(machine_description()));
  c = small_checkpoint();
  c.version = "0.0.1";
  CHECK_THAT(resume_warning(c), Catch::Contains("Longhand 0.0.1"));
}

}  // namespace longhand::train
