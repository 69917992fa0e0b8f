// Sweeps: damage of their files, cells that hang or are stopped, and errors of the sweep itself.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/lab/estimate.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/lab/results.h"
#include "longhand/train/lab/runner.h"
#include "longhand/train/lab/search.h"
#include "longhand/train/lab/verify.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;
using longhand::test::read_text;
using longhand::test::write_text;

namespace {

namespace fs = std::filesystem;

const std::string smallest = R"(
[model]
d_model = 8
heads = 2
layers = 1

[data]
task = "copy"
length = 8
count = 3
)";
const std::string two_variants = R"(
[[axis]]
attention.type = ["softmax", "linear"]
)";

/// The directory of a sweep, with the files that cells leave.
struct SweepOnDisk {
  explicit SweepOnDisk(const std::string& text)
      : sweep(Sweep::parse(text + smallest, "s.toml")), grid(expand(sweep)) {
    fs::create_directories(path / "cells");
    data::write_file_durably(path / "sweep.toml", with_digest(sweep.to_toml()));
  }

  fs::path directory(const SweepCell& cell) const { return cell_directory(path.path(), cell); }
  const SweepCell& cell(size_t variant) const { return grid.finals(variant)[0]; }

  /// Writes the files of a trained and evaluated cell.
  void finish(const SweepCell& cell, double accuracy) {
    const fs::path folder = directory(cell);
    fs::create_directories(folder);
    Summary summary;
    summary.status = "finished";
    summary.step = summary.steps = summary.best_step = 100;
    summary.parameters = 700;
    summary.best_metric = "accuracy";
    summary.best = accuracy;
    summary.processes = {{.step = 100, .trained = 100, .step_seconds = 0.5}};
    summary.add_up();
    Record record;
    record.step = 100;
    record.split = "validation";
    record.loss = 1 - accuracy;
    record.accuracy = accuracy;
    record.best = true;
    write_text(folder / "config.toml", cell.config);
    write_text(folder / "summary.json", to_json(summary));
    write_text(folder / "metrics.jsonl", to_json(record) + "\n");
    Checkpoint best;
    best.training.step = 100;
    best.config = cell.config;
    fs::create_directories(folder / "checkpoints");
    save(folder / "checkpoints/best.h5", best);
    write_text(folder / "log.txt", "finished after 100 steps\n");
    if (cell.final)
      write_test(folder, concat_message("{\"loss\": 0.5, \"accuracy\": ", accuracy / 2, "}\n"));
    CellRecord said = new_record(grid, cell);
    said.status = cell.final ? CellStatus::finished : CellStatus::trained;
    said.attempts = 1;
    write_record(folder, said);
    record_cells(path.path(), {cell.hash});
  }

  /// The tables as text; damage that is reported throws DataError.
  std::string results() const {
    check_digest(path / "sweep.toml");
    return results_of(expand(Sweep::load(path / "sweep.toml")));
  }
  std::string results_of(const Grid& cells) const {
    for (const std::string& line : read_manifest(path.path()).damage) throw DataError(line);
    const CellStates states = read_cells(cells, path.path());
    for (const auto& [hash, state] : states)
      if (state.status == CellStatus::damaged) throw DataError(state.record.reason);
    const Results all = sweep_results(cells, states, path.path(), "");
    return all.title + all.summary + to_csv(all.table("variants")) + to_csv(all.table("cells"));
  }

  test::TemporaryDirectory path;
  Sweep sweep;
  Grid grid;
};

}  // namespace

