// Several ranks train together: the same bits as one process.
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <thread>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/grid.h"
#include "longhand/train/ranks/rank_division.h"
#include "longhand/train/ranks/start.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/thread_ranks.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using test::normal;
using test::run_ranks;

/// A small run with everything that could depend on the ranks: dropout, random features that are
/// redrawn and count, padding, clipping, an average of the weights.
std::string configuration(const std::string& train, const std::string& attention = "performer",
                          const std::string& optimizer = "") {
  return R"(
[data]
task = "listops"
max_length = 40
min_length = 5
max_depth = 3
train_size = 64
validation_size = 20
[model]
d_model = 16
heads = 2
layers = 2
dropout = 0.1
[attention]
type = ")" +
         attention + R"("
)" + (attention == "performer" ? "redraw_interval = 2\nfeatures = 16\n" : "") +
         R"([optimizer]
lr = 0.01
)" + optimizer +
         R"(
[train]
batch_size = 8
steps = 6
eval_every = 3
log_every = 2
eval_batch_size = 3
clip_norm = 0.5
ema_decay = 0.9
)" + train;
}

struct Outcome {
  std::vector<std::byte> checkpoint;  // of rank 0
  std::vector<Record> records;        // of rank 0
  std::vector<std::string> hashes;    // of the parameters, by rank
};

/// Trains on `ranks` threads; `begin` is called on every rank before the first step.
Outcome train_on(int ranks, const std::string& toml,
                 const std::function<void(Trainer&, Experiment&, int rank)>& begin = {}) {
  Outcome out;
  out.hashes.resize(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& world) {
    Experiment e(Config::parse(toml, "test"));
    data::Loader loader = e.loader();
    Observer observer;
    if (world.rank() == 0)
      observer.on_record = [&](const Record& record) { out.records.push_back(record); };
    Trainer trainer(e.model, logits_of(e.model), *e.optimizer, e.schedule, loader, e.task,
                    e.options, observer);
    const RankGrid grid(world, e.options.sequence_ranks, e.options.step.shards);
    trainer.join(grid);
    if (begin) begin(trainer, e, world.rank());
    trainer.run();
    const std::vector<std::byte> bytes = to_bytes(trainer.view());
    if (world.rank() == 0) out.checkpoint = bytes;
    out.hashes[static_cast<size_t>(world.rank())] = hash_of(e.optimizer->parameters());
  });
  return out;
}

void check_same(const Outcome& a, const Outcome& b) {
  CHECK((a.checkpoint == b.checkpoint));  // without printing them
  for (const std::string& hash : b.hashes) CHECK(hash == a.hashes[0]);
  REQUIRE(a.records.size() == b.records.size());
  for (size_t i = 0; i < a.records.size(); ++i) {
    CHECK(a.records[i].loss == b.records[i].loss);
    CHECK(
        (a.records[i].accuracy == b.records[i].accuracy ||
         (std::isnan(a.records[i].accuracy) && std::isnan(b.records[i].accuracy))));  // of numbers
    CHECK(a.records[i].gradient_norm == b.records[i].gradient_norm);
    CHECK(a.records[i].model == b.records[i].model);
  }
}

}  // namespace

TEST_CASE("any number of ranks trains with the bits of one process") {
  const auto [shards, train, attention, optimizer] =
      GENERATE(table<int, std::string, std::string, std::string>(
          {{4, "", "performer", ""},
           {4, "shard_optimizer = true", "performer", ""},
           {2, "micro_batches = 3", "softmax", ""},
           {4, "micro_batches = 2\nrecompute = true", "nystrom", ""},
           {8, "label_smoothing = 0.1\nshard_optimizer = true", "linear",
            "type = \"sgd\"\nmomentum = 0.9\n"}}));
  CAPTURE(train, attention);
  const std::string toml =
      configuration("shards = " + std::to_string(shards) + "\n" + train, attention, optimizer);
  const Outcome one = train_on(1, toml);
  for (int ranks = 2; ranks <= shards; ranks *= 2) {
    CAPTURE(ranks);
    check_same(one, train_on(ranks, toml));
  }
}

