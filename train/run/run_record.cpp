#include "longhand/train/run/run_record.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/results/codec.h"
#include "longhand/train/run/lock.h"
#include "longhand/train/run/tensorboard.h"

namespace longhand::train {

namespace fs = std::filesystem;

constexpr double milliseconds = 1e3, microseconds = 1e6;  // precision of times

void fields(Is<Record> auto& r, auto& f) {
  f("step", r.step);
  f("split", r.split);
  f.number("loss", r.loss);
  f.number("accuracy", r.accuracy);
  f.filled("terms", r.terms);
  if (f.when(!std::isnan(r.accuracy)))  // NaN: the targets are numbers
    f.derived("perplexity", std::exp(r.cross_entropy()));
  f("bits_per_byte", r.bits_per_byte);
  f("learning_rate", r.learning_rate);
  f("gradient_norm", r.gradient_norm);
  f.number("tokens_per_second", r.tokens_per_second, 1);
  f("peak_memory_bytes", r.peak_memory);
  f.filled("model", r.model);
  f.filled("skipped", r.skipped);
  if (f.when(r.split == "validation")) f("best", r.best);
  f("seconds", r.seconds, milliseconds);
}

void fields(Is<Source> auto& s, auto& f) {
  f("checkpoint", s.checkpoint);
  f("digest", s.digest);
  f("step", s.step);
}

void fields(Is<Initialisation> auto& i, auto& f) {
  fields(i.source, f);
  f("taken", i.tensors.taken);
  f("initialised", i.tensors.initialised);
  f("unused", i.tensors.unused);
}

void fields(Is<Sources> auto& s, auto& f) {
  f("init_from", s.init);
  f("distill_from", s.teacher);
}

void fields(Is<PluginRecord> auto& p, auto& f) {
  f("name", p.name);
  f("version", p.version);
  f("digest", p.digest);
}

void fields(Is<ProcessSummary> auto& p, auto& f) {
  f.filled("host", p.host);
  f.filled("threads", p.threads);
  f.filled("ranks", p.ranks, 1);
  f("begin", p.begin);
  f("step", p.step);
  if (f.when(p.trained > 0)) {  // otherwise none, or unknown
    f("trained_steps", p.trained);
    f("tokens", p.tokens);
    // Steps may be short, and rates follow from this.
    f("training_seconds", p.training_seconds, microseconds);
  }
  f("step_seconds", p.step_seconds);
  f("seconds", p.seconds, milliseconds);
  f("peak_memory_bytes", p.peak_memory);
}

void fields(Is<Summary> auto& s, auto& f) {
  f("status", s.status);
  f("task", s.task);
  f.filled("length", s.length);
  f("attention", s.attention);
  f.filled("algorithm", s.algorithm);
  f("step", s.step);
  f("steps", s.steps);
  f("parameters", s.parameters);
  f.object("best", s.best.has_value(), [&](auto& best) {
    best("metric", s.best_metric);
    best.number("value", s.best);
    best("step", s.best_step);
  });
  f.filled("skipped_steps", s.skipped);
  f("train", s.training);
  f("validation", s.validation);
  f("seed", s.seed);
  f.filled("host", s.host);
  f("threads", s.threads);
  f.number("seconds", s.seconds, milliseconds);
  f("step_seconds", s.step_seconds);
  f("tokens_per_second", s.tokens_per_second, 1);
  f("peak_memory_bytes", s.peak_memory);
  f.filled("state_bytes", s.state_bytes);
  f.filled("version", s.version);
  f.filled("machine", s.machine);
  f.filled("provenance", s.provenance);
  f.filled("data", s.data);
  f.filled("plugins", s.plugins);
  f.filled("warnings", s.warnings);
  fields(s.sources, f);
  f.filled("processes", s.processes);
}

namespace {

/// Calls f(number, text, JSON) for each line of the metrics; the JSON is null unless it is an
/// object with a step. Returns the last line if it has no line end: a process has not completed it.
template <class F>
std::string for_each_line(const fs::path& metrics, F&& f) {
  std::istringstream in(fs::exists(metrics) ? data::read_text_file(metrics) : "");
  std::string line;
  for (int64_t number = 1; std::getline(in, line) && !in.eof(); ++number) {
    const Json json = try_parse_json(line);
    const bool has_step =
        json.is_object() && json.contains("step") && json["step"].is_number_integer();
    f(number, line, has_step ? &json : nullptr);
  }
  return line;
}

/// The files of a run other than its checkpoints.
constexpr std::array<const char*, 5> file_names = {"config.toml", "summary.json", "test.json",
                                                   "sources.json", "metrics.jsonl"};

/// Returns whether runs write a file of this name to their checkpoints folder, rather than users.
bool is_checkpoint_of_run(const std::string& name) {
  static const std::regex own("(last|previous|best|step-[0-9]+|before-step-[0-9]+)\\.h5");
  return std::regex_match(name, own);
}

/// Removes from a folder, unless it is a link, the files with names that runs use.
template <class F>
void remove_own(const fs::path& folder, F is_own) {
  std::error_code ignored;
  std::vector<fs::path> files;
  if (fs::is_symlink(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_own(entry.path().filename().string())) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file, ignored);
}

/// Returns whether a run has saved or recorded something here.
bool holds_results(const fs::path& path) {
  const fs::path metrics = path / "metrics.jsonl", checkpoints = path / "checkpoints";
  if (fs::exists(path / "summary.json") || (fs::exists(metrics) && !fs::is_empty(metrics)))
    return true;
  if (!fs::is_directory(checkpoints)) return false;
  // Hidden files were never completed.
  return std::any_of(fs::directory_iterator(checkpoints), {}, [](const auto& entry) {
    return !entry.path().filename().string().starts_with('.');
  });
}

}  // namespace

Summary read_summary(const fs::path& path) {
  const Json object = try_parse_json(data::read_text_file(path));
  check<DataError>(object.is_object(), path.string(),
                   ": expected a JSON object; remove the file, which only summarises the run");
  return read_json<Lenient, Summary>(object);
}

std::string to_json(const Record& record) { return dump(json_of(record)); }

std::string to_json(const Summary& summary) { return dump(json_of(summary), 2) + "\n"; }

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
  std::ranges::sort(medians);
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

RunRecord::RunRecord(const fs::path& path)
    : RunRecord(path, ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  check<DataError>(lock_ >= 0, "cannot open ", path.string(), ": ", data::system_reason());
  check<ConfigError>(take_lock(lock_, path), path.string(), " is in use by another process");
}

RunRecord::RunRecord(RunRecord&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      made_(std::move(other.made_)),
      unwritten_(std::move(other.unwritten_)) {}

RunRecord::~RunRecord() {
  if (made_) {
    std::error_code ignored;
    remove_files(!made_->empty());  // events in an existing folder may belong to other runs
    fs::remove(checkpoints(), ignored);
    // Removes the folders that were created, from the run upwards, while they are empty.
    fs::path folder = fs::absolute(path_);
    for (bool more = !made_->empty(); more; folder = folder.parent_path())
      more = fs::remove(folder, ignored) && folder != *made_;
  }
  if (lock_ >= 0) close(lock_);
}

void RunRecord::remove_files(bool events) const {
  std::error_code ignored;
  for (const char* const name : file_names) fs::remove(path_ / name, ignored);
  remove_own(checkpoints(), is_checkpoint_of_run);
  const fs::path board = path_ / "tensorboard";
  if (!events || fs::is_symlink(board)) return;
  remove_own(board, is_event_file);
  fs::remove(board, ignored);
}

fs::path unused_path(const fs::path& first) {
  fs::path out = first;
  for (int n = 2; fs::exists(fs::symlink_status(out)); ++n)
    out = first.string() + "-" + std::to_string(n);
  return out;
}

fs::path RunRecord::fresh_path(const fs::path& folder, const std::string& name) {
  const std::tm now = fmt::localtime(std::time(nullptr));
  return unused_path(folder / fmt::format("{}-{:%Y%m%d-%H%M%S}", name, now));
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
  RunRecord run(path);
  check_free(path, existing);  // another process may have been faster
  // Overwritten results stay until start(); a run that never got past its start does not.
  if (!holds_results(path)) {
    if (fs::exists(run.config())) run.remove_files();
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
    made_ = std::make_unique<fs::path>();
  }
  write_config(toml);
}

RunRecord RunRecord::open(const fs::path& path) {
  check<ConfigError>(fs::is_directory(path), "no run directory ", path.string());
  for (const char* part : {"config.toml", "checkpoints"})
    check<ConfigError>(fs::exists(path / part), path.string(), " holds no run: no ", part);
  RunRecord run(path);
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

const VerifiedCheckpoints::Valid* VerifiedCheckpoints::find(const fs::path& file) const {
  const auto found = std::ranges::find(valid, file, &Valid::file);
  return found == valid.end() ? nullptr : &*found;
}

VerifiedCheckpoints RunRecord::verified_checkpoints() const {
  VerifiedCheckpoints out;
  for (const fs::path& file : checkpoint_files()) {
    try {
      out.valid.push_back({file, load(file).training});
    } catch (const DataError& error) {
      out.bad.emplace_back(file, error.what());
    }
  }
  std::ranges::stable_sort(
      out.valid, [](const auto& a, const auto& b) { return a.training.step > b.training.step; });
  return out;
}

std::optional<ResumePoint> RunRecord::resume_point() const {
  std::string reason = last().string() + " is missing";
  if (fs::exists(last())) {
    try {
      return ResumePoint{last(), load(last())};
    } catch (const DataError& error) {
      reason = error.what();
    }
  }
  const VerifiedCheckpoints found = verified_checkpoints();
  if (found.valid.empty() && found.bad.empty()) {
    check_never_saved();
    return std::nullopt;
  }
  const bool others = found.bad.size() > (fs::exists(last()) ? 1 : 0);
  check<DataError>(!found.valid.empty(), reason, others ? "; no other checkpoint of " : "",
                   others ? path_.string() : "", others ? " is valid" : "");
  const fs::path& newest = found.valid.front().file;
  ResumePoint out{newest, load(newest)};
  out.warning = concat_message(reason, "; continuing from ", newest.string(), ", after step ",
                               out.checkpoint.training.step);
  return out;
}

void RunRecord::check_never_saved() const {
  if (fs::exists(path_ / "cell.toml")) return;  // a sweep retrains such a cell
  const std::optional<Summary> before = summary();
  check<DataError>(!before || before->step == 0 || before->status == "diverged",
                   checkpoints().string(), " holds no checkpoint, but the run had done ",
                   before ? before->step : 0,
                   " steps, as summary.json says; restore a checkpoint, or start again with "
                   "longhand train ",
                   config().string(), " --out ", path_.string(), " --overwrite");
}

void RunRecord::append(const std::string& line) {
  unwritten_ += line + '\n';
  write_lines();
}

void RunRecord::write_lines() {
  if (unwritten_.empty()) return;
  synced_ = false;
  data::append_to_file(metrics(), unwritten_);
  unwritten_.clear();
}

void RunRecord::append(const Record& record) { append(to_json(record)); }

void RunRecord::append_hash(int64_t step, const std::string& hash) {
  append(Json{{"step", step}, {"hash", hash}}.dump());
}

void RunRecord::sync_metrics() {
  write_lines();
  if (synced_) return;
  if (fs::exists(metrics())) data::sync_file(metrics());
  synced_ = true;
}

EarlierMetrics RunRecord::earlier_metrics(const TrainingState& state) const {
  EarlierMetrics out;
  std::map<std::string, int64_t> last;  // last step of each split
  const auto keep = [&](int64_t number, const std::string& line, const Json* json) {
    const Record record = json ? read_json<Lenient, Record>(*json) : Record{};
    const auto before = last.find(record.split);
    if (!json || (before != last.end() && record.step <= before->second)) {
      out.damage += (out.damage.empty() ? "damaged lines: " : ", ") + std::to_string(number);
      return;
    }
    last[record.split] = record.step;
    out.step = std::max(out.step, record.step);
    out.seconds = std::max(out.seconds, record.seconds.value_or(0));
    out.peak_memory = std::max(out.peak_memory, record.peak_memory);
    // A checkpoint may have been saved after a step but before the evaluation that follows it.
    if (record.step > (record.split == "validation" ? state.evaluated_step : state.step)) return;
    out.kept += line + "\n";
    if (record.split == "train") out.training = record;
    if (record.split == "validation") out.validation = record;
  };
  const std::string torn = for_each_line(metrics(), keep), begin = "{\"step\":";
  // If the last step's evaluation is not in the state, resuming repeats it and its line.
  if (torn.starts_with(begin) && torn.find(',') != std::string::npos && out.damage.empty())
    if (const int64_t of = std::atoll(torn.c_str() + begin.size());
        of < state.step || of <= state.evaluated_step ||
        (of == state.step && torn.find("\"hash\"") != std::string::npos))
      out.damage = concat_message("the last line is incomplete, of step ", of);
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
  data::write_file_durably(path_ / "sources.json", dump(json_of(sources), 2) + "\n");
}

Sources RunRecord::sources() const {
  const fs::path path = path_ / "sources.json";
  if (!fs::exists(path)) return {};
  const Json object = try_parse_json(data::read_text_file(path));
  check<DataError>(object.is_object(), path.string(), ": no JSON object");
  return read_json<Lenient, Sources>(object);
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
  for_each_line(metrics, [&](int64_t number, const std::string&, const Json* line) {
    check<DataError>(line, metrics.string(), ":", number, ": expected a JSON object with a step");
    if (const auto hash = line->find("hash"); hash != line->end() && hash->is_string())
      hash->get_to(run.hashes[line->at("step").get<int64_t>()]);
    else
      run.metrics.push_back(read_json<Lenient, Record>(*line));
  });
  return run;
}

void check_model_path(const fs::path& path) {
  check<ConfigError>(!fs::exists(path) || (fs::is_directory(path) && fs::is_empty(path)),
                     path.string(),
                     RunRecord::holds_run(path) ? " already holds a run"
                     : fs::is_directory(path)   ? " is not empty"
                                                : " exists and is not a folder",
                     "; choose another --out");
}

void write_model(const fs::path& path, const Checkpoint& checkpoint) {
  check_model_path(path);
  RunRecord record = RunRecord::create(path);
  for (const char* const name : {"best.h5", "last.h5"})
    save(record.checkpoints() / name, checkpoint);
  record.write_config(checkpoint.config);
  record.keep();
}

}  // namespace longhand::train
