// A folder with a short run, used by most tests of the program.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/files.h"

namespace longhand::test {

/// config.toml trains a tiny model to copy.
inline constexpr const char* tiny_config = R"([model]
d_model = 16
heads = 2
layers = 1
d_mlp = 16

[data]
task = "copy"
length = 16
count = 4
train_size = 64
validation_size = 16
test_size = 16

[train]
steps = 20
batch_size = 4
eval_every = 10
log_every = 1

[optimizer]
lr = 1e-2
)";

class TinyFolder : public TemporaryDirectory {
 public:
  TinyFolder() { write_text(*this / "config.toml", tiny_config); }
};

}  // namespace longhand::test
