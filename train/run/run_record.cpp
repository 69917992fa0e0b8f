#include "longhand/train/run/run_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/results/json.h"
#include "longhand/train/run/lock.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Rounded to milliseconds.
Json milliseconds(double seconds) { return json_number(std::round(seconds * 1000) / 1000); }

Json object(const Record& record) {
  Json out;
  out["step"] = record.step;
  out["split"] = record.split;
  out["loss"] = json_number(record.loss);
  out["accuracy"] = json_number(record.accuracy);
  for (const auto& [name, value] : record.terms) out["terms"][name] = json_number(value);
  out["perplexity"] = json_number(std::exp(record.cross_entropy()));
  if (record.bits_per_byte) out["bits_per_byte"] = json_number(*record.bits_per_byte);
  if (record.learning_rate) out["learning_rate"] = json_number(*record.learning_rate);
  if (record.gradient_norm) out["gradient_norm"] = json_number(*record.gradient_norm);
  out["tokens_per_second"] = json_number(std::round(record.tokens_per_second));
  out["peak_memory_bytes"] = record.peak_memory;
  for (const auto& [name, value] : record.model) out["model"][name] = json_number(value);
  if (record.skipped > 0) out["skipped"] = record.skipped;
  if (record.split == "validation") out["best"] = record.best;
  if (record.seconds) out["seconds"] = milliseconds(*record.seconds);
  return out;
}

/// The files of a run beside its checkpoints.
constexpr std::array<const char*, 5> file_names = {"config.toml", "summary.json", "test.json",
                                                   "sources.json", "metrics.jsonl"};

/// Whether a file of the folder of checkpoints is one that runs write: not one that a user has put there.
bool is_checkpoint_of_run(const std::string& name) {
  const auto digits_after = [&](std::string_view prefix) {
    return name.starts_with(prefix) && name.size() > prefix.size() + 3 &&
           std::all_of(name.begin() + std::ssize(prefix), name.end() - 3,
                       [](char c) { return '0' <= c && c <= '9'; });
  };
  return name == "last.h5" || name == "previous.h5" || name == "best.h5" ||
         (name.ends_with(".h5") && (digits_after("step-") || digits_after("before-step-")));
}

/// Removes from a folder, unless it is a link, the files whose names are those of a run.
template <class F>
void remove_own(const fs::path& folder, F is_own) {
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::is_symlink(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_own(entry.path().filename().string())) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file, ignored);
}

/// Whether a run has saved or recorded something here.
bool holds_results(const fs::path& path) {
  const fs::path metrics = path / "metrics.jsonl", checkpoints = path / "checkpoints";
  if (fs::exists(path / "summary.json") || (fs::exists(metrics) && !fs::is_empty(metrics)))
    return true;
  if (!fs::is_directory(checkpoints)) return false;
  // A hidden file is one that was never complete.
  return std::any_of(fs::directory_iterator(checkpoints), {}, [](const auto& entry) {
    return !entry.path().filename().string().starts_with('.');
  });
}

/// The value of a key, or nothing if it is missing or of another type. Numbers that are not finite
/// are stored as strings.
template <class T>
std::optional<T> find(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string()) return found->get<T>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (found->is_boolean()) return found->get<T>();
  } else {
    if constexpr (std::is_same_v<T, double>) return number_in(*found);
    if (found->is_number_integer()) return found->get<T>();
  }
  return std::nullopt;
}

double number_of(const Json& object, const char* key) {
  return find<double>(object, key).value_or(std::numeric_limits<double>::quiet_NaN());
}

Record record_of(const Json& line) {
  Record r;
  r.step = find<int64_t>(line, "step").value_or(0);
  r.split = find<std::string>(line, "split").value_or("");
  r.loss = number_of(line, "loss");
  r.accuracy = number_of(line, "accuracy");
  r.bits_per_byte = find<double>(line, "bits_per_byte");
  r.learning_rate = find<double>(line, "learning_rate");
  r.gradient_norm = find<double>(line, "gradient_norm");
  r.tokens_per_second = number_of(line, "tokens_per_second");
  r.peak_memory = find<int64_t>(line, "peak_memory_bytes").value_or(0);
  const auto numbers = [&](const char* key, std::map<std::string, double>& to) {
    const auto found = line.find(key);
    if (found == line.end() || !found->is_object()) return;
    for (const auto& [name, value] : found->items()) to[name] = number_of(*found, name.c_str());
  };
  numbers("terms", r.terms);
  numbers("model", r.model);
  r.skipped = find<int64_t>(line, "skipped").value_or(0);
  r.best = find<bool>(line, "best").value_or(false);
  r.seconds = find<double>(line, "seconds");
  return r;
}

