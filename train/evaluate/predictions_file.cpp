#include "longhand/train/evaluate/predictions_file.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/data/dataset.h"
#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/results/table.h"

namespace longhand::train {
namespace {

enum class Format { json_lines, hdf5, tensors };

Format format_of(const std::string& out) {
  const std::filesystem::path path(out);
  if (out.empty() || path.extension() == ".jsonl") return Format::json_lines;
  if (path.extension() == ".h5") return Format::hdf5;
  check<ConfigError>(is_tensor_file(path), "-o ", out,
                     ": expected a name that ends in .jsonl, .h5, .npz or .safetensors");
  return Format::tensors;
}

}  // namespace

void check_predictions_path(const std::string& out) { format_of(out); }

void check_predictions_memory(const std::string& out, int64_t targets, int64_t classes,
                              double available) {
  // The values, and the file, which is made in memory: numbers as text, or values twice.
  const double each = format_of(out) == Format::json_lines ? 4 + 16 : 4 + 8;
  const double bytes = each * static_cast<double>(targets) * static_cast<double>(classes);
  check<ConfigError>(bytes <= available, "predictions of ", with_commas(targets),
                     " targets or more with ", with_commas(classes), " classes need ",
                     bytes_text(bytes), ", other processes leave ", bytes_text(available),
                     "; predict the first N examples with --limit N");
}

void write_predictions(const std::string& out, const Predictions& predictions,
                       const std::map<std::string, std::string>& metadata) {
  switch (format_of(out)) {
    case Format::json_lines:
      return data::write_file_durably(out, to_json_lines(predictions));
    case Format::tensors: {
      TensorFile file = to_tensors(predictions);
      file.metadata = metadata;
      return write_tensor_file(out, file);
    }
    case Format::hdf5: {
      data::Hdf5Writer file;
      for (const auto& [key, value] : metadata) file.attribute("/", key, value);
      for (const auto& [name, tensor] : to_tensors(predictions).tensors) file.put(name, tensor);
      return data::write_file_durably(out, file.image());
    }
  }
}

void read_data_from(const std::string& file, Config& config) {
  const std::string task = to_string(config.given().at("data.task"));
  const std::string name = task.substr(1, task.size() - 2);  // without quotes
  const bool is_hdf5 = std::filesystem::path(file).extension() == ".h5";
  const Schema options = data::task_options(name);
  const bool reads_files = std::any_of(options.begin(), options.end(),
                                       [](const auto& option) { return option.name == "path"; });
  check<ConfigError>(reads_files || is_hdf5, "--data ", file, ": the data of ", name,
                     " are generated; expected an HDF5 file, FILE.h5, with tokens and targets, or "
                     "--set data.task=TASK with the options of that task");
  if (is_hdf5 && name != "tokens") {
    std::vector<std::string> keys;
    for (const auto& [key, value] : config.given())
      if (key.starts_with("data.")) keys.push_back(key.substr(5));
    for (const std::string& key : keys) config.erase("data", key);
    config.assign("data", "task", std::string("tokens"), "--data");
  }
  config.assign("data", "path", file, "--data");
}

}  // namespace longhand::train
