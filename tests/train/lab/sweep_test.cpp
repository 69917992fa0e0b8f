#include <sys/fsuid.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "longhand/core/error.h"
#include "longhand/data/dataset.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/sweep.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;

namespace {

const std::string base = R"(
[model]
d_model = 16
heads = 2

[data]
task = "copy"
length = 16
count = 4

[optimizer]
lr = 1e-2
)";

Grid grid_of(const std::string& text) { return expand(Sweep::parse(text + base, "s.toml")); }

std::vector<std::string> labels(const Grid& grid) {
  std::vector<std::string> out;
  for (const SweepVariant& variant : grid.variants) out.push_back(variant.label);
  return out;
}

std::set<std::string> hashes(const Grid& grid) {
  std::set<std::string> out;
  for (const SweepCell& cell : grid.cells) out.insert(cell.hash);
  return out;
}

std::string error_of_grid(const std::string& text) {
  return message_of<ConfigError>([&] { grid_of(text); });
}

/// During its lifetime, this thread reads what everyone may, also if it is the superuser's.
struct AsNobody {
  AsNobody() { setfsuid(65534); }
  ~AsNobody() { setfsuid(geteuid()); }
};

/// A sweep of one cell that reads text.
Sweep over_text(const std::filesystem::path& path) {
  return Sweep::parse(
      "[sweep]\nmetric = \"loss\"\n[model]\nd_model = 8\nheads = 2\nlayers = 1\ncausal = true\n"
      "[attention]\ntype = \"softmax\"\n[data]\ntask = \"text_lm\"\nlength = 8\npath = \"" +
          path.string() + "\"\n[train]\nsteps = 10\nbatch_size = 2\n",
      "s.toml");
}

using Labels = std::vector<std::string>;

const std::string three_axes = R"(
[sweep]
seeds = 2
baseline = { attention.type = "softmax" }

[[axis]]
attention.type = ["softmax", "linformer"]

[[axis]]
when = { attention.type = "linformer" }
attention.k = { from = 4, to = 16, factor = 2 }

[[axis]]
model.d_model = [16, 32]
model.heads = [2, 4]
)";

}  // namespace

TEST_CASE("axes multiply, where their condition holds") {
  const Grid grid = grid_of(three_axes);
  CHECK(labels(grid) ==
        Labels{"softmax d_model=16 heads=2", "softmax d_model=32 heads=4",
               "linformer k=4 d_model=16 heads=2", "linformer k=4 d_model=32 heads=4",
               "linformer k=8 d_model=16 heads=2", "linformer k=8 d_model=32 heads=4",
               "linformer k=16 d_model=16 heads=2", "linformer k=16 d_model=32 heads=4"});
  CHECK(hashes(grid).size() == 16);  // with two seeds
  // The baseline has the same size.
  CHECK_FALSE(grid.variants[0].baseline);
  CHECK_FALSE(grid.variants[1].baseline);
  for (size_t i = 2; i < 8; ++i) CHECK(grid.variants[i].baseline == i % 2);
  CHECK(grid.cells.size() == 16);
  for (size_t i = 0; i < 8; ++i) {
    REQUIRE(grid.finals(i).size() == 2);
    CHECK(grid.finals(i)[1].variant == i);
    CHECK(grid.finals(i)[1].seed == 1);
    CHECK_THAT(grid.finals(i)[1].config, Contains("seed = 1\n"));
    CHECK(grid.searches(i).empty());
  }
  CHECK_THAT(grid.finals(7)[0].config,
             Contains("k = 16") && Contains("d_model = 32") && Contains("heads = 4"));
}

TEST_CASE("shards divide the cells, or the variants of a search") {
  const Grid grid = grid_of(three_axes);
  std::vector<std::vector<int>> owners(grid.variants.size(), std::vector<int>(2));
  int64_t first = 0;
  for (int64_t shard = 0; shard < 3; ++shard) {
    const auto ours = cells_of_shard(grid, {shard, 3});
    for (size_t v = 0; v < ours.size(); ++v)
      for (size_t seed = 0; seed < 2; ++seed) owners[v][seed] += ours[v][seed];
    if (shard == 0)
      for (const auto& seeds : ours) first += std::count(seeds.begin(), seeds.end(), true);
  }
  for (const auto& seeds : owners) CHECK(seeds == std::vector<int>{1, 1});
  CHECK(first == 6);  // of 16
  const Grid searched = grid_of(three_axes + "[search]\noptimizer.lr = [1e-3, 1e-2]\n");
  const auto ours = cells_of_shard(searched, {1, 2});
  for (size_t v = 0; v < ours.size(); ++v) CHECK(ours[v] == std::vector<bool>(2, v % 2 == 1));
}

