#include "longhand/train/lab/verify.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/run/child.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Returns all cells of the grid, each run once.
CellRefs all_runs(const Grid& grid) {
  CellRefs out;
  std::set<std::string> seen;
  for (const SweepCell& cell : grid.cells)
    if (seen.insert(cell.hash).second) out.emplace_back(cell);
  return out;
}

/// Returns evaluate's results for a cell's best.h5. Throws DataError with its message on failure.
Score evaluated(const SweepCell& cell, const fs::path& directory, const std::string& split,
                int64_t limit, const VerifyOptions& options) {
  std::vector<std::string> arguments = {"evaluate", directory.string(), "--split",
                                        split,      "--json",           "--quiet"};
  for (const std::string& word : place_of_data(cell, directory)) arguments.push_back(word);
  if (limit > 0) arguments.insert(arguments.end(), {"--limit", std::to_string(limit)});
  ChildOptions child_options =
      process_of_cell(own_program(), std::move(arguments), options.threads);
  child_options.capture = true;
  const ScratchDirectory scratch;  // nothing is written to the sweep, which may be an archive
  child_options.err = scratch.path / "log.txt";
  Child child(child_options);
  const std::string output = child.output();
  const Ended ended = child.wait();
  check<DataError>(ended.code == 0 && ended.signal == 0,
                   "evaluate failed: ", log_tail(scratch.path, 300));
  return score_of(output);
}

/// Reads the parts of a damaged cell that do not depend on metrics and scores, which its checkpoint
/// gives. If the summary is damaged, or the cell is untrained, leaves it as it is.
void read_unscored(const fs::path& cell, FileDigests recorded, CellState& state) {
  const fs::path summary = cell / "summary.json";
  if (!fs::exists(summary) ||
      data::text_digest(data::read_text_file(summary)) != recorded["summary.json"])
    return;
  CellState read{.summary = read_summary(summary), .validation = Score{}};
  if (!read.is_trained()) return;
  if (fs::exists(cell / "test.json")) read.test.emplace();
  read.status = read.test ? CellStatus::finished : CellStatus::trained;
  state = std::move(read);
}

/// Other machines may round differently.
bool agree(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-5 * std::max(1.0, std::abs(a));
}

}  // namespace

Verification verify(const Grid& grid, const fs::path& sweep, const VerifyOptions& options) {
  Verification out;
  out.states = read_cells(grid, sweep);
  const Manifest manifest = read_manifest(sweep);
  int64_t done = 0;
  for (const SweepCell& cell : all_runs(grid)) {
    if (options.should_stop && options.should_stop()) break;
    if (options.on_progress) options.on_progress(done++, static_cast<int64_t>(out.states.size()));
    CellState& state = out.states.at(cell.hash);
    const fs::path directory = cell_directory(sweep, cell);
    const auto differs = [&](const std::string& what) {
      out.differences.push_back(concat_message(grid.variants[cell.variant].label, " seed=",
                                               cell.seed, " (", directory.string(), "): ", what));
    };
    const bool is_damaged = state.status == CellStatus::damaged;
    const CellState before = state;
    if (is_damaged) differs(state.record.reason);
    const auto compare = [&](const std::string& split, int64_t limit, std::optional<Score>& score) {
      if (!score) return;
      const Score now = evaluated(cell, directory, split, limit, options);
      for (const auto& [name, was, is] :
           {std::tuple{"loss", score->loss, now.loss}, {"accuracy", score->accuracy, now.accuracy}})
        if (!is_damaged && !agree(was, is))
          differs(concat_message(split, " ", name, " of best.h5 is ", is, ", but ", was,
                                 " was recorded"));
      score = now;
    };
    try {
      if (is_damaged) read_unscored(directory, manifest.of(cell.hash), state);
      if (!state.is_trained()) continue;
      ++out.cells;
      if (state.summary->best) {
        const std::string damage = damage_of_checkpoint(directory, manifest.of(cell.hash));
        check<DataError>(damage.empty(), damage, repair_remedy(sweep));
      }
      const TrainerOptions training = trainer_options(cell);  // eval_batches may be 0: all
      compare("validation", training.eval_batches * training.eval_batch_size, state.validation);
      compare(state.has_test_split() ? "test" : "validation", 0, state.test);
    } catch (const DataError& error) {
      differs(error.what());
      if (is_damaged) state = before;
    }
  }
  return out;
}

