// What a task's file gives to the registry. See tasks.def for how to add one.
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
  /// What the task is, in one line.
  std::string summary;
  /// Its own options, without `task` and `seed`, which every task has.
  Schema options;
  /// Reads and checks the options, without data. Returns every field of TaskInfo but the name, or
  /// nothing if that takes the data. `max_length` as in make_task().
  std::function<std::optional<TaskInfo>(OptionReader& reader, int64_t max_length)> check;
  /// The same, and makes the three datasets, or at least those of `splits`. Throws as make_task()
  /// does.
  std::function<Task(OptionReader& reader, uint64_t seed, const Splits& splits, int64_t max_length)>
      make;
};

/// A task whose options are a struct S with describe(). `info` returns what is known of the task
/// from its options alone; `make` makes it. A task of texts of any length has S::cut_to(max_length),
/// which sets the default of its own limit to that of the model.
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
  return {
      std::move(summary), schema_of(defaults),
      [read, info](OptionReader& reader, int64_t max_length) {
        return info(read(reader, max_length));
      },
      [read, make](OptionReader& reader, uint64_t seed, const Splits& splits, int64_t max_length) {
        return make(read(reader, max_length), seed, splits);
      }};
}

#define TASK(name) TaskSpec register_##name();
#include "longhand/data/tasks.def"
#undef TASK

}  // namespace longhand::data
