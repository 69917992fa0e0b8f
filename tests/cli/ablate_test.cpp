// longhand ablate: sweeps that are killed, stopped, shared and that fail.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "longhand/data/file.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/manifest.h"
#include "longhand/train/lab/merge.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"
#include "tests/cli/program.h"
#include "tests/cli/table_values.h"
#include "tests/cli/tiny.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

train::Results results(const fs::path& sweep) {
  return train::results_of_json(read_text(sweep / "results.json"), "results.json");
}

/// The cells with all columns that do not depend on the machine and on interruptions.
std::vector<std::vector<train::Cell>> lasting(const fs::path& sweep) {
  const train::Results all = results(sweep);
  const train::Table& cells = all.table("cells");
  auto rows = cells.rows;
  for (auto& row : rows) row.resize(cells.column("attempts"));
  return rows;
}

/// A folder with config.toml and sweep.toml.
class SweepFolder : public TinyFolder {
 public:
  explicit SweepFolder(const std::string& sweep) {
    write_text(*this / "sweep.toml", "[sweep]\nbase = \"config.toml\"\n" + sweep);
  }
  Outcome ablate(Words words) const {
    words.insert(words.begin(), {"ablate", "sweep.toml"});
    return run(words, path());
  }
};

const std::string two_by_two = R"(seeds = 2
set = ["train.steps=60", "train.checkpoint_every=5", "train.log_every=5"]

[[axis]]
attention.type = ["softmax", "linear"]
)";

int64_t attempts(const fs::path& sweep) {
  const train::Results all = results(sweep);
  const train::Table& cells = all.table("cells");
  int64_t sum = 0;
  for (const auto& row : cells.rows) sum += std::get<int64_t>(row[cells.column("attempts")]);
  return sum;
}

/// The process that runs the cell in this directory; 0 if none does.
pid_t pid_of(const fs::path& cell) {
  const auto record = nlohmann::json::parse(read_text(cell / "cell.json"), nullptr, false);
  return record.is_object() ? record["pid"].get<pid_t>() : 0;
}

std::vector<fs::path> cells_of(const fs::path& sweep) {
  std::vector<fs::path> cells;
  if (fs::exists(sweep / "cells"))
    for (const auto& entry : fs::directory_iterator(sweep / "cells")) cells.push_back(entry.path());
  return cells;
}

/// What a terminal shows after these characters, of which some go up and erase.
std::string screen_after(const std::string& text) {
  std::vector<std::string> rows(1);
  size_t row = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      if (++row == rows.size()) rows.emplace_back();
    } else if (text.compare(i, 2, "\x1b[") == 0) {
      const size_t number = i + 2;
      i = std::min(text.find_first_of("AJKm", number), text.size() - 1);
      if (text[i] == 'A') row -= std::min(row, std::stoul(text.substr(number, i - number)));
      if (text[i] == 'J') rows.resize(row + 1);
      if (text[i] == 'J' || text[i] == 'K') rows[row].clear();
    } else if (text[i] != '\r') {
      rows[row] += text[i];
    }
  }
  std::string out;
  for (const std::string& each : rows) out += each + "\n";
  return out;
}

}  // namespace

TEST_CASE("a sweep file with parts runs each in a directory of its name") {
  const SweepFolder folder("set = [\"train.steps=5\"]\n");
  write_text(folder / "more.toml",
             "[sweep]\nbase = \"config.toml\"\nset = [\"train.steps=6\"]\nseeds = 2\n");
  write_text(folder / "all.toml", "[sweep]\nparts = [\"sweep.toml\", \"more.toml\"]\n");
  const auto ablate = [&](Words words) {
    words.insert(words.begin(), "ablate");
    return run(words, folder.path());
  };
  const Outcome dry = ablate({"all.toml", "--dry-run"});
  CHECK_THAT(dry.out, Contains("== in all\n3 cells, 3 to run"));
  REQUIRE(ablate({"more.toml", "--out", "elsewhere/more"}).code == 0);
  const Outcome ran = ablate({"all.toml", "--out", "out", "--merge", "elsewhere"});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  CHECK_THAT(ran.err, Contains("elsewhere/more: 2 cells copied"));
  CHECK(attempts(folder / "out/sweep") == 1);
  CHECK(attempts(folder / "out/more") == 2);

  const Outcome status = ablate({"--status", "out"});
  CHECK_THAT(status.out, Contains("== out/more\n") && Contains("2 cells: 2 finished") &&
                             Contains("1 cells: 1 finished"));
  CHECK(ablate({"out", "--verify"}).code == 0);
  CHECK(ablate({"out"}).code == 0);
  fs::remove(cells_of(folder / "out/more")[0] / "summary.json");
  CHECK(ablate({"out", "--verify"}).code == 1);

  for (const Words& words : {Words{"--status", "out", "--json"}, Words{"--table", "md", "out"}}) {
    const Outcome refused = ablate(words);
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err,
               Contains("expected one sweep, got 2 in out; name one of them, such as "));
  }
  for (const auto& [parts, message] :
       {std::pair{"[]", "parts: expected a list of sweep files"},
        {"[\"bad.toml\"]", "a sweep without parts of its own"},
        {"[\"sweep.toml\", \"../sweep.toml\"]", "files of different names"},
        {"[\"none.toml\"]", "none.toml"},
        {"[\"sweep.toml\"]\nseeds = 2", "nothing else in the file"}}) {
    write_text(folder / "bad.toml", "[sweep]\nparts = " + std::string(parts) + "\n");
    const Outcome refused = ablate({"bad.toml", "--out", "bad"});
    CHECK(refused.code == 2);
    CHECK_THAT(refused.err, Contains(message));
    CHECK_FALSE(fs::exists(folder / "bad"));
  }
}

