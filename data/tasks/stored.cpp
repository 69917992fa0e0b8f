#include "longhand/data/tasks/stored.h"

#include <algorithm>
#include <string>

#include "longhand/core/parallel.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"

namespace longhand::data {
namespace {

void write_split(Hdf5Writer& file, const std::string& group, const Dataset& dataset,
                 const TaskInfo& info) {
  const int64_t size = dataset.size();
  int64_t width = 0;
  bool padded = false;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t length = dataset.length(i);
    padded = padded || (i > 0 && length != width);
    width = std::max(width, length);
  }

  const std::string tokens_path = group + "/tokens", targets_path = group + "/targets",
                    lengths_path = group + "/lengths";
  file.create_rows(tokens_path, narrowest(0, info.vocabulary - 1), {size, width});
  const bool classes = info.targets == TargetKind::classes;
  const bool labels = info.targets == TargetKind::labels;
  const StoredType of_targets = classes  ? narrowest(ignore_index, info.classes - 1)
                                : labels ? StoredType::u8
                                         : StoredType::f32;
  const auto shape_of_targets = [&](int64_t rows) {
    return !classes ? Shape{rows, info.classes} : info.per_token ? Shape{rows, width} : Shape{rows};
  };
  file.create_rows(targets_path, of_targets, shape_of_targets(size));
  if (padded) file.create_rows(lengths_path, narrowest(1, width), {size});

  constexpr int64_t block = 16, round = 16 * block;
  for (int64_t first = 0; first < size; first += round) {
    const int64_t count = std::min(round, size - first);
    Tensor tokens = Tensor::zeros({count, width}, DType::i32);
    Tensor targets = classes
                         ? Tensor::full(shape_of_targets(count), ignore_index, DType::i32)
                         : Tensor::empty(shape_of_targets(count), labels ? DType::u8 : DType::f32);
    Tensor lengths = Tensor::full({count}, static_cast<double>(width), DType::i32);
    parallel_for(count, block, [&](int64_t begin, int64_t end) {
      const Batch batch = dataset.collate(indices_from(first + begin, first + end));
      const int64_t longest = batch.tokens.size(1);
      copy_into(tokens.slice(0, begin, end).slice(1, 0, longest), batch.tokens);
      Tensor to = targets.slice(0, begin, end);
      copy_into(info.per_token ? to.slice(1, 0, longest) : to, batch.targets);
      Tensor real = lengths.slice(0, begin, end);
      if (batch.lengths)
        copy_into(real, batch.lengths);
      else
        real.fill(static_cast<double>(longest));
    });
    file.put_rows(tokens_path, first, tokens);
    file.put_rows(targets_path, first, targets);
    if (padded) file.put_rows(lengths_path, first, lengths);
  }
  file.attribute(group, "content_hash", content_hash(dataset));
}

/// One line for each label; empty if an attribute cannot hold them.
std::string labels_to_text(const std::vector<std::string>& labels) {
  constexpr size_t most_bytes = 32000;  // HDF5 allows 64 KB for all attributes
  std::string text;
  for (const std::string& label : labels) {
    if (label.find_first_of(std::string("\n\0", 2)) != std::string::npos) return "";
    text += (text.empty() ? "" : "\n") + label;
  }
  return text.size() <= most_bytes ? text : "";
}

}  // namespace

void write_task(const Task& task, const std::filesystem::path& path, uint64_t seed) {
  const TaskInfo& info = task.info;
  Hdf5Writer file;
  for (const std::string& split : task.splits()) write_split(file, split, task.split(split), info);
  file.attribute("/", "format", "longhand-data");
  file.attribute("/", "version", int64_t{data_file.version});
  file.attribute("/", "task", info.name);
  file.attribute("/", "vocabulary", info.vocabulary);
  file.attribute("/", "classes", info.classes);
  file.attribute("/", "per_token", int64_t{info.per_token});
  file.attribute("/", "causal", int64_t{info.causal});
  file.attribute("/", "bytes", int64_t{info.bytes});
  if (const std::string names = labels_to_text(info.labels); !names.empty())
    file.attribute("/", "labels", names);
  file.attribute("/", "seed", std::to_string(seed));  // as text: it may exceed int64
  std::vector<std::byte> bytes = file.image();
  append_trailer(bytes, data_file);
  write_file_durably(path, bytes);
}

}  // namespace longhand::data
