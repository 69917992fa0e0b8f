#include "longhand/train/lab/cell.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/data/file.h"
#include "longhand/train/config/sections.h"
#include "longhand/train/results/codec.h"
#include "longhand/train/run/lock.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// In the order of CellStatus.
constexpr std::array<const char*, 12> names = {
    "waiting",  "running", "interrupted", "stopped",       "halved",  "trained",
    "finished", "damaged", "diverged",    "out of memory", "crashed", "failed"};

}  // namespace

void fields(Is<SegmentScore> auto& s, auto& f) {
  f("name", s.name);
  f.filled("length", s.length);
  f.number("loss", s.loss);
  f.number("accuracy", s.accuracy);
}

void fields(Is<Score> auto& s, auto& f) {
  f.number("loss", s.loss);
  f.number("accuracy", s.accuracy);
  f.filled("examples", s.examples);
  f.filled("segments", s.segments);
}

Json json_of(const Settings& settings) {
  Json out = Json::object();
  for (const Setting& each : settings) out[each.key] = json_option(each.value);
  return out;
}

void read_value(const Json& from, Settings& to) {
  for (const auto& [key, each] : from.items()) to.push_back({key, option_in(each), ""});
}

Json json_of(CellStatus status) { return to_string(status); }

void read_value(const Json& from, CellStatus& to) {
  const auto found = std::ranges::find(names, from.get<std::string>());
  if (found != names.end()) to = static_cast<CellStatus>(found - names.begin());
}

void fields(Is<CellRecord> auto& r, auto& f) {
  f("variant", r.variant);
  f("values", r.values);
  f("seed", r.seed);
  f("phase", r.phase);
  f("status", r.status);
  f("reason", r.reason);
  f("attempts", r.attempts);
  f.filled("jobs", r.jobs);
  f("seconds", r.seconds, 1e3);
  f("peak_memory_bytes", r.peak_memory);
  f("pid", r.pid);
  f("log", r.log);
}

namespace {

/// Reads a struct from a JSON file, if the file exists.
template <class T>
std::optional<T> read_existing(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  try {
    return read_json<Strict, T>(parse_json(data::read_text_file(path)));
  } catch (const std::exception& error) {
    throw DataError(path.filename().string() +
                    " is not as Longhand writes it: " + plain_message(error));
  }
}

int open_lock(const fs::path& file, int flags) {
  return ::open(file.c_str(), flags | O_CLOEXEC, 0666);
}

/// Returns why a cell that a process runs, perhaps on another machine, seems stuck; else empty.
std::string stall_of(const fs::path& directory, pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  const std::string command{std::istreambuf_iterator<char>(in), {}};
  const std::string hash = directory.filename().string();
  if (command.find(hash) != std::string::npos && is_stopped(pid))
    return concat_message("its process was stopped: kill -CONT ", pid, " continues it");
  constexpr std::chrono::minutes patience(5);
  auto last = fs::file_time_type::min();
  for (const char* const name : {"metrics.jsonl", "log.txt", "cell.json"}) {
    std::error_code error;
    const auto time = fs::last_write_time(directory / name, error);
    if (!error) last = std::max(last, time);
  }
  const auto quiet = fs::file_time_type::clock::now() - last;
  if (last == fs::file_time_type::min() || quiet < patience) return "";
  return concat_message("has written nothing for ",
                        std::chrono::duration_cast<std::chrono::minutes>(quiet).count(), " min");
}

/// Returns the state that a cell's files show. Throws Error if they are inconsistent.
CellState read_files(const fs::path& directory) {
  CellState state;
  state.record = read_existing<CellRecord>(directory / "cell.json").value_or(CellRecord());
  state.status = state.record.status;
  state.test = read_existing<Score>(directory / "test.json");
  const fs::path summary = directory / "summary.json";
  if (fs::exists(summary)) state.summary = read_summary(summary);
  std::string config;
  try {
    const RecordedRun run =
        fs::exists(directory / "metrics.jsonl") ? read_run(directory) : RecordedRun{};
    config = run.config;
    for (const Record& record : run.metrics)
      if (record.split == "validation")
        state.evaluations[record.step] = {.loss = record.loss, .accuracy = record.accuracy};
  } catch (const Error&) {
    // A power cut may have damaged the metrics of an unfinished run, which resuming repairs.
    if (state.is_trained()) throw;
  }
  if (state.is_trained()) {
    if (const auto best = state.evaluations.find(state.summary->best_step);
        best != state.evaluations.end())
      state.validation = best->second;
    check<DataError>(!state.summary->best || state.validation,
                     "metrics.jsonl lacks the best evaluation, which summary.json names");
    check<DataError>(!config.empty(), "config.toml is missing");
    Config::parse(config, "config.toml");
    // A finished run says so itself, even if the sweep ended before it could.
    if (state.test)
      state.status = CellStatus::finished;
    else if (!state.has_failed())
      state.status = CellStatus::trained;
  } else {
    check<DataError>(
        state.status != CellStatus::trained && state.status != CellStatus::finished,
        "metrics.jsonl or summary.json of a cell that has ended is missing, or older than its end");
    if (state.summary && state.summary->status == "diverged") state.status = CellStatus::diverged;
  }
  const bool open = state.status == CellStatus::running || state.status == CellStatus::trained;
  if (open && Claim::is_taken(directory)) {
    state.status = CellStatus::running;
    state.record.reason = stall_of(directory, state.record.pid);
  } else if (state.status == CellStatus::running)
    state.status = CellStatus::interrupted;
  return state;
}

}  // namespace