TEST_CASE("any flipped bit in a file of a sweep is noticed, or changes no result") {
  SweepOnDisk folder("[sweep]\ntitle = \"two\"\n" + two_variants);
  for (const size_t variant : {0, 1})
    folder.finish(folder.cell(variant), variant == 0 ? 0.75 : 0.5);
  write_results(sweep_results(folder.grid, read_cells(folder.grid, folder.path.path()),
                              folder.path.path(), ""),
                folder.path.path());
  const std::string results_file = folder.path / "results.json";
  const std::string results =
      to_csv(results_of_json(read_text(results_file), "results.json").table("cells"));
  const std::string expected = folder.results();
  CHECK_THAT(expected, Contains("softmax has the highest test accuracy of 2 variants: 0.375"));

  int64_t noticed = 0, harmless = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path.path())) {
    if (!entry.is_regular_file() || entry.path().extension() == ".csv") continue;
    const bool is_results = entry.path() == results_file,
               is_checkpoint = entry.path().extension() == ".h5",
               is_sweep = entry.path().filename() == "sweep.toml";
    std::string text = read_text(entry.path());
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&](size_t i) {
      text[i] ^= static_cast<char>(1 << i % 7);
      file.seekp(static_cast<std::streamoff>(i)).put(text[i]).flush();
    };
    // All tables are one text with one digest.
    for (size_t i = 0; i < text.size(); i += is_results ? 4 : is_checkpoint ? 16 : 1) {
      flip(i);
      bool is_equal = false;
      try {
        if (is_checkpoint) {
          const fs::path cell = entry.path().parent_path().parent_path();
          const std::string damage = damage_of_checkpoint(
              cell, read_manifest(folder.path.path()).of(cell.filename().string()));
          check<DataError>(damage.empty(), damage);
        } else if (is_results)
          is_equal = to_csv(results_of_json(text, "results.json").table("cells")) == results;
        else
          is_equal = (is_sweep ? folder.results() : folder.results_of(folder.grid)) == expected;
        ++harmless;
      } catch (const Error& error) {
        ++noticed;
        is_equal = std::string(error.what()).find("[json.") == std::string::npos;
      }
      if (!is_equal) FAIL(entry.path().string() << ", byte " << i << ": " << text);
      flip(i);
    }
    REQUIRE(file.good());
    REQUIRE(folder.results() == expected);
  }
  CHECK(noticed > 4000);
  // The text of the two comments, white space and log.txt.
  CHECK(harmless < noticed / 10);
}

TEST_CASE("a trial whose files are damaged is not decided by the others, until it is repaired") {
  const std::string text = "[search]\noptimizer.lr = [1e-3, 1e-2]\n";
  const auto fill = [](SweepOnDisk& folder) {
    const Grid& grid = folder.grid;
    for (const size_t trial : {0, 1})
      folder.finish(grid.searches(0, trial)[0], trial == 0 ? 0.5 : 0.75);
    return folder.directory(grid.searches(0, 1)[0]);
  };
  const auto best = [](const SweepOnDisk& folder) {
    return search_state(folder.grid, 0, read_cells(folder.grid, folder.path.path())).reported;
  };
  for (const std::string name : {"metrics.jsonl", "summary.json", "config.toml", "cell.json"})
    for (const std::string damage : {"shortened", "missing", "a directory"})
      // Sweeps of earlier versions have no manifest: contents are then checked as far as they say
      // themselves that something is wrong.
      for (const bool has_manifest : {true, false}) {
        const bool is_missing = damage == "missing";
        if (!has_manifest && is_missing && name == "cell.json") continue;
        CAPTURE(name, damage, has_manifest);
        SweepOnDisk folder(text);
        const fs::path cell = fill(folder);
        REQUIRE(best(folder) == size_t{1});
        if (damage == "shortened")
          fs::resize_file(cell / name, 20);
        else
          fs::remove(cell / name);
        if (damage == "a directory") fs::create_directory(cell / name);
        if (!has_manifest) fs::remove(folder.path / "manifest");
        CHECK_FALSE(best(folder));
        const CellState state = read_cell(cell);
        CHECK(to_string(state.status) == "damaged");
        CHECK_THAT(state.record.reason, Contains(name) && Contains(" --repair"));
        CHECK_THAT(state.record.reason, !Contains("[json."));
        const Results results = sweep_results(
            folder.grid, read_cells(folder.grid, folder.path.path()), folder.path.path(), "");
        CHECK_THAT(results.summary, Contains(cell.filename().string() + " is not counted"));
        CHECK_THAT(to_csv(results.table("variants")), Contains("1 damaged"));
        const ReportInputs report = read_inputs({folder.path.path()});
        REQUIRE(report.runs.size() == 2);
        if (has_manifest)
          CHECK((report.runs[0].status == "damaged") != (report.runs[1].status == "damaged"));

        const auto repaired = repair_cells(folder.grid, folder.path.path());
        REQUIRE(repaired.size() == 1);
        // Without a summary, but with checkpoints, a run that nothing contradicts is resumed.
        const bool kept =
            name == "cell.json" || (name == "summary.json" && is_missing && !has_manifest);
        CHECK(repaired[0].run_kept == kept);
        CHECK(fs::exists(cell / "files.damaged" / name) == !is_missing);
        // All of it, or what describes the run.
        CHECK(fs::exists(cell / "files.damaged/log.txt") == !kept);
        CHECK(to_string(read_cell(cell).status) == (name == "cell.json" ? "trained" : "waiting"));
        CHECK(repair_cells(folder.grid, folder.path.path()).empty());
      }
}

