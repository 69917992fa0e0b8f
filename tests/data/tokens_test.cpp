#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/file_guard.h"
#include "longhand/data/hdf5.h"
#include "longhand/data/tasks/stored.h"
#include "tests/support/files.h"
#include "tests/support/guard_remover.h"

using namespace longhand;
using namespace longhand::data;
using Catch::Contains;
using longhand::test::message_of;
using longhand::test::TemporaryDirectory;

namespace {

using Ints = std::vector<int32_t>;

// The datasets of a valid file, by path: tests modify some of them and write the file.
std::map<std::string, Tensor> sequences() {
  std::map<std::string, Tensor> file;
  for (const std::string split : {"train", "validation", "test"}) {
    file[split + "/tokens"] = Tensor::from(Ints{1, 2, 3, 4, 5, 0, 9, 0, 0}, {3, 3});
    file[split + "/targets"] = Tensor::from(Ints{0, 2, 1}, {3});
    file[split + "/lengths"] = Tensor::from(Ints{3, 2, 1}, {3});
  }
  return file;
}

std::map<std::string, Tensor> per_token() {
  auto file = sequences();
  for (const std::string split : {"train", "validation", "test"})
    file[split + "/targets"] = Tensor::from(Ints{-100, 1, 2, 3, -100, 77, 0, 77, 77}, {3, 3});
  return file;
}

using Attributes = std::map<std::string, AttributeValue>;

void write(const std::filesystem::path& path, const std::map<std::string, Tensor>& datasets,
           const Attributes& attributes = {}) {
  Hdf5Writer file;
  for (const auto& [name, tensor] : datasets) file.put(name, tensor);
  for (const auto& [key, value] : attributes) file.attribute("/", key, value);
  write_file_durably(path, file.image());
}

Task load(const std::filesystem::path& path, const std::function<void(Options&)>& set = {}) {
  Options options("data");
  options.set("task", "tokens");
  options.set("path", path.string());
  if (set) set(options);
  Task task = make_task(options, 0);
  return task;
}

std::string complaint(const std::map<std::string, Tensor>& datasets,
                      const Attributes& attributes = {}) {
  const TemporaryDirectory dir;
  write(dir / "my.h5", datasets, attributes);
  return message_of<DataError>([&] { load(dir / "my.h5"); });
}

Batch collate(const Dataset& dataset, const std::vector<int64_t>& rows) {
  return dataset.collate(rows);
}

}  // namespace

TEST_CASE("tokens: sequences with classes") {
  const TemporaryDirectory dir;
  write(dir / "my.h5", sequences());
  const Task task = load(dir / "my.h5");
  CHECK(task.info.name == "tokens");
  CHECK(task.info.vocabulary == 10);
  CHECK(task.info.classes == 3);
  CHECK(task.info.max_length == 3);
  CHECK(!task.info.per_token);
  CHECK(!task.info.causal);
  CHECK(!task.info.bytes);

  CHECK(task.test->size() == 3);
  CHECK(task.test->length(1) == 2);
  const Batch all = collate(*task.train, {2, 0, 1, 0});
  CHECK(all.tokens.shape() == Shape{4, 3});
  CHECK(all.tokens.to_vector<int32_t>() == Ints{9, 0, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3});
  CHECK(all.targets.to_vector<int32_t>() == Ints{1, 0, 2, 0});
  CHECK(all.lengths.to_vector<int32_t>() == Ints{1, 3, 2, 3});
  const Batch shorter = collate(*task.train, {1, 2});
  CHECK(shorter.tokens.to_vector<int32_t>() == Ints{4, 5, 9, 0});
  const Batch full = collate(*task.train, {1, 1});
  CHECK(!full.lengths.defined());
  CHECK(full.tokens.shape() == Shape{2, 2});
  CHECK_THROWS_AS(collate(*task.train, {3}), DataError);
}

TEST_CASE("tokens: classes of tokens, and arbitrary padding") {
  const TemporaryDirectory dir;
  auto file = per_token();
  file["train/tokens"] = Tensor::from(Ints{1, 2, 3, 4, 5, -1, 9, 1000, -7}, {3, 3});
  write(dir / "my.h5", file);
  const Task task = load(dir / "my.h5");
  CHECK(task.info.per_token);
  CHECK(task.info.vocabulary == 10);
  CHECK(task.info.classes == 4);
  const Batch batch = collate(*task.train, {0, 1, 2});
  CHECK(batch.tokens.to_vector<int32_t>() == Ints{1, 2, 3, 4, 5, 0, 9, 0, 0});
  CHECK(batch.targets.to_vector<int32_t>() == Ints{-100, 1, 2, 3, -100, -100, 0, -100, -100});
}

