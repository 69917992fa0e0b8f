// pixels: the class of an image, read as a sequence of its grey values, row by row.
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "longhand/data/file.h"
#include "longhand/data/in_memory.h"
#include "longhand/data/lines.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* debian_folder = "/usr/share/datasets/fashion-mnist";

// Returns the first `most` bytes of a file, or all if it has fewer, decompressed if necessary. Once
// these are read, more(bytes) may return a larger number to continue.
template <class More>
std::vector<uint8_t> read_unpacked(const fs::path& path, size_t most, More more) {
  check<DataError>(!is_folder(path), path.string(), ": expected a file, got a folder");
  const RegularFile regular(path);  // reading a pipe or a device may never end
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  check<DataError>(file != nullptr, path.string(), ": cannot open the file");
  constexpr size_t piece = size_t{1} << 20;
  std::vector<uint8_t> bytes;
  for (int got = 1; got > 0 && bytes.size() < most;) {
    const size_t old = bytes.size(), wanted = std::min(piece, most - old);
    bytes.resize(old + wanted);
    got = gzread(file.get(), bytes.data() + old, static_cast<unsigned>(wanted));
    bytes.resize(old + static_cast<size_t>(std::max(got, 0)));
    if (bytes.size() == most) most = std::max(most, more(bytes));
  }
  // a truncated file is read without an error, which is reported only afterwards
  int error = Z_OK;
  const char* const reason = gzerror(file.get(), &error);
  check<DataError>(error == Z_OK, path.string(), ": cannot be decompressed: ", reason);
  return bytes;
}

// An array of unsigned bytes in the IDX format: 0, 0, 8 (unsigned byte), the number of sizes, the
// sizes as big-endian 32-bit integers, the elements in row-major order.
struct Idx {
  std::string path;
  std::vector<int64_t> sizes;
  std::vector<uint8_t> bytes;
  size_t begin;  // offset of the elements

  Idx(const fs::path& folder, const std::string& name, size_t rank) {
    const fs::path plain = folder / name, packed = folder / (name + ".gz");
    std::error_code ignored;
    const bool unpacked = fs::exists(plain, ignored);
    check<DataError>(unpacked || fs::exists(packed, ignored), folder.string(), ": has no ", name,
                     " or ", name, ".gz");
    path = (unpacked ? plain : packed).string();
    begin = 4 + 4 * rank;
    // In floating point, so that a product of damaged sizes does not overflow.
    double elements = 1;
    std::string expected;
    // One byte more than the sizes say, to see that there is none: a small file may unpack to many.
    bytes = read_unpacked(path, begin, [&](const std::vector<uint8_t>& head) -> size_t {
      if (!sizes.empty()) return 0;
      check<DataError>(head[0] == 0 && head[1] == 0 && head[2] == 8 && head[3] == rank, path,
                       ": expected an IDX file of unsigned bytes with ", rank, " sizes");
      for (size_t i = 4; i < begin; i += 4) {
        sizes.push_back(int64_t{head[i]} << 24 | head[i + 1] << 16 | head[i + 2] << 8 |
                        head[i + 3]);
        elements *= static_cast<double>(sizes.back());
        expected += (expected.empty() ? "" : " x ") + std::to_string(sizes.back());
      }
      return begin + 1 + static_cast<size_t>(std::min(elements, 0x1p60));
    });
    check<DataError>(!sizes.empty(), path, ": expected an IDX file of unsigned bytes with ", rank,
                     " sizes");
    const size_t got = bytes.size() - begin;
    check<DataError>(elements > 0 && elements == static_cast<double>(got), path, ": has ", got,
                     static_cast<double>(got) > elements ? " or more" : "",
                     " bytes of elements, expected ", expected);
  }
};

struct Images {
  Idx pixels, labels;
  int64_t count, size;

  Images(const fs::path& folder, const std::string& name)
      : pixels(folder, name + "-images-idx3-ubyte", 3),
        labels(folder, name + "-labels-idx1-ubyte", 1),
        count(pixels.sizes[0]),
        size(pixels.sizes[1] * pixels.sizes[2]) {
    check<DataError>(labels.sizes[0] == count, labels.path, ": has ", labels.sizes[0],
                     " labels, expected one for each of ", count, " images");
  }

  int32_t label(int64_t i) const { return labels.bytes[labels.begin + i]; }

  std::shared_ptr<const Sequences> sequences() const {
    auto out = std::make_shared<Sequences>();
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* const image = pixels.bytes.data() + pixels.begin + i * size;
      out->add({image, static_cast<size_t>(size)}, label(i));
    }
    return out;
  }
};

int64_t limited(int64_t count, int64_t limit) {
  return limit == 0 ? count : std::min(count, limit);
}

struct PixelsOptions {
  std::string path;
  SplitSizes limits{0, 5000, 0};

  void describe(OptionVisitor& v) {
    if (path.empty() && is_folder(debian_folder)) path = debian_folder;
    v.text("path", path,
           "a folder of IDX files, optionally compressed: "
           "{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]",
           "Debian's Fashion-MNIST, if installed");
    v.require(!path.empty(), "path",
              "pixels reads a folder of IDX files, such as MNIST: name it with data.path, or "
              "install the Debian package dataset-fashion-mnist");
    v.integer("train_size", limits.train, {0, most_examples},
              "maximum number of training images; 0: all");
    v.integer("validation_size", limits.validation, {0, most_examples},
              "number of validation images, taken from the end of the training set");
    v.integer("test_size", limits.test, {0, most_examples},
              "maximum number of test images; 0: all");
  }
};

Task make(const PixelsOptions& o, uint64_t, const Splits&) {
  const auto& [path, limits] = o;
  check<DataError>(is_folder(path), path, ": no such folder");

  const Images train(path, "train"), test(path, "t10k");
  check<DataError>(test.size == train.size, test.pixels.path, ": images of ", test.size,
                   " pixels, but the training images have ", train.size);
  check<DataError>(limits.validation < train.count, train.pixels.path, ": has ", train.count,
                   " images; data.validation_size = ", limits.validation,
                   " leaves none for training");
  int32_t last = 0;
  for (int64_t i = 0; i < train.count; ++i) last = std::max(last, train.label(i));
  for (int64_t i = 0; i < test.count; ++i)
    check<DataError>(test.label(i) <= last, test.labels.path, ": label ", test.label(i),
                     " of image ", i, " is out of range: the training labels end at ", last);

  const int64_t first_validation = train.count - limits.validation;
  const TaskInfo info{.vocabulary = 256, .classes = last + 1, .max_length = train.size};
  const auto images = train.sequences();
  return {info, in_memory(images, 0, limited(first_validation, limits.train)),
          in_memory(images, first_validation, train.count),
          in_memory(test.sequences(), 0, limited(test.count, limits.test))};
}

}  // namespace

TaskSpec register_pixels() {
  return make_spec<PixelsOptions>("the class of an image from its grey values, row by row", nullptr,
                                  make);  // sizes and classes are stored in the files
}

}  // namespace longhand::data