TEST_CASE("ranges, draws and lists of values") {
  CHECK(labels(grid_of("[[axis]]\nmodel.d_mlp = { from = 8, to = 32, step = 8 }\n")) ==
        Labels{"d_mlp=8", "d_mlp=16", "d_mlp=24", "d_mlp=32"});
  CHECK(labels(grid_of("[[axis]]\noptimizer.lr = { from = 0.1, to = 0.001, factor = 0.1 }\n"))
            .size() == 3);
  CHECK(labels(grid_of("[[axis]]\nmodel.dropout = { from = 0.0, to = 0.5, count = 3 }\n")) ==
        Labels{"dropout=0.0", "dropout=0.25", "dropout=0.5"});
  CHECK(labels(grid_of("[[axis]]\nattention.type = [\"linear\", [\"window\", \"linear\"]]\n")) ==
        Labels{"linear", "window+linear"});
  CHECK(labels(grid_of("")) == Labels{"base"});

  const std::string draws = "optimizer.lr = { log_uniform = [1e-4, 1e-1], count = 40 }\n";
  const Grid drawn = grid_of("[[axis]]\n" + draws);
  CHECK(labels(drawn) == labels(grid_of("[[axis]]\n" + draws)));  // the same every time
  CHECK(drawn.variants.size() == 40);
  int64_t low = 0;
  for (const SweepVariant& variant : drawn.variants) {
    const double lr = std::get<double>(variant.values.front().value);
    CHECK((lr >= 1e-4 && lr <= 1e-1));
    low += lr < std::pow(10, -2.5);
  }
  CHECK((low >= 10 && low <= 30));  // about half, on the logarithmic scale

  // Keys of one axis are drawn together, and equal points are one variant.
  const Grid together = grid_of(
      "[[axis]]\ncount = 50\nseed = 3\nmodel.d_mlp = { choice = [8, 16] }\n"
      "model.heads = { choice = [1, 2] }\n");
  CHECK(together.variants.size() == 4);
  CHECK(grid_of("[search]\noptimizer.lr = { choice = [1e-3, 1e-2], count = 9, seed = 1 }\n")
            .trials.size() == 2);
  CHECK(grid_of("[search]\noptimizer.weight_decay = [1, 1.0, 0]\n").trials.size() == 2);
  // Two integers that are the same as doubles.
  CHECK(grid_of("[search]\ndata.seed = [9007199254740992, 9007199254740993]\n").trials.size() == 2);
}