TEST_CASE("a cell whose best checkpoint is damaged or missing is set aside by a repair") {
  for (const bool has_manifest : {true, false})
    for (const bool is_missing : {true, false}) {
      CAPTURE(has_manifest, is_missing);
      SweepOnDisk folder(two_variants);
      for (const size_t variant : {0, 1}) folder.finish(folder.cell(variant), 0.5);
      const fs::path cell = folder.directory(folder.cell(1)), best = cell / "checkpoints/best.h5";
      if (!has_manifest) fs::remove(folder.path / "manifest");
      write_text(cell / "checkpoints/last.h5", "");
      std::string bytes = read_text(best);
      bytes[bytes.size() / 2] ^= 1;
      if (is_missing)
        fs::remove(best);
      else
        write_text(best, bytes);
      const auto repaired = repair_cells(folder.grid, folder.path.path());
      REQUIRE(repaired.size() == 1);
      CHECK(repaired[0].cell == cell.string());
      CHECK_THAT(repaired[0].reason, Contains("best.h5"));
      CHECK_FALSE(repaired[0].run_kept);
      CHECK(fs::exists(cell / "files.damaged/checkpoints/best.h5") == !is_missing);
      CHECK(to_string(read_cell(cell).status) == "waiting");
      CHECK(repair_cells(folder.grid, folder.path.path()).empty());
    }
}

TEST_CASE("a repair leaves the evaluated cells of an archive, which has no checkpoints") {
  SweepOnDisk folder(two_variants);
  for (const size_t variant : {0, 1}) folder.finish(folder.cell(variant), 0.5);
  fs::remove_all(folder.directory(folder.cell(1)) / "checkpoints");
  CHECK(repair_cells(folder.grid, folder.path.path()).empty());
  // One that was not evaluated yet can only be trained again.
  fs::remove(folder.path / "manifest");
  fs::remove(folder.directory(folder.cell(1)) / "test.json");
  CHECK(repair_cells(folder.grid, folder.path.path()).size() == 1);
}

TEST_CASE("several writers of a manifest lose no line, and a damaged line goes alone") {
  SweepOnDisk folder("[sweep]\nseeds = 12\n");
  for (const SweepCell& cell : folder.grid.finals(0)) folder.finish(cell, 0.5);
  fs::remove(folder.path / "manifest");
  std::vector<std::thread> writers;
  std::atomic<bool> failed = false;
  for (size_t first = 0; first < 3; ++first)
    writers.emplace_back([&, first] {
      try {
        for (size_t i = first; i < 12; i += 3)
          record_cells(folder.path.path(), {folder.grid.finals(0)[i].hash});
      } catch (const std::exception&) {
        failed = true;
      }
    });
  for (std::thread& writer : writers) writer.join();
  CHECK_FALSE(failed);
  const Manifest all = read_manifest(folder.path.path());
  CHECK(all.cells.size() == 12);
  CHECK(all.damage.empty());

  std::string text = read_text(folder.path / "manifest");
  text[text.size() / 2] ^= 1;
  write_text(folder.path / "manifest", text);
  const Manifest damaged = read_manifest(folder.path.path());
  CHECK(damaged.cells.size() == 11);
  REQUIRE(damaged.damage.size() == 1);
  CHECK_THAT(damaged.damage[0], Contains("manifest:") && Contains("the line is damaged"));
  forget_cell(folder.path.path(), damaged.cells.begin()->first);
  CHECK(read_manifest(folder.path.path()).cells.size() == 10);
  CHECK(read_manifest(folder.path.path()).damage.empty());
}

