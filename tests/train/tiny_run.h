// A configuration that trains in milliseconds, and an observer that interrupts it.
#pragma once

#include <cstdint>
#include <string>

#include "longhand/train/config/config.h"
#include "longhand/train/trainer.h"

namespace longhand::test {

/// Six steps of a model of one layer on the copy task. `more` is appended: it begins in [train].
inline train::Config tiny_run(const std::string& more = "") {
  return train::Config::parse(R"([model]
d_model = 8
heads = 2
layers = 1
d_mlp = 8
dropout = 0.1
[data]
task = "copy"
length = 16
count = 4
train_size = 32
validation_size = 8
test_size = 8
[train]
steps = 6
batch_size = 4
eval_every = 2
log_every = 1
)" + more,
                              "tiny");
}

/// Stops after some steps; `step` is set to those done.
inline train::Observer stop_after(int64_t steps, int64_t& step) {
  train::Observer observer;
  observer.on_progress = [&step](const train::Progress& p) { step = p.step; };
  observer.should_stop = [&step, steps] { return step >= steps; };
  return observer;
}

}  // namespace longhand::test