TEST_CASE("numbers and labels train on ranks as on one process") {
  const test::TemporaryDirectory folder;
  for (const std::string kind : {"numbers", "labels"}) {
    CAPTURE(kind);
    std::string rows;
    for (int i = 0; i < 40; ++i)
      rows += "{\"tokens\": [" + std::to_string(i % 5) + ", 1, " + std::to_string(i % 3) +
              "], \"targets\": [" + std::to_string(i % 2) + ", " +
              (kind == "numbers" ? std::to_string(i % 5 - 1.5) : std::to_string(i % 3 / 2)) +
              "]}\n";
    const std::string path = (folder / (kind + ".jsonl")).string();
    test::write_text(path, rows);
    std::string toml = configuration("shards = 4\n");
    const size_t begin = toml.find("[data]"), end = toml.find("[model]");
    toml.replace(
        begin, end - begin,
        "[data]\ntask = \"tokens\"\ntargets = \"" + kind + "\"\npath = \"" + path + "\"\n");
    const Outcome one = train_on(1, toml);
    CHECK(std::isnan(one.records.back().accuracy) == (kind == "numbers"));
    check_same(one, train_on(4, toml));
    const Outcome cut = train_on(2, toml + "sequence_ranks = 2\n");
    CHECK(cut.records.back().loss == Approx(one.records.back().loss).epsilon(1e-5));
  }
}

TEST_CASE("sequences cut over ranks train as whole ones do") {
  // With one target for a sequence, and with one for a token.
  const auto [attention, task, rows] = GENERATE(table<std::string, std::string, int>(
      {{"performer", "", 1}, {"softmax", "", 2}, {"linear", "copy", 2}, {"nystrom", "copy", 1}}));
  CAPTURE(attention, task, rows);
  std::string toml = configuration("shards = 2\n", attention);
  if (!task.empty()) {
    const size_t begin = toml.find("[data]"), end = toml.find("[model]");
    toml.replace(begin, end - begin,
                 "[data]\ntask = \"copy\"\nlength = 37\ncount = 10\ntrain_size = 64\n"
                 "validation_size = 20\n");
  }
  const Outcome one = train_on(1, toml);
  const Outcome cut = train_on(2 * rows, toml + "sequence_ranks = 2\n");
  for (const std::string& hash : cut.hashes) CHECK(hash == cut.hashes[0]);
  REQUIRE(cut.records.size() == one.records.size());
  for (size_t i = 0; i < one.records.size(); ++i) {
    CHECK(cut.records[i].loss == Approx(one.records[i].loss).epsilon(1e-5));
    CHECK(cut.records[i].accuracy == Approx(one.records[i].accuracy).margin(0.02));
    if (one.records[i].gradient_norm)
      CHECK(*cut.records[i].gradient_norm == Approx(*one.records[i].gradient_norm).epsilon(1e-4));
  }
}

TEST_CASE("an evaluation counts every target, example and token once") {
  for (const bool per_token : {false, true}) {
    const data::Task task = [&] {
      Options options("data");
      options.set("task", std::string(per_token ? "copy" : "parity"));
      options.set("length", int64_t{21});
      if (per_token) options.set("count", int64_t{4});
      return data::make_task(options, 1);
    }();
    const auto metrics = [&](const Reducer& reducer) {
      attention::Transformer model(nn::root(), {.vocabulary = task.info.vocabulary,
                                                .classes = task.info.classes,
                                                .per_token = task.info.per_token,
                                                .max_length = task.info.max_length,
                                                .d_model = 8,
                                                .causal = task.info.causal});
      return *evaluate(logits_of(model), *task.validation,
                       {.batch_size = 7, .limit = 40, .reducer = &reducer});
    };
    const Metrics one = metrics(one_process());
    run_ranks(4, [&](Communicator& world) {
      const RankGrid grid(world, 2, 2);
      const Metrics found = metrics(grid);
      check(found.targets == one.targets && found.examples == 40 && found.tokens == one.tokens &&
                found.correct == one.correct &&
                std::abs(found.loss_sum - one.loss_sum) <= 1e-5 * one.loss_sum,
            "expected ", one.targets, " targets, ", one.tokens, " tokens, a loss of ", one.loss_sum,
            ", got ", found.targets, ", ", found.tokens, ", ", found.loss_sum);
    });
  }
}

