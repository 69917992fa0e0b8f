// text_lm: prediction of the next byte of text.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhand/data/bytes.h"
#include "longhand/data/file.h"
#include "longhand/data/lines.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

using Text = std::vector<std::byte>;

// Windows of `length` bytes, each with the byte after it, from a region of the text.
class Windows : public Dataset {
 public:
  Windows(std::shared_ptr<const Text> text, int64_t begin, int64_t size, int64_t length,
          int64_t stride)
      : text_(std::move(text)), begin_(begin), size_(size), length_(length), stride_(stride) {}

  int64_t size() const override { return size_; }
  int64_t length(int64_t) const override { return length_; }

  Batch collate(std::span<const int64_t> indices) const override {
    const int64_t count = static_cast<int64_t>(indices.size());
    Batch batch{Tensor::empty({count, length_}, DType::i32),
                Tensor::empty({count, length_}, DType::i32), Tensor()};
    int32_t* tokens = batch.tokens.data<int32_t>();
    int32_t* targets = batch.targets.data<int32_t>();
    for (const int64_t index : indices) {
      check<DataError>(index >= 0 && index < size_, "example ", index, " of a dataset of ", size_);
      const std::byte* const window = text_->data() + begin_ + index * stride_;
      for (int64_t i = 0; i < length_; ++i) *tokens++ = static_cast<int32_t>(window[i]);
      for (int64_t i = 0; i < length_; ++i) *targets++ = static_cast<int32_t>(window[i + 1]);
    }
    return batch;
  }

  // Hashes the text and the window layout: overlapping windows have many times its bytes.
  std::string fingerprint() const override {
    Digester digester;
    digester.update(
        {text_->data() + begin_, static_cast<size_t>((size_ - 1) * stride_ + length_ + 1)});
    digester.update(bytes_of(concat_message(length_, " ", stride_)));
    return hex(digester.digest());
  }

 private:
  std::shared_ptr<const Text> text_;
  int64_t begin_, size_, length_, stride_;
};

// A file, or the regular files below a folder, including hidden ones and links to files, in byte
// order of their paths, joined without separators. Links to folders are not followed, because they
// may form cycles; other entries (a socket, a device) are refused.
Text read_text(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  if (!is_folder(path)) return read_file(path);
  std::vector<std::string> files;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_directory()) continue;
      check<DataError>(entry.is_regular_file(), entry.path().string(), ": not a regular file");
      files.push_back(entry.path().generic_string());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(concat_message(error.path1().string(),
                                   ": cannot be read: ", system_reason(error.code().value())));
  }
  check<DataError>(!files.empty(), path.string(), ": contains no file");
  std::ranges::sort(files);
  Text text;
  for (const std::string& file : files) {
    const Text bytes = read_file(file);
    text.insert(text.end(), bytes.begin(), bytes.end());
  }
  return text;
}

struct TextOptions {
  std::string path;
  int64_t length = 1024, stride = 1024;
  SplitFractions fractions{0.05, 0.05};  // from the end of the text
  SplitSizes limits;

  void cut_to(int64_t max_length) { length = max_length; }

  void describe(OptionVisitor& v) {
    v.text("path", path, "a file, or a folder of files", "none: must be given");
    v.require(!path.empty(), "path",
              "text_lm reads text: name a file, or a folder of files, with data.path");
    v.integer("length", length, {1, 1 << 24}, "bytes per example",
              "model.max_length if that is given, else 1024");
    stride = length;
    v.integer("stride", stride, {1, 1 << 24}, "bytes between the starts of training examples",
              "length");
    fractions.describe(v);
    limits.describe_limits(v);
  }
};

std::optional<TaskInfo> info_of(const TextOptions& o) {
  return TaskInfo{.vocabulary = 256,
                  .classes = 256,
                  .per_token = true,
                  .causal = true,
                  .bytes = true,
                  .max_length = o.length};
}

Task make(const TextOptions& o, uint64_t, const Splits& splits) {
  const auto& [path, length, stride, fractions, limits] = o;
  const auto text = std::make_shared<const Text>(read_text(path));
  const int64_t bytes = static_cast<int64_t>(text->size());
  const int64_t validation =
      static_cast<int64_t>(static_cast<double>(bytes) * fractions.validation);
  const int64_t test = static_cast<int64_t>(static_cast<double>(bytes) * fractions.test);
  const int64_t train = bytes - validation - test;

  const auto windows = [&, path = path, length = length](const char* split, int64_t begin,
                                                         int64_t region, int64_t step,
                                                         int64_t limit) {
    check<DataError>(region > length, path, ": ", bytes, " bytes leave ", region, " for ", split,
                     "; one window of data.length = ", length, " and the byte after it take ",
                     length + 1);
    const int64_t all = (region - 1 - length) / step + 1;
    return std::make_unique<Windows>(text, begin, limit == 0 ? all : std::min(all, limit), length,
                                     step);
  };
  if (splits.undivided)
    return undivided(*info_of(o), windows("all of it", 0, bytes, length, 0), splits);
  return {*info_of(o), windows("training", 0, train, stride, limits.train),
          windows("validation", train, validation, length, limits.validation),
          windows("test", train + validation, test, length, limits.test)};
}

}  // namespace

TaskSpec register_text_lm() {
  return make_spec<TextOptions>("the next byte of text", info_of, make);
}

}  // namespace longhand::data
