#include <filesystem>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

std::string big_endian(uint32_t value) {
  std::string text;
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(value >> shift);
  return text;
}

std::string idx(const std::vector<uint32_t>& sizes, const std::string& elements) {
  std::string text = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) text += big_endian(size);
  return text + elements;
}

// A gzip file (RFC 1952) with one block that is stored as it is.
std::string packed(const std::string& content) {
  uint32_t crc = ~0u;
  for (const char c : content) {
    crc ^= static_cast<unsigned char>(c);
    for (int k = 0; k < 8; ++k) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  const auto little_endian = [](uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  const uint32_t size = static_cast<uint32_t>(content.size());
  return std::string("\x1f\x8b\x08\0\0\0\0\0\0\xff\x01", 11) + little_endian(size, 2) +
         little_endian(~size, 2) + content + little_endian(~crc, 4) + little_endian(size, 4);
}

// Ten images of 2 x 3 pixels for training and four for testing: pixel j of image i is 10 i + j.
struct Folder : TemporaryDirectory {
  std::string images, labels;

  Folder() {
    for (int i = 0; i < 10; ++i) {
      labels += static_cast<char>(i % 3);
      for (int j = 0; j < 6; ++j) images += static_cast<char>(10 * i + j);
    }
    write_text(*this / "train-images-idx3-ubyte", idx({10, 2, 3}, images));
    write_text(*this / "train-labels-idx1-ubyte.gz", packed(idx({10}, labels)));
    write_text(*this / "t10k-images-idx3-ubyte.gz", packed(idx({4, 2, 3}, images.substr(0, 24))));
    write_text(*this / "t10k-labels-idx1-ubyte", idx({4}, labels.substr(0, 4)));
  }

  Task task(Settings settings = {{"validation_size", 3}}) const {
    settings.emplace_back("path", path().string());
    return make("pixels", settings);
  }
  std::string error() const {
    return message_of<DataError>([&] { task(); });
  }
};

}  // namespace

TEST_CASE("pixels: images are sequences, and the last training images are for validation") {
  const Folder folder;
  const Task task = folder.task();
  CHECK(task.info.vocabulary == 256);
  CHECK(task.info.classes == 3);
  CHECK(task.info.max_length == 6);
  CHECK_FALSE(task.info.per_token);
  CHECK(task.train->size() == 7);
  CHECK(task.validation->size() == 3);
  CHECK(task.test->size() == 4);
  CHECK(example(*task.train, 0).tokens == Row{0, 1, 2, 3, 4, 5});  // 0 is black, not padding
  CHECK(example(*task.train, 6).tokens == Row{60, 61, 62, 63, 64, 65});
  CHECK(example(*task.validation, 0).tokens[0] == 70);
  CHECK(example(*task.validation, 0).targets[0] == 1);
  CHECK(example(*task.validation, 2).tokens[5] == 95);
  CHECK(example(*task.test, 2).targets[0] == 2);
  CHECK_FALSE(task.train->collate(std::vector<int64_t>{0, 3, 2}).lengths.defined());
  CHECK_THROWS_AS(task.train->collate(std::vector<int64_t>{7}), DataError);
  CHECK_THROWS_AS(task.validation->collate(std::vector<int64_t>{-1}), DataError);

  const Task few = folder.task({{"validation_size", 2}, {"train_size", 4}, {"test_size", 9}});
  CHECK(few.train->size() == 4);
  CHECK(few.test->size() == 4);
  CHECK(example(*few.validation, 0).tokens[0] == 80);
}

TEST_CASE("pixels: errors in files name the file") {
  Folder folder;
  const auto write = [&](const char* name, const std::string& text) {
    write_text(folder / name, text);
  };
  SECTION("missing") {
    std::filesystem::remove(folder / "t10k-labels-idx1-ubyte");
    CHECK_THAT(folder.error(), Contains("has no t10k-labels-idx1-ubyte or"));
  }
  SECTION("another format") {
    write("train-images-idx3-ubyte", idx({60}, folder.images));
    CHECK_THAT(folder.error(), Contains("train-images-idx3-ubyte: expected an IDX file"));
  }
  SECTION("empty") {
    write("train-images-idx3-ubyte", "");
    CHECK_THAT(folder.error(), Contains("expected an IDX file"));
  }
  SECTION("too short") {
    write("train-images-idx3-ubyte", idx({10, 2, 3}, folder.images.substr(1)));
    CHECK_THAT(folder.error(), Contains("has 59 bytes") && Contains("10 x 2 x 3"));
  }
  SECTION("too long") {
    write("train-images-idx3-ubyte", idx({10, 2, 3}, folder.images + "."));
    CHECK_THAT(folder.error(), Contains("has 61 or more bytes"));
  }
  SECTION("sizes whose product overflows") {
    write("train-images-idx3-ubyte", idx({1u << 31, 1u << 31, 4}, folder.images));
    CHECK_THAT(folder.error(), Contains("2147483648 x 2147483648 x 4"));
  }
  SECTION("no images") {
    write("train-images-idx3-ubyte", idx({0, 2, 3}, ""));
    CHECK_THAT(folder.error(), Contains("0 x 2 x 3"));
  }
  SECTION("compressed, but truncated") {
    const std::string whole = packed(idx({10}, folder.labels));
    write("train-labels-idx1-ubyte.gz", whole.substr(0, whole.size() - 12));
    CHECK_THAT(folder.error(), Contains("labels-idx1-ubyte.gz: cannot be decompressed"));
  }
  SECTION("compressed, but damaged") {
    std::string whole = packed(idx({10}, folder.labels));
    whole[whole.size() - 10] ^= 1;
    write("train-labels-idx1-ubyte.gz", whole);
    CHECK_THAT(folder.error(), Contains("labels-idx1-ubyte.gz: cannot be decompressed"));
  }
  SECTION("labels for other images") {
    write("t10k-labels-idx1-ubyte", idx({5}, folder.labels.substr(0, 5)));
    CHECK_THAT(folder.error(), Contains("has 5 labels, expected one for each of 4 images"));
  }
  SECTION("images of another size") {
    write("t10k-images-idx3-ubyte", idx({4, 1, 6}, folder.images.substr(0, 24)));
    CHECK_NOTHROW(folder.task());  // as many pixels
    write("t10k-images-idx3-ubyte", idx({4, 2, 2}, folder.images.substr(0, 16)));
    CHECK_THAT(folder.error(), Contains("images of 4 pixels"));
  }
  SECTION("a label that training does not have") {
    write("t10k-labels-idx1-ubyte", idx({4}, std::string("\0\1\2\3", 4)));
    CHECK_THAT(folder.error(), Contains("label 3 of image 3"));
  }
  SECTION("nothing left to train on") {
    CHECK_THAT(message_of<DataError>([&] {
                 folder.task({{"validation_size", 10}});
               }),
               Contains("data.validation_size = 10 leaves none"));
  }
  SECTION("no folder") {
    CHECK_THAT(message_of<DataError>([] {
                 make("pixels", {{"path", "/nowhere/at/all"}});
               }),
               Contains("/nowhere/at/all: no such folder"));
  }
}

TEST_CASE("pixels: Debian's Fashion-MNIST, where it is installed") {
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
    CHECK_THAT(message_of<ConfigError>([] { make("pixels", {}); }),
               Contains("data.path") && Contains("dataset-fashion-mnist"));
    return;
  }
  const Task task = make("pixels", {});
  CHECK(task.train->size() == 55000);
  CHECK(task.validation->size() == 5000);
  CHECK(task.test->size() == 10000);
  CHECK(task.info.classes == 10);
  CHECK(task.info.max_length == 784);
  CHECK(example(*task.train, 0).targets[0] == 9);  // an ankle boot
  std::vector<int> classes(10);
  for (const Example& e : examples(*task.test, 10000)) ++classes[e.targets[0]];
  CHECK(classes == std::vector<int>(10, 1000));
}

TEST_CASE("pixels: examples are fixed, for any number of threads") {
  const Folder folder;
  CHECK(hashes("pixels", {{"path", folder.path().string()}, {"validation_size", 3}}, 0) ==
        std::vector<std::string>{"fe2d50651b68566d246e92ad05b5ad88",
                                 "fddd1f67c5263e6288f77f9df14d8639",
                                 "4eb5af59d03fa8aa6de64cddbc2be8b4"});
}