TEST_CASE("the hash of a cell is that of its effective configuration") {
  const std::set<std::string> before = hashes(grid_of(three_axes));
  // Another value adds cells and keeps the others.
  std::string more = three_axes;
  more.replace(more.find("to = 16"), 7, "to = 32");
  const std::set<std::string> after = hashes(grid_of(more));
  CHECK(after.size() == 20);
  CHECK(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  // Defaults that are written out change nothing; two ways to the same configuration are one cell.
  CHECK(hashes(grid_of("[[axis]]\nmodel.layers = [2]\n")) == hashes(grid_of("")));
  CHECK(
      hashes(grid_of("[[axis]]\nmodel.d_mlp = [32, 64]\nmodel.causal = [false, false]\n")).size() ==
      2);
  CHECK(hashes(grid_of("[[axis]]\nmodel.layers = [2]\n[[axis]]\nmodel.causal = [false]\n")) ==
        hashes(grid_of("")));
}

TEST_CASE("the names of cells do not depend on where the data are") {
  const test::TemporaryDirectory folder;
  const std::string text(2000, 'a');
  for (const char* const name : {"a.txt", "elsewhere.txt"}) test::write_text(folder / name, text);
  const auto of = [](const std::filesystem::path& path) { return hashes(expand(over_text(path))); };
  const auto here = of(folder / "a.txt");
  CHECK(of(folder / "elsewhere.txt") == here);
  // Other data, of another size or with other first bytes.
  test::write_text(folder / "elsewhere.txt", text + "a");
  CHECK(of(folder / "elsewhere.txt") != here);
  test::write_text(folder / "elsewhere.txt", "b" + text.substr(1));
  CHECK(of(folder / "elsewhere.txt") != here);
  // A folder has the names of its files, too.
  for (const char* const name : {"one/a.txt", "two/a.txt", "three/b.txt"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    test::write_text(folder / name, text);
  }
  CHECK(of(folder / "one") == of(folder / "two"));
  CHECK(of(folder / "one") != of(folder / "three"));
}

TEST_CASE(
    "cells whose data cannot be read have the names of their paths, and errors that say why") {
  const test::TemporaryDirectory folder;
  const std::filesystem::path loop = folder / "loop", other = folder / "other";
  std::filesystem::create_symlink(loop, loop);
  std::filesystem::create_directory(other);
  std::filesystem::create_symlink(other / "loop", other / "loop");
  const std::filesystem::path locked = folder / "locked", closed = folder / "closed";
  for (const auto& file : {locked, closed}) {
    test::write_text(file, std::string(2000, 'a'));
    std::filesystem::permissions(file, std::filesystem::perms::none);
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const AsNobody nobody;
  std::set<std::string> names;
  for (const auto& path : {loop, other, locked, closed}) {
    INFO(path);
    const Sweep sweep = over_text(path);
    CHECK(hashes(expand(sweep)) == hashes(expand(over_text(path))));
    names.merge(hashes(expand(sweep)));
    const bool is_link = path == loop || path == other;
    CHECK_THAT(
        message_of<DataError>([&] { data::make_task(sweep.config().data(), 1); }),
        Contains((path == other ? other / "loop" : path).string() + ": cannot ") &&
            Contains(is_link ? "symbolic links; the links form a loop, expected a "
                               "file or folder: remove one of them"
                             : "Permission denied; check the owner and the mode of the file"));
  }
  CHECK(names.size() == 4);
}

TEST_CASE("the cells of a sweep of an earlier version are found") {
  const std::filesystem::path atlas = LONGHAND_SOURCE "/examples/atlas";
  std::set<std::string> names;
  for (const SweepCell& cell : expand(Sweep::load(atlas / "tracking.toml")).cells)
    names.insert(cell.hash);
  // An option that is new changes the name of every cell, which would be trained again: see
  // later_options in grid.cpp.
  std::istringstream table(test::read_text(atlas / "results/tracking/cells.csv"));
  std::string line;
  std::getline(table, line);
  int64_t cells = 0;
  for (; std::getline(table, line); ++cells) CHECK(names.contains(line.substr(0, 16)));
  CHECK(cells == 648);
}

TEST_CASE("a resolved sweep has the cells of the original") {
  const test::TemporaryDirectory folder;
  test::write_text(folder / "base.toml", base + "[attention]\ntype = \"linformer\"\nk = 8\n");
  test::write_text(folder / "sweep.toml", R"(
[sweep]
base = "base.toml"
seeds = [3, 5]
metric = "loss"
set = ["attention.type=softmax"]

[[axis]]
attention.type = ["softmax", "linformer", "linear"]

[[axis]]
when = { attention.type = ["linformer", "linear"] }
optimizer.weight_decay = { uniform = [0.0, 0.1], count = 2, seed = 4 }

[search]
optimizer.lr = { log_uniform = [1e-4, 1e-1], count = 3 }
seeds = 2
steps = 50
)");
  const Sweep sweep = Sweep::load(folder / "sweep.toml", {"model.d_mlp=24"});
  const Grid grid = expand(sweep);
  CHECK(grid.variants.size() == 5);
  CHECK(grid.trials.size() == 3);
  CHECK(grid.search_key == "optimizer.lr");
  CHECK(grid.searches(0).size() == 6);
  CHECK(grid.searches(0, 0).size() == 2);
  CHECK_THAT(grid.searches(0, 0)[1].config, Contains("steps = 50\n"));
  CHECK_THAT(grid.finals(1, 2)[1].config, Contains("k = 8\n") && Contains("d_mlp = 24\n"));

  const Sweep resolved = Sweep::parse(sweep.to_toml(), "resolved.toml");
  CHECK(resolved.to_toml() == sweep.to_toml());
  CHECK(hashes(expand(resolved)) == hashes(grid));
  CHECK(resolved.title == "sweep");
  CHECK(resolved.seeds == std::vector<int64_t>{3, 5});
  // Without seeds, that of the base.
  CHECK(Sweep::parse(base, "s.toml").seeds == std::vector<int64_t>{0});
  CHECK(Sweep::parse(base + "[train]\nseed = 7\n", "s.toml").seeds == std::vector<int64_t>{7});
  CHECK(expand(resolved).variants[3].baseline == size_t{0});
}

TEST_CASE("invalid sweeps are refused before anything runs") {
  CHECK_THAT(error_of_grid("[[axis]]\nattention.typ = [\"linear\"]\n"),
             Contains("variant typ=linear: s.toml:2:") && Contains("did you mean type?"));
  CHECK_THAT(error_of_grid("[[axis]]\nattention.type = [\"linear\", \"linformer\"]\n"
                           "[[axis]]\nattention.k = [0]\n"),
             Contains("variant linear k=0: s.toml:4:") && Contains("attention.k"));
  CHECK_THAT(
      error_of_grid("[[axis]]\nattention.type = [\"linformer\"]\n[[axis]]\nattention.k = [4, 0]\n"),
      Contains("variant linformer k=0: s.toml:4:19: attention.k = 0: expected"));
  CHECK_THAT(error_of_grid("[[axes]]\nmodel.layers = [1]\n"),
             Contains("s.toml:1:3: unknown key axes; did you mean axis?"));
  CHECK_THAT(error_of_grid("[[axis]]\nmodell.layers = [1]\n"),
             Contains("s.toml:2:1: unknown key modell; did you mean model?"));
  CHECK_THAT(error_of_grid("[sweep]\nseed = 3\n"), Contains("did you mean seeds?"));
  CHECK_THAT(error_of_grid("[sweep]\nseeds = [1, 1]\n"), Contains("1 is given twice"));
  CHECK_THAT(error_of_grid("[sweep]\nmetric = \"acc\"\n"),
             Contains("expected \"accuracy\" or \"loss\""));
  CHECK_THAT(error_of_grid("[[axis]]\nmodel.layers = [1, 2]\nmodel.d_mlp = [8]\n"),
             Contains("model.layers has 2 values, but model.d_mlp"));
  CHECK_THAT(error_of_grid("[[axis]]\nmodel.layers = [1]\n[[axis]]\nmodel.layers = [2]\n"),
             Contains("s.toml:4:") && Contains("an axis above"));
  CHECK_THAT(error_of_grid("[[axis]]\ntrain.seed = [1]\n"), Contains("expected seeds in [sweep]"));
  CHECK_THAT(
      error_of_grid("[[axis]]\nwhen = { attention.type = \"linear\" }\nmodel.layers = [1]\n"),
      Contains("attention.type has no value"));
  // Conditions that hold for no cell: of an axis or a search that is decided later, and of no value.
  const std::string types = "[[axis]]\nattention.type = [\"softmax\", \"linformer\"]\n";
  const auto axis_of_k = [](const std::string& type) {
    return "[[axis]]\nwhen = { attention.type = \"" + type + "\" }\nattention.k = [4, 8]\n";
  };
  CHECK_THAT(error_of_grid(axis_of_k("linformer") + types + "[attention]\ntype = \"softmax\"\n"),
             Contains("s.toml:1:1: when: attention.type is an option of the axis at s.toml:4:1") &&
                 Contains("move this [[axis]] below that one"));
  CHECK_THAT(error_of_grid(types + axis_of_k("linear")),
             Contains("s.toml:3:1: when holds for no cell: attention.type = \"linear\", but the "
                      "values above are \"linformer\", \"softmax\""));
  CHECK_THAT(error_of_grid("[[axis]]\nwhen = { optimizer.lr = 1e-2 }\nmodel.layers = [1, 2]\n"
                           "[search]\noptimizer.lr = [1e-3, 1e-2]\n"),
             Contains("s.toml:1:1: when: optimizer.lr is the option of [search]"));
  CHECK(grid_of(types + axis_of_k("linformer")).variants.size() == 3);
  CHECK_THAT(error_of_grid("[[axis]]\nmodel.layers = { from = 1, to = 4 }\n"),
             Contains("exactly one of factor, step and count"));
  CHECK_THAT(error_of_grid("[[axis]]\nmodel.layers = { from = 4, to = 1, step = 1 }\n"),
             Contains("got 0"));
  CHECK_THAT(error_of_grid("[[axis]]\noptimizer.lr = { log_uniform = [0, 1], count = 2 }\n"),
             Contains("above 0"));
  CHECK_THAT(error_of_grid("[[axis]]\noptimizer.lr = { uniform = [0, 1] }\n"),
             Contains("\"count\""));
  CHECK_THAT(
      error_of_grid("[sweep]\nbaseline = { model.layers = 9 }\n[[axis]]\nmodel.layers = [1]\n"),
      Contains("no variant has the baseline's model.layers = 9"));
  CHECK_THAT(error_of_grid("[sweep]\nbaseline = { model.layers = [1, 2] }\n"
                           "[[axis]]\nmodel.layers = [1, 2, 3]\n"),
             Contains("several baselines"));
  CHECK_THAT(error_of_grid("[search]\noptimizer.lr = [1e-3]\nseeds = 2\n"),
             Contains("expected at most the 1 seeds"));
  CHECK_THAT(error_of_grid("[[axis]]\noptimizer.lr = [1e-3]\n[search]\noptimizer.lr = [1e-3]\n"),
             Contains("s.toml:3:") && Contains("is an axis, too"));
  CHECK_THAT(error_of_grid("[sweep]\nbase = \"other.toml\"\n"),
             Contains("expected either a base or sections"));
  CHECK_THAT(message_of<ConfigError>([] { Sweep::load("/nonexistent.toml"); }),
             Contains("cannot read"));
}