std::string to_string(CellStatus status) { return names[static_cast<size_t>(status)]; }

TrainerOptions trainer_options(const SweepCell& cell) {
  const Config config = Config::parse(cell.config, "cell.toml");
  return read_section<TrainSection>(config.train()).trainer;
}

bool has_checkpoints(const fs::path& directory) {
  return fs::exists(directory / "checkpoints") && !fs::is_empty(directory / "checkpoints");
}

std::vector<std::string> place_of_data(const SweepCell& cell, const fs::path& directory) {
  const auto path_in = [](const std::string& text) {
    const auto given = Config::parse(text, "config.toml").given();
    const auto found = given.find("data.path");
    return found == given.end() ? "" : plain_text(found->second);
  };
  const fs::path begun = directory / "config.toml";
  const std::string now = path_in(cell.config);
  if (now.empty() || !fs::exists(begun) || now == path_in(data::read_text_file(begun))) return {};
  return {"--set", "data.path=" + now};
}

fs::path cell_directory(const fs::path& sweep, const SweepCell& cell) {
  return sweep / "cells" / cell.hash;
}

CellState read_cell(const fs::path& directory, const Manifest& manifest) {
  const fs::path sweep = directory.parent_path().parent_path();
  std::string reason;
  try {
    reason = manifest.damage_of(directory);
    // Another process may have run the cell since the manifest was read.
    if (!reason.empty()) reason = read_manifest(sweep).damage_of(directory);
    if (reason.empty()) return read_files(directory);
  } catch (const Error& error) {
    reason = error.what();
  } catch (const fs::filesystem_error& error) {
    reason = error.path1().string() + ": " + data::system_reason(error.code().value());
  }
  CellState state;
  state.status = CellStatus::damaged;
  state.record.reason = reason + repair_remedy(sweep);
  return state;
}

CellState read_cell(const fs::path& directory) {
  return read_cell(directory, read_manifest(directory.parent_path().parent_path()));
}

CellRecord new_record(const Grid& grid, const SweepCell& cell) {
  const SweepVariant& variant = grid.variants[cell.variant];
  CellRecord record{.variant = variant.label,
                    .values = variant.values,
                    .seed = cell.seed,
                    .phase = cell.final ? "final" : "search"};
  if (grid.sweep.search)
    std::ranges::copy(grid.sweep.search->axis.points[cell.trial],
                      std::back_inserter(record.values));
  return record;
}

void write_record(const fs::path& directory, const CellRecord& record) {
  data::write_file_durably(directory / "cell.json", dump(json_of(record), 2) + "\n");
}

Score score_of(const std::string& json) {
  try {
    return read_json<Strict, Score>(parse_json(json));
  } catch (const std::exception& error) {
    throw DataError("expected the output of evaluate --json: " + plain_message(error));
  }
}