TEST_CASE("tokens: without lengths every row is full, and splits may differ in length") {
  const TemporaryDirectory dir;
  auto file = sequences();
  for (const std::string split : {"train", "validation", "test"}) file.erase(split + "/lengths");
  file["test/tokens"] = Tensor::from(Ints{1, 2, 3, 4, 5, 6, 7, 8}, {1, 8});
  file["test/targets"] = Tensor::from(Ints{0}, {1});
  write(dir / "my.h5", file);
  const Task task = load(dir / "my.h5");
  CHECK(task.info.max_length == 8);
  CHECK(task.train->length(2) == 3);
  CHECK(!collate(*task.train, {0, 2}).lengths.defined());
}

TEST_CASE("tokens: splits that are not used need not be there, nor be in order") {
  const TemporaryDirectory dir;
  auto file = sequences();
  for (const std::string name : {"tokens", "targets", "lengths"}) file.erase("train/" + name);
  file["validation/tokens"] = Tensor::full({3, 3}, -1, DType::i32);
  write(dir / "my.h5", file);
  Options options("data");
  options.set("task", "tokens");
  options.set("path", (dir / "my.h5").string());
  const Task task = make_task(options, 0, Splits::only("test"));
  CHECK(task.test->size() == 3);
  CHECK(task.info.vocabulary == 10);
  CHECK_THROWS_WITH(task.split("train"), Contains("the split train was not requested"));
  CHECK_THROWS_AS(make_task(options, 0), DataError);
  CHECK_THROWS_AS(Splits::only("tset"), ConfigError);
}

TEST_CASE("tokens: numbers of any integer type") {
  const TemporaryDirectory dir;
  auto file = sequences();
  file["train/tokens"] = file["train/tokens"].to(DType::i64);
  file["test/tokens"] = file["test/tokens"].to(DType::u8);
  file["test/lengths"] = file["test/lengths"].to(DType::u8);
  write(dir / "my.h5", file);
  const Task task = load(dir / "my.h5");
  CHECK(content_hash(*task.train) == content_hash(*task.validation));
  CHECK(content_hash(*task.test) == content_hash(*task.validation));
}

TEST_CASE("tokens: attributes override what the numbers imply") {
  const TemporaryDirectory dir;
  write(dir / "my.h5", sequences(),
        {{"task", "poems"},
         {"vocabulary", int64_t{256}},
         {"classes", int64_t{5}},
         {"bytes", int64_t{1}},
         {"causal", int64_t{1}},
         {"version", "mine"}});
  const Task task = load(dir / "my.h5");
  CHECK(task.info.name == "poems");
  CHECK(task.info.vocabulary == 256);
  CHECK(task.info.classes == 5);
  CHECK(task.info.bytes);
  CHECK(task.info.causal);
  CHECK(!load(dir / "my.h5", [](Options& o) { o.set("causal", false); }).info.causal);
}