TEST_CASE("shards of one process are micro-batches") {
  const auto parameters = [](const std::string& train) {
    return train_on(1, configuration(train)).hashes;
  };
  CHECK(parameters("shards = 4\n") == parameters("micro_batches = 4\n"));
  CHECK(parameters("shards = 4\n") != parameters("shards = 2\n"));
}

TEST_CASE("numbers of ranks that do not divide the shards are refused by name") {
  CHECK_THROWS_WITH(
      train_on(3, configuration("shards = 4\n")),
      "train.shards = 4: 3 ranks cannot divide that many parts of a batch; start "
      "1, 2 or 4 ranks, or begin a new run with another power of two as train.shards");
  CHECK_THROWS_WITH(train_on(2, configuration("")), Catch::Contains("start 1 rank,"));
  for (const auto& [option, message] :
       {std::pair("shards = 3\n", "expected a power of two"),
        std::pair("shards = 16\n", "expected at most batch_size = 8"),
        std::pair("shards = 4\nmicro_batches = 3\n", "expected at most batch_size / shards = 2")})
    CHECK_THROWS_WITH(Experiment(Config::parse(configuration(option), "test")),
                      Catch::Contains(message));
}

TEST_CASE("ranks whose parameters differ stop, and name the rank") {
  const auto damage = [](Trainer&, Experiment& e, int rank) {
    if (rank != 2) return;
    Tensor value = e.optimizer->parameters()[3].second.value();
    dispatch_float(value.dtype(), [&]<class T>() { value.data<T>()[0] += T(1e-3); });
  };
  CHECK_THROWS_WITH(train_on(4, configuration("shards = 4\ncompare_every = 2\n"), damage),
                    Catch::StartsWith("step 2: the parameters of rank 2 on "));
  CHECK_NOTHROW(train_on(4, configuration("shards = 4\ncompare_every = 0\n"), damage));
}

TEST_CASE("one rank's request stops and saves all of them at the same step") {
  std::mutex mutex;
  std::vector<int64_t> steps;
  run_ranks(4, [&](Communicator& world) {
    Experiment e(Config::parse(configuration("shards = 4\n"), "test"));
    data::Loader loader = e.loader();
    int64_t asked = 0;
    Observer observer;
    // The second rank asks in the middle of the first evaluation.
    observer.should_stop = [&] { return ++asked > 8 && world.rank() == 1; };
    Trainer trainer(e.model, logits_of(e.model), *e.optimizer, e.schedule, loader, e.task,
                    e.options, observer);
    const RankGrid grid(world, 1, 4);
    trainer.join(grid);
    if (trainer.run() != Stopped::signal) throw Error("expected a stop");
    const std::lock_guard lock(mutex);
    steps.push_back(trainer.state().step);
  });
  REQUIRE(steps.size() == 4);
  for (const int64_t step : steps) CHECK((step == steps[0] && step < 6));
}

TEST_CASE("a join adds the gradients of all ranks by the tree of one process") {
  Parameters parameters;
  std::vector<Shape> shapes = {{3, 5}, {}, {700, 500}, {7}, {2, 2}};
  for (size_t i = 0; i < shapes.size(); ++i)
    parameters.emplace_back("p" + std::to_string(i),
                            Variable(normal(shapes[i], DType::f32, 50 + i), true));
  shapes.push_back({4, 3});
  parameters.emplace_back("transposed",
                          Variable(normal({3, 4}, DType::f32, 60).transpose(0, 1), true));
  // Parameter 1 has a gradient on rank 2 alone, parameter 3 on none.
  const auto gradient = [&](size_t i, int rank) {
    const bool has = i == 1 ? rank == 2 : i != 3;
    const uint64_t seed = 10 * i + static_cast<size_t>(rank);
    // Gradients have the strides of their parameters.
    if (i == 5) return normal({3, 4}, DType::f32, seed).transpose(0, 1);
    return has ? normal(shapes[i], DType::f32, seed) : Tensor();
  };
  TreeSum sum;
  for (int rank = 0; rank < 4; ++rank) {
    Gradients all;
    for (size_t i = 0; i < shapes.size(); ++i) all.push_back(gradient(i, rank));
    sum.add({std::move(all)});
  }
  const Gradients expected = sum.finish().gradients;
  run_ranks(4, [&](Communicator& world) {
    const RankGrid grid(world, 1, 4);
    const auto join = gradient_join(parameters, grid);
    // Each rank completes them in an order of its own.
    for (size_t n = 0; n < shapes.size(); ++n) {
      const size_t i = (n + static_cast<size_t>(world.rank())) % shapes.size();
      join->add(i, gradient(i, world.rank()));
    }
    const Gradients found = join->finish();
    for (size_t i = 0; i < shapes.size(); ++i)
      check(found[i].defined() == expected[i].defined() &&
                (!found[i] || identical(found[i], expected[i])),
            "gradient ", i, " differs");
    check(found.back().strides() == parameters.back().second.value().strides(),
          "a gradient has the strides of its parameter");
  });
}