namespace {

/// A program in place of longhand: what it does for each variant. $4 is the directory of the cell.
fs::path program_of(const SweepOnDisk& folder, const std::string& softmax,
                    const std::string& linear) {
  const fs::path path = folder.path / "program.sh";
  write_text(path, "#!/bin/sh\nif grep -q softmax \"$2\"; then\n" + softmax + "\nelse\n" + linear +
                       "\nfi\n");
  REQUIRE(chmod(path.c_str(), 0755) == 0);
  return path;
}

/// Saves when it is asked to stop, as training does; `ready` exists once it would.
const std::string saving =
    "trap 'touch \"$4/saved\"; exit 75' TERM\ntouch \"$4/../../ready\"\n"
    "while :; do sleep 0.01; done";
const std::string waits_for_it = "until [ -e \"$4/../../ready\" ]; do sleep 0.01; done\n";

std::string status_of(const SweepOnDisk& folder, size_t variant) {
  return to_string(read_cell(folder.directory(folder.cell(variant))).status);
}

}  // namespace

TEST_CASE("an error of the sweep itself stops its cells, which save") {
  SweepOnDisk folder(two_variants);
  RunnerOptions options;
  options.program = program_of(folder, waits_for_it + "exit 1", saving);
  options.jobs = 2;
  options.on_end = [](const EndedCell&) { throw DataError("no space for the tables"); };
  CHECK(message_of<DataError>([&] { run_sweep(folder.grid, folder.path.path(), options); }) ==
        "no space for the tables");
  CHECK(fs::exists(folder.directory(folder.cell(1)) / "saved"));
  CHECK(status_of(folder, 0) == "failed");
  CHECK(status_of(folder, 1) == "stopped");
}

TEST_CASE("cells are trained and tested once, with the time of all attempts") {
  const std::string text = "[search]\noptimizer.lr = [1e-3, 1e-2]\n";
  SweepOnDisk made(text), folder(text);
  // Cells whose files are those of `made`.
  const Grid& grid = folder.grid;
  for (const size_t trial : {0, 1})
    made.finish(grid.searches(0, trial)[0], trial == 0 ? 0.5 : 0.75);
  if (grid.finals(0, 1)[0].hash != grid.searches(0, 1)[0].hash)
    made.finish(grid.finals(0, 1)[0], 0.75);
  RunnerOptions options;
  options.program = folder.path / "program.sh";
  write_text(
      options.program,
      "#!/bin/sh\nif [ \"$1\" = evaluate ]; then echo '{\"loss\": 0.5, \"accuracy\": 0.25}'\n"
      "else for i in config.toml metrics.jsonl summary.json checkpoints; do cp -r \"" +
          (made.path / "cells").string() + "/${4##*/}/$i\" \"$4\"; done; fi\n");
  REQUIRE(chmod(options.program.c_str(), 0755) == 0);
  // An earlier attempt that was interrupted.
  const fs::path first = folder.directory(grid.searches(0, 0)[0]);
  fs::create_directories(first);
  CellRecord before = new_record(folder.grid, grid.searches(0, 0)[0]);
  before.status = CellStatus::interrupted;
  before.attempts = 1;
  before.seconds = 1000;
  before.peak_memory = int64_t{1} << 50;
  write_record(first, before);
  bool tested = false;
  options.on_progress = [&](const SweepProgress& now) {
    for (const RunningCell& each : now.running) tested = tested || each.testing;
  };
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  // Two trials, of which one is the final cell.
  CHECK(outcome.finished == 2);
  CHECK(outcome.cells == 2);
  CHECK(tested);
  const auto record_of = [&](const SweepCell& cell) {
    return read_cell(folder.directory(cell)).record;
  };
  const auto said = [](const fs::path& cell) {
    const std::string json = read_text(cell / "cell.json");
    const size_t at = json.find("\"status\": \"") + 11;
    return json.substr(at, json.find('"', at) - at);
  };
  const CellRecord trial = record_of(grid.searches(0, 0)[0]),
                   final = record_of(grid.finals(0, 1)[0]);
  CHECK(said(first) == "trained");
  CHECK(trial.seconds >= 1000);
  CHECK(trial.attempts == 2);
  CHECK(trial.peak_memory == int64_t{1} << 50);
  CHECK(trial.pid == 0);
  CHECK(said(folder.directory(grid.finals(0, 1)[0])) == "finished");
  CHECK(final.attempts == 1);
  CHECK(final.pid == 0);
  const Results results = sweep_results(folder.grid, read_cells(folder.grid, folder.path.path()),
                                        folder.path.path(), "");
  const Table& search = results.table("search");
  CHECK(search.rows[0].back() == Cell(std::string()));
  CHECK(search.rows[1].back() == Cell(std::string("yes")));
}