TEST_CASE("tokens: errors in a file are reported before training starts") {
  auto file = sequences();
  SECTION("no split") {
    for (const char* part : {"tokens", "targets", "lengths"})
      file.erase(std::string("validation/") + part);
    CHECK_THAT(complaint(file),
               Contains("my.h5: /validation: not found in the file; found test, train"));
  }
  SECTION("no targets") {
    file.erase("test/targets");
    CHECK_THAT(complaint(file),
               Contains("my.h5: /test/targets: not found in the file; found lengths, tokens"));
  }
  SECTION("floats") {
    file["train/tokens"] = file["train/tokens"].to(DType::f32);
    CHECK_THAT(complaint(file), Contains("/train/tokens: expected integers, got floating-point") &&
                                    Contains("astype(\"int32\")"));
  }
  SECTION("float targets") {
    file["train/targets"] = file["train/targets"].to(DType::f64);
    CHECK_THAT(complaint(file), Contains("/train/targets: expected integers, got floating-point"));
  }
  SECTION("rank of tokens") {
    file["train/tokens"] = Tensor::zeros({3}, DType::i32);
    CHECK_THAT(complaint(file), Contains("/train/tokens: shape [3] is not (S, N)") &&
                                    Contains("pad sequences") && Contains("add lengths (S)"));
  }
  SECTION("misspelt names") {
    file["train/length"] = file["train/lengths"];
    file.erase("train/lengths");
    CHECK_THAT(
        complaint(file),
        Contains("/train: the dataset \"length\" would be ignored; did you mean \"lengths\""));
    file = sequences();
    file["tests/tokens"] = file["test/tokens"];
    file.erase("test/tokens"), file.erase("test/targets"), file.erase("test/lengths");
    CHECK_THAT(complaint(file),
               Contains("my.h5: the group \"tests\" would be ignored; did you mean \"test\""));
  }
  SECTION("no sequences") {
    file["train/tokens"] = Tensor::zeros({0, 3}, DType::i32);
    CHECK_THAT(complaint(file),
               Contains("/train/tokens: shape [0, 3] is not (S, N) with at least"));
  }
  SECTION("no tokens") {
    file["train/tokens"] = Tensor::zeros({3, 0}, DType::i32);
    CHECK_THAT(complaint(file),
               Contains("/train/tokens: shape [3, 0] is not (S, N) with at least"));
  }
  SECTION("number of targets") {
    file["test/targets"] = Tensor::zeros({4}, DType::i32);
    CHECK_THAT(complaint(file), Contains("/test/targets: shape [4] is neither [3] nor [3, 3]"));
  }
  SECTION("shape of targets") {
    file["test/targets"] = Tensor::zeros({3, 4}, DType::i32);
    CHECK_THAT(complaint(file), Contains("/test/targets: shape [3, 4] is neither [3] nor [3, 3]"));
  }
  SECTION("targets of two kinds") {
    file["test/targets"] = Tensor::zeros({3, 3}, DType::i32);
    CHECK_THAT(complaint(file),
               Contains("/test/targets: are of tokens, but those of train are not"));
  }
  SECTION("number of lengths") {
    file["train/lengths"] = Tensor::full({3, 1}, 1, DType::i32);
    CHECK_THAT(complaint(file), Contains("/train/lengths: shape [3, 1] is not [3]"));
  }
  SECTION("length 0") {
    file["train/lengths"] = Tensor::from(Ints{3, 0, 1}, {3});
    CHECK_THAT(complaint(file), Contains("/train/lengths: row 1: length 0 is not in 1 … 3"));
  }
  SECTION("length beyond N") {
    file["test/lengths"] = Tensor::from(Ints{3, 2, 4}, {3});
    CHECK_THAT(complaint(file), Contains("/test/lengths: row 2: length 4 is not in 1 … 3"));
  }
  SECTION("negative token") {
    file["validation/tokens"] = Tensor::from(Ints{1, 2, 3, 4, -5, 0, 9, 0, 0}, {3, 3});
    CHECK_THAT(complaint(file),
               Contains("/validation/tokens: row 1, position 1: token -5 is not 0 or more"));
  }
  SECTION("token beyond int32") {
    file["train/tokens"] = Tensor::full({3, 3}, 1e10, DType::i64);
    CHECK_THAT(complaint(file),
               Contains("/train/tokens: row 0 holds 10000000000, which does not fit"));
  }
  SECTION("negative target") {
    file["train/targets"] = Tensor::from(Ints{0, -100, -1}, {3});
    CHECK_THAT(complaint(file), Contains("/train/targets: row 2: target -1 is not 0 or more"));
  }
  SECTION("ignored targets only") {
    file["train/targets"] = Tensor::full({3}, -100, DType::i32);
    CHECK_THAT(complaint(file), Contains("/train/targets: no targets: every one is -100"));
  }
  SECTION("token beyond the vocabulary") {
    CHECK_THAT(complaint(file, {{"vocabulary", int64_t{9}}}),
               Contains("/train/tokens: row 2, position 0: token 9 is not in 0 … 8, as the file's "
                        "attribute \"vocabulary\""));
  }
  SECTION("target beyond the classes") {
    CHECK_THAT(
        complaint(file, {{"classes", int64_t{2}}}),
        Contains("/train/targets: row 1: target 2 is not in 0 … 1, as the file's attribute"));
  }
  SECTION("invalid attributes") {
    CHECK_THAT(complaint(file, {{"vocabulary", int64_t{0}}}),
               Contains("\"vocabulary\": 0 is not in 1"));
    CHECK_THAT(complaint(file, {{"classes", "three"}}), Contains("expected an integer, got text"));
    CHECK_THAT(complaint(file, {{"format", "longhand-data"}, {"version", int64_t{3}}}),
               Contains("format version 3, expected 1 to 2"));
  }
}