void write_test(const fs::path& directory, const std::string& json) {
  score_of(json);
  data::write_file_durably(directory / "test.json", json);
}

int64_t last_step(const fs::path& directory) {
  constexpr std::streamoff tail = 4096;
  std::ifstream in(directory / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!in.is_open()) return 0;
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(size - tail, 0));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return 0;
  const size_t begin = text.rfind('\n', end - 1) + 1;  // npos + 1 = 0
  const Json line = try_parse_json(std::string_view(text).substr(begin, end - begin));
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return 0;
  return line["step"].get<int64_t>();
}

int64_t bytes_written(const fs::path& directory) {
  double bytes = 0;
  for (const char* const name : {"metrics.jsonl", "log.txt", "test.json.part"})
    bytes += data::bytes_of_files(directory / name);
  return static_cast<int64_t>(bytes);
}

ChildOptions process_of_cell(const fs::path& program, std::vector<std::string> arguments,
                             int64_t threads) {
  arguments.insert(arguments.end(), {"--threads", std::to_string(threads)});
  return {.program = program,
          .arguments = std::move(arguments),
          .without = {"LONGHAND_SEED", "LONGHAND_THREADS"}};
}

bool is_stopped(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const size_t name_end = text.rfind(") ");  // the name itself may contain anything
  return name_end != std::string::npos && text[name_end + 2] == 'T';
}

std::string log_tail(const fs::path& directory, int64_t bytes) {
  const fs::path log = directory / "log.txt";
  std::string text = fs::exists(log) ? data::read_text_file(log) : "";
  const auto most = static_cast<size_t>(bytes);
  if (text.size() > most) {
    text = text.substr(text.size() - most);
    text = text.substr(text.find('\n') + 1);
  }
  return text;
}

ScratchDirectory::ScratchDirectory() {
  std::string name = (fs::temp_directory_path() / "longhand-XXXXXX").string();
  check<DataError>(mkdtemp(name.data()) != nullptr, "cannot create ", name, ": ",
                   data::system_reason());
  path = name;
}
ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

std::unique_ptr<Claim> Claim::take(const fs::path& directory, const char* name) {
  data::create_directories_durably(directory);
  const fs::path path = directory / name;
  const int file = open_lock(path, O_RDWR | O_CREAT);
  check<DataError>(file >= 0, "cannot open ", path.string(), ": ", data::system_reason());
  std::unique_ptr<Claim> claim(new Claim(file));
  if (take_lock(file, path))
    data::remove_stale_temporaries(directory);
  else
    claim.reset();
  return claim;
}

std::unique_ptr<Claim> Claim::share(const fs::path& sweep) {
  const fs::path cells = sweep / "cells";
  data::create_directories_durably(cells);
  std::unique_ptr<Claim> claim = take(sweep);
  if (claim)
    data::remove_stale_temporaries(cells);
  else
    claim.reset(new Claim(open_lock(sweep / "lock", O_RDWR)));
  // Shared from now on. Another process may hold the exclusive right while it removes files.
  while (is_locked(claim->file())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (const auto& cell : fs::directory_iterator(cells)) try {
      if (!cell.path().filename().string().starts_with('.') && cell.is_directory())
        take(cell.path());
    } catch (const DataError&) {  // the cell fails when it is run
    }
  return claim;
}

bool Claim::is_taken(const fs::path& directory) {
  const int file = open_lock(directory / "lock", O_RDONLY);
  if (file < 0) return false;
  const bool taken = is_locked(file);
  close(file);
  return taken;
}

Claim::~Claim() { close(file_); }

CellStates read_cells(const Grid& grid, const fs::path& sweep) {
  CellStates states;
  const Manifest manifest = read_manifest(sweep);
  for (const SweepCell& cell : grid.cells) states[cell.hash];
  std::vector<CellStates::value_type*> all;
  for (auto& each : states) all.push_back(&each);
  parallel_for_each(std::ssize(all), 1, [&](int64_t i) {  // parsing JSON takes most of the time
    all[i]->second = read_cell(sweep / "cells" / all[i]->first, manifest);
  });
  return states;
}

double metric_of(const Sweep& sweep, const Score& score) {
  return sweep.metric == "loss" ? score.loss : score.accuracy;
}

}  // namespace longhand::train
