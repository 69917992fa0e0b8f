// Power cuts and kills of sweeps and merges: every prefix of the system calls of all their processes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/lab/sweep.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"
#include "tests/support/power_cut.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using test::Call;
using test::Disk;
using test::Image;
using Words = std::vector<std::string>;

struct Counts {
  int64_t prefixes = 0, states = 0;  // calls after which the power was cut, and what it left
  int64_t refused = 0;               // states whose damage is reported
  int64_t lost = 0, invented = 0;
  int64_t continued = 0, different = 0;  // sweeps run again from such a state
  std::set<std::string> problems{};
};

/// A tiny sweep, an undisturbed run of it, and records of others.
class TestSweep : public test::TinyFolder {
 public:
  explicit TestSweep(int64_t steps) {
    test::write_text(*this / "sweep.toml",
                     "[sweep]\nbase = \"config.toml\"\n"
                     "set = [\"train.eval_every=2\", \"train.checkpoint_every=2\", "
                     "\"train.steps=" +
                         std::to_string(steps) +
                         "\"]\n[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
    test::succeed(words("whole", {}), path());
    grid_ = expand(Sweep::load(*this / "sweep.toml"));
    whole_ = read_cells(grid_, *this / "whole");
    table_ = lasting("whole");
    CHECK(table_.size() == 3);
  }

  Words words(const std::string& out, const Words& more) const {
    Words all = {"ablate", "sweep.toml", "--out", out, "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// The calls of ablate, or of several side by side, on the files of this folder. What they print is in
  /// the file "said".
  std::vector<Call> record(const std::vector<Words>& commands) const {
    return test::record_calls(path(), [&] {
      int failed = chdir(path().c_str());
      const int said = open("said", O_WRONLY | O_CREAT | O_APPEND, 0666);
      std::vector<pid_t> processes;
      for (const Words& command : commands) {
        processes.push_back(fork());
        if (processes.back() != 0) continue;
        dup2(said, STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
        std::vector<char*> arguments = {const_cast<char*>("longhand")};
        for (const std::string& word : command)
          arguments.push_back(const_cast<char*>(word.c_str()));
        arguments.push_back(nullptr);
        execv(LONGHAND_PROGRAM, arguments.data());
        _exit(127);
      }
      for (const pid_t process : processes) {
        int status = 0;
        waitpid(process, &status, 0);
        failed += status != 0;
      }
      return failed;
    });
  }

  /// Cuts the power after every call. What the files of a cell say then must be its results, or that it
  /// has not ended; a cell whose end was announced must have ended.
  void cut_cells(const std::vector<Call>& calls, const Image& before, const std::string& sweep,
                 size_t limit, Counts& out) const {
    for (const auto& [hash, whole] : whole_) {
      const fs::path cell = fs::path(sweep) / "cells" / hash;
      const auto matters = [&, &hash = hash](const fs::path& path) {
        const std::string text = path.string(), name = path.filename().string();
        const bool is_result =
            name != "log.txt" && name != "lock" && text.find("/checkpoints") == std::string::npos;
        return path == "said" || name.ends_with("manifest") || is_below(cell, path) ||
               (text.find(hash) != std::string::npos && is_result);
      };
      Image image;
      for (const auto& [path, contents] : before)
        if (matters(path)) image[path] = contents;
      Disk disk(image);
      std::mt19937_64 random(1);
      std::set<Image> seen;
      bool announced = false;
      for (const Call& call : calls) {
        if (!matters(call.path) && (call.to.empty() || !matters(call.to))) continue;
        ++out.prefixes;
        disk.apply(call);
        const std::string said = disk.now("said");
        const std::string label = whole.record.variant + " seed=0: finished";
        if (!announced &&
            (said.find(label) != said.npos || said.find("cells copied") != said.npos)) {
          announced = true;
          seen.clear();
        }
        disk.for_each_cut(limit, random, [&](Image state) {
          std::erase_if(state, [](const auto& file) {  // what no reader opens
            return file.first.find("/.tmp-") != std::string::npos || file.first == "said";
          });
          if (!seen.insert(state).second) return;
          ++out.states;
          test::write_image(state, *this / "state");
          check_cell(*this / "state" / cell, whole, announced, out);
        });
      }
      CHECK(announced);
    }
  }

  /// Cuts the power after `count` of the calls, and runs the sweep again.
  void cut_and_continue(const std::vector<Call>& calls, const Image& before,
                        const std::string& sweep, const Words& more, size_t count,
                        Counts& out) const {
    std::mt19937_64 random(2);
    size_t done = 0;
    Disk disk(before);
    for (size_t i = 0; i < count; ++i) {
      for (const size_t end = (2 * i + 1) * calls.size() / (2 * count); done < end; ++done)
        disk.apply(calls[done]);
      // In turns, all is lost that can be, nothing is, as after a kill, and either.
      Image state = disk.after_cut([&](size_t n) {
        return i % 3 == 0 ? size_t{0} : i % 3 == 1 ? size_t{1} : random() % n;
      });
      state.erase("said");
      state["sweep.toml"] = test::read_text(*this / "sweep.toml");
      state["config.toml"] = test::tiny_config;
      test::write_image(state, *this / "again");
      check_report(*this / "again" / sweep, out);
      const test::Outcome ended = test::run(words(sweep, more), *this / "again");
      ++out.continued;
      const std::string left = temporaries(*this / "again");
      const bool same = ended.code == 0 && lasting("again/" + sweep) == table_ && left.empty();
      if (!same)
        out.problems.insert("after call " + std::to_string(done) + " of " + sweep + ": exit " +
                            std::to_string(ended.code) + ", " + ended.err + left);
      out.different += !same;
    }
  }

  /// Interleaves the calls of processes that write the same files, in other ways than they ran, and cuts
  /// the power after each: a file must be one that was written, as a whole.
  static void cut_shared(const std::vector<Call>& calls, const std::string& sweep, size_t ways,
                         Counts& out) {
    std::map<pid_t, std::vector<Call>> by_process;
    std::set<test::Contents> written;
    Disk recorded;
    for (const Call& call : calls) {
      if (call.kind == Call::rename) written.insert(recorded.now(call.path));
      recorded.apply(call);
      // A lock orders changes of the manifest.
      const bool is_shared = fs::path(call.path).parent_path() == sweep || call.path == sweep;
      if (is_shared && !call.to.ends_with("manifest")) by_process[call.process].push_back(call);
    }
    std::mt19937_64 random(3);
    for (size_t way = 0; way < ways; ++way) {
      Disk disk({{sweep, std::nullopt}});
      for (auto left = by_process; !left.empty();) {
        auto& [process, next] =
            *std::next(left.begin(), static_cast<std::ptrdiff_t>(random() % left.size()));
        disk.apply(next.front());
        next.erase(next.begin());
        if (next.empty()) left.erase(process);
        ++out.prefixes;
        disk.for_each_cut(8, random, [&](const Image& image) {
          ++out.states;
          for (const auto& [path, contents] : image)
            if (const fs::path name = fs::path(path).filename();
                contents && name.has_extension() && !name.string().starts_with(".tmp-"))
              out.invented += !written.contains(*contents);
        });
      }
    }
  }

  /// cells.csv up to the column "attempts": what follows depends on the machine and on interruptions, as
  /// does how many columns follow (marks of times that other conditions measured).
  std::vector<std::string> lasting(const std::string& sweep) const {
    std::vector<std::string> out;
    std::istringstream in(test::read_text(*this / sweep / "cells.csv"));
    int64_t columns = 0;
    for (std::string line; std::getline(in, line);) {
      if (out.empty()) columns = std::ranges::count(line.substr(0, line.find("attempts")), ',');
      size_t end = 0;
      for (int64_t column = 0; column < columns; ++column)
        end = std::min(line.find(',', end), line.size() - 1) + 1;
      out.push_back(line.substr(0, end));
    }
    return out;
  }

 private:
  static bool is_below(const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
           folder.end();
  }
  static std::string temporaries(const fs::path& folder) {
    std::string out;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.path().filename().string().starts_with(".tmp-")) out += entry.path().string() + " ";
    return out;
  }
  static bool is_score(const std::optional<Score>& a, const std::optional<Score>& b) {
    return a && b && a->loss == b->loss && a->accuracy == b->accuracy;
  }

  static void check_cell(const fs::path& cell, const CellState& whole, bool announced,
                         Counts& out) {
    const CellState state = read_cell(cell);
    const bool finished = state.status == CellStatus::finished;
    const auto count = [&](bool bad, int64_t& number) {
      number += bad;
      if (bad)
        out.problems.insert(
            cell.lexically_relative(cell.parent_path().parent_path().parent_path()).string() +
            ": " + to_string(state.status) + " " + state.record.reason);
    };
    count(state.status == CellStatus::damaged, out.refused);
    count(announced && !finished, out.lost);
    count(state.has_failed() || (state.test && !is_score(state.test, whole.test)) ||
              (finished && !is_score(state.validation, whole.validation)),
          out.invented);
  }

  /// A report shows at most the cells that there are, with their scores.
  void check_report(const fs::path& sweep, Counts& out) const {
    if (!fs::exists(sweep)) return;
    try {
      std::set<std::string> seen;
      for (const ReportedRun& run : read_inputs({sweep}).runs) {
        const auto whole = whole_.find(fs::path(run.record.name).filename().string());
        out.invented += whole == whole_.end() || !seen.insert(run.record.name).second;
        if (run.test && whole != whole_.end())
          out.invented += run.test->loss != whole->second.test->loss;
      }
    } catch (const Error& error) {
      ++out.refused;
      out.problems.insert(error.what());
    }
  }

  Grid grid_;
  CellStates whole_;
  std::vector<std::string> table_;
};

/// Cuts the power of a sweep, of two at once, and of a merge into a sweep that was interrupted.
Counts cut_everything(int64_t steps, size_t limit, size_t continued, size_t ways) {
  // Syncing real disks would take most of the time.
  if (fs::is_directory("/dev/shm")) setenv("TMPDIR", "/dev/shm", 1);
  const TestSweep folder(steps);
  Counts out;
  const std::vector<Call> alone = folder.record({folder.words("out", {"--jobs", "2"})});
  folder.cut_cells(alone, {}, "out", limit, out);
  folder.cut_and_continue(alone, {}, "out", {}, continued, out);

  fs::remove(folder / "said");
  const Words words = folder.words("both", {});
  const std::vector<Call> both = folder.record({words, words});
  folder.cut_cells(both, {}, "both", limit, out);
  folder.cut_and_continue(both, {}, "both", {}, continued, out);
  folder.cut_shared(both, "both", ways, out);

  for (const std::string shard : {"1", "2"})
    test::succeed(folder.words("shard" + shard, {"--shard", shard + "/2"}), folder.path());
  Disk disk;
  for (size_t i = 0; i < alone.size() / 2; ++i) disk.apply(alone[i]);
  test::write_image(disk.after_cut([](size_t) { return 1; }), folder / "interrupted");
  fs::rename(folder / "interrupted/out", folder / "merged");
  Image before;
  for (const std::string part : {"merged", "shard1", "shard2"}) {
    before[part] = std::nullopt;
    for (const auto& [path, contents] : test::image_of(folder / part))
      before[part + "/" + path] = contents;
  }
  fs::remove(folder / "said");
  const Words from = {"--merge", "shard1,shard2"};
  const std::vector<Call> merge = folder.record({folder.words("merged", from)});
  for (const Call& call : merge) CHECK_FALSE(call.path.starts_with("shard"));
  folder.cut_cells(merge, before, "merged", limit, out);
  folder.cut_and_continue(merge, before, "merged", from, continued, out);
  std::string problems;
  for (const std::string& problem : out.problems) problems += problem + "\n";
  INFO(problems);
  CHECK(out.lost == 0);
  CHECK(out.invented == 0);
  CHECK(out.refused == 0);
  CHECK(out.different == 0);
  return out;
}

}  // namespace

TEST_CASE("a power cut at any moment of a sweep or of a merge loses and invents no cell") {
  const Counts counts = cut_everything(4, 8, 2, 3);
  CHECK(counts.prefixes > 400);
  CHECK(counts.states > 200);
}

// Hidden: run by tests/reliability/figures.sh.
TEST_CASE("power cuts of many sweeps and merges", "[.long]") {
  Counts all;
  for (const int64_t steps : {2, 4, 12}) {
    const Counts counts = cut_everything(steps, 500, 25, 200);
    all.prefixes += counts.prefixes;
    all.states += counts.states;
    all.continued += counts.continued;
  }
  std::printf(
      "%ld prefixes of the system calls of sweeps, of two at once and of merges, %ld states after "
      "a "
      "power cut: 0 lost, 0 invented; %ld sweeps continued: 0 different\n",
      static_cast<long>(all.prefixes), static_cast<long>(all.states),
      static_cast<long>(all.continued));
}

}  // namespace longhand::train