TEST_CASE(
    "progress, outcome and estimate count the same cells, of which none that stops has failed") {
  // Per variant two trials; the second seed of the chosen one is a cell of its own. The third variant has
  // the cells of the second.
  SweepOnDisk folder(
      "[sweep]\nseeds = 2\n" + two_variants +
      "[[axis]]\nwhen = { attention.type = \"linear\" }\nmodel.dropout = [0, 0.0]\n" +
      "[search]\noptimizer.lr = [1e-3, 1e-2]\n");
  REQUIRE(folder.grid.variants.size() == 3);
  folder.finish(folder.grid.searches(0, 1)[0], 0.5);
  RunnerOptions options;
  options.program = program_of(folder, saving, saving);
  std::set<int64_t> cells, failed;
  bool running = false;
  options.on_progress = [&](const SweepProgress& now) {
    cells.insert(now.cells);
    failed.insert(now.failed + now.diverged);
    running = running || fs::exists(folder.path / "ready");
  };
  options.should_stop = [&] { return running; };
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(outcome.stopped);
  CHECK(outcome.cells == 6);
  CHECK(outcome.finished == 1);
  CHECK(outcome.left() == 5);
  CHECK(cells == std::set<int64_t>{6});
  CHECK(failed == std::set<int64_t>{0});
  const CellStates states = read_cells(folder.grid, folder.path.path());
  const SweepEstimate all =
      add_up(estimate(folder.grid, states, {.program = program_of(folder, "exit 1", "exit 1")}), 1);
  CHECK(all.cells == 6);
  CHECK(all.cells_left == 5);
}

TEST_CASE("a cell that ends by a signal to it alone is stopped, and saved") {
  SweepOnDisk folder(two_variants);
  RunnerOptions options;
  options.program = program_of(folder, "exit 75", "exit 1");
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(status_of(folder, 0) == "stopped");
  CHECK(outcome.failed == 1);
  CHECK(outcome.left() == 1);
}

TEST_CASE("no more cells are started after the given number of failures") {
  SweepOnDisk folder(two_variants + "[[axis]]\nmodel.layers = [1, 2]\n");
  RunnerOptions options;
  options.program = program_of(folder, "exit 1", "exit 1");
  options.max_failures = 2;
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(outcome.failed == 2);
  CHECK(outcome.cells == 4);
}

TEST_CASE("cells that cannot be started count as failures, too") {
  SweepOnDisk folder(two_variants);
  RunnerOptions options;
  options.program = program_of(folder, "exit 1", "touch \"$4/ran\"; exit 1");
  options.max_failures = 1;
  fs::create_directories(folder.directory(folder.cell(0)) / "cell.toml/in the way");
  CHECK(run_sweep(folder.grid, folder.path.path(), options).failed == 1);
  CHECK_FALSE(fs::exists(folder.directory(folder.cell(1)) / "ran"));
}

TEST_CASE("a sweep that ends by its limit of failures is not one that was stopped") {
  SweepOnDisk folder("");
  RunnerOptions options;
  options.program = program_of(folder, "exit 1", "exit 1");
  options.max_failures = 1;
  fs::create_directories(folder.directory(folder.cell(0)) / "cell.toml/in the way");
  bool failed = false;
  options.on_end = [&](const EndedCell&) { failed = true; };
  options.should_stop = [&] { return failed; };
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(failed);
  CHECK(outcome.failed == 1);
  CHECK_FALSE(outcome.stopped);
}

