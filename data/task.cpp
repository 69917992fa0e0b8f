#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/masked.h"
#include "longhand/data/registry.h"

namespace longhand::data {
namespace {

struct Entry {
  std::string name;
  std::function<TaskSpec()> make;
};

// The tasks of tasks.def, then those added by add().
std::vector<Entry>& entries() {
  static std::vector<Entry> all{
#define TASK(name) {#name, register_##name},
#include "longhand/data/tasks.def"
#undef TASK
  };
  return all;
}

TaskSpec find(const std::string& name) {
  for (const Entry& entry : entries())
    if (name == entry.name) return entry.make();
  throw ConfigError("unknown task \"" + name + "\"; expected one of " + comma_list(task_names()) +
                    suggestion(name, task_names()));
}

// The options common to all tasks.
struct CommonOptions {
  std::string task{};
  int64_t seed = 0;
  double masked = 0;

  void describe(OptionVisitor& v) {
    describe_task(v);
    describe_others(v);
  }
  void describe_task(OptionVisitor& v) {
    v.choice("task", task, task_names(), "the task", "none: must be given");
  }
  void describe_others(OptionVisitor& v) {
    v.integer("seed", seed, {0},
              "seed of generated data and of random splits; train.seed does not affect them");
    v.number("masked", masked, {0, 0.999},
             "fraction of the tokens that are masked, and become the only targets: pretraining on "
             "the inputs of the task; 0: the task itself");
  }
};

CommonOptions read_common(OptionReader& reader, const Options& section, uint64_t seed) {
  section.require(section.has("task"), "task", "expected one of " + comma_list(task_names()));
  CommonOptions common{.seed = static_cast<int64_t>(seed)};
  common.describe(reader);
  return common;
}

// Numbers (their bits) and labels as i32. Undefined for classes.
Tensor bits_of(const Tensor& targets) {
  if (targets.dtype() == DType::i32) return {};
  if (targets.dtype() == DType::u8) return targets.to(DType::i32);
  Tensor out = Tensor::empty(targets.shape(), DType::i32);
  std::memcpy(out.data<int32_t>(), targets.data<float>(), 4 * static_cast<size_t>(out.numel()));
  return out;
}

static_assert(std::endian::native == std::endian::little);  // the order in which they are hashed

// Per example: the number of tokens, the tokens, the number of targets, the targets. Padding is
// omitted, because it depends on the batch.
std::vector<int32_t> numbers_of(const Batch& batch) {
  const Batch dense{batch.tokens.contiguous(), batch.targets.contiguous(),
                    batch.lengths ? batch.lengths.contiguous() : Tensor()};
  std::vector<int32_t> out;
  out.reserve(
      static_cast<size_t>(dense.tokens.numel() + dense.targets.numel() + 2 * dense.tokens.size(0)));
  const auto append = [&](std::span<const int32_t> values) {
    out.push_back(static_cast<int32_t>(values.size()));
    out.insert(out.end(), values.begin(), values.end());
  };
  const Tensor others = bits_of(dense.targets);
  const size_t width = others ? static_cast<size_t>(others.size(1)) : 0;
  const int32_t* other = others ? others.data<int32_t>() : nullptr;
  for (const ExampleView& example : examples_of(dense)) {
    append(example.tokens);
    append(others ? std::span(other, width) : example.targets);
    other += width;
  }
  return out;
}

}  // namespace

const char* name_of(TargetKind kind) {
  return kind == TargetKind::classes   ? "classes"
         : kind == TargetKind::numbers ? "numbers"
                                       : "labels";
}

TargetKind target_kind(const std::string& name) {
  for (const TargetKind kind : {TargetKind::classes, TargetKind::numbers, TargetKind::labels})
    if (name == name_of(kind)) return kind;
  throw ConfigError("targets \"" + name + "\": expected classes, numbers or labels");
}

std::string TaskInfo::describe_targets() const {
  if (targets == TargetKind::classes)
    return concat_message("one class below ", classes, per_token ? " per token" : " per sequence");
  return concat_message(classes, " ", name_of(targets), " per sequence");
}

std::string TaskInfo::label_of(int32_t target) const {
  const bool is_named = target >= 0 && static_cast<size_t>(target) < labels.size();
  return is_named ? labels[target] : std::to_string(target);
}

Batch Batch::examples(int64_t begin, int64_t end) const {
  const auto rows = [&](const Tensor& t) { return t ? t.slice(0, begin, end) : t; };
  return {rows(tokens), rows(targets), rows(lengths)};
}

std::vector<ExampleView> examples_of(const Batch& batch) {
  const int64_t B = batch.tokens.size(0), N = batch.tokens.size(1);
  const bool per_token = batch.per_token(), classes = batch.targets.dtype() == DType::i32;
  std::vector<ExampleView> out;
  for (int64_t b = 0; b < B; ++b) {
    const auto length = static_cast<size_t>(batch.lengths ? batch.lengths.data<int32_t>()[b] : N);
    const int32_t* const targets = classes ? batch.targets.data<int32_t>() : nullptr;
    out.push_back({{batch.tokens.data<int32_t>() + b * N, length},
                   per_token ? std::span(targets + b * N, length)
                   : classes ? std::span(targets + b, 1)
                             : std::span<const int32_t>()});
  }
  return out;
}

int64_t count_targets(const Tensor& targets) {
  if (is_dry()) return 0;
  if (targets.dtype() != DType::i32) return targets.numel();
  const Tensor dense = targets.contiguous();
  const int32_t* const t = dense.data<int32_t>();
  return dense.numel() - std::count(t, t + dense.numel(), ignore_index);
}

int64_t count_tokens(const Batch& batch) {
  if (!batch.lengths) return batch.tokens.numel();
  const std::vector<int32_t> lengths = batch.lengths.to_vector<int32_t>();
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::vector<int64_t> indices_from(int64_t begin, int64_t end) {
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

Batch blank_batch(const Dataset& dataset, std::span<const int64_t> indices, bool per_token) {
  const auto count = static_cast<int64_t>(indices.size());
  std::vector<int32_t> lengths;
  for (const int64_t index : indices)
    lengths.push_back(static_cast<int32_t>(dataset.length(index)));
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const int64_t width = count > 0 ? *longest : 0;
  const bool padded = count > 0 && *shortest < *longest;
  return {Tensor::zeros({count, width}, DType::i32),
          Tensor::full(per_token ? Shape{count, width} : Shape{count}, ignore_index, DType::i32),
          padded ? Tensor::from(lengths, {count}) : Tensor()};
}

std::string Dataset::fingerprint() const { return content_hash(*this); }

const Dataset& Task::split(const std::string& name) const {
  const Splits one = Splits::only(name);
  const auto& found = one.train ? train : one.validation ? validation : test;
  check(found != nullptr, "task ", info.name, ": the split ", name,
        " was not requested, or the data have none; include it in the Splits given to make_task()");
  return *found;
}

std::vector<std::string> Task::splits() const {
  std::vector<std::string> names;
  if (train) names.emplace_back("train");
  if (validation) names.emplace_back("validation");
  if (test) names.emplace_back("test");
  return names;
}

Splits Splits::only(const std::string& name) {
  const Splits one{name == "train", name == "validation", name == "test"};
  check<ConfigError>(one.train || one.validation || one.test, "unknown split \"", name,
                     "\"; expected train, validation or test");
  return one;
}

Task undivided(const TaskInfo& info, std::unique_ptr<Dataset> all, const Splits& splits) {
  Task task{info, nullptr, nullptr, nullptr};
  (splits.train ? task.train : splits.validation ? task.validation : task.test) = std::move(all);
  return task;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  return names;
}

void add(const std::string& name, const TaskSpec& spec) {
  for (const Entry& entry : entries())
    check<ConfigError>(entry.name != name, "data: the task \"", name, "\" is already registered");
  check<ConfigError>(spec.make && spec.check, "data: the TaskSpec of \"", name,
                     "\" has no functions; complete it with make_spec()");
  entries().push_back({name, [spec] { return spec; }});
}

std::string task_summary(const std::string& name) { return find(name).summary; }

Schema section_options() {
  SchemaWriter writer;
  CommonOptions().describe_task(writer);
  return writer.take();
}

Schema task_options(const std::string& name) {
  Schema options = find(name).options;
  SchemaWriter writer;
  CommonOptions().describe_others(writer);
  for (Field& field : writer.take()) options.push_back(std::move(field));
  return options;
}

std::optional<TaskInfo> check_task(const Options& section, uint64_t seed, int64_t max_length,
                                   EffectiveValues* values) {
  OptionReader reader(section);
  const CommonOptions common = read_common(reader, section, seed);
  std::optional<TaskInfo> info = find(common.task).check(reader, max_length);
  if (values) *values = reader.values();
  if (info) info->name = common.task;
  return info && common.masked > 0 ? masked(*info) : info;
}

DataMemory task_memory(const Options& section, uint64_t seed, int64_t max_length) {
  OptionReader reader(section);
  const TaskSpec spec = find(read_common(reader, section, seed).task);
  if (spec.memory) return spec.memory(reader, max_length);
  DataMemory out;
  // Readers hold at most one byte per byte of a file.
  const Options::Given* const given = section.find("path");
  const auto* const path = given ? std::get_if<std::string>(&given->value) : nullptr;
  if (path) out.bytes = bytes_of_files(*path);
  return out;
}

Task make_task(const Options& section, uint64_t seed, const Splits& splits, int64_t max_length) {
  OptionReader reader(section);
  const CommonOptions common = read_common(reader, section, seed);
  Task task =
      find(common.task).make(reader, static_cast<uint64_t>(common.seed), splits, max_length);
  if (task.info.name.empty()) task.info.name = common.task;
  // A task may have made all splits. Memory is counted only for those that are there.
  if (!splits.train) task.train.reset();
  if (!splits.validation) task.validation.reset();
  if (!splits.test) task.test.reset();
  if (common.masked == 0) return task;
  return masked(std::move(task), common.masked, static_cast<uint64_t>(common.seed));
}

void ContentHasher::add(const Batch& batch) {
  const std::vector<int32_t> numbers = numbers_of(batch);
  digester_.update(std::as_bytes(std::span(numbers)));
}

std::string ContentHasher::hex() const { return data::hex(digester_.digest()); }

std::string content_hash(const Dataset& dataset, int64_t limit) {
  check<ConfigError>(limit >= 0, "content hash: limit ", limit, ": expected at least 0");
  const int64_t size = limit == 0 ? dataset.size() : std::min(limit, dataset.size());
  // Blocks of examples are made in parallel and hashed in order, a few at a time: the dataset may
  // exceed memory.
  constexpr int64_t block = 16, round = 16 * block;
  Digester digester;
  for (int64_t first = 0; first < size; first += round) {
    const int64_t count = std::min(round, size - first);
    std::vector<std::vector<int32_t>> parts((count + block - 1) / block);
    parallel_for(count, block, [&](int64_t begin, int64_t end) {
      parts[begin / block] = numbers_of(dataset.collate(indices_from(first + begin, first + end)));
    });
    for (const auto& part : parts) digester.update(std::as_bytes(std::span(part)));
  }
  return hex(digester.digest());
}

}  // namespace longhand::data