std::vector<RepairedCell> repair_cells(const Grid& grid, const fs::path& directory) {
  std::vector<RepairedCell> out;
  Manifest manifest = read_manifest(directory);
  for (const SweepCell& cell : all_runs(grid)) {
    const std::string& hash = cell.hash;
    const fs::path folder = cell_directory(directory, cell);
    const auto read = [&](const Manifest& files) {
      CellState state = read_cell(folder, files);
      const bool is_archived = state.test && !has_checkpoints(folder);
      if (!state.is_trained() || !state.summary->best || is_archived) return state;
      const std::string damage = damage_of_checkpoint(folder, manifest.of(hash));
      if (!damage.empty()) {
        state.status = CellStatus::damaged;
        state.record.reason = damage;
      }
      return state;
    };
    if (read(manifest).status != CellStatus::damaged) continue;
    const auto claim = Claim::take(folder);
    if (!claim) continue;
    manifest = read_manifest(directory);
    const CellState before = read(manifest);
    if (before.status != CellStatus::damaged) continue;
    RepairedCell& repaired = out.emplace_back();
    repaired.cell = folder.string();
    repaired.reason = before.record.reason.substr(0, before.record.reason.rfind("; repair "));
    repaired.kept_in = unused_path(folder / "files.damaged");
    data::create_directories_durably(repaired.kept_in);
    const auto set_aside = [&](const char* name) {
      std::error_code error;
      fs::rename(folder / name, repaired.kept_in / name, error);
      check<DataError>(!error || !fs::exists(fs::symlink_status(folder / name)), "cannot move ",
                       (folder / name).string(), ": ", data::system_reason(error.value()));
    };
    // What is recorded and then missing counts as damage, even if this process ends before it
    // forgets the cell.
    if (manifest.of(hash).empty()) record_cells(directory, {hash});
    FileDigests others = manifest.of(hash);
    for (const char* const name : {"test.json", "cell.json"}) {
      set_aside(name);
      others.erase(name);
    }
    const bool is_whole = damage_of(folder, others).empty();
    const CellState now = read({});
    repaired.run_kept = is_whole && now.status != CellStatus::damaged;
    if (!repaired.run_kept) {
      for (const char* const name : {"config.toml", "metrics.jsonl", "summary.json", "sources.json",
                                     "log.txt", "tensorboard", "checkpoints"})
        set_aside(name);
    } else if (now.is_trained()) {
      CellRecord record = new_record(grid, cell);
      record.status = CellStatus::trained;
      write_record(folder, record);
    }
    data::sync_file(repaired.kept_in);
    data::sync_file(folder);
    forget_cell(directory, hash);
  }
  return out;
}

std::vector<std::string> changed_results(const Results& recorded, const fs::path& directory) {
  std::vector<std::string> out;
  for (const auto& [name, table] : {std::pair("results.csv", "variants"), {"cells.csv", "cells"}}) {
    const fs::path file = directory / name;
    if (fs::exists(file) && data::read_text_file(file) != to_csv(recorded.table(table)))
      out.push_back(file.string() +
                    ": not the table of these cells; longhand ablate writes it again");
  }
  if (const fs::path file = directory / "results.json"; fs::exists(file)) try {
      results_of_json(data::read_text_file(file), file.string());
    } catch (const DataError& error) {
      out.emplace_back(error.what());
    }
  return out;
}

}  // namespace longhand::train
