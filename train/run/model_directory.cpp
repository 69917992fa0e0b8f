#include "longhand/train/run/model_directory.h"

#include "longhand/core/error.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

void check_model_path(const std::filesystem::path& path) {
  RunRecord::check_free(path);
  check<ConfigError>(!std::filesystem::exists(path) || std::filesystem::is_empty(path),
                     path.string(), " is not empty; choose another --out");
}

void write_model(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  check_model_path(path);
  RunRecord record = RunRecord::create(path);
  for (const char* const name : {"best.h5", "last.h5"})
    save(record.checkpoints() / name, checkpoint);
  record.write_config(checkpoint.config);
  record.keep();
}

}  // namespace longhand::train