TEST_CASE("the last step of a cell is that of the last complete line of its metrics") {
  const test::TemporaryDirectory folder;
  CHECK(last_step(folder.path()) == 0);
  const auto step_in = [&](const std::string& text) {
    write_text(folder / "metrics.jsonl", text);
    return last_step(folder.path());
  };
  const std::string five = "{\"step\": 5}", six = "{\"step\": 6}";
  CHECK(step_in("") == 0);
  CHECK(step_in(five) == 0);
  CHECK(step_in("\n" + five) == 0);
  CHECK(step_in(five + "\n") == 5);
  CHECK(step_in(five + "\n" + six) == 5);
  CHECK(step_in(five + "\n" + six + "\n") == 6);
  // Only the end of a long file is read.
  CHECK(step_in(std::string(5000, 'x') + "\n" + six + "\n") == 6);
  CHECK(step_in(five + "\n{\"split\": \"train\"}\n") == 0);
}

TEST_CASE("the time that is left is the mean time of cells that have ended") {
  const std::string text = GENERATE(true, false) ? two_variants : "[sweep]\nseeds = 2\n";
  SweepOnDisk made(text), folder(text);
  for (size_t v = 0; v < made.grid.variants.size(); ++v)
    for (const SweepCell& cell : made.grid.finals(v)) made.finish(cell, 0.5);
  RunnerOptions options;
  const std::string train =
      "[ \"$1\" = evaluate ] && echo '{\"loss\": 0.5, \"accuracy\": 0.25}' && exit 0\n"
      "for i in config.toml metrics.jsonl summary.json checkpoints; do cp -r \"" +
      (made.path / "cells").string() + "/${4##*/}/$i\" \"$4\"; done; sleep 0.3";
  options.program = program_of(folder, train, train);
  std::vector<std::optional<double>> left;  // before the first cell, after it, and at the end
  bool tested = false;
  options.on_progress = [&](const SweepProgress& now) {
    const bool first = left.empty(), second = left.size() == 1 && now.finished == 1,
               last = now.finished == 2;
    if (first || second || last) left.push_back(now.seconds_left);
    for (const RunningCell& each : now.running) {
      // The time without progress begins again with the evaluation.
      if (each.testing && !tested) CHECK(each.quiet == 0);
      tested = tested || each.testing;
    }
  };
  CHECK(run_sweep(folder.grid, folder.path.path(), options).finished == 2);
  CHECK(tested);
  REQUIRE(left.size() >= 3);
  CHECK_FALSE(left[0].has_value());
  CHECK(left[1].value() > 0.1);
  CHECK(left[1].value() < 60);
  CHECK(left.back() == 0);
}

TEST_CASE("an estimate is the time of a step, times what is left, after one evaluation") {
  const std::string search =
      "[sweep]\nseeds = 2\n[search]\ntrain.steps = [1000, 100000]\nseeds = 1\n";
  SweepOnDisk made(search);
  made.finish(made.grid.searches(0, 0)[0], 0.5);
  EstimateOptions options;
  options.program = made.path / "program.sh";
  // Ends well only if it is stopped after the step that follows the evaluation.
  write_text(options.program,
             "#!/bin/sh\ntrap 'exit 1' TERM\nmkdir -p \"$4\"\n"
             "echo '{\"step\": 3}' > \"$4/metrics.jsonl\"\nsleep 0.1\n"
             "cp \"" +
                 (made.directory(made.grid.searches(0, 0)[0]) / "summary.json").string() +
                 "\" \"$4\"\ntrap 'exit 75' TERM\n"
                 "echo '{\"step\": 4}' >> \"$4/metrics.jsonl\"\n"
                 "while :; do sleep 0.01; done\n");
  REQUIRE(chmod(options.program.c_str(), 0755) == 0);
  SweepOnDisk folder(search);
  const std::vector<VariantEstimate> all =
      estimate(folder.grid, read_cells(folder.grid, folder.path.path()), options);
  REQUIRE(all.size() == 1);
  CHECK(all[0].failure.empty());
  CHECK(all[0].step_seconds == 0.5);
  CHECK(all[0].peak_memory > 0);
  // Both trials, and, while no trial is the best one, the other seed of the first: its first seed is
  // the trial itself.
  CHECK(all[0].cells == 3);
  CHECK(all[0].cells_left == 3);
  CHECK(all[0].seconds_left >= 0.5 * (1000 + 100000 + 1000));
  CHECK(all[0].seconds_left < 0.5 * (100000 + 100000));
}