TEST_CASE("tokens: misspelt attributes are refused, labels are names of classes") {
  const test::GuardRemover remove_guard;
  set_file_guard([](const RegularFile&) {});
  CHECK_THAT(complaint(sequences(), {{"vocabluary", int64_t{20}}}),
             Contains("my.h5: the attribute \"vocabluary\" would be ignored; did you mean "
                      "\"vocabulary\""));
  CHECK_THAT(complaint(sequences(), {{"labels", "a\nb\nc\nd"}}),
             Contains("\"labels\" names 4 classes, but there are 3"));
  const TemporaryDirectory dir;
  write(dir / "my.h5", sequences(), {{"labels", "no\nyes\nperhaps"}, {"author", "me"}});
  const Task task = load(dir / "my.h5");
  CHECK(task.info.labels == std::vector<std::string>{"no", "yes", "perhaps"});
  CHECK(task.train->fingerprint() == content_hash(*task.train));
  write_task(task, dir / "again.h5", 0);
  CHECK(load(dir / "again.h5").info.labels == task.info.labels);
}

TEST_CASE("tokens: ignored targets do not count as classes of sequences") {
  auto file = sequences();
  file["train/targets"] = Tensor::from(Ints{0, -100, 1}, {3});
  const TemporaryDirectory dir;
  write(dir / "my.h5", file);
  CHECK(collate(*load(dir / "my.h5").train, {1, 2}).targets.to_vector<int32_t>() == Ints{-100, 1});
}

TEST_CASE("tokens: files that are missing or not HDF5") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of<DataError>([&] { load(dir / "none.h5"); }),
             Contains("none.h5: cannot open the file: No such file"));
  test::write_text(dir / "a.h5", "text");
  CHECK_THAT(message_of<DataError>([&] { load(dir / "a.h5"); }),
             Contains("a.h5: expected an HDF5 file, got one that does not begin like HDF5"));
  CHECK_THAT(message_of<ConfigError>([&] { load(""); }),
             Contains("data.path = \"\": expected the path of"));
}

namespace {

// Numbers that depend on the position alone, in rows of different lengths.
class Made final : public Dataset {
 public:
  Made(int64_t size, int64_t width, bool padded, bool per_token)
      : size_(size), width_(width), padded_(padded), per_token_(per_token) {}
  int64_t size() const override { return size_; }
  // The first examples have equal lengths: together they need no padding.
  int64_t length(int64_t i) const override {
    return padded_ ? (i < 16 ? 32 : 1 + i * 31 % width_) : width_;
  }
  Batch collate(std::span<const int64_t> indices) const override {
    int64_t longest = 0, shortest = width_;
    for (const int64_t i : indices) {
      longest = std::max(longest, length(i));
      shortest = std::min(shortest, length(i));
    }
    const bool uneven = shortest < longest;
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{Tensor::zeros({count, longest}, DType::i32),
                Tensor::full(per_token_ ? Shape{count, longest} : Shape{count}, -100, DType::i32),
                uneven ? Tensor::empty({count}, DType::i32) : Tensor()};
    for (int64_t b = 0; b < count; ++b) {
      const int64_t i = indices[b];
      for (int64_t j = 0; j < length(i); ++j) {
        batch.tokens.data<int32_t>()[b * longest + j] = static_cast<int32_t>((i * 7 + j * j) % 300);
        if (per_token_ && j % 3 > 0)
          batch.targets.data<int32_t>()[b * longest + j] = static_cast<int32_t>((i + j) % 200);
      }
      if (!per_token_) batch.targets.data<int32_t>()[b] = static_cast<int32_t>(i % 200);
      if (uneven) batch.lengths.data<int32_t>()[b] = static_cast<int32_t>(length(i));
    }
    return batch;
  }

