#include "tests/support/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "longhand/data/hdf5.h"
#include "tests/support/catch.h"

namespace longhand::test {
namespace {

using Json = nlohmann::json;

OptionValue to_option(const std::string& name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  check<DataError>(value.is_string(), name, ": a value of type ", value.type_name(),
                   " is not supported: ", value.dump());
  return value.get<std::string>();
}

void set(Options& options, const std::string& name, const std::string& key, const Json& value) {
  if (!value.is_array()) return options.set(key, to_option(name, value));
  for (size_t i = 0; i < value.size(); ++i)
    options.set(key + "." + std::to_string(i), to_option(name, value[i]));
}

}  // namespace

const Tensor& Golden::at(const std::string& path) const {
  const auto found = tensors.find(path);
  check<DataError>(found != tensors.end(), name, ": the case has no dataset ", path);
  return found->second;
}

std::map<std::string, Tensor> Golden::group(const std::string& name_) const {
  const std::string prefix = name_ + "/";
  std::map<std::string, Tensor> out;
  for (const auto& [path, tensor] : tensors)
    if (path.compare(0, prefix.size(), prefix) == 0) out[path.substr(prefix.size())] = tensor;
  return out;
}

std::filesystem::path golden_folder() {
  const char* const given = std::getenv("LONGHAND_GOLDEN_DIR");
  return given ? given : LONGHAND_GOLDEN_DEFAULT_DIR;
}

std::vector<std::filesystem::path> golden_files(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  check<DataError>(fs::is_directory(folder), "golden cases: ", folder, " is not a folder");
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    const fs::path extension = entry.path().extension();
    if (extension == ".h5") files.push_back(entry.path());
    // A case under another name would pass unread.
    check<DataError>(extension == ".h5" || extension == ".md" || !entry.is_regular_file(),
                     "golden cases: ", entry.path(), " is neither *.h5 nor *.md");
  }
  check<DataError>(!files.empty(), "golden cases: expected *.h5 files in ", folder, ", found none");
  std::sort(files.begin(), files.end());
  return files;
}

Golden read_golden(const std::filesystem::path& path) {
  const data::Hdf5Reader file = data::Hdf5Reader::open(path);
  const auto text = [&](const char* key) { return file.attribute_as<std::string>("/", key); };
  Golden golden;
  golden.name = path.stem().string();
  check<DataError>(text("format") == "attention-golden", path,
                   ": expected format \"attention-golden\", got \"", text("format"), "\"");
  const auto version = file.attribute_as<int64_t>("/", "version");
  check<DataError>(version == 1, path, ": expected version 1, got ", version);
  golden.kind = text("kind");
  check<DataError>(golden.kind == "attention" || golden.kind == "model", path,
                   ": expected kind \"attention\" or \"model\", got \"", golden.kind, "\"");
  golden.source = text("source");
  golden.config = Options(golden.name);
  Json config = Json::parse(text("config"), nullptr, false);
  check<DataError>(config.is_object(), path, ": expected a JSON object as config, got ",
                   text("config"));
  // The kernel "softmax" of performer's cases is its estimator "positive".
  Json& of_variant = config.contains("attention") ? config["attention"] : config;
  if (of_variant.value("type", "") == "performer" && of_variant.value("kernel", "") == "softmax")
    of_variant["kernel"] = "positive";
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object()) {
      set(golden.config, golden.name, key, value);
      continue;
    }
    Options& section =
        golden.sections.emplace(key, Options(golden.name + ": " + key)).first->second;
    for (const auto& [inner, inner_value] : value.items())
      set(section, golden.name, inner, inner_value);
  }
  for (const std::string& dataset : file.datasets("/"))
    golden.tensors[dataset] = file.read(dataset);
  return golden;
}

Tensor lengths_of(const Tensor& key_keep) {
  const int64_t B = key_keep.size(0), N = key_keep.size(1);
  const auto keep = key_keep.to_vector<int64_t>();
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < B; ++b) {
    const auto begin = keep.begin() + b * N, end = begin + N;
    const auto padding = std::find(begin, end, 0);
    check<DataError>(std::all_of(padding, end, [](int64_t k) { return k == 0; }),
                     "key_keep: a real token follows padding in sequence ", b);
    lengths.push_back(static_cast<int32_t>(padding - begin));
  }
  return Tensor::from(lengths, {B});
}

double relative_error(const Tensor& got, const Tensor& expected) {
  check<ShapeError>(got.shape() == expected.shape(), "relative_error: expected shape ",
                    expected.shape(), ", got ", got.shape());
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double error = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::quiet_NaN();
    error = std::max(error, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return scale > 0 ? error / scale : error;
}

void compare(const std::string& what, const Tensor& got, const Tensor& expected, double tolerance) {
  const auto numbers = expected.to_vector<double>();
  if (std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 0; }))
    tolerance = got.dtype() == DType::f64 ? 1e-12 : 1e-5;
  const double error = relative_error(got, expected);
  INFO(what << ": error " << error << ", expected at most " << tolerance);
  CHECK(error <= tolerance);
}

}  // namespace longhand::test