TEST_CASE("a cell whose files cannot be written fails, and the others go on") {
  SweepOnDisk folder(two_variants);
  RunnerOptions options;
  options.program = program_of(folder, "exit 1", "touch \"$4/ran\"; exit 1");
  std::vector<std::string> reasons;
  options.on_end = [&](const EndedCell& cell) { reasons.push_back(cell.state.record.reason); };
  SECTION("its directory cannot be created") {
    write_text(folder.directory(folder.cell(0)), "in the way");
    const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
    CHECK(outcome.failed == 2);
    REQUIRE(reasons.size() == 2);
    CHECK_THAT(reasons[0], Contains(folder.directory(folder.cell(0)).string() +
                                    ": cannot create the directory"));
  }
  SECTION("its configuration cannot be written, so it is not started") {
    fs::create_directories(folder.directory(folder.cell(0)) / "cell.toml/in the way");
    const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
    CHECK(outcome.failed == 2);
    REQUIRE(reasons.size() == 2);
    CHECK_THAT(reasons[0], Contains("cell.toml"));
  }
  SECTION("its record cannot be written once it runs, so it is stopped") {
    options.program = program_of(folder, saving, "touch \"$4/ran\"; exit 1");
    fs::create_directories(folder.directory(folder.cell(0)) / "cell.json/in the way");
    const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
    CHECK(outcome.failed + outcome.damaged == 2);
    REQUIRE(reasons.size() == 2);
    CHECK_THAT(reasons[0], Contains("cell.json"));
  }
  CHECK(fs::exists(folder.directory(folder.cell(1)) / "ran"));
}

TEST_CASE("a cell that makes no progress is stopped after the limit, and killed after the grace") {
  SweepOnDisk folder(two_variants);
  RunnerOptions options;
  // One writes all the time; the other does nothing, whatever it is asked.
  options.program =
      program_of(folder, "trap '' TERM\nwhile :; do sleep 0.05; done",
                 "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.1; done\nexit 1");
  options.jobs = 2;
  options.cell_timeout = 0.5;
  options.grace = 0.2;
  std::vector<std::string> reasons(2);
  options.on_end = [&](const EndedCell& cell) {
    reasons[cell.cell.variant] = cell.state.record.reason;
  };
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(outcome.failed == 2);
  CHECK_THAT(reasons[0], Contains("no progress for 0.5 s"));
  CHECK(reasons[1] == "exit code 1: 10");
}

TEST_CASE("a stopped cell is named, and saves when the sweep ends") {
  SweepOnDisk folder("");
  RunnerOptions options;
  options.program = program_of(folder,
                               "trap 'touch \"$4/saved\"; exit 75' TERM\nkill -STOP $$\n"
                               "while :; do sleep 0.01; done",
                               ":");
  std::string label;
  options.on_progress = [&](const SweepProgress& p) {
    for (const RunningCell& cell : p.running)
      if (cell.stopped && cell.stalled) label = cell.label;
  };
  options.should_stop = [&] { return !label.empty(); };
  const SweepOutcome outcome = run_sweep(folder.grid, folder.path.path(), options);
  CHECK(outcome.stopped);
  CHECK(label == "base seed=0");
  CHECK(fs::exists(folder.directory(folder.cell(0)) / "saved"));
  CHECK(status_of(folder, 0) == "stopped");
}

TEST_CASE("runs that cells start from are looked for before the first cell") {
  SweepOnDisk folder(two_variants + "[[axis]]\ntrain.init_from = [\"\", \"/nowhere/a\"]\n" +
                     "[[axis]]\ntrain.distill_from = [\"\", \"/nowhere/b\"]\n");
  RunnerOptions options;
  options.program = program_of(folder, "touch \"$4/ran\"", "touch \"$4/ran\"");
  const std::string message =
      message_of<ConfigError>([&] { run_sweep(folder.grid, folder.path.path(), options); });
  CHECK_THAT(message,
             Contains("train.init_from = /nowhere/a: no run directory /nowhere/a; variants "
                      "that need it: linear init_from=a distill_from=b, linear "
                      "init_from=a distill_from=none, softmax"));
  CHECK_THAT(message, Contains("train.distill_from = /nowhere/b"));
  CHECK_THAT(message, Contains("no cell was run"));
  CHECK(fs::is_empty(folder.path / "cells"));
}