 private:
  int64_t size_, width_;
  bool padded_, per_token_;
};

Task made(bool padded, bool per_token) {
  Task task;
  task.info = {"made", 301, 202, per_token, true, true, 50};
  task.train = std::make_unique<Made>(1000, 50, padded, per_token);
  task.validation = std::make_unique<Made>(17, 40, padded, per_token);
  task.test = std::make_unique<Made>(300, 50, padded, per_token);
  return task;
}

}  // namespace

TEST_CASE("tasks are unchanged after being written and read") {
  const bool padded = GENERATE(false, true), per_token = GENERATE(false, true);
  const TemporaryDirectory dir;
  const Task task = made(padded, per_token);
  write_task(task, dir / "made.h5", UINT64_MAX);
  const Task read = load(dir / "made.h5");
  CHECK(read.info.name == "made");
  CHECK(read.info.vocabulary == 301);
  CHECK(read.info.classes == 202);
  CHECK(read.info.per_token == per_token);
  CHECK(read.info.causal);
  CHECK(read.info.bytes);
  CHECK(read.info.max_length == 50);
  const auto file = Hdf5Reader::open(dir / "made.h5");
  CHECK(file.attribute_as<std::string>("/", "seed") == "18446744073709551615");
  for (const std::string split : {"train", "validation", "test"}) {
    CHECK(content_hash(read.split(split)) == content_hash(task.split(split)));
    CHECK(content_hash(read.split(split)) == file.attribute_as<std::string>(split, "content_hash"));
    CHECK(file.has(split + "/lengths") == padded);
  }
  CHECK(std::filesystem::file_size(dir / "made.h5") < 1317 * 50 * 2);

  if (padded) {  // row 0 has 32 tokens of 50
    CHECK(file.read_rows("train/tokens", 0, 1, DType::i32).at({0, 32}) == 0);
    if (per_token)
      CHECK(file.read_rows("train/targets", 0, 1, DType::i32).at({0, 32}) == ignore_index);
  }

  const std::vector<int64_t> rows{999, 3, 4, 5, 500, 3};
  const Batch a = read.train->collate(rows), b = task.train->collate(rows);
  CHECK(identical(a.tokens, b.tokens));
  CHECK(identical(a.targets, b.targets));
}

TEST_CASE("any flipped bit of a written task is an error") {
  const TemporaryDirectory dir;
  write_task(made(true, false), dir / "whole.h5", 1);
  const auto whole = read_file(dir / "whole.h5");
  const auto flipped = [&](uint64_t bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    write_file_durably(dir / "flipped.h5", bytes);
    try {
      load(dir / "flipped.h5");
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), Contains("flipped.h5"));
      return true;
    }
    return false;
  };
  for (int i = 0; i < 200; ++i) {
    const uint64_t bit = Generator(5).bits(i) % (8 * whole.size());
    if (!flipped(bit)) FAIL("accepted with bit " << bit << " flipped");
  }
  for (uint64_t bit = 8 * (whole.size() - 32); bit < 8 * whole.size(); bit += 3)
    if (!flipped(bit)) FAIL("accepted with bit " << bit << " of the trailer flipped");
}

TEST_CASE("examples are compared with the hash in the file") {
  const TemporaryDirectory dir;
  const auto with_hash = [&](const std::string& hash) {
    Hdf5Writer file;
    for (const auto& [name, tensor] : sequences()) file.put(name, tensor);
    file.attribute("validation", "content_hash", hash);
    write_file_durably(dir / "a.h5", file.image());
  };
  write(dir / "plain.h5", sequences());
  const std::string hash = content_hash(*load(dir / "plain.h5").validation);
  with_hash(hash);
  CHECK(content_hash(*load(dir / "a.h5").validation) == hash);
  with_hash(std::string(32, '0'));
  CHECK_THAT(message_of<DataError>([&] { load(dir / "a.h5"); }),
             Contains("a.h5: /validation: its examples have the hash " + hash) &&
                 Contains("states 00000000") && Contains("delete the attribute"));
}

TEST_CASE("data files of every format version are read") {
  const test::GuardRemover remover;
  const std::filesystem::path formats = LONGHAND_TEST_FORMATS;
  CHECK_THAT(message_of<DataError>([&] { load(formats / "data-1.h5"); }),
             Contains("a group of the new style of HDF5"));
  set_file_guard([](const RegularFile&) {});
  for (const char* const file : {"data-1.h5", "data-2.h5"}) {
    const Task task = load(formats / file);
    CHECK(content_hash(*task.train) == "86292933b0f9efb154b421ead744e162");
    CHECK(task.info.name == "copy");
  }
}

