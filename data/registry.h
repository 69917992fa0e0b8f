// What a task's file gives to the registry. See tasks.def for how to add one.
#pragma once

#include <cstdint>
#include <string>

#include "longhand/data/dataset.h"

namespace longhand::data {

struct TaskRegistration {
  /// One line: what the task is, and its options with their defaults.
  std::string summary;
  /// Reads the task's own options (never "task") from the [data] section, checks them, and makes
  /// the three datasets, or at least those of `splits`; sets every field of TaskInfo but the name.
  /// Throws as make_task() does.
  Task (*make)(const Options& options, uint64_t seed, const Splits& splits);
};

#define TASK(name) TaskRegistration register_##name();
#include "longhand/data/tasks.def"
#undef TASK

}  // namespace longhand::data
