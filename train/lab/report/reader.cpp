#include "longhand/train/lab/report/reader.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <type_traits>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/manifest.h"
#include "longhand/train/results/codec.h"

namespace longhand::train {

/// Fields of cell.json about a cell's run.
void fields(Is<ReportedRun> auto& r, auto& f) {
  f("variant", r.variant);
  f("phase", r.phase);
  f("status", r.status);
  f("reason", r.reason);
  f("seed", r.seed);
}

namespace {

namespace fs = std::filesystem;

/// Reads a JSON object from a file that is written atomically.
Json read_object(const fs::path& path) {
  Json out = try_parse_json(data::read_text_file(path));
  check<DataError>(out.is_object(), path.string(), ": expected a JSON object; remove the file, or ",
                   "repeat the command that writes it");
  return out;
}

double number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nan("") : number_in(*found).value_or(std::nan(""));
}

/// Returns a whole number; 0 for anything else.
int64_t whole(double value) { return std::abs(value) < 1e18 ? static_cast<int64_t>(value) : 0; }

bool is_run(const fs::path& path) {
  for (const char* const name : {"metrics.jsonl", "config.toml", "summary.json"})
    if (fs::exists(path / name)) return true;
  return false;
}

/// Returns folders in alphabetical order. Hidden ones may be incomplete copies.
std::vector<fs::path> folders_in(const fs::path& path) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.'))
      out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

/// Returns the folder names of a sweep's cells: others may belong to a previous sweep there.
/// Nothing if its file is missing, or invalid for this version and its plugins.
std::optional<std::set<std::string>> cells_of(const fs::path& sweep) {
  const fs::path file = sweep / "sweep.toml";
  if (!fs::exists(file)) return std::nullopt;
  std::set<std::string> out;
  try {
    for (const SweepCell& cell : expand(Sweep::load(file)).cells) out.insert(cell.hash);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  return out;
}

/// Returns the best checkpoint's validation record; before there is one, the last record.
std::optional<Score> best_validation(const RecordedRun& run) {
  const Record* found = nullptr;
  for (const Record& record : run.metrics)
    if (record.split == "validation" && (record.best || !found || !found->best)) found = &record;
  if (!found) return std::nullopt;
  return Score{found->loss, found->accuracy};
}

void add_checkpoint(const fs::path& path, ReportedRun& run) {
  for (const char* const name : {"best.h5", "last.h5"}) {
    const fs::path file = path / "checkpoints" / name;
    if (!fs::exists(file)) continue;
    run.checkpoint = name;
    try {
      run.checkpoint_digest = stored_digest(file);
    } catch (const DataError&) {
      run.checkpoint_digest = "(damaged)";
    }
    return;
  }
}

/// A run, or the cell of a sweep.
ReportedRun read_reported_run(const fs::path& path) {
  ReportedRun run;
  if (is_run(path))
    run.record = read_run(path);
  else
    run.record.name = path.lexically_normal().string();
  if (!run.record.config.empty())
    run.options = Config::parse(run.record.config, (path / "config.toml").string()).given();
  run.status = run.record.summary ? run.record.summary->status : "running";
  if (const auto seed = run.options.find("train.seed"); seed != run.options.end())
    if (const auto* const value = std::get_if<int64_t>(&seed->second)) run.seed = *value;
  run.validation = best_validation(run.record);
  if (const fs::path test = path / "test.json"; fs::exists(test)) {
    const Json object = read_object(test);
    // A sweep uses the validation split for data without a test split.
    const bool validated = object.value("split", Json()) == "validation";
    (validated ? run.validation : run.test) =
        Score{number_of(object, "loss"), number_of(object, "accuracy"),
              whole(number_of(object, "examples"))};
  }
  add_checkpoint(path, run);
  if (!fs::exists(path / "cell.json")) return run;
  const Json cell = read_object(path / "cell.json");
  JsonReader<Lenient>::read(cell, run);
  if (run.status == "running" && !Claim::is_taken(path)) run.status = "interrupted";
  if (run.options.empty() && cell.contains("values") && cell["values"].is_object())
    for (const auto& [key, value] : cell["values"].items()) run.options[key] = option_in(value);
  return run;
}

/// Reads a cell of a sweep. For a damaged cell, only the damage is reported.
ReportedRun read_cell_of(const Manifest& manifest, const fs::path& path) {
  ReportedRun run;
  run.record.name = path.lexically_normal().string();
  run.status = "damaged";
  try {
    run.reason = manifest.damage_of(path);
    if (run.reason.empty()) return read_reported_run(path);
  } catch (const Error& error) {
    run.reason = error.what();
  }
  return run;
}

const Table* table_of(const Results& results, const char* name) {
  const auto found = std::ranges::find(results.tables, name, &Table::name);
  return results.kind == "ablate" && found != results.tables.end() ? &*found : nullptr;
}

/// Returns a cell of a sweep as listed in its results, if its directory is missing.
ReportedRun listed_cell(const ReportedResults& sweep, const Table& cells, size_t r,
                        const Table& variants) {
  const auto text = [&](const char* name) { return text_at(cells, r, cells.find(name)); };
  const auto number = [&](const std::string& name) { return value_at(cells, r, cells.find(name)); };
  const auto integer = [&](const std::string& name) { return whole(number(name)); };
  const auto score = [&](const std::string& split) -> std::optional<Score> {
    const Score out{number(split + "_loss"), number(split + "_accuracy"),
                    integer(split + "_examples")};
    return std::isnan(out.loss) && std::isnan(out.accuracy) ? std::nullopt : std::optional(out);
  };
  ReportedRun run{.sweep = sweep.name(),
                  .variant = text("variant"),
                  .phase = text("phase"),
                  .status = text("status"),
                  .reason = text("reason"),
                  .seed = integer("seed"),
                  .metric = sweep.metric(),
                  .test = score("test"),
                  .validation = score("validation")};
  run.record.name = text("cell");
  for (size_t c = 0; c < cells.columns.size(); ++c)
    if (is_key(cells.columns[c]))
      std::visit(
          [&](const auto& value) {
            if constexpr (!std::is_same_v<decltype(value), const std::monostate&>)
              run.options[cells.columns[c].heading] = value;
          },
          cells.rows[r][c]);
  // Cells in results have only the options that differ.
  const Results& results = sweep.results;
  if (!run.options.empty())
    run.options.try_emplace("data.task", results.task.empty() ? results.title : results.task);
  Summary& summary = run.record.summary.emplace();
  summary.status = run.status;
  summary.step = integer("step");
  summary.parameters = integer("parameters");
  if (const double seconds = number("seconds"); !std::isnan(seconds)) summary.seconds = seconds;
  summary.peak_memory = whole(number("peak_memory_mib") * (1 << 20));
  for (size_t v = 0; v < variants.rows.size(); ++v)
    if (text_at(variants, v, variants.find("variant")) == run.variant)
      summary.state_bytes = whole(value_at(variants, v, variants.find("state_bytes")));
  return run;
}

/// Reads paths, each file and directory only once, however it is named.
class Reader {
 public:
  void read(const fs::path& path) {
    check<ConfigError>(fs::exists(path), path.string(), " does not exist");
    if (!fs::is_directory(path)) {
      if (read_file(path)) list_cells(inputs.results.back());
      return;
    }
    if (read_folder(path)) return;
    bool any = false;
    for (const fs::path& folder : folders_in(path)) any = read_nested(folder, 2) || any;
    if (any)
      read_results_of(path);
    else
      any = read_results_in(path);
    check<ConfigError>(any, path.string(),
                       " holds no run (no metrics.jsonl), no sweep (no cells), no results (JSON "
                       "files), and no folder with a run or a sweep; expected a directory written "
                       "by train or ablate, or a JSON file written by analyse or evaluate");
  }

  ReportInputs inputs;

 private:
  bool is_new(const fs::path& path) { return seen_.insert(fs::canonical(path)).second; }

  /// Returns whether it had not been read before.
  bool read_file(const fs::path& path) {
    if (!is_new(path)) return false;
    inputs.results.push_back(
        {path.string(), results_of_json(data::read_text_file(path), path.string())});
    return true;
  }

  static bool is_waiting(const Table& cells, size_t r, const char* phase) {
    return text_at(cells, r, cells.find("status")) == "waiting" &&
           text_at(cells, r, cells.find("phase")) == phase;
  }

  void list_cells(const ReportedResults& sweep) {
    const Table *const cells = table_of(sweep.results, "cells"), *const variants = table_of(
                                                                     sweep.results, "variants");
    if (!cells || sweep.metric().empty()) return;
    for (size_t r = 0; r < cells->rows.size(); ++r)
      if (!is_waiting(*cells, r, "search"))  // trials that are not needed never start
        inputs.runs.push_back(listed_cell(sweep, *cells, r, *variants));
  }

  /// Returns true for damaged files, too: damaged results are errors.
  static bool holds_results(const fs::path& file) {
    const Json json = try_parse_json(data::read_text_file(file));
    return !json.is_object() || json.contains("tables");
  }

  /// Reads a folder's JSON files that hold results; returns whether there are any.
  bool read_results_in(const fs::path& path) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.is_regular_file() && entry.path().extension() == ".json" &&
          holds_results(entry.path()))
        files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) read(file);
    return !files.empty();
  }

  /// Reads the results of a sweep without its cells; returns whether there are any.
  bool read_results_of(const fs::path& path) {
    const fs::path results = path / "results.json";
    if (!fs::is_regular_file(results) || !holds_results(results)) return false;
    read(results);
    return true;
  }

  /// Reads a run, a sweep or its results, or else those in folders inside; returns whether there
  /// was anything to read.
  bool read_nested(const fs::path& path, int depth) {
    if (read_folder(path)) return true;
    bool any = read_results_of(path);
    if (depth == 0) return any;
    for (const fs::path& folder : folders_in(path)) any = read_nested(folder, depth - 1) || any;
    return any;
  }

  /// Returns whether there was anything to read.
  bool read_folder(const fs::path& path) {
    if (fs::is_directory(path / "cells")) {  // a sweep
      const Manifest manifest = read_manifest(path);
      const auto own = cells_of(path);
      const auto first = std::ssize(inputs.runs);
      for (const fs::path& cell : folders_in(path / "cells"))
        if ((!own || own->contains(cell.filename().string())) && is_new(cell))
          inputs.runs.push_back(read_cell_of(manifest, cell));
      const std::span<ReportedRun> runs = std::span(inputs.runs).subspan(first);
      if (fs::exists(path / "results.json") && read_file(path / "results.json")) {
        const ReportedResults& sweep = inputs.results.back();
        for (ReportedRun& run : runs) run.metric = sweep.metric();
        if (const Table* const cells = table_of(sweep.results, "cells"))
          for (size_t r = 0; r < cells->rows.size(); ++r)
            inputs.waiting += is_waiting(*cells, r, "final") &&
                              !fs::exists(path / "cells" / text_at(*cells, r, cells->find("cell")));
        std::map<std::string, size_t> order;  // of variants, as in the sweep
        if (const Table* const variants = table_of(sweep.results, "variants"))
          for (size_t r = 0; r < variants->rows.size(); ++r)
            order.emplace(text_at(*variants, r, variants->find("variant")), r);
        std::ranges::stable_sort(runs, {}, [&](const ReportedRun& run) {
          const auto found = order.find(run.variant);
          return found == order.end() ? order.size() : found->second;
        });
      }
      for (ReportedRun& run : runs) run.sweep = (path / "results.json").parent_path().string();
      return true;
    }
    if (!is_run(path)) return false;
    if (is_new(path)) inputs.runs.push_back(read_reported_run(path));
    return true;
  }

  std::set<fs::path> seen_;
};

}  // namespace

std::string ReportedResults::name() const {
  const fs::path file(path);
  return file.filename() == "results.json" ? file.parent_path().string() : path;
}

std::string ReportedResults::metric() const {
  const Table* const variants = table_of(results, "variants");
  for (const char* const each : {"accuracy", "loss"})
    if (variants && variants->find(each)) return each;
  return "";
}

std::string ReportedRun::option(const std::string& name) const {
  const auto found = options.find(name);
  if (found == options.end()) return "";
  if (const auto* const text = std::get_if<std::string>(&found->second)) return *text;
  return to_string(found->second);
}

bool ReportedRun::has_failed() const {
  static const std::set<std::string> failures = {"diverged",      "crashed",       "failed",
                                                 "out of memory", "out_of_memory", "damaged"};
  return failures.contains(status);
}

ReportInputs read_inputs(const std::vector<fs::path>& paths) {
  Reader reader;
  for (const fs::path& path : paths) reader.read(path);
  return std::move(reader.inputs);
}

}  // namespace longhand::train