void put(Json& out, const Sources& sources) {
  const auto object = [](const Source& source) {
    return Json{
        {"checkpoint", source.checkpoint}, {"digest", source.digest}, {"step", source.step}};
  };
  if (sources.init) {
    Json& init = out["init_from"] = object(sources.init->source);
    init["taken"] = sources.init->tensors.taken;
    init["initialised"] = sources.init->tensors.initialised;
    init["unused"] = sources.init->tensors.unused;
  }
  if (sources.teacher) out["distill_from"] = object(*sources.teacher);
}

Sources sources_of(const Json& object) {
  const auto source = [](const Json& from) {
    return Source{find<std::string>(from, "checkpoint").value_or(""),
                  find<std::string>(from, "digest").value_or(""),
                  find<int64_t>(from, "step").value_or(0)};
  };
  const auto names = [](const Json& from, const char* key) {
    std::vector<std::string> out;
    if (const auto list = from.find(key); list != from.end() && list->is_array())
      for (const Json& name : *list)
        if (name.is_string()) out.push_back(name.get<std::string>());
    return out;
  };
  Sources out;
  if (const auto init = object.find("init_from"); init != object.end() && init->is_object())
    out.init = {source(*init), Fresh{.initialised = names(*init, "initialised"),
                                     .unused = names(*init, "unused"),
                                     .taken = names(*init, "taken"),
                                     .drawn = {}}};
  if (const auto teacher = object.find("distill_from");
      teacher != object.end() && teacher->is_object())
    out.teacher = source(*teacher);
  return out;
}

ProcessSummary process_of(const Json& object) {
  const auto count = [&](const char* key) { return find<int64_t>(object, key).value_or(0); };
  return {.host = find<std::string>(object, "host").value_or(""),
          .threads = find<int>(object, "threads").value_or(0),
          .ranks = find<int>(object, "ranks").value_or(1),
          .begin = count("begin"),
          .step = count("step"),
          .trained = count("trained_steps"),
          .tokens = count("tokens"),
          .training_seconds = find<double>(object, "training_seconds").value_or(0),
          .step_seconds = find<double>(object, "step_seconds"),
          .seconds = find<double>(object, "seconds").value_or(0),
          .peak_memory = count("peak_memory_bytes")};
}

Json object(const ProcessSummary& process) {
  Json out;
  if (!process.host.empty()) out["host"] = process.host;
  if (process.threads > 0) out["threads"] = process.threads;
  if (process.ranks > 1) out["ranks"] = process.ranks;
  out["begin"] = process.begin;
  out["step"] = process.step;
  if (process.trained > 0) {  // else none, or unknown
    out["trained_steps"] = process.trained;
    out["tokens"] = process.tokens;
    // Steps may be short: rates follow from this.
    out["training_seconds"] = json_number(std::round(process.training_seconds * 1e6) / 1e6);
  }
  if (process.step_seconds) out["step_seconds"] = *process.step_seconds;
  out["seconds"] = milliseconds(process.seconds);
  out["peak_memory_bytes"] = process.peak_memory;
  return out;
}

