// Dataset: examples by index. Task: three datasets, and the properties that a model needs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhand/core/schema.h"
#include "longhand/core/tensor.h"
#include "longhand/data/file.h"

namespace longhand::data {

/// Targets with this value are ignored.
inline constexpr int32_t ignore_index = -100;

/// The kind of a task's targets: one class; real numbers; or labels, each 1 (it holds) or 0.
enum class TargetKind : uint8_t { classes, numbers, labels };
/// "classes", "numbers" or "labels".
const char* name_of(TargetKind kind);
/// The inverse of name_of(). Throws ConfigError for any other text.
TargetKind target_kind(const std::string& name);

struct Batch {
  Tensor tokens;  // (B, N) i32, padded with 0 at the end
  /// i32: classes of sequences (B) or tokens (B, N); f32: numbers (B, K); u8: labels (B, K).
  Tensor targets;
  Tensor lengths;  // (B) i32, tokens without padding; undefined if no sequence is padded

  bool per_token() const { return targets.dtype() == DType::i32 && targets.rank() == 2; }

  /// Examples begin … end-1, as views.
  Batch examples(int64_t begin, int64_t end) const;
};

/// A range of the examples of a dataset with something in common, such as their length.
struct Segment {
  std::string name;
  int64_t begin = 0, end = 0;
  int64_t length = 0;  // tokens of the longest example; 0: unknown
};

/// Examples by index, without state: any thread may read any, with bitwise identical results.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// The number of tokens of an example, for bucketing by length.
  virtual int64_t length(int64_t index) const = 0;
  /// Returns the examples as a batch, padded to the longest of them. Throws DataError if data
  /// cannot be read or is out of range.
  virtual Batch collate(std::span<const int64_t> indices) const = 0;
  /// Identifies the examples, to compare the data of a run with those at hand: content_hash() of
  /// all of them, unless the first ones determine the others, or a hash of their source is faster.
  virtual std::string fingerprint() const;
  /// The parts of a mixture, which evaluation reports one by one; empty for most datasets.
  virtual std::vector<Segment> segments() const { return {}; }
};

/// One example of a batch, without its padding.
struct ExampleView {
  std::span<const int32_t> tokens;
  std::span<const int32_t> targets;  // one, or one per token; none if they are numbers or labels
};
/// Returns the examples of a batch of contiguous tensors, which must outlive them.
std::vector<ExampleView> examples_of(const Batch& batch);

/// Returns the number of targets that are not ignored; each number and each label is one.
int64_t count_targets(const Tensor& targets);
/// Returns the number of tokens of a batch that are not padding.
int64_t count_tokens(const Batch& batch);

/// begin, …, end - 1.
std::vector<int64_t> indices_from(int64_t begin, int64_t end);

/// Returns a batch with the lengths of these examples. Tokens are 0 and targets, one per sequence
/// or one per token, are ignore_index.
Batch blank_batch(const Dataset& dataset, std::span<const int64_t> indices, bool per_token);

/// The properties of a task that a model needs.
struct TaskInfo {
  std::string name{};
  int64_t vocabulary = 0;  // tokens are 0 … vocabulary-1
  int64_t classes = 0;  // targets are 0 … classes-1, or ignore_index; or as many numbers or labels
  bool per_token = false;  // targets are (B, N), not (B)
  bool causal = false;     // the target of a token is a later token: the model must not look ahead
  bool bytes = false;      // tokens are bytes of text; with per_token, bits per byte is a metric
  int64_t max_length = 0;  // of all examples
  bool tracks = false;     // tracks a state: results also show accuracies with guessing as 0
  bool from_last = false;  // targets are predicted from the last token's vector: model.reconstruct
  std::vector<std::string> labels{};  // names of classes 0, 1, …; empty: they have none
  TargetKind targets = TargetKind::classes;

  /// "one class below 3 per sequence", "2 numbers per sequence".
  std::string describe_targets() const;
  /// The name of a class, or its number.
  std::string label_of(int32_t target) const;
};

struct Task {
  TaskInfo info;
  std::unique_ptr<Dataset> train, validation, test;  // null: not asked for, or no test split
  /// "train", "validation" or "test"; throws ConfigError for another name, and Error for a split
  /// that make_task() was not asked for.
  const Dataset& split(const std::string& name) const;
  /// The names of the splits that the task has.
  std::vector<std::string> splits() const;
};

/// The memory that the data of a task need, as far as its options and file sizes determine it.
struct DataMemory {
  double examples = 0;  // of the training split; 0: unknown
  double bytes = 0;     // of examples in memory
};

/// Which splits of a task are used. The others are left out, and need not be made, read or checked.
/// Data without a test split may be used, unless only that split is requested.
struct Splits {
  bool train = true, validation = true, test = true;
  /// A single file is not divided: the requested split has all examples, in their order.
  bool undivided = false;
  /// Only "train", "validation" or "test"; throws ConfigError for another name.
  static Splits only(const std::string& name);
};

/// A task with one dataset, which is the requested split.
Task undivided(const TaskInfo& info, std::unique_ptr<Dataset> all, const Splits& splits);

/// The names of all tasks, in the order of tasks.def, then those added by add() (registry.h).
std::vector<std::string> task_names();
/// One line about a task. Throws ConfigError for an unknown name, as the functions below do.
std::string task_summary(const std::string& name);
/// data.task, which selects the other options of [data].
Schema section_options();
/// The options of a task besides data.task.
Schema task_options(const std::string& name);
/// Checks a [data] section without making its data. Returns the task's properties, or nothing if
/// they require the data. `values` is set to the options that apply; `seed` and `max_length` are as
/// in make_task(), and affect some defaults. Throws ConfigError as make_task() does.
std::optional<TaskInfo> check_task(const Options& section, uint64_t seed, int64_t max_length = 0,
                                   EffectiveValues* values = nullptr);
/// The memory that the data of a [data] section would need, without making them. Throws ConfigError
/// as make_task() does.
DataMemory task_memory(const Options& section, uint64_t seed, int64_t max_length = 0);
/// Makes a task from the [data] section: data.task names it, and the task reads its own options.
/// Everything generated depends only on data.seed (default: `seed`) and the options. Examples do
/// not depend on `splits`, but properties in TaskInfo that a file does not state are found in those
/// splits alone. `max_length`, unless 0, is the model's: texts are cut to it unless an option says
/// otherwise. Throws ConfigError for an unknown task, unknown options or options out of range,
/// DataError for files that are missing or damaged.
Task make_task(const Options& section, uint64_t seed, const Splits& splits = {},
               int64_t max_length = 0);

/// The content_hash() of examples that are given in batches, in order; how they are divided into
/// batches does not affect it.
class ContentHasher {
 public:
  void add(const Batch& batch);
  std::string hex() const;

 private:
  Digester digester_;
};

/// Returns a hash of the first `limit` examples of a dataset (all if 0): of tokens, targets and
/// lengths, the same on every machine. 32 hexadecimal digits (XXH3-128).
std::string content_hash(const Dataset& dataset, int64_t limit = 0);

}  // namespace longhand::data