TEST_CASE("a sweep that is killed again and again loses no cell and runs none twice") {
  const SweepFolder folder(two_by_two);
  const Outcome whole = folder.ablate({"--out", "whole", "--jobs", "2"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  CHECK_THAT(whole.out, Contains("softmax") && Contains("test accuracy") && Contains("2 seeds"));
  CHECK_THAT(whole.err, Contains("linear seed=1: finished"));
  CHECK(attempts(folder / "whole") == 4);

  // How far it is: the number of records of all cells.
  const auto progress = [&] {
    int64_t lines = 0;
    for (const fs::path& cell : cells_of(folder / "killed")) {
      const std::string text = read_text(cell / "metrics.jsonl");
      lines += std::count(text.begin(), text.end(), '\n');
    }
    return lines;
  };
  for (int killed = 0; killed < 5; ++killed) {
    const int64_t before = progress();
    Program program({"ablate", "sweep.toml", "--out", "killed"}, folder.path());
    REQUIRE(eventually([&] { return program.over() || progress() > before + 4 + killed; }));
    program.send(SIGKILL);
    // Every second time the processes of cells are killed, too, before they can save.
    if (killed % 2 == 1)
      for (const fs::path& cell : cells_of(folder / "killed"))
        if (const pid_t pid = pid_of(cell); pid > 0) kill(pid, SIGKILL);
    CHECK(program.wait().code == 128 + SIGKILL);
  }
  const Outcome rest = folder.ablate({"--out", "killed"});
  INFO(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(lasting(folder / "killed") == lasting(folder / "whole"));
  int64_t resumed = 0;
  for (const fs::path& cell : cells_of(folder / "killed")) {
    const std::string log = read_text(cell / "log.txt");
    resumed += log.find("resuming after step ") != std::string::npos;
    const size_t first = log.find("finished after");
    CHECK(
        (first == std::string::npos || log.find("finished after", first + 1) == std::string::npos));
  }

  CHECK(resumed >= 1);

  // Nothing is left to do; another value adds cells.
  const int64_t before = attempts(folder / "killed");
  REQUIRE(folder.ablate({"--out", "killed"}).code == 0);
  CHECK(attempts(folder / "killed") == before);
  std::string more = read_text(folder / "sweep.toml");
  more.replace(more.find("\"linear\""), 8, "\"linear\", \"none\"");
  write_text(folder / "sweep.toml", more);
  REQUIRE(folder.ablate({"--out", "killed"}).code == 0);
  CHECK(attempts(folder / "killed") == before + 2);

  // Tables for a paper.
  const auto print = [&](const std::string& format) {
    return run({"ablate", "--table", format, "killed"}, folder.path()).out;
  };
  CHECK_THAT(print("md"), Catch::StartsWith("| variant |") && Contains("| none |"));
  CHECK_THAT(print("tex"), Contains("\\begin{table}\n\\centering\n\\caption{sweep. Variants, by") &&
                               Contains("\\label{tab:sweep}\n\\begin{tabular}"));
  const auto chosen = [&](Words words) {
    words.insert(words.begin(), {"ablate", "killed", "--columns", "attention_type,accuracy"});
    return run(words, folder.path());
  };
  CHECK_THAT(chosen({"--table", "csv"}).out,
             Catch::StartsWith("attention_type,accuracy\nsoftmax,0."));
  CHECK_THAT(chosen({"--table", "text"}).out, Catch::StartsWith("attention.type  test accuracy\n"));
  CHECK_THAT(chosen({"--table", "tex", "--caption", "A 100 %", "--label", "tab:a"}).out,
             Contains("\\caption{A 100 \\%") && Contains("\\label{tab:a}\n"));
  CHECK_THAT(chosen({"--table", "md", "--caption", "A"}).err, Contains("expected --table tex"));
  const Outcome unknown =
      run({"ablate", "--table", "md", "--columns", "acuracy", "killed"}, folder.path());
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("--columns acuracy: the table \"variants\" has no such column; "
                                   "expected some of variant,attention_type,"));
  CHECK_THAT(run({"ablate", "--status", "killed", "--columns", "seed,variant"}, folder.path()).out,
             Catch::StartsWith("seed  variant\n"));

  // Two sweeps with the same cells.
  const auto against = [&](Words words) {
    words.insert(words.begin(), {"report", "whole", "killed", "--baseline", "whole"});
    return run(words, folder.path());
  };
  CHECK_THAT(against({"--table", "csv"}).out,
             Catch::StartsWith("variant,seeds,baseline,") && Contains("\nlinear,2,"));
  CHECK_THAT(
      against({"--csv", "--columns", "variant"}).err,
      Contains("--columns applies only to the table of variants; expected --table md, csv, tex"));
  CHECK_THAT(against({"--table", "text", "--columns", "variant,difference"}).out,
             Catch::StartsWith("variant  difference\nsoftmax"));
  const train::Results compared = train::results_of_json(against({"--json"}).out, "stdout");
  CHECK(compared.kind == "report");
  CHECK(compared.tables[0].name == "paired");
  CHECK(std::get<double>(compared.tables[0].rows[0][compared.tables[0].column("difference")]) == 0);
  CHECK(against({"-o", "pair.html"}).code == 0);
  CHECK_THAT(read_text(folder / "pair.html"), Contains("killed against whole"));
  CHECK_THAT(run({"report", "whole", "--baseline", "whole"}, folder.path()).err,
             Contains("--baseline whole: expected another sweep to compare with it"));
  CHECK_THAT(print("csv"), Catch::StartsWith("variant,attention_type,seeds,"));
  CHECK_THAT(read_text(folder / "killed/results.csv"),
             Catch::StartsWith("variant,attention_type,"));
  CHECK_THAT(run({"ablate", "--status", "killed"}, folder.path()).out,
             Contains("6 cells: 6 finished"));
}

TEST_CASE("a stopped sweep continues, and two sweeps share their cells") {
  const SweepFolder folder(two_by_two);
  {
    // Cells that do not end by themselves.
    Program program({"ablate", "sweep.toml", "--out", "stopped", "--set", "train.steps=1000000"},
                    folder.path());
    REQUIRE(eventually([&] {
      const auto cells = cells_of(folder / "stopped");
      return program.over() || (!cells.empty() && fs::exists(cells[0] / "checkpoints/last.h5"));
    }));
    program.send(SIGINT);
    const Outcome outcome = program.wait();
    INFO(outcome.err);
    CHECK(outcome.code == 75);
    CHECK_THAT(outcome.err, Contains("stopped, 4 of 4 cells left; continue with: longhand ablate "
                                     "sweep.toml"));
    CHECK_THAT(outcome.err, Contains("0/4 cells") && !Contains("failed"));
    CHECK_THAT(run({"ablate", "--status", "stopped"}, folder.path()).out,
               Contains("4 cells: 1 stopped, 3 waiting"));
    const auto cells = cells_of(folder / "stopped");
    REQUIRE(cells.size() == 1);
    CHECK_THAT(read_text(cells[0] / "cell.json"), Contains("\"status\": \"stopped\""));
    CHECK_THAT(read_text(cells[0] / "summary.json"), Contains("\"status\": \"stopped\""));
  }
  Program other({"ablate", "sweep.toml", "--out", "shared"}, folder.path());
  const Outcome one = folder.ablate({"--out", "shared"});
  const Outcome two = other.wait();
  INFO(one.err << two.err);
  CHECK(one.code == 0);
  CHECK(two.code == 0);
  CHECK(attempts(folder / "shared") == 4);

  // Shards: the parts of two machines, one after the other.
  REQUIRE(folder.ablate({"--out", "parts", "--shard", "1/2"}).code == 0);
  CHECK(attempts(folder / "parts") == 2);
  // The environment does not change a cell.
  REQUIRE(run({"ablate", "sweep.toml", "--out", "parts", "--shard", "2/2"}, folder.path(),
              {{"LONGHAND_SEED", "7"}})
              .code == 0);
  CHECK(lasting(folder / "parts") == lasting(folder / "shared"));
  CHECK(folder.ablate({"--out", "parts", "--shard", "3/2"}).code == 2);

  // The same without a common directory.
  REQUIRE(folder.ablate({"--out", "first", "--shard", "1/2"}).code == 0);
  REQUIRE(folder.ablate({"--out", "second", "--shard", "2/2"}).code == 0);
  const Outcome merged = folder.ablate({"--out", "merged", "--merge", "first,second"});
  INFO(merged.err);
  CHECK(merged.code == 0);
  CHECK_THAT(merged.err, Contains("first: 2 cells copied") && Contains("second: 2 cells copied"));
  CHECK(attempts(folder / "merged") == 4);  // theirs
  CHECK(lasting(folder / "merged") == lasting(folder / "shared"));
  CHECK_THAT(folder.ablate({"--out", "merged", "--merge", "second"}).err,
             Contains("second: 0 cells copied"));
  const Outcome none = folder.ablate({"--out", "merged", "--merge", "nowhere"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("nowhere holds no sweep: no sweep.toml"));
}

TEST_CASE("as many cells run at once as there are jobs") {
  const SweepFolder folder("seeds = 3\nset = [\"train.steps=1000000\"]\n");
  Program program({"ablate", "sweep.toml", "--out", "out", "--jobs", "2"}, folder.path());
  const auto training = [&] {
    const auto cells = cells_of(folder / "out");
    return std::count_if(cells.begin(), cells.end(),
                         [](const fs::path& cell) { return fs::exists(cell / "metrics.jsonl"); });
  };
  // Cells that do not end by themselves: the third one never starts.
  CHECK(eventually([&] { return program.over() || training() >= 2; }));
  CHECK(training() == 2);
  program.send(SIGTERM);
  CHECK(program.wait().code == 75);
  CHECK(cells_of(folder / "out").size() == 2);
}

TEST_CASE("lines about cells stay on a terminal, where what runs is drawn and erased") {
  const SweepFolder folder(
      "set = [\"train.steps=2\", \"train.eval_every=1\"]\n"
      "[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
  Program program({"ablate", "sweep.toml", "--out", "out"}, folder.path(), {{"TERM", "xterm"}},
                  true);
  const Outcome outcome = program.wait();
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, Contains("\x1b[J"));
  const std::string screen = screen_after(outcome.err);
  CHECK_THAT(screen, Contains("softmax seed=0: finished") && Contains("linear seed=0: finished"));
}

TEST_CASE("a merge takes over whole cells with equal results, and nothing else") {
  const SweepFolder folder(
      "set = [\"train.steps=2\", \"train.eval_every=1\"]\n"
      "[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
  for (const char* const out : {"a", "b"})
    REQUIRE(folder.ablate({"--out", out, "--quiet"}).code == 0);
  const std::string cell = cells_of(folder / "a")[0].filename().string();
  const fs::path in_a = folder / ("a/cells/" + cell), in_b = folder / ("b/cells/" + cell);
  const auto merge = [&](const std::string& from) {
    return folder.ablate({"--out", "merged", "--merge", from});
  };

  // The same cell with another loss, in its metrics or in its score, which its sweep did not notice.
  fs::remove(folder / "b/manifest");
  for (const std::string file : {"metrics.jsonl", "test.json"}) {
    const std::string before = read_text(in_b / file);
    std::string other = before;
    char& digit = other[other.find('.', other.find("\"loss\"")) + 5];
    digit = digit == '7' ? '8' : '7';
    write_text(in_b / file, other);
    const Outcome conflict = merge("a,b");
    CHECK(conflict.code == 3);
    CHECK_THAT(conflict.err, Contains("a/cells/" + cell) && Contains("b/cells/" + cell) &&
                                 Contains("different results: " + file) &&
                                 Contains("nothing was merged"));
    CHECK(cells_of(folder / "merged").empty());
    write_text(in_b / file, before);
  }

  // A link leads out of the directory.
  fs::create_directory_symlink("/etc", in_b / "data");
  const Outcome link = merge("a,b");
  CHECK(link.code == 3);
  CHECK_THAT(link.err, Contains("b/cells/" + cell + "/data: a symbolic link"));
  CHECK(cells_of(folder / "merged").empty());
  fs::remove(in_b / "data");

  // A damaged cell is not copied, but run here.
  const std::string summary = read_text(in_a / "summary.json");
  write_text(in_a / "summary.json", summary.substr(0, 100));
  const Outcome damaged = merge("a");
  CHECK(damaged.code == 1);
  CHECK_THAT(damaged.err, Contains("not copied: a/cells/" + cell + ": summary.json is damaged") &&
                              Contains("a: 1 cells copied"));
  CHECK(lasting(folder / "merged") == lasting(folder / "b"));
  write_text(in_a / "summary.json", summary);

  // The manifest covers what was copied.
  const train::Grid grid = expand(train::Sweep::load(folder / "sweep.toml"));
  CHECK(train::merge_cells(grid, {folder / "a", folder / "b"}, folder / "copy")[0].copied == 2);
  const train::Manifest manifest = train::read_manifest(folder / "copy");
  REQUIRE(manifest.cells.contains(cell));
  CHECK(train::damage_of(in_a, manifest.cells.at(cell)) == "");
}

TEST_CASE(
    "what killed sweeps and merges have left is not a run, and is removed by the next sweep") {
  const SweepFolder folder("set = [\"train.steps=2\", \"train.eval_every=1\"]\n");
  REQUIRE(folder.ablate({"--out", "out", "--quiet"}).code == 0);
  const fs::path cell = cells_of(folder / "out")[0];
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  REQUIRE(waitpid(dead, nullptr, 0) == dead);
  const std::string prefix = ".tmp-" + std::to_string(dead) + "-";
  const std::vector<fs::path> left = {folder / ("out/" + prefix + "0-results.json"),
                                      folder / ("out/cells/" + prefix + "copy"),
                                      cell / (prefix + "1-cell.json")};
  write_text(left[0], "");
  fs::copy(cell, left[1], fs::copy_options::recursive);
  write_text(left[2], "");
  CHECK(train::read_inputs({folder / "out"}).runs.size() == 1);
  CHECK_THAT(succeed({"checkpoint", "verify", "--all", "out"}, folder.path()).out,
             !Contains("copy"));

  // Another machine may be writing what this one does not know, as long as it shares the directory.
  const int shared = open((folder / "out/lock").c_str(), O_RDWR);
  REQUIRE(flock(shared, LOCK_SH) == 0);
  REQUIRE(folder.ablate({"--out", "out"}).code == 0);
  CHECK(fs::exists(left[0]));
  CHECK(fs::exists(left[1]));
  close(shared);
  REQUIRE(folder.ablate({"--out", "out"}).code == 0);
  for (const fs::path& path : left) CHECK_FALSE(fs::exists(path));
}

TEST_CASE("a sweep goes on after a cell that diverged before its first record") {
  const SweepFolder folder("[[axis]]\noptimizer.lr = [1e-2, 1e30]\ntrain.log_every = [1, 10]\n");
  REQUIRE(folder.ablate({"--out", "out"}).code == 4);
  const Outcome again = folder.ablate({"--out", "out"});
  INFO(again.err);
  CHECK(again.code == 4);
  CHECK_THAT(again.out, Contains("1 of 2 cells diverged"));
}

TEST_CASE("cells that crash, diverge or run out of memory are recorded, and the others go on") {
  const SweepFolder folder(R"(
[[axis]]
train.steps = [20, 20, 1000000]
optimizer.type = ["adamw", "sgd", "adamw"]
optimizer.lr = [1e-2, 1e30, 1e-3]
)");
  Program program({"ablate", "sweep.toml", "--out", "failing", "--jobs", "3"}, folder.path());
  // The endless cell crashes.
  fs::path endless;
  REQUIRE(eventually([&] {
    for (const fs::path& cell : cells_of(folder / "failing"))
      if (read_text(cell / "config.toml").find("steps = 1000000") != std::string::npos)
        endless = cell;
    return program.over() || (!endless.empty() && fs::exists(endless / "metrics.jsonl"));
  }));
  REQUIRE_FALSE(endless.empty());
  REQUIRE(pid_of(endless) > 0);
  kill(pid_of(endless), SIGABRT);
  const Outcome outcome = program.wait();
  INFO(outcome.err);
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.err,
             Contains("of 3 cells, 1 failed and 1 diverged; see longhand ablate --status failing"));
  const train::Results failed = results(folder / "failing");
  const train::Table& cells = failed.table("cells");
  CHECK(text(cells, 0, "status") == "finished");
  CHECK(text(cells, 1, "status") == "diverged");
  CHECK_THAT(text(cells, 1, "reason"), Contains("step ") && Contains("the loss is"));
  CHECK(text(cells, 2, "status") == "crashed");
  CHECK_THAT(text(cells, 2, "reason"), Contains("signal 6"));
  CHECK_THAT(run({"ablate", "--status", "failing"}, folder.path()).out,
             Contains("3 cells: 1 crashed, 1 diverged, 1 finished"));

  // Only divergence: exit code 4, at once.
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\n[[axis]]\ntrain.steps = [20, 20]\n"
             "optimizer.type = [\"adamw\", \"sgd\"]\noptimizer.lr = [1e-2, 1e30]\n");
  CHECK(folder.ablate({"--out", "failing"}).code == 4);
  CHECK(attempts(folder / "failing") == 2);

  // No more cells after the first failure.
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\nseeds = 3\nset = [\"optimizer.type=sgd\", "
             "\"optimizer.lr=1e30\"]\n");
  const Outcome first_only = folder.ablate({"--out", "first", "--max-failures", "1"});
  CHECK(first_only.code == 4);
  CHECK_THAT(first_only.err,
             Contains("of 3 cells, 1 diverged; see") && !Contains("failed and") &&
                 Contains("ended after too many cells failed or diverged, 2 of 3 cells left"));
  CHECK(attempts(folder / "first") == 1);

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // 64 GiB of weights under a limit of 8: refused before they are allocated.
  write_text(folder / "sweep.toml",
             "[sweep]\nbase = \"config.toml\"\n[[axis]]\nmodel.d_mlp = [1073741824, 16]\n");
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limit{rlim_t{8} << 30, before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  const Outcome large = folder.ablate({"--out", "large"});
  setrlimit(RLIMIT_AS, &before);
  INFO(large.err);
  CHECK(large.code == 1);
  const train::Results memory = results(folder / "large");
  CHECK(text(memory.table("cells"), 0, "status") == "failed");
  CHECK_THAT(text(memory.table("cells"), 0, "reason"), Contains("at most model.d_mlp = "));
  CHECK(text(memory.table("cells"), 1, "status") == "finished");
#endif
}

TEST_CASE("a search chooses on validation what is tested") {
  const SweepFolder folder(R"(seeds = 2
metric = "loss"
set = ["train.steps=40", "train.eval_every=20"]

[[axis]]
attention.type = ["softmax", "linear"]

[search]
optimizer.lr = [1e-6, 1e-2, 1e30]
)");
  const Outcome outcome =
      folder.ablate({"--out", "search", "--set", "optimizer.type=sgd", "--json"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);  // a rate that diverges is no failure
  const train::Results all = train::results_of_json(outcome.out, "stdout");
  CHECK(all.kind == "ablate");
  const train::Table& variants = all.table("variants");
  REQUIRE(variants.rows.size() == 2);
  for (const size_t row : {0, 1}) {
    CHECK(text(variants, row, "chosen") == "0.01");
    CHECK(text(variants, row, "seeds") == "2");
    for (const char* const column : {"loss", "low", "high", "parameters", "flops_per_step",
                                     "ms_per_step", "peak_memory_mib", "seconds"}) {
      INFO(column);
      CHECK(text(variants, row, column) != "-");
    }
  }
  CHECK(text(variants, 0, "p") == "-");  // the baseline itself
  CHECK(text(variants, 1, "p") != "-");
  CHECK_THAT(text(variants, 1, "unequal"), Contains("FLOPs"));
  const train::Table& search = all.table("search");
  REQUIRE(search.rows.size() == 6);
  CHECK(text(search, 1, "chosen") == "yes");
  CHECK(text(search, 2, "status") == "diverged");
  // The run of the first seed with the chosen rate is both: 3 trials and 1 more seed for each.
  CHECK(cells_of(folder / "search").size() == 8);

  CHECK_THAT(outcome.err, Contains("(1/8 cells") && Contains("(8/8 cells"));
  CHECK_THAT(run({"ablate", "--status", "search"}, folder.path()).out, Contains("8 cells: "));

  const Outcome dry = folder.ablate({"--out", "search", "--estimate"});
  INFO(dry.err);
  CHECK(dry.code == 0);
  CHECK_THAT(dry.out, Contains("ms a step") && Contains("8 cells, 8 to run: about ") &&
                          Contains("MiB available"));
}

TEST_CASE("the trials of a search end early, and give the same results in several processes") {
  const SweepFolder folder(R"(seeds = 2
set = ["train.steps=40", "train.eval_every=10", "train.checkpoint_every=5"]

[[axis]]
attention.type = ["softmax", "linear"]

[search]
optimizer.lr = [1e-5, 1e-3, 1e-2]
around = 1
extend = 1
halving = [0.5]
)");
  const Outcome whole = folder.ablate({"--out", "whole", "--jobs", "2"});
  INFO(whole.err);
  REQUIRE(whole.code == 0);
  const train::Results all = results(folder / "whole");
  const train::Table& search = all.table("search");
  CHECK(text(search, 0, "status") == "ended after 20 steps");  // the lowest rate is the worst
  CHECK(text(all.table("variants"), 0, "window") != "-");
  const Outcome status = run({"ablate", "--status", "whole"}, folder.path());
  CHECK_THAT(status.out, Contains(" halved"));
  CHECK_THAT(whole.err, !Contains("stopped"));
  // A second call finds nothing left to do.
  const int64_t before = attempts(folder / "whole");
  CHECK(folder.ablate({"--out", "whole"}).code == 0);
  CHECK(attempts(folder / "whole") == before);
  // Trials that ended early are taken over, too.
  CHECK(folder.ablate({"--out", "merged", "--merge", "whole"}).code == 0);
  CHECK(attempts(folder / "merged") == before);

  // As if the sweep, or the process of that trial, had been killed before it could say how it ended.
  for (const std::string end : {"running", "crashed"}) {
    CAPTURE(end);
    fs::remove(folder / "whole/manifest");
    for (const fs::path& cell : cells_of(folder / "whole")) {
      std::string record = read_text(cell / "cell.json");
      const size_t at = record.find("\"halved\"");
      if (at == std::string::npos) continue;
      write_text(cell / "cell.json", record.replace(at, 8, '"' + end + '"'));
      if (end == "crashed")
        for (const char* const name : {"checkpoints", "metrics.jsonl", "summary.json"})
          fs::remove_all(cell / name);
    }
    if (end == "running") {
      CHECK(run({"report", "whole", "-o", "r.html"}, folder.path()).code == 0);
      CHECK_THAT(read_text(folder / "r.html"), Contains("2 interrupted"));
    }
    CHECK(folder.ablate({"--out", "whole"}).code == 0);
    CHECK_THAT(run({"ablate", "--status", "whole"}, folder.path()).out, Contains("2 halved"));
  }
  CHECK(lasting(folder / "merged") == lasting(folder / "whole"));

  // What is refused changes nothing.
  const std::string sweep = read_text(folder / "whole/sweep.toml");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--columns", "nope"}, {"--merge", "nowhere"}}) {
    Words words = {"--out", "whole", "--set", "train.steps=20", "--change-sweep"};
    words.insert(words.end(), wrong.begin(), wrong.end());
    CHECK(folder.ablate(words).code == 2);
    CHECK(read_text(folder / "whole/sweep.toml") == sweep);
  }

  Program other({"ablate", "sweep.toml", "--out", "shared"}, folder.path());
  const Outcome one = folder.ablate({"--out", "shared"});
  const Outcome two = other.wait();
  INFO(one.err << two.err);
  CHECK(one.code == 0);
  CHECK(two.code == 0);
  CHECK(lasting(folder / "shared") == lasting(folder / "whole"));
}

TEST_CASE("data without a test split are scored on the validation split, which the results say") {
  const SweepFolder folder("seeds = 2\n[[axis]]\nmodel.d_mlp = [16, 32]\n");
  data::Hdf5Writer writer;
  for (const std::string split : {"train", "validation"}) {
    writer.put(split + "/tokens", Tensor::full({8, 4}, 1, DType::i32));
    writer.put(split + "/targets", Tensor::full({8}, 1, DType::i32));
  }
  data::write_file_durably(folder / "two.h5", writer.image());
  const Outcome outcome =
      folder.ablate({"--out", "out", "--set", "data.task=tokens", "--set", "data.path=two.h5"});
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const train::Results all = results(folder / "out");
  const train::Table& table = all.table("variants");
  CHECK_THAT(table.note, Contains("The data have no test split"));
  CHECK(table.columns[table.column("accuracy")].heading == "best validation accuracy");
  CHECK(text(table, 0, "accuracy") == text(table, 0, "validation"));
  CHECK(text(table, 0, "accuracy") == "1");
  CHECK_THAT(all.summary, Contains("validation accuracy"));
  // The larger variant has more parameters, which are marked.
  CHECK(table.marked.contains({1, table.column("parameters")}));
  CHECK_FALSE(table.marked.contains({0, table.column("parameters")}));
  CHECK_THAT(run({"ablate", "--table", "md", "out"}, folder.path()).out,
             Contains("\\* differs by more than 1 % from the baseline"));
  // Data at another place, as on another machine: a cell that is not done goes on with them.
  fs::rename(folder / "two.h5", folder / "moved.h5");
  fs::remove(folder / "out/manifest");
  const std::vector<fs::path> cells = cells_of(folder / "out");
  fs::remove_all(cells[0] / "checkpoints");
  for (const size_t i : {0, 1}) fs::remove(cells[i] / "test.json");
  const Outcome moved = folder.ablate({"--out", "out", "--change-sweep", "--set",
                                       "data.task=tokens", "--set", "data.path=moved.h5"});
  INFO(moved.err);
  CHECK(moved.code == 0);
  CHECK(run({"ablate", "out", "--verify"}, folder.path()).code == 0);
  fs::rename(folder / "moved.h5", folder / "two.h5");
  // A dry run of a shard counts its cells only.
  CHECK_THAT(folder
                 .ablate({"--dry-run", "--shard", "1/4", "--set", "data.task=tokens", "--set",
                          "data.path=two.h5"})
                 .out,
             Contains("1 cells, 1 to run"));
}

TEST_CASE("scores of parts of a mixture are verified") {
  const SweepFolder folder("[[axis]]\nattention.type = [\"softmax\"]\n");
  REQUIRE(
      folder
          .ablate({"--out", "out", "--set", "data.length=[24,32]", "--set", "train.eval_batches=1"})
          .code == 0);
  for (const fs::path& cell : cells_of(folder / "out")) fs::remove(cell / "log.txt");
  const Outcome outcome = run({"ablate", "out", "--verify"}, folder.path());
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  for (const fs::path& cell : cells_of(folder / "out")) CHECK_FALSE(fs::exists(cell / "log.txt"));
}

TEST_CASE("a trained cell without its checkpoint is trained again before it is evaluated") {
  const SweepFolder folder("[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
  REQUIRE(folder.ablate({"--out", "out"}).code == 0);
  const auto before = lasting(folder / "out");
  // An archive of results has neither of the first two; this cell was not evaluated yet.
  const fs::path cell = cells_of(folder / "out")[0];
  for (const char* const name : {"checkpoints", "cell.toml", "test.json"})
    fs::remove_all(cell / name);
  fs::remove(folder / "out/manifest");
  const Outcome outcome = folder.ablate({"--out", "out"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK(lasting(folder / "out") == before);
}

TEST_CASE("damaged cells are left out, named, and repaired with the same results") {
  const SweepFolder folder("[[axis]]\nattention.type = [\"softmax\", \"linear\"]\n");
  REQUIRE(folder.ablate({"--out", "out", "--set", "train.steps=20"}).code == 0);
  const auto before = lasting(folder / "out");
  const train::Grid grid = expand(train::Sweep::load(folder / "out/sweep.toml"));
  const auto cell = [&](size_t variant) {
    return cell_directory(folder / "out", grid.finals(variant)[0]);
  };
  const auto ablate = [&](Words words) {
    words.insert(words.begin(), {"ablate", "out"});
    return run(words, folder.path());
  };
  Outcome outcome = ablate({"--verify"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("2 cells evaluated from their checkpoints, 0 differences"));

  // Results that cannot be read.
  const std::string written = read_text(folder / "out/results.json");
  write_text(folder / "out/results.json", "{");
  outcome = ablate({"--verify"});
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.out, Contains("differs: out/results.json") && Contains(", 1 differences"));
  write_text(folder / "out/results.json", written);

  // What the manifest cannot know: the scores of a sweep without one, and its tables.
  const std::string test = read_text(cell(1) / "test.json"),
                    manifest = read_text(folder / "out/manifest");
  fs::remove(folder / "out/manifest");
  write_text(cell(1) / "test.json", "{\"loss\": 0.125, \"accuracy\": 1}");
  write_text(folder / "out/cells.csv", read_text(folder / "out/cells.csv") + "1\n");
  outcome = ablate({"--verify"});
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.err, Contains("warning: out/manifest: missing or empty"));
  CHECK_THAT(outcome.out, Contains("differs: linear seed=0 (" +
                                   cell(1).string().substr(folder.path().string().size() + 1)) &&
                              Contains("test accuracy of best.h5 is ") &&
                              Contains(", but 1 was recorded") &&
                              Contains("cells.csv: not the table of these cells"));
  write_text(cell(1) / "test.json", test);
  // A sweep of an earlier version: its cells are recorded by the next call.
  REQUIRE(ablate({}).code == 0);
  CHECK(read_text(folder / "out/manifest") == manifest);
  fs::copy_file(cell(0) / "checkpoints/best.h5", cell(1) / "checkpoints/best.h5",
                fs::copy_options::overwrite_existing);
  outcome = ablate({"--verify"});
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.out, Contains("best.h5 is not the checkpoint of this cell; repair the cell "
                                   "with longhand ablate out --repair"));
  // One that is damaged itself is trained again.
  write_text(cell(1) / "checkpoints/best.h5", "");
  REQUIRE(ablate({"--repair"}).code == 0);
  CHECK(lasting(folder / "out") == before);
  CHECK(fs::exists(cell(1) / "files.damaged/checkpoints/best.h5"));
  // The checkpoint of a cell whose metrics are damaged still gives its scores.
  const std::string metrics = read_text(cell(1) / "metrics.jsonl");
  write_text(cell(1) / "metrics.jsonl", metrics.substr(0, 100));
  outcome = ablate({"--verify", "--json"});
  CHECK(outcome.code == 1);
  const auto json = nlohmann::json::parse(outcome.out);
  CHECK(json["cells"] == 2);
  REQUIRE(json["differences"].size() >= 1);
  CHECK_THAT(json["differences"][0].get<std::string>(), Contains("metrics.jsonl is damaged"));
  CHECK(json["results"]["summary"].get<std::string>().find("not counted") == std::string::npos);
  write_text(cell(1) / "metrics.jsonl", metrics);
  CHECK(ablate({"--verify", "--repair"}).code == 2);

  // The other cell is missing a file, the first a test score only; an attempt without --repair
  // changes neither.
  fs::remove(cell(1) / "metrics.jsonl");
  write_text(cell(0) / "test.json", "{");
  const auto cells = contents_of(folder / "out/cells");
  for (const Words& words : std::vector<Words>{{}, {"--jobs", "2"}}) {
    outcome = ablate(words);
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.err, Contains("softmax seed=0: damaged: test.json is damaged") &&
                                Contains("linear seed=0: damaged: metrics.jsonl is missing") &&
                                Contains("2 of 2 cells are damaged") &&
                                Contains("repair them with: longhand ablate out --repair") &&
                                !Contains("[json."));
  }
  CHECK(contents_of(folder / "out/cells") == cells);
  CHECK_THAT(run({"ablate", "--status", "out"}, folder.path()).out, Contains("2 damaged"));
  outcome = ablate({"--repair"});
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(lasting(folder / "out") == before);
  CHECK(read_text(cell(0) / "files.damaged/test.json") == "{");
  CHECK_FALSE(fs::exists(cell(0) / "files.damaged/metrics.jsonl"));
  CHECK(fs::exists(cell(1) / "files.damaged-2/checkpoints/best.h5"));
  outcome = ablate({"--verify"});
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.err, !Contains("manifest"));

  // The sweep itself.
  std::string sweep = read_text(folder / "out/sweep.toml");
  sweep.back() ^= 1;
  write_text(folder / "out/sweep.toml", sweep);
  for (const Words& words : std::vector<Words>{{"ablate", "--status", "out"}, {"ablate", "out"}}) {
    const Outcome damaged = run(words, folder.path());
    CHECK(damaged.code == 3);
    CHECK_THAT(damaged.err, Contains("out/sweep.toml: damaged, or changed without"));
  }
}

TEST_CASE("the directory of another sweep is refused, and its cells do not count") {
  const SweepFolder folder(
      "title = \"one\"\nset = [\"train.steps=2\", \"train.eval_every=1\"]\n"
      "[[axis]]\nattention.type = [\"linear\"]\n");
  const auto ablate = [&](const Words& more) {
    Words words = {"--out", "out", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return folder.ablate(words);
  };
  REQUIRE(ablate({}).code == 0);
  // Options that are not of the data change the sweep, not its question.
  REQUIRE(ablate({"--set", "train.steps=3"}).code == 0);
  CHECK(cells_of(folder / "out").size() == 2);
  const auto difference = [&](const Words& more) {
    const Outcome refused = ablate(more);
    CHECK(refused.code == 2);
    const std::string begin = "longhand: --out out: holds another sweep than sweep.toml: ";
    CHECK_THAT(refused.err, Catch::StartsWith(begin) && Contains("; expected another directory, or "
                                                                 "--change-sweep, which keeps"));
    return refused.err.substr(begin.size(), refused.err.find(';') - begin.size());
  };
  CHECK(difference({"--set", "data.length=12"}) == "its data.length is 12 instead of 16");
  CHECK(difference({"--set", "data.task=parity"}) ==
        "its data.task is \"parity\" instead of \"copy\"");
  const std::string text = read_text(folder / "sweep.toml");
  write_text(folder / "sweep.toml", text.substr(0, text.find("[[axis")) + "metric = \"loss\"\n");
  CHECK(difference({}) == "its metric is \"loss\" instead of \"accuracy\"");
  std::string renamed = text;
  renamed.replace(renamed.find("\"one\""), 5, "\"two\"");
  write_text(folder / "sweep.toml", renamed);
  CHECK(difference({}) == "its title is \"two\" instead of \"one\"");
  CHECK(cells_of(folder / "out").size() == 2);

  REQUIRE(ablate({"--change-sweep", "--set", "data.length=12"}).code == 0);
  CHECK(cells_of(folder / "out").size() == 3);
  CHECK_THAT(run({"ablate", "--status", "out"}, folder.path()).out,
             Contains("1 cells: 1 finished"));
  const train::ReportInputs report = train::read_inputs({folder / "out"});
  REQUIRE(report.runs.size() == 1);
  CHECK(report.runs[0].option("data.length") == "12");
}

TEST_CASE("the example sweeps are valid") {
  int64_t count = 0;
  for (const auto& file : fs::directory_iterator(LONGHAND_SOURCE "/examples/sweeps")) {
    CAPTURE(file.path().string());
    CHECK(expand(train::Sweep::load(file.path())).variants.size() >= 3);
    ++count;
  }
  CHECK(count >= 3);
  const fs::path ablation = LONGHAND_SOURCE "/examples/ablation";
  CHECK(expand(train::Sweep::load(ablation / "fine_tune.toml")).variants.size() == 24);
  for (const char* const name : {"listops.toml", "long.toml"})
    CHECK_NOTHROW(train::check_config(train::Config::load(ablation / name)));
  const fs::path recall = LONGHAND_SOURCE "/examples/recall";
  CHECK(expand(train::Sweep::load(recall / "recall.toml")).variants.size() == 27);
  const std::map<std::string, size_t> atlas = {{"tracking", 70}, {"mad", 86}, {"recall", 36}};
  const auto parts = train::parts_of(LONGHAND_SOURCE "/examples/atlas/atlas.toml");
  CHECK(parts.size() == 7);
  for (const fs::path& part : parts) CHECK(expand(train::Sweep::load(part)).variants.size() >= 4);
  for (const auto& [name, variants] : atlas) {
    CAPTURE(name);
    const train::Sweep sweep =
        train::Sweep::load(LONGHAND_SOURCE "/examples/atlas/" + name + ".toml");
    CHECK(expand(sweep).variants.size() == variants);
    // The protocol is the same for all.
    CHECK(sweep.seeds.size() == 4);
    CHECK(sweep.search->around == 1);
    CHECK(sweep.search->extend == 1);
    CHECK(sweep.search->halving == std::vector<double>{0.4});
  }
}

TEST_CASE("errors of ablate") {
  const SweepFolder folder("[[axis]]\nattention.type = [\"linear\", \"liner\"]\n");
  const Outcome invalid = folder.ablate({"--out", "out"});
  CHECK(invalid.code == 2);
  CHECK_THAT(invalid.err, Contains("variant liner: sweep.toml:4:29: attention.type") &&
                              Contains("did you mean linear?"));
  CHECK_FALSE(fs::exists(folder / "out"));
  CHECK_THAT(folder.ablate({}).err, Contains("expected --out DIR"));
  CHECK_THAT(folder.ablate({"--cell-timeout", "0"}).err, Contains("--cell-timeout"));
  CHECK_THAT(run({"ablate", "."}, folder.path()).err, Contains("sweep.toml:"));
  CHECK(run({"ablate", "nonexistent.toml", "--out", "out"}, folder.path()).code == 2);
  CHECK_THAT(run({"ablate", "--status", "."}, folder.path()).err, Contains("sweep.toml:"));
  CHECK_THAT(run({"ablate", "--table", "md", "out"}, folder.path()).err,
             Contains("out holds no sweep"));
}

TEST_CASE("ablate --status --watch shows a sweep until all cells have ended") {
  const SweepFolder folder("seeds = 3\n");  // without an [[axis]], for each seed
  Program sweep({"ablate", "sweep.toml", "--out", "out", "--set", "train.steps=400"},
                folder.path());
  REQUIRE(eventually([&] { return sweep.over() || !cells_of(folder / "out").empty(); }));
  const Outcome watched =
      run({"ablate", "--status", "out", "--watch", "--columns", "seed,status"}, folder.path());
  CHECK(sweep.wait().code == 0);
  INFO(watched.err);
  CHECK(watched.code == 0);
  CHECK_THAT(watched.err, Contains("ablate 3/3 cells\n"));
  CHECK_THAT(watched.out, Contains("3 cells: 3 finished"));
  // Of one that has ended, once, also on a terminal.
  Program again({"ablate", "--status", "out", "--watch"}, folder.path(), {{"TERM", "xterm"}}, true);
  const Outcome shown = again.wait();
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, Contains("3 cells: 3 finished"));
  CHECK_THAT(shown.err, Contains("ablate 3/3 cells"));
  CHECK(run({"ablate", "--watch"}, folder.path()).code == 2);

  // A signal ends the view of one that goes on.
  succeed({"ablate", "sweep.toml", "--out", "half", "--shard", "1/2"}, folder.path());
  Program waiting({"ablate", "--status", "half", "--watch"}, folder.path());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK_FALSE(waiting.over());
  waiting.send(SIGINT);
  const Outcome ended = waiting.wait();
  CHECK(ended.code == 75);
  CHECK_THAT(ended.err, Contains("cells, none is running"));
}