TEST_CASE("a file of Longhand that another program has changed is refused") {
  const TemporaryDirectory dir;
  write(dir / "a.h5", sequences(), {{"format", "longhand-data"}, {"version", int64_t{2}}});
  CHECK_THAT(
      message_of<DataError>([&] { load(dir / "a.h5"); }),
      Contains("a.h5 has changed since Longhand wrote it") && Contains("delete its attribute"));
  write(dir / "a.h5", sequences(), {{"format", "longhand-data"}, {"version", int64_t{9}}});
  CHECK_THAT(message_of<DataError>([&] { load(dir / "a.h5"); }),
             Contains("format version 9, expected 1 to 2"));
}

TEST_CASE("files of tasks do not depend on the number of threads") {
  const TemporaryDirectory dir;
  const int before = threads();
  for (const int n : {1, 4}) {
    set_threads(n);
    write_task(made(true, true), dir / std::to_string(n), 1);
  }
  set_threads(before);
  CHECK(read_file(dir / "1") == read_file(dir / "4"));
}

TEST_CASE("an error of writing a task names the file") {
  const TemporaryDirectory dir;
  CHECK_THAT(message_of<DataError>([&] { write_task(made(true, true), dir / "no/made.h5", 1); }),
             Contains("no/made.h5: cannot create the file: No such file"));
}

TEST_CASE("tokens: numbers and labels in HDF5") {
  const TemporaryDirectory dir;
  const auto with = [&](const Tensor& targets, const std::string& kind,
                        const Attributes& attributes = {}) {
    auto file = sequences();
    for (const std::string split : {"train", "validation", "test"})
      file[split + "/targets"] = targets;
    write(dir / "my.h5", file, attributes);
    return load(dir / "my.h5", [&](Options& options) { options.set("targets", kind); });
  };
  const Tensor two = Tensor::from(std::vector<double>{0.5, 1, -2, 3, 1e-3, 0}, {3, 2});
  const Task task = with(two, "numbers");
  CHECK(task.info.classes == 2);
  CHECK(task.info.targets == TargetKind::numbers);
  CHECK(identical(collate(*task.train, {2, 0}).targets,
                  Tensor::from(std::vector<float>{1e-3F, 0, 0.5F, 1}, {2, 2})));
  write_task(task, dir / "again.h5", 0);
  const Task again = load(dir / "again.h5",
                          [](Options& options) { options.set("targets", std::string("numbers")); });
  CHECK(again.train->fingerprint() == task.train->fingerprint());
  // One number, also as an integer.
  CHECK(with(Tensor::from(Ints{7, -8, 9}, {3}), "numbers").info.classes == 1);
  const Task labels = with(Tensor::from(Ints{0, 1, 1, 0, 0, 0, 1, 1, 1}, {3, 3}), "labels");
  CHECK(labels.info.classes == 3);
  CHECK_FALSE(labels.info.per_token);
  CHECK(collate(*labels.test, {0}).targets.dtype() == DType::u8);

  const auto refusal = [&](const Tensor& targets, const std::string& kind,
                           const Attributes& attributes = {}) {
    return message_of<DataError>([&] { with(targets, kind, attributes); });
  };
  CHECK_THAT(refusal(two, "classes"), Contains("set data.targets = \"numbers\""));
  CHECK_THAT(refusal(two, "labels"), Contains("expected integers"));
  CHECK_THAT(refusal(Tensor::from(Ints{0, 1, 2}, {3}), "labels"),
             Contains("/train/targets: row 2, column 0: 2 is not a label"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(refusal(Tensor::from(std::vector<float>{0, nan, 2}, {3}), "numbers"),
             Contains("/train/targets: row 1, column 0: nan is not a finite number; leave out"));
  CHECK_THAT(refusal(Tensor::zeros({2, 2}), "numbers"), Contains("is neither [3] nor (3, K)"));
  CHECK_THAT(refusal(two, "numbers", {{"classes", int64_t{3}}}),
             Contains("2 columns; expected 3, as the attribute \"classes\" states"));
}
