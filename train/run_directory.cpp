#include "longhand/train/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isfinite(value)) return value;
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

Json object(const Record& record) {
  Json out;
  out["step"] = record.step;
  out["split"] = record.split;
  out["loss"] = number(record.loss);
  out["accuracy"] = number(record.accuracy);
  out["perplexity"] = number(std::exp(record.loss));
  if (record.bits_per_byte) out["bits_per_byte"] = number(*record.bits_per_byte);
  if (record.learning_rate) out["learning_rate"] = number(*record.learning_rate);
  if (record.gradient_norm) out["gradient_norm"] = number(*record.gradient_norm);
  out["tokens_per_second"] = number(std::round(record.tokens_per_second));
  out["peak_memory_bytes"] = record.peak_memory;
  for (const auto& [name, value] : record.model) out["model"][name] = number(value);
  if (record.split == "validation") out["best"] = record.best;
  return out;
}

void write_text(const fs::path& path, const std::string& text) {
  data::write_file_durably(path, std::as_bytes(std::span(text.data(), text.size())));
}

std::string system_reason() { return std::strerror(errno); }

bool holds_run(const fs::path& path) {
  for (const char* name : {"config.toml", "metrics.jsonl", "checkpoints", "summary.json"})
    if (fs::exists(path / name)) return true;
  return false;
}

/// The step of a line of metrics, or nothing if it is none.
std::optional<int64_t> step_of(const std::string& line) {
  const Json record = Json::parse(line, nullptr, false);
  if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer())
    return std::nullopt;
  return record["step"].get<int64_t>();
}

}  // namespace

std::string to_json(const Record& record) { return object(record).dump(); }

std::string to_json(const Summary& summary) {
  Json out;
  out["status"] = summary.status;
  out["task"] = summary.task;
  out["attention"] = summary.attention;
  if (!summary.algorithm.empty()) out["algorithm"] = summary.algorithm;
  out["step"] = summary.step;
  out["steps"] = summary.steps;
  out["parameters"] = summary.parameters;
  if (summary.best) {
    out["best"] = {{"metric", summary.best_metric},
                   {"value", number(*summary.best)},
                   {"step", summary.best_step}};
  }
  if (summary.training) out["train"] = object(*summary.training);
  if (summary.validation) out["validation"] = object(*summary.validation);
  out["seed"] = summary.seed;
  out["threads"] = summary.threads;
  out["seconds"] = number(std::round(summary.seconds * 1000) / 1000);
  out["peak_memory_bytes"] = summary.peak_memory;
  return out.dump(2) + "\n";
}

RunDirectory::RunDirectory(fs::path path, int lock) : path_(std::move(path)), lock_(lock) {}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      made_(std::move(other.made_)) {}

RunDirectory::~RunDirectory() {
  if (made_) {
    std::error_code ignored;
    for (const fs::path& part : {config(), metrics(), checkpoints()}) fs::remove_all(part, ignored);
    // The folders that were made, from the run upwards, as long as they are empty.
    fs::path folder = fs::absolute(path_);
    for (bool more = !made_->empty(); more; folder = folder.parent_path())
      more = fs::remove(folder, ignored) && folder != *made_;
  }
  if (lock_ >= 0) close(lock_);
}

int RunDirectory::lock(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<DataError>(fd >= 0, "cannot open ", path.string(), ": ", system_reason());
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const bool taken = errno == EWOULDBLOCK;
    const std::string reason = system_reason();
    close(fd);
    check<ConfigError>(!taken, path.string(), " is in use by another process");
    throw DataError(concat_message("cannot lock ", path.string(), ": ", reason));
  }
  return fd;
}

void RunDirectory::check_free(const fs::path& path) {
  check<ConfigError>(!fs::exists(path) || fs::is_directory(path), path.string(),
                     " exists and is no folder");
  check<ConfigError>(!holds_run(path), path.string(),
                     " holds a run already; go on with it by --resume, or choose another --out");
}

RunDirectory RunDirectory::create(const fs::path& where, const std::string& config) {
  fs::path path = where.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/a/"
  check_free(path);
  fs::path topmost;
  for (fs::path folder = fs::absolute(path); !fs::exists(folder); folder = folder.parent_path())
    topmost = folder;
  const auto make = [](const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    check<DataError>(!error, "cannot make ", folder.string(), ": ", error.message());
  };
  make(path);
  RunDirectory run(path, lock(path));
  check_free(path);  // another process may have been faster
  run.made_ = std::make_unique<fs::path>(topmost);
  make(run.checkpoints());
  run.write_config(config);
  return run;
}

RunDirectory RunDirectory::open(const fs::path& path) {
  check<ConfigError>(fs::is_directory(path), "there is no run directory ", path.string());
  for (const char* part : {"config.toml", "checkpoints"})
    check<ConfigError>(fs::exists(path / part), path.string(), " holds no run: there is no ", part);
  RunDirectory run(path, lock(path));
  data::remove_stale_temporaries(path);
  data::remove_stale_temporaries(run.checkpoints());
  return run;
}

void RunDirectory::write_config(const std::string& toml) const { write_text(config(), toml); }

void RunDirectory::append(const Record& record) const {
  std::ofstream out(metrics(), std::ios::app | std::ios::binary);
  out << to_json(record) << '\n';
  out.close();
  check<DataError>(!out.fail(), "cannot write ", metrics().string(), ": ", system_reason());
}

void RunDirectory::cut_metrics(int64_t step) const {
  std::ifstream in(metrics(), std::ios::binary);
  if (!in.is_open()) return;
  std::string kept, line;
  while (std::getline(in, line)) {
    const auto at = step_of(line);
    if (at && *at <= step && !in.eof()) kept += line + "\n";
  }
  write_text(metrics(), kept);
}

void RunDirectory::write_summary(const Summary& summary) const {
  write_text(path_ / "summary.json", to_json(summary));
}

fs::path find_checkpoint(const fs::path& run, const std::string& name) {
  if (fs::is_regular_file(run)) return run;
  check<ConfigError>(fs::is_directory(run), "there is no run directory ", run.string());
  const fs::path folder = run / "checkpoints";
  for (const std::string& file : {name, name + ".h5"})
    if (fs::is_regular_file(folder / file)) return folder / file;
  if (name == "best" && fs::is_regular_file(folder / "last.h5")) return folder / "last.h5";
  throw ConfigError(concat_message(run.string(), " has no checkpoint \"", name, "\""));
}

}  // namespace longhand::train
