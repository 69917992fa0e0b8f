// longhand ablate: compares configurations, using train/lab.
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "longhand/core/measure/clock.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/plugins.h"
#include "longhand/train/lab/estimate.h"
#include "longhand/train/lab/merge.h"
#include "longhand/train/lab/results.h"
#include "longhand/train/lab/runner.h"
#include "longhand/train/lab/search.h"
#include "longhand/train/lab/verify.h"
#include "longhand/train/run/process.h"

namespace longhand::train {

void fields(Is<VariantEstimate> auto& e, auto& f) {
  f("variant", e.label);
  f("cells", e.cells);
  f("cells_left", e.cells_left);
  f("step_seconds", e.step_seconds);
  f("peak_memory_bytes", e.peak_memory);
  f("seconds_left", e.seconds_left);
  f("failure", e.failure);
}

}  // namespace longhand::train

namespace longhand::cli {
namespace {

struct AblateArguments : Common {
  std::string sweep;   // the sweep file; with --table, the directory of a sweep
  std::string status;  // a directory
  std::string shard = "1/1";
  std::vector<std::string> merge;  // directories
  std::optional<int64_t> threads;
  train::RunnerOptions runner;
  bool dry_run = false, verify = false, repair = false, change_sweep = false, watch = false;
};

/// A sweep, and the states of its cells in its directory.
struct Opened {
  train::Grid grid;
  train::CellStates states;
};

Opened open(const train::Sweep& sweep, const fs::path& directory) {
  Opened out{expand(sweep), {}};
  out.states = read_cells(out.grid, directory);
  const train::Manifest manifest = train::read_manifest(directory);
  for (const std::string& line : manifest.damage)
    print_stderr("longhand: warning: {}\n", one_line(line));
  if (manifest.cells.empty() && manifest.damage.empty() && fs::exists(directory / "results.json") &&
      std::ranges::any_of(out.states, [](const auto& each) { return each.second.is_trained(); }))
    print_stderr(
        "longhand: warning: {}: missing or empty; damage to cells is not detected until longhand "
        "ablate records them again\n",
        one_line((directory / "manifest").string()));
  return out;
}

/// Returns a directory's sweep file, verified.
fs::path sweep_file(const fs::path& directory) {
  train::check_holds_sweep(directory);
  fs::path file = directory / "sweep.toml";
  train::check_digest(file);
  return file;
}

Opened open_directory(const fs::path& directory) {
  return open(train::Sweep::load(sweep_file(directory)), directory);
}

int64_t threads_of_a_cell(const AblateArguments& a) {
  return a.threads.value_or(std::max<int64_t>(1, threads() / a.runner.jobs));
}

/// Parses "2/4": the second of four shards.
train::Shard read_shard(const std::string& text) {
  int64_t shard = 0, shards = 0;
  char slash = 0, rest = 0;
  const int count = std::sscanf(text.c_str(), "%ld%c%ld%c", &shard, &slash, &shards, &rest);
  check<ConfigError>(count == 3 && slash == '/' && shards >= 1 && shard >= 1 && shard <= shards,
                     "--shard ", text, ": expected i/n with 1 <= i <= n, such as 2/4");
  return {shard - 1, shards};
}

std::string command_of(const AblateArguments& a) {
  return "longhand ablate " + shell_word(a.sweep) + " --out " + shell_word(a.out) + plugin_flags() +
         set_flags(a);
}

// ---- progress

std::string counts(const train::SweepProgress& p) {
  std::string text = fmt::format("{}/{} cells", p.finished, p.cells);
  for (const auto& [number, what] : {std::pair{p.failed, "failed"},
                                     {p.diverged, "diverged"},
                                     {p.damaged, "damaged"},
                                     {p.elsewhere, "in other processes"}})
    if (number > 0) text += fmt::format(", {} {}", number, what);
  if (p.seconds_left) text += fmt::format(", {} left", duration(*p.seconds_left));
  return text;
}

/// Returns why a cell seems stuck; empty if it is not.
std::string stall(const train::RunningCell& cell) {
  if (!cell.stalled) return "";
  return cell.stopped ? "stopped by a signal" : "no progress for " + duration(cell.quiet);
}

/// The live table: what is running, below the overall progress.
std::vector<std::string> live_table(const train::SweepProgress& p) {
  std::vector<std::string> lines = {"ablate " + counts(p)};
  size_t width = 4;
  for (const auto& cell : p.running) width = std::max(width, cell.label.size());
  for (const auto& cell : p.running)
    lines.push_back(fmt::format("  {:<{}}  {:>12}  {:>8}  {}", cell.label, width,
                                cell.testing ? "test" : fmt::format("{}/{}", cell.step, cell.steps),
                                duration(cell.seconds), stall(cell)));
  return lines;
}

std::string describe(const train::Sweep& sweep, const train::EndedCell& cell) {
  const train::CellState& s = cell.state;
  std::string text = fmt::format("{}: {}", cell.label, to_string(s.status));
  if (s.has_failed() || s.status == train::CellStatus::damaged)
    return text + ": " + s.record.reason;
  if (s.validation)
    text += fmt::format("  validation {} {:.4f}", sweep.metric, metric_of(sweep, *s.validation));
  if (s.test && s.has_test_split()) text += fmt::format("  test {:.4f}", metric_of(sweep, *s.test));
  return text + fmt::format("  {}", duration(s.record.seconds));
}

// ---- tables

std::string variants_of(const AblateArguments& a, const train::Results& results,
                        const train::Grid& grid) {
  const train::Table& all = results.table("variants");
  const train::Table table = with_intervals(all);
  // For people, variant labels stand for the axes' values.
  const train::Table readable = without_empty_columns(without_columns(table, [&](size_t i) {
    return std::ranges::find(grid.keys, table.columns[i].heading) != grid.keys.end();
  }));
  return printed_table(a, results, all, readable);
}

std::string text_of(const AblateArguments& a, const train::Results& results,
                    const train::Grid& grid) {
  return variants_of(a, results, grid) + "\n" + wrapped_lines(results.summary, 100) + "\n";
}

int print_table(const AblateArguments& a) {
  check<ConfigError>(!a.sweep.empty(),
                     "--table: expected the directory of a sweep, as in: longhand "
                     "ablate --table md DIR");
  const Opened opened = open_directory(a.sweep);
  const train::Results results = sweep_results(opened.grid, opened.states, a.sweep, "");
  write_or_print("", a.table == "text" ? text_of(a, results, opened.grid)
                                       : variants_of(a, results, opened.grid));
  return success;
}

int print_status(const AblateArguments& a) {
  const Opened opened = open_directory(a.status);
  const train::Results results =
      sweep_results(opened.grid, opened.states, a.status, command_line());
  if (a.json) {
    print_stdout("{}", to_json(results));
    return success;
  }
  const train::Table& cells = results.table("cells");
  const train::CellRefs runs = runs_of(opened.grid, opened.states);
  std::map<std::string, int64_t> by_status;
  for (const train::SweepCell& cell : runs)
    ++by_status[to_string(opened.states.at(cell.hash).status)];
  std::vector<std::string> counted;
  for (const auto& [status, number] : by_status)
    counted.push_back(fmt::format("{} {}", number, status));
  // Label, seed and state; cells.csv has the other columns.
  std::vector<std::string> shown = {"cell",   "variant", "trial",    "seed",    "phase",
                                    "status", "step",    "attempts", "seconds", "reason"};
  std::erase_if(shown, [&](const std::string& name) { return !cells.find(name); });
  print_stdout("{}{} cells: {}\n",
               printed_table(a, results, cells, without_empty_columns(with_columns(cells, shown))),
               runs.size(), fmt::join(counted, ", "));
  return success;
}

/// What is running in a sweep's directory and what has failed, below the overall progress.
std::vector<std::string> status_lines(const Opened& opened, const fs::path& directory) {
  train::SweepProgress all;
  static_cast<train::CellCounts&>(all) = count_cells(opened.grid, opened.states);
  std::vector<std::string> failed;
  for (const train::SweepCell& cell : runs_of(opened.grid, opened.states)) {
    const train::CellState& state = opened.states.at(cell.hash);
    const std::string label =
        fmt::format("{} seed={}", opened.grid.variants[cell.variant].label, cell.seed);
    if (state.status == train::CellStatus::running) {
      train::RunningCell& running = all.running.emplace_back();
      running.label = label;
      const fs::path own = train::cell_directory(directory, cell);
      std::error_code ignored;  // it may have been set aside
      const auto begun = fs::last_write_time(own / "cell.json", ignored);
      const auto now = fs::file_time_type::clock::now();
      running.step = train::last_step(own);
      running.steps = trainer_options(cell).steps;
      running.seconds = std::chrono::duration<double>(now - (ignored ? now : begun)).count();
    } else if (state.has_failed()) {
      failed.push_back(fmt::format("  {}: {}", label, to_string(state.status)));
    }
  }
  std::vector<std::string> lines = live_table(all);
  if (all.running.empty() && all.left() > 0) lines[0] += ", none is running";
  lines.insert(lines.end(), failed.begin(), failed.end());
  return lines;
}

/// Shows a sweep's cells until all have ended or a signal arrives: in place on a terminal,
/// elsewhere one line per change. Then prints their state.
int watch(const AblateArguments& a) {
  Opened opened = open_directory(a.status);
  Progress display(a.quiet, "ablate");
  const train::SignalRequests signals;
  std::string shown;
  do {
    opened.states = read_cells(opened.grid, a.status);
    const std::vector<std::string> lines = status_lines(opened, a.status);
    display.show(lines);
    if (!display.is_live() && lines[0] != shown) display.line(lines[0]);
    shown = lines[0];
    if (count_cells(opened.grid, opened.states).left() == 0) break;
    for (const double begin = clock_seconds(); clock_seconds() < begin + 2 && !signals.stop();)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (!signals.stop());
  display.show({});
  return signals.stop() ? stopped : print_status(a);
}

// ---- verification

int print_verification(const AblateArguments& a) {
  const fs::path directory = a.out.empty() ? a.sweep : a.out;
  Opened opened = open_directory(directory);
  Progress progress(a.quiet, "verify");
  const train::SignalRequests signals;
  const train::Verification found =
      verify(opened.grid, directory,
             {.threads = threads_of_a_cell(a),
              .on_progress = [&](int64_t done, int64_t all) { progress.update(done, all, ""); },
              .should_stop = [&] { return signals.stop(); }});
  progress.clear();
  if (signals.stop()) return stopped;
  std::vector<std::string> differences = found.differences;
  for (std::string& each :
       train::changed_results(sweep_results(opened.grid, opened.states, directory, ""), directory))
    differences.push_back(std::move(each));
  opened.states = found.states;
  const train::Results results = sweep_results(opened.grid, opened.states, directory, "");
  const bool whole = differences.empty() && train::read_manifest(directory).damage.empty();
  Answer out(a.json);
  out.add("cells", found.cells)
      .add("differences", differences)
      .add("results", Json::parse(to_json(results)))
      .literal(text_of(a, results, opened.grid));
  for (const std::string& each : differences) out.literal("differs: " + one_line(each) + "\n");
  return out.text("{cells} cells evaluated from their checkpoints, ")
      .print("{} differences\n", differences.size())
      .end(whole ? success : failure);
}

// ---- running

/// Adds the cost of the remaining cells to `total`.
int print_estimate(const AblateArguments& a, const Opened& opened, train::SweepEstimate& total) {
  Progress progress(a.quiet, "measuring");
  const train::SignalRequests signals;
  const std::vector<train::VariantEstimate> estimates =
      estimate(opened.grid, opened.states,
               {.threads = threads_of_a_cell(a),
                .shard = read_shard(a.shard),
                .on_progress = [&](int64_t done, int64_t all) { progress.update(done, all, ""); },
                .should_stop = [&] { return signals.stop(); }});
  progress.clear();
  if (signals.stop()) return stopped;
  train::Table table{.name = "estimate"};
  for (const train::VariantEstimate& each : estimates) {
    const bool ok = each.failure.empty();
    add_row(table,
            {{"variant", each.label},
             {"cells", each.cells},
             {"left", each.cells_left, "to run"},
             {"ms", ok ? train::Cell{1000 * each.step_seconds} : train::Cell{}, "ms a step", 3},
             {"memory", each.peak_memory >> 20, "memory (MiB)"},
             {"time", ok ? train::Cell{duration(each.seconds_left)} : train::Cell{}},
             {"failure", each.failure}});
  }
  const train::SweepEstimate all = train::add_up(estimates, a.runner.jobs);
  total.cells += all.cells;
  total.cells_left += all.cells_left;
  total.seconds += all.seconds;
  const int64_t available = train::available_memory();
  const bool enough = available <= 0 || all.memory <= available;
  return Answer(a.json)
      .add("cells", all.cells)
      .add("cells_left", all.cells_left)
      .add("jobs", a.runner.jobs)
      .add("seconds_left", all.seconds)
      .add("memory_bytes", all.memory)
      .add("available_bytes", available)
      .add("variants", estimates)
      .table(without_empty_columns(table))
      .text("{cells} cells, {cells_left} to run: about ")
      .literal(duration(all.seconds))
      .text("; jobs: {jobs}, threads of each: ")
      .print("{}\n", threads_of_a_cell(a))
      .text("memory: up to {memory_bytes:MiB} MiB at a time, {available_bytes:MiB} MiB available")
      .literal(enough ? "\n" : ": not enough; reduce --jobs\n")
      .end(all.failed > 0 || !enough ? failure : success);
}

int exit_code(const train::SweepOutcome& outcome) {
  if (outcome.stopped) return stopped;
  if (outcome.failed + outcome.damaged > 0) return failure;
  if (outcome.diverged > 0) return diverged;
  return outcome.finished == outcome.cells ? success : failure;
}

/// Throws ConfigError if --out holds a different sweep.
void check_directory(const AblateArguments& a, const train::Sweep& sweep) {
  const fs::path file = fs::path(a.out) / "sweep.toml";
  if (a.change_sweep || !fs::exists(file)) return;
  std::string difference;
  try {
    train::check_digest(file);
    difference = difference_of(sweep, train::Sweep::load(file));
  } catch (const Error& error) {  // damaged, or not valid for this version and its plugins
    difference = error.what();
  }
  check<ConfigError>(difference.empty(), "--out ", a.out, ": holds another sweep than ", a.sweep,
                     ": ", difference,
                     "; expected another directory, or --change-sweep, which keeps the cells that "
                     "are not part of this sweep but no longer counts them");
}

int run(const AblateArguments& a, Opened& opened) {
  const fs::path directory = a.out;
  check_directory(a, opened.grid.sweep);
  train::RunnerOptions options = a.runner;
  options.shard = read_shard(a.shard);
  options.threads = threads_of_a_cell(a);
  if (!a.style.columns.empty())  // throws for unknown columns, before anything is written
    variants_of(a, sweep_results(opened.grid, opened.states, directory, command_of(a)),
                opened.grid);
  for (const std::string& from : a.merge) train::check_holds_sweep(from);
  const auto presence = train::Claim::share(directory);
  data::write_file_durably(directory / "sweep.toml",
                           train::with_digest(opened.grid.sweep.to_toml()));

  Progress display(a.quiet, "ablate");
  bool all_merged = true;
  const auto merged = merge_cells(opened.grid, {a.merge.begin(), a.merge.end()}, directory);
  for (size_t i = 0; i < merged.size(); ++i) {
    for (const std::string& damaged : merged[i].damaged)
      print_stderr("longhand: not copied: {}\n", one_line(damaged));
    display.line(fmt::format("{}: {} cells copied", a.merge[i], merged[i].copied));
    all_merged = all_merged && merged[i].damaged.empty();
  }
  if (a.repair)
    for (const train::RepairedCell& each : repair_cells(opened.grid, directory))
      display.line(fmt::format("{}: {}; {} in {}", each.cell, each.reason,
                               each.run_kept ? "test.json and cell.json are kept"
                                             : "it is trained again, its files are kept",
                               each.kept_in.string()));
  if (!a.merge.empty() || a.repair) opened.states = read_cells(opened.grid, directory);
  display.line(fmt::format("{}: {} variants, jobs: {}, threads of each: {}", directory.string(),
                           opened.grid.variants.size(), options.jobs, options.threads));
  train::SignalRequests signals;
  train::SweepProgress now;
  options.should_stop = [&] { return signals.stop(); };
  std::set<std::string> stalled;  // cells already reported to the user
  options.on_progress = [&](const train::SweepProgress& p) {
    now = p;
    for (const train::RunningCell& cell : p.running)
      if (!cell.stalled)
        stalled.erase(cell.label);
      else if (stalled.insert(cell.label).second)
        display.line(fmt::format(
            "longhand: warning: {} (process {}): {}{}", cell.label, cell.pid, stall(cell),
            cell.stopped ? fmt::format("; kill -CONT {} continues it", cell.pid) : std::string()));
    display.show(live_table(p));
  };
  // Written meanwhile for reports on a running sweep, but not so often that it takes long.
  double written = clock_seconds();
  double cost = 0;
  const auto write = [&] {
    const double begin = clock_seconds();
    train::Results results = sweep_results(opened.grid, opened.states, directory, command_of(a));
    write_results(results, directory);
    written = clock_seconds();
    cost = written - begin;
    return results;
  };
  write();
  options.on_end = [&](const train::EndedCell& cell) {
    opened.states[cell.cell.hash] = cell.state;
    try {
      if (clock_seconds() - written > std::max(1.0, 50 * cost)) write();
    } catch (const DataError& unwritten) {  // the cells continue; written again at the end
      display.line(fmt::format("longhand: warning: {}", unwritten.what()));
    }
    const std::string text = describe(opened.grid.sweep, cell);
    const bool plain = !display.is_live();
    display.line(plain ? fmt::format("{}  ({})", text, counts(now)) : text);
  };
  const train::SweepOutcome outcome = run_sweep(opened.grid, directory, options);
  display.show({});

  opened.states = read_cells(opened.grid, directory);
  const train::Results results = write();
  if (a.json)
    print_stdout("{}", to_json(results));
  else
    print_stdout("{}{}\n", text_of(a, results, opened.grid), (directory / "results.json").string());
  if (outcome.damaged > 0)
    print_stderr(
        "longhand: {} of {} cells are damaged, or undecided because a trial is; repair them with: "
        "longhand ablate {} --repair\n",
        outcome.damaged, outcome.cells, shell_word(directory.string()));
  std::vector<std::string> lost;
  for (const auto& [number, what] :
       {std::pair{outcome.failed, "failed"}, {outcome.diverged, "diverged"}})
    if (number > 0) lost.push_back(fmt::format("{} {}", number, what));
  if (!lost.empty())
    print_stderr("longhand: of {} cells, {}; see longhand ablate --status {}\n", outcome.cells,
                 fmt::join(lost, " and "), shell_word(directory.string()));
  if (outcome.stopped || outcome.left() > 0)
    print_stderr("longhand: {}, {} of {} cells left; continue with: {}\n",
                 outcome.stopped             ? "stopped"
                 : a.runner.max_failures > 0 ? "ended after too many cells failed or diverged"
                                             : "cells were stopped by signals",
                 outcome.left(), outcome.cells, command_of(a));
  const int code = exit_code(outcome);
  return code == success && !all_merged ? failure : code;
}

int ablate_one(AblateArguments a, train::SweepEstimate& total) {
  if (!a.status.empty()) return a.watch ? watch(a) : print_status(a);
  if (!a.table.empty()) return print_table(a);
  if (a.verify) return print_verification(a);
  if (a.out.empty() && fs::is_directory(a.sweep)) {
    a.out = a.sweep;
    a.sweep = sweep_file(a.out);
  }
  check<ConfigError>(!a.out.empty() || a.dry_run, "ablate: expected --out DIR");
  Opened opened = open(train::Sweep::load(a.sweep, a.set), a.out);
  return a.dry_run ? print_estimate(a, opened, total) : run(a, opened);
}

// ---- several sweeps

/// Returns arguments per sweep, if there are several: for the parts named by the sweep file, each
/// with a directory below --out, or for those in a directory that is not one sweep. Else empty.
std::vector<AblateArguments> sweeps_of(const AblateArguments& a) {
  std::vector<AblateArguments> out;
  const fs::path given = a.status.empty() ? a.sweep : a.status;
  if (given.empty()) return {};
  if (fs::is_directory(given)) {
    if (fs::exists(given / "sweep.toml")) return {};
    for (const fs::path& each : fs::directory_iterator(given))
      if (fs::exists(each / "sweep.toml")) {
        AblateArguments& of = out.emplace_back(a);
        (a.status.empty() ? of.sweep : of.status) = each.string();
      }
  } else if (a.status.empty() && fs::is_regular_file(given)) {
    for (const fs::path& part : train::parts_of(given)) {
      const std::string name = part.stem().string();
      AblateArguments& of = out.emplace_back(a);
      of.sweep = part.string();
      if (!a.out.empty()) of.out = (fs::path(a.out) / name).string();
      for (std::string& from : of.merge) from = (fs::path(from) / name).string();
      std::erase_if(of.merge, [](const std::string& from) { return !fs::exists(from); });
    }
  }
  return out;
}

int ablate(const AblateArguments& a) {
  check<ConfigError>(!a.watch || !a.status.empty(), "--watch: expected --status DIR");
  check<ConfigError>(
      !a.sweep.empty() || !a.status.empty() || !a.table.empty(),
      "ablate: expected SWEEP.toml, --status DIR or --table FORMAT DIR; see longhand "
      "ablate --help");
  const std::vector<AblateArguments> sweeps = sweeps_of(a);
  train::SweepEstimate total;
  if (sweeps.empty()) return ablate_one(a, total);
  check<ConfigError>(!a.json && a.table.empty(), a.json ? "--json" : "--table",
                     ": expected one sweep, got ", sweeps.size(), " in ",
                     a.status.empty() ? a.sweep : a.status, "; name one of them, such as ",
                     a.status.empty() ? sweeps[0].sweep : sweeps[0].status);
  int code = success;
  for (const AblateArguments& each : sweeps) {
    print_stdout("== {}\n", each.status.empty() ? each.sweep : each.status);
    const int ended = ablate_one(each, total);
    if (ended == stopped) return stopped;
    if (code == success || ended == failure) code = ended;
  }
  if (a.dry_run)
    print_stdout("== in all\n{} cells, {} to run: about {}\n", total.cells, total.cells_left,
                 duration(total.seconds));
  return code;
}

}  // namespace

void add_ablate(Command& program) {
  auto [c, a] = program.command<AblateArguments>("ablate", ablate);
  c.responds_to_signals();
  c.add("sweep", a->sweep);
  c.add("--out", a->out);
  c.add("--jobs", a->runner.jobs).positive();
  c.add("--threads", a->threads).positive();
  c.add("--shard", a->shard);
  c.add("--merge", a->merge);
  c.add("--max-failures", a->runner.max_failures).positive();
  c.add("--cell-timeout", a->runner.cell_timeout).positive();
  const Argument verify = c.flag("--verify", a->verify);
  c.flag("--repair", a->repair).excludes(verify);
  c.flag("--change-sweep", a->change_sweep);
  c.flag("--estimate,--dry-run", a->dry_run);
  c.add("--status", a->status);
  const Argument watch = c.flag("--watch", a->watch);
  const Argument table = c.common(*a, "table");
  c.common(*a, "set quiet");
  c.common(*a, "json").excludes(table).excludes(watch);
  c.common(*a, "words");
}

}  // namespace longhand::cli
