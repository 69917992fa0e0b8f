// The specification of a task, as defined by its file. See tasks.def for how to add one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "longhand/core/schema.h"
#include "longhand/data/dataset.h"

namespace longhand::data {

struct TaskSpec {
  /// A one-line summary of the task.
  std::string summary;
  /// Its own options, without `task` and `seed`, which are common to all tasks.
  Schema options;
  /// Reads and checks the options, without data. Returns every field of TaskInfo except the name,
  /// or nothing if they require the data. `max_length` as in make_task().
  std::function<std::optional<TaskInfo>(OptionReader& reader, int64_t max_length)> check;
  /// The memory that the data need, if the options determine it; null: as much as its files.
  std::function<DataMemory(OptionReader& reader, int64_t max_length)> memory;
  /// Checks the options, and makes the three datasets, or at least those of `splits`. Throws as
  /// make_task() does.
  std::function<Task(OptionReader& reader, uint64_t seed, const Splits& splits, int64_t max_length)>
      make;
};

/// Returns the specification of a task whose options are a struct S with describe(). `info` returns
/// the properties that follow from the options alone; null: none do. `make` makes the task. A task
/// with texts of any length has S::cut_to(max_length), which sets the default of its own limit to
/// the model's. Data whose form in memory differs from their files have S::memory().
template <class S>
TaskSpec make_spec(std::string summary, std::optional<TaskInfo> (*info)(const S&),
                   Task (*make)(const S&, uint64_t seed, const Splits&), const S& defaults = {}) {
  const auto read = [defaults](OptionReader& reader, int64_t max_length) {
    S options = defaults;
    if constexpr (requires { options.cut_to(max_length); })
      if (max_length > 0) options.cut_to(max_length);
    options.describe(reader);
    reader.check_unknown();
    return options;
  };
  std::function<DataMemory(OptionReader&, int64_t)> memory;
  if constexpr (requires(const S& options) { options.memory(); })
    memory = [read](OptionReader& reader, int64_t max_length) {
      return read(reader, max_length).memory();
    };
  return {
      std::move(summary), schema_of(defaults),
      [read, info](OptionReader& reader, int64_t max_length) {
        const S options = read(reader, max_length);
        return info ? info(options) : std::nullopt;
      },
      std::move(memory),
      [read, make](OptionReader& reader, uint64_t seed, const Splits& splits, int64_t max_length) {
        return make(read(reader, max_length), seed, splits);
      }};
}

/// Registers a task defined outside the library, for make_task(), configurations and the program.
/// Throws ConfigError if the name is taken.
void add(const std::string& name, const TaskSpec& spec);

#define TASK(name) TaskSpec register_##name();
#include "longhand/data/tasks.def"
#undef TASK

}  // namespace longhand::data