Summary summary_of(const Json& object) {
  const auto text = [&](const char* key) { return find<std::string>(object, key).value_or(""); };
  const auto count = [&](const char* key) { return find<int64_t>(object, key).value_or(0); };
  const auto part = [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? &*found : nullptr;
  };
  Summary s;
  s.status = text("status");
  s.task = text("task");
  s.length = count("length");
  s.attention = text("attention");
  s.algorithm = text("algorithm");
  s.step = count("step");
  s.steps = count("steps");
  s.parameters = count("parameters");
  if (const Json* best = part("best")) {
    s.best_metric = find<std::string>(*best, "metric").value_or("");
    s.best = number_of(*best, "value");
    s.best_step = find<int64_t>(*best, "step").value_or(0);
  }
  if (const Json* training = part("train")) s.training = record_of(*training);
  if (const Json* validation = part("validation")) s.validation = record_of(*validation);
  s.skipped = count("skipped_steps");
  s.seed = find<uint64_t>(object, "seed").value_or(0);
  s.seconds = number_of(object, "seconds");
  s.step_seconds = find<double>(object, "step_seconds");
  s.tokens_per_second = find<double>(object, "tokens_per_second");
  s.host = text("host");
  s.threads = find<int>(object, "threads").value_or(1);
  s.peak_memory = count("peak_memory_bytes");
  s.state_bytes = count("state_bytes");
  s.version = text("version");
  s.machine = text("machine");
  if (const Json* hashes = part("data"))
    for (const auto& [split, hash] : hashes->items())
      if (hash.is_string()) s.data[split] = hash.get<std::string>();
  if (const auto warnings = object.find("warnings");
      warnings != object.end() && warnings->is_array())
    for (const Json& warning : *warnings)
      if (warning.is_string()) s.warnings.push_back(warning.get<std::string>());
  s.sources = sources_of(object);
  if (const auto plugins = object.find("plugins"); plugins != object.end() && plugins->is_array())
    for (const Json& plugin : *plugins)
      if (plugin.is_object())
        s.plugins.push_back({.name = find<std::string>(plugin, "name").value_or(""),
                             .version = find<std::string>(plugin, "version").value_or(""),
                             .digest = find<std::string>(plugin, "digest").value_or(""),
                             .variants = {},
                             .tasks = {}});
  if (const auto processes = object.find("processes");
      processes != object.end() && processes->is_array())
    for (const Json& process : *processes)
      if (process.is_object()) s.processes.push_back(process_of(process));
  return s;
}

}  // namespace

Summary read_summary(const fs::path& path) {
  const Json object = try_parse_json(data::read_text_file(path));
  check<DataError>(object.is_object(), path.string(),
                   ": expected a JSON object; remove the file, which only summarises the run");
  return summary_of(object);
}

std::string to_json(const Record& record) { return dump(object(record)); }

std::string to_json(const Summary& summary) {
  Json out;
  out["status"] = summary.status;
  out["task"] = summary.task;
  if (summary.length > 0) out["length"] = summary.length;
  out["attention"] = summary.attention;
  if (!summary.algorithm.empty()) out["algorithm"] = summary.algorithm;
  out["step"] = summary.step;
  out["steps"] = summary.steps;
  out["parameters"] = summary.parameters;
  if (summary.best) {
    out["best"] = {{"metric", summary.best_metric},
                   {"value", json_number(*summary.best)},
                   {"step", summary.best_step}};
  }
  if (summary.skipped > 0) out["skipped_steps"] = summary.skipped;
  if (summary.training) out["train"] = object(*summary.training);
  if (summary.validation) out["validation"] = object(*summary.validation);
  out["seed"] = summary.seed;
  if (!summary.host.empty()) out["host"] = summary.host;
  out["threads"] = summary.threads;
  out["seconds"] = milliseconds(summary.seconds);
  if (summary.step_seconds) out["step_seconds"] = *summary.step_seconds;
  if (summary.tokens_per_second)
    out["tokens_per_second"] = json_number(std::round(*summary.tokens_per_second));
  out["peak_memory_bytes"] = summary.peak_memory;
  if (summary.state_bytes > 0) out["state_bytes"] = summary.state_bytes;
  if (!summary.version.empty()) out["version"] = summary.version;
  if (!summary.machine.empty()) out["machine"] = summary.machine;
  if (!summary.data.empty()) out["data"] = summary.data;
  for (const PluginRecord& plugin : summary.plugins)
    out["plugins"].push_back(
        {{"name", plugin.name}, {"version", plugin.version}, {"digest", plugin.digest}});
  if (!summary.warnings.empty()) out["warnings"] = summary.warnings;
  put(out, summary.sources);
  for (const ProcessSummary& process : summary.processes)
    out["processes"].push_back(object(process));
  return dump(out, 2) + "\n";
}