TEST_CASE("a run led by one rank has the files of a single process, and may be resumed by others") {
  const test::TemporaryDirectory runs;
  const auto run = [&](int ranks, const std::filesystem::path& path, int64_t steps) {
    const std::string toml =
        configuration("shards = 4\nshard_optimizer = true\ncheckpoint_every = 2\n");
    run_ranks(ranks, [&](Communicator& world) {
      if (world.rank() > 0) {
        follow(world);
        return;
      }
      Lead lead(world);
      const auto led = std::filesystem::exists(path)
                           ? Run::resume(path, {"train.steps=" + std::to_string(steps)})
                           : Run::create(Config::parse(toml, "test"), path);
      int64_t done = led->step();
      led->train({.on_progress = [&](const Progress& p) { done = p.step; },
                  .should_stop = [&] { return done >= steps; }},
                 &lead);
    });
    return test::read_text(path / "checkpoints" / "last.h5");
  };
  const auto one = run(1, runs / "one", 6);
  run(4, runs / "several", 2);
  run(1, runs / "several", 3);
  run(2, runs / "several", 5);
  CHECK((run(4, runs / "several", 6) == one));
  const Summary summary = read_summary(runs / "several" / "summary.json");
  REQUIRE(summary.processes.size() == 4);
  for (const size_t i : {0, 1, 2, 3})
    CHECK(summary.processes[i].ranks == std::array{4, 1, 2, 4}[i]);
  const auto names = [&](const std::string& name) {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(runs / name))
      out.insert(entry.path().lexically_relative(runs / name).string());
    return out;
  };
  CHECK(names("one") == names("several"));
}

TEST_CASE("ranks end without a start, or if one of them cannot begin") {
  // The leader fails before it has told the others what to do.
  CHECK_THROWS_WITH(run_ranks(3,
                              [](Communicator& world) {
                                if (world.rank() > 0) {
                                  check(!follow(world), "expected no start");
                                  return;
                                }
                                const Lead lead(world);
                                throw ConfigError("no such file");
                              }),
                    "no such file");
  // A follower cannot read what the leader has read.
  const Start start{.config = "[data]\ntask = \"nonsense\"\n", .folder = {}, .checkpoint = {}};
  CHECK_THROWS_WITH(run_ranks(2,
                              [&](Communicator& world) {
                                if (world.rank() > 0)
                                  follow(world);
                                else
                                  Lead(world).start(start, {}, {});
                              }),
                    Catch::StartsWith("rank 1 on ") && Catch::Contains("nonsense"));
}

TEST_CASE("an optimizer that is divided has the bits of a whole one, whatever the sizes") {
  // 9 elements: one more than four ranks can divide evenly.
  const auto parameters = [] {
    return Parameters{{"a", Variable(normal({2, 3}, DType::f32, 1), true)},
                      {"b", Variable(normal({3}, DType::f32, 2), true)}};
  };
  const auto gradients = [](uint64_t step) {
    return Gradients{normal({2, 3}, DType::f32, 10 + step), normal({3}, DType::f32, 20 + step)};
  };
  const auto whole = make_adam(parameters());
  for (const uint64_t step : {0, 1, 2}) whole->step(0.1, gradients(step));
  run_ranks(4, [&](Communicator& world) {
    const auto shared = make_adam(parameters());
    shared->divide(rank_division(world, shared->parameters()));
    for (const uint64_t step : {0, 1, 2}) shared->step(0.1, gradients(step));
    for (size_t i = 0; i < 2; ++i)
      check(
          identical(shared->parameters()[i].second.value(), whole->parameters()[i].second.value()),
          "parameter ", i, " differs on rank ", world.rank());
  });
}

}  // namespace longhand::train