void Summary::add_up() {
  seconds = 0;
  peak_memory = 0;
  double training_seconds = 0;
  int64_t trained = 0, tokens = 0;
  std::vector<std::pair<double, int64_t>> medians;
  for (const ProcessSummary& process : processes) {
    seconds += process.seconds;
    peak_memory = std::max(peak_memory, process.peak_memory);
    training_seconds += process.training_seconds;
    tokens += process.tokens;
    if (!process.step_seconds) continue;
    medians.emplace_back(*process.step_seconds, process.trained);
    trained += process.trained;
  }
  std::sort(medians.begin(), medians.end());
  step_seconds.reset();
  int64_t below = 0;
  for (const auto& [median, count] : medians) {
    below += count;
    if (!step_seconds && 2 * below > trained) step_seconds = median;
  }
  tokens_per_second.reset();
  if (training_seconds > 0) tokens_per_second = static_cast<double>(tokens) / training_seconds;
  if (processes.empty()) return;
  host = processes.back().host;
  threads = std::max(processes.back().threads, 1);
}

RunRecord::RunRecord(fs::path path, int lock) : path_(std::move(path)), lock_(lock) {}

RunRecord::RunRecord(RunRecord&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      made_(std::move(other.made_)),
      unwritten_(std::move(other.unwritten_)) {}

RunRecord::~RunRecord() {
  if (made_) {
    std::error_code ignored;
    remove_files();
    if (!made_->empty()) remove_events();  // else they may be of others
    fs::remove(checkpoints(), ignored);
    // Removes the folders that were created, from the run upwards, as long as they are empty.
    fs::path folder = fs::absolute(path_);
    for (bool more = !made_->empty(); more; folder = folder.parent_path())
      more = fs::remove(folder, ignored) && folder != *made_;
  }
  if (lock_ >= 0) close(lock_);
}

void RunRecord::remove_files() const {
  std::error_code ignored;
  for (const char* const name : file_names) fs::remove(path_ / name, ignored);
  remove_own(checkpoints(), is_checkpoint_of_run);
}

void RunRecord::remove_events() const {
  std::error_code ignored;
  remove_own(path_ / "tensorboard", [](const std::string& name) {
    return name.starts_with("events.out.tfevents.") && name.ends_with(".longhand");
  });
  if (!fs::is_symlink(path_ / "tensorboard")) fs::remove(path_ / "tensorboard", ignored);
}

int RunRecord::lock(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check<DataError>(fd >= 0, "cannot open ", path.string(), ": ", data::system_reason());
  try {
    check<ConfigError>(take_lock(fd, path), path.string(), " is in use by another process");
  } catch (const Error&) {
    close(fd);
    throw;
  }
  return fd;
}

fs::path RunRecord::fresh_path(const fs::path& folder, const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  const fs::path first = folder / (name + "-" + time);
  fs::path path = first;
  for (int n = 2; fs::exists(path); ++n) path = first.string() + "-" + std::to_string(n);
  return path;
}

bool RunRecord::holds_run(const fs::path& path) {
  return fs::exists(path / "config.toml") && fs::is_directory(path / "checkpoints") &&
         holds_results(path);
}

void RunRecord::check_free(const fs::path& path, Existing existing) {
  const fs::path checkpoints = path / "checkpoints";
  check<ConfigError>(existing != Existing::overwrite || !fs::is_symlink(checkpoints),
                     checkpoints.string(),
                     " is a link, and nothing was removed; remove the link, "
                     "or choose another --out");
  check<ConfigError>(!fs::exists(path) || fs::is_directory(path), path.string(),
                     " exists and is not a folder");
  if (!fs::is_directory(checkpoints)) {
    for (const char* const name : file_names)
      check<ConfigError>(
          !fs::exists(path / name), path.string(), " holds ", name,
          ", but is not the directory of a run: it has no folder checkpoints; choose "
          "another --out");
    return;
  }
  if (existing == Existing::overwrite || !holds_results(path)) return;
  check<ConfigError>(!fs::exists(path / "config.toml"), path.string(),
                     " already holds a run; continue it with --resume or --resume-or-start, "
                     "replace it with --overwrite, or choose another --out");
  throw ConfigError(path.string() +
                    " holds parts of a run, but no config.toml; replace them with --overwrite, or "
                    "choose another --out");
}

RunRecord RunRecord::create(const fs::path& where, Existing existing) {
  fs::path path = where.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "runs/a/"
  check_free(path, existing);
  fs::path topmost;
  for (fs::path folder = fs::absolute(path); !fs::exists(folder); folder = folder.parent_path())
    topmost = folder;
  data::create_directories_durably(path);
  RunRecord run(path, lock(path));
  check_free(path, existing);  // another process may have been faster
  // What is overwritten stays until start(); what was never more than begun does not.
  if (!holds_results(path)) {
    if (fs::exists(run.config())) {
      run.remove_files();
      run.remove_events();
    }
    run.made_ = std::make_unique<fs::path>(topmost);
  }
  data::remove_stale_temporaries(path);
  data::create_directories_durably(run.checkpoints());
  data::remove_stale_temporaries(run.checkpoints());
  return run;
}

void RunRecord::start(const std::string& toml) {
  if (!made_) {
    remove_files();
    remove_events();
    made_ = std::make_unique<fs::path>();
  }
  write_config(toml);
}

RunRecord RunRecord::open(const fs::path& path) {
  check<ConfigError>(fs::is_directory(path), "no run directory ", path.string());
  for (const char* part : {"config.toml", "checkpoints"})
    check<ConfigError>(fs::exists(path / part), path.string(), " holds no run: no ", part);
  RunRecord run(path, lock(path));
  data::remove_stale_temporaries(path);
  data::remove_stale_temporaries(run.checkpoints());
  return run;
}

void RunRecord::write_config(const std::string& toml) const {
  data::write_file_durably(config(), toml);
}

std::vector<fs::path> RunRecord::checkpoint_files() const {
  std::vector<fs::path> out = checkpoints_in(checkpoints());
  std::erase_if(out, [](const fs::path& file) { return !is_checkpoint_of_run(file.filename()); });
  return out;
}

std::optional<ResumePoint> RunRecord::resume_point() const {
  std::vector<fs::path> others = checkpoint_files();
  std::erase(others, last());
  std::string reason;
  if (fs::exists(last())) {
    try {
      return ResumePoint{last(), load(last())};
    } catch (const DataError& error) {
      reason = error.what();
    }
  } else {
    if (others.empty()) return std::nullopt;
    reason = last().string() + " is missing";
  }
  std::optional<ResumePoint> newest;
  for (const fs::path& file : others) {
    try {
      Checkpoint checkpoint = load(file);
      if (newest && checkpoint.training.step <= newest->checkpoint.training.step) continue;
      newest = ResumePoint{file, std::move(checkpoint)};
    } catch (const DataError&) {  // there may be a better one
    }
  }
  check<DataError>(newest.has_value(), reason, others.empty() ? "" : "; no other checkpoint of ",
                   others.empty() ? "" : path_.string(), others.empty() ? "" : " is valid");
  newest->warning = concat_message(reason, "; continuing from ", newest->file.string(),
                                   ", after step ", newest->checkpoint.training.step);
  return newest;
}

void RunRecord::append(const std::string& line) {
  unwritten_ += line + '\n';
  data::append_to_file(metrics(), unwritten_);
  unwritten_.clear();
}

void RunRecord::append(const Record& record) { append(to_json(record)); }

void RunRecord::append_hash(int64_t step, const std::string& hash) {
  append(Json{{"step", step}, {"hash", hash}}.dump());
}

void RunRecord::sync_metrics() {
  if (!unwritten_.empty()) {
    data::append_to_file(metrics(), unwritten_);
    unwritten_.clear();
  }
  if (fs::exists(metrics())) data::sync_file(metrics());
}

EarlierMetrics RunRecord::earlier_metrics(const TrainingState& state) const {
  EarlierMetrics out;
  std::istringstream in(fs::exists(metrics()) ? data::read_text_file(metrics()) : "");
  std::string line;
  std::map<std::string, int64_t> last;  // step of each split
  // A last line without an end is one that a process did not complete.
  for (int64_t number = 1; std::getline(in, line) && !in.eof(); ++number) {
    const Json json = try_parse_json(line);
    const auto step = json.is_object() ? find<int64_t>(json, "step") : std::nullopt;
    const Record record = step ? record_of(json) : Record{};
    const auto before = last.find(record.split);
    if (!step || (before != last.end() && *step <= before->second)) {
      out.damage += (out.damage.empty() ? "damaged lines: " : ", ") + std::to_string(number);
      continue;
    }
    last[record.split] = *step;
    out.step = std::max(out.step, record.step);
    out.seconds = std::max(out.seconds, record.seconds.value_or(0));
    out.peak_memory = std::max(out.peak_memory, record.peak_memory);
    // A checkpoint may have been saved after a step, but before the evaluation that follows it.
    if (*step > (record.split == "validation" ? state.evaluated_step : state.step)) continue;
    out.kept += line + "\n";
    if (record.split == "train") out.training = record;
    if (record.split == "validation") out.validation = record;
  }
  const int64_t trained = out.training ? out.training->step : 0;
  const int64_t evaluated = out.validation ? out.validation->step : 0;
  if (out.damage.empty() &&
      (trained < state.step - state.interval.steps - state.guard.skipped_interval ||
       evaluated < state.evaluated_step))
    out.damage = concat_message("lines are missing, up to step ", state.step);
  return out;
}

void RunRecord::cut_metrics(const EarlierMetrics& earlier) const {
  if (!fs::exists(metrics())) return;
  if (!earlier.damage.empty())
    data::write_file_durably(path_ / damaged_metrics, data::read_text_file(metrics()));
  data::write_file_durably(metrics(), earlier.kept);
}

void RunRecord::write_summary(const Summary& summary) const {
  data::write_file_durably(path_ / "summary.json", to_json(summary));
}

std::optional<Summary> RunRecord::summary() const {
  const fs::path path = path_ / "summary.json";
  return fs::exists(path) ? std::optional(read_summary(path)) : std::nullopt;
}

void RunRecord::write_sources(const Sources& sources) const {
  Json out;
  put(out, sources);
  data::write_file_durably(path_ / "sources.json", dump(out, 2) + "\n");
}

Sources RunRecord::sources() const {
  const fs::path path = path_ / "sources.json";
  if (!fs::exists(path)) return {};
  const Json object = try_parse_json(data::read_text_file(path));
  check<DataError>(object.is_object(), path.string(), ": no JSON object");
  return sources_of(object);
}

RecordedRun read_run(const fs::path& path) {
  const fs::path metrics = path / "metrics.jsonl", summary = path / "summary.json";
  check<ConfigError>(fs::exists(metrics) || fs::exists(path / "config.toml") || fs::exists(summary),
                     path.string(), " holds no run: no metrics.jsonl");
  RecordedRun run;
  run.name = path.lexically_normal().string();
  if (run.name.size() > 1 && run.name.back() == '/') run.name.pop_back();
  if (fs::exists(path / "config.toml")) run.config = data::read_text_file(path / "config.toml");
  if (fs::exists(summary)) run.summary = read_summary(summary);
  const std::string lines = fs::exists(metrics) ? data::read_text_file(metrics) : "";
  int64_t count = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    // A run in progress may have written its last line only partially.
    if (end == std::string::npos) break;
    const Json line = try_parse_json(std::string_view(lines).substr(begin, end - begin));
    ++count;
    check<DataError>(line.is_object() && find<int64_t>(line, "step"), metrics.string(), ":", count,
                     ": expected a JSON object with a step");
    if (const auto hash = find<std::string>(line, "hash"))
      run.hashes[*find<int64_t>(line, "step")] = *hash;
    else
      run.metrics.push_back(record_of(line));
    begin = end + 1;
  }
  return run;
}

}  // namespace longhand::train
