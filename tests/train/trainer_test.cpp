#include "longhand/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>

#include <unistd.h>

#include "longhand/core/parallel.h"
#include "longhand/train/step/optimizers.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using namespace test;

/// Everything that a run needs, constructed from the same description.
struct ToyRun {
  struct Setup {
    TrainerOptions options;
    bool per_token = true;
    DType dtype = DType::f32;
    bool sgd = false;
    double lr = 0.05, dropout = 0.2;
    bool bucket = false;
    int64_t batch_size = 8;
    fs::path folder = {};
  };

  explicit ToyRun(const Setup& s, Observer observer = {})
      : task(toy_task(s.per_token)),
        loader(*task.train, {.batch_size = s.batch_size, .bucket = s.bucket}, Generator(9)),
        model(s.dtype, s.per_token, s.dropout),
        optimizer(s.sgd ? make_sgd(model.named_parameters(), {.momentum = 0.9})
                        : make_adam(model.named_parameters(), {.weight_decay = 0.01})),
        trainer(model, logits_of(model), *optimizer,
                {Schedule::Kind::cosine, s.lr, 3, s.options.steps}, loader, task, s.options,
                hooked(std::move(observer)), s.folder, "[train]\n") {}

  Observer hooked(Observer o) {
    o.on_record = [this, then = o.on_record](const Record& r) {
      records.push_back(r);
      if (then) then(r);
    };
    return o;
  }

  /// Losses of one split.
  std::vector<double> losses(const std::string& split) const {
    std::vector<double> out;
    for (const Record& r : records)
      if (r.split == split) out.push_back(r.loss);
    return out;
  }

  std::vector<Record> records;
  data::Task task;
  data::Loader loader;
  ToyModel model;
  std::unique_ptr<Optimizer> optimizer;
  Trainer trainer;
};

void check_same(const Checkpoint& a, const Checkpoint& b) {
  for (const auto& [x, y] : {std::pair{&a.model, &b.model}, std::pair{&a.optimizer, &b.optimizer},
                             std::pair{&a.ema, &b.ema}})
    for (const auto& [name, tensor] : *x) {
      INFO(name);
      CHECK(identical(tensor, y->at(name)));
    }
  CHECK(a.training == b.training);
}

/// With tensors of its own.
Checkpoint copy_of(const Checkpoint& c) { return from_bytes(to_bytes(c), "copy"); }

/// Twenty steps with every kind of state. No step is a multiple of all intervals.
ToyRun::Setup eventful(bool sgd = false) {
  ToyRun::Setup s;
  s.options = {.step = {.micro_batches = 3, .clip_norm = 0.5, .seed = 42},
               .steps = 20,
               .label_smoothing = 0.1,
               .ema_decay = 0.9,
               .log_every = 3,
               .eval_every = 4,
               .eval_batch_size = 7,
               .patience = 100};
  s.sgd = sgd;
  s.bucket = true;
  return s;
}

}  // namespace

TEST_CASE("a model learns, as its records show") {
  const bool per_token = GENERATE(false, true);
  ToyRun::Setup s;
  s.per_token = per_token;
  s.dropout = 0;
  s.options = {.steps = 200, .log_every = 50, .eval_every = 100};
  int64_t progressed = 0;
  ToyRun run(s, {.on_progress = [&](const Progress& p) {
               CHECK(p.step == ++progressed);
               CHECK(p.steps == 200);
               CHECK(p.tokens_per_second > 0);
             }});
  CHECK(run.trainer.run() == Stopped::finished);
  CHECK(progressed == 200);
  CHECK(run.trainer.state().step == 200);
  REQUIRE(run.losses("train").size() == 4);
  REQUIRE(run.losses("validation").size() == 2);
  CHECK(run.losses("train").back() < 0.3 * run.losses("train").front());
  CHECK(run.records.back().split == "validation");
  CHECK(run.records.back().accuracy >= 0.95);
  CHECK_FALSE(run.records.back().bits_per_byte.has_value());
  const Record& first = run.records.front();
  CHECK(first.step == 50);
  CHECK(first.split == "train");
  CHECK((first.accuracy > 0 && first.accuracy <= 1));
  CHECK(first.learning_rate == Schedule{Schedule::Kind::cosine, 0.05, 3, 200}.at(49));
  CHECK(*first.gradient_norm > 0);
  CHECK(first.tokens_per_second > 0);
  CHECK(first.peak_memory > 1 << 20);
}

TEST_CASE("a run that was stopped and resumed gives the same bits as one that was not") {
  struct Part {
    Stopped stopped;
    std::vector<std::byte> file;
    std::vector<double> losses;  // of all records
  };
  const ToyRun::Setup s = eventful(GENERATE(false, true));
  const auto part = [&](int threads, int64_t stop_at, bool evaluated, const Part* before) {
    const WithThreads with(threads);
    int64_t step = 0, evaluated_step = 0;
    ToyRun run(s, {.on_record =
                       [&](const Record& r) {
                         if (r.split == "validation") evaluated_step = r.step;
                       },
                   .on_progress = [&](const Progress& p) { step = p.step; },
                   .should_stop = [&] { return (evaluated ? evaluated_step : step) >= stop_at; }});
    if (before) run.trainer.resume(from_bytes(before->file, "before"));
    Part out;
    out.stopped = run.trainer.run();
    out.file = to_bytes(run.trainer.view());
    out.losses = run.losses("train");
    for (const double loss : run.losses("validation")) out.losses.push_back(-loss);
    std::sort(out.losses.begin(), out.losses.end());
    return out;
  };
  const Part whole = part(2, 1000, false, nullptr);
  CHECK(whole.stopped == Stopped::finished);

  // 8: an evaluation is due at that step, and done or not; 9: a record is; 10: neither.
  for (const auto& [stop_at, evaluated] : std::vector<std::pair<int64_t, bool>>{
           {1, false}, {8, false}, {8, true}, {9, false}, {10, false}, {19, false}, {20, false}}) {
    INFO("stopped after step " << stop_at << (evaluated ? ", evaluated" : ""));
    const Part first = part(1, stop_at, evaluated, nullptr);
    CHECK(first.stopped == Stopped::signal);
    CHECK(from_bytes(first.file, "first").training.step == stop_at);
    const Part second = part(2, 1000, false, &first);
    CHECK(second.stopped == Stopped::finished);
    check_same(from_bytes(second.file, "second"), from_bytes(whole.file, "whole"));
    CHECK(second.file == whole.file);

    // The two parts have the same records as the whole, without gaps or duplicates.
    std::vector<double> losses;
    std::merge(first.losses.begin(), first.losses.end(), second.losses.begin(), second.losses.end(),
               std::back_inserter(losses));
    CHECK(losses == whole.losses);
  }

  const Part again = part(2, 1000, false, &whole);
  CHECK(again.stopped == Stopped::finished);
  CHECK(again.losses.empty());
  CHECK(again.file == whole.file);
}

TEST_CASE("an evaluation that was stopped is done after resuming") {
  const ToyRun::Setup s = eventful();
  ToyRun whole(s);
  whole.trainer.run();
  int asked_in_evaluation = 0;
  ToyRun first(s, {.should_stop = [&] {
                 const auto& state = first.trainer.state();
                 return state.step == 8 && state.evaluated_step == 4 && ++asked_in_evaluation == 3;
               }});
  CHECK(first.trainer.run() == Stopped::signal);
  CHECK(first.trainer.state().step == 8);
  CHECK(first.trainer.state().evaluated_step == 4);
  ToyRun second(s);
  second.trainer.resume(first.trainer.view());
  second.trainer.run();
  CHECK(second.records.front().step == 8);
  check_same(second.trainer.view(), whole.trainer.view());
}

TEST_CASE("any number of micro-batches is the same batch") {
  // In f64, only rounding differs. Equal parts of sequences have unequal numbers of
  // targets, so a mean of means would show.
  const auto after_steps = [](int64_t micro_batches, int64_t batch_size, DType dtype) {
    ToyRun::Setup s;
    s.dtype = dtype;
    s.dropout = 0;
    s.batch_size = batch_size;
    s.options = {.step = {.micro_batches = micro_batches, .clip_norm = 0.1}, .steps = 3};
    ToyRun run(s);
    run.trainer.run();
    return std::pair(run.trainer.view().model, run.losses("train"));
  };
  const int64_t batch_size = GENERATE(8, 5);
  const auto [whole, losses] = after_steps(1, batch_size, DType::f64);
  for (const int64_t n : {2, 3, 4, 8}) {
    INFO(n << " micro-batches of a batch of " << batch_size);
    const auto [model, part_losses] = after_steps(n, batch_size, DType::f64);
    for (const auto& [name, tensor] : whole) {
      const auto a = tensor.to_vector<double>(), b = model.at(name).to_vector<double>();
      for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= 1e-11);
    }
    CHECK(part_losses.at(0) == Approx(losses.at(0)).epsilon(1e-12));
  }
}

TEST_CASE("dropout differs between steps and between micro-batches") {
  std::vector<Tensor> masks;
  ToyRun::Setup s;
  s.options = {.step = {.micro_batches = 2}, .steps = 2};
  ToyRun run(s);
  const LogitsFn spy = [&](const data::Batch& batch, const nn::Pass& pass) {
    if (pass.training) {
      masks.push_back(Tensor::empty({64}));
      fill_uniform(masks.back(), pass.random.fork("mask"));
    }
    return Prediction{run.model.forward(batch, pass), batch.targets};
  };
  Trainer trainer(run.model, spy, *run.optimizer, {}, run.loader, run.task, s.options);
  trainer.run();
  REQUIRE(masks.size() == 4);
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < i; ++j) CHECK_FALSE(identical(masks[i], masks[j]));
}

TEST_CASE("the best and the last model are kept, and those requested") {
  const test::TemporaryDirectory folder;
  ToyRun::Setup s;
  s.options = {.steps = 7, .eval_every = 2, .checkpoint_every = 3, .keep_every = 3};
  s.folder = folder.path();
  std::vector<std::string> saved;
  ToyRun run(
      s, {.on_saved = [&](const fs::path& path) {
        saved.push_back(path.filename().string() + "@" + std::to_string(load(path).training.step));
      }});
  run.trainer.run();
  std::vector<std::string> expected;
  for (int64_t step = 1; step <= 7; ++step) {
    if (step % 3 == 0)
      expected.push_back("step-0000000" + std::to_string(step) + ".h5@" + std::to_string(step));
    for (const Record& r : run.records)
      if (r.step == step && r.best) expected.push_back("best.h5@" + std::to_string(step));
    if (step % 3 == 0 || step == 7) expected.push_back("last.h5@" + std::to_string(step));
  }
  CHECK(saved == expected);

  const Checkpoint last = load(folder / "last.h5"), best = load(folder / "best.h5");
  CHECK(last.training.step == 7);
  CHECK(last.config == "[train]\n");
  CHECK(to_bytes(last) == to_bytes(run.trainer.view()));
  CHECK(best.training.step == run.trainer.state().best_step);
  CHECK(best.training.best == run.trainer.state().best);
}

TEST_CASE("a run ends early when it stops improving") {
  ToyRun::Setup s;
  s.lr = 0;  // the first evaluation is the best
  s.options = {.steps = 50, .eval_every = 5, .patience = 3};
  s.options.best_metric = GENERATE("loss", "accuracy");
  ToyRun run(s);
  // Redrawn noise may improve the loss by chance; without it nothing changes.
  const LogitsFn frozen = [&](const data::Batch& batch, const nn::Pass&) {
    return Prediction{ToyModel(DType::f32, true).forward(batch, {}), batch.targets};
  };
  const auto train_from = [&](const Checkpoint* from) {
    Trainer trainer(run.model, frozen, *run.optimizer, {Schedule::Kind::constant, 0}, run.loader,
                    run.task, s.options, run.hooked({}));
    if (from) trainer.resume(*from);
    const Stopped stopped = trainer.run();
    CHECK(stopped == Stopped::early);
    return copy_of(trainer.view());
  };
  const Checkpoint end = train_from(nullptr);
  CHECK(end.training.step == 20);
  CHECK(end.training.best_step == 5);
  CHECK(end.training.evaluations_since_best == 3);
  // Resuming a run that ended early ends immediately.
  CHECK(train_from(&end).training.step == 20);
}

TEST_CASE("a run ends early when it is good enough") {
  ToyRun::Setup s;
  s.dropout = 0;
  s.options = {.steps = 400, .eval_every = 10, .target_accuracy = 0.9};
  ToyRun run(s);
  CHECK(run.trainer.run() == Stopped::early);
  CHECK(run.trainer.state().step < 400);
  CHECK(run.records.back().accuracy >= 0.9);
  for (size_t i = 0; i + 1 < run.records.size(); ++i)
    if (run.records[i].split == "validation") CHECK(run.records[i].accuracy < 0.9);
}

TEST_CASE("a NaN ends the run before it reaches weights and files") {
  const test::TemporaryDirectory folder;
  ToyRun::Setup s;
  s.options = {.steps = 10, .eval_every = 5, .checkpoint_every = 2};
  ToyRun run(s);
  const bool in_gradient = GENERATE(false, true);
  bool poisoned = false;
  const LogitsFn logits = [&](const data::Batch& batch, const nn::Pass& pass) {
    Variable x = run.model.forward(batch, pass);
    if (poisoned && pass.training && in_gradient)
      x = record("broken", x.value(), {x}, [](const Tensor& grad, std::span<GradSlot> in) {
        in[0].take(Tensor::full(grad.shape(), NAN, grad.dtype()));
      });
    else if (poisoned && pass.training)
      x = x * NAN;
    return Prediction{x, batch.targets};
  };
  Tensor before;
  const Observer observer{.on_progress = [&](const Progress& p) {
    poisoned = p.step == 5;
    if (poisoned) before = run.model.state_dict().at("weight").clone();
  }};
  Trainer trainer(run.model, logits, *run.optimizer, {}, run.loader, run.task, s.options, observer,
                  folder.path());
  try {
    trainer.run();
    FAIL("trained on");
  } catch (const DivergedError& e) {
    CHECK_THAT(e.what(), Catch::StartsWith("step 6: the loss is ") && Catch::Contains("nan"));
  }
  CHECK(trainer.state().step == 5);
  CHECK(identical(run.model.state_dict().at("weight"), before));
  CHECK(load(folder / "last.h5").training.step == 4);
}

TEST_CASE("a checkpoint of another run is refused, and changes nothing") {
  const ToyRun::Setup s = eventful();
  ToyRun other(s);
  other.trainer.run();
  Checkpoint c = other.trainer.view();
  const std::string part =
      GENERATE("model", "optimizer", "ema", "no ema", "seed", "cursor", "step", "interval",
               "correct", "evaluation", "best", "patience", "accuracy");
  INFO(part);
  if (part == "model") c.model["weight"] = Tensor::zeros({2, 2});
  if (part == "optimizer") c.optimizer.erase("v.bias");
  if (part == "ema") c.ema["bias"] = Tensor::zeros({7});
  if (part == "no ema") c.ema.clear();
  if (part == "seed") c.training.seed = 43;
  if (part == "cursor") c.training.cursor.batch = 1000;
  if (part == "step") c.training.step = -1;
  if (part == "interval") c.training.interval.steps = c.training.step + 1;
  if (part == "correct") c.training.interval.correct = c.training.interval.targets + 1;
  if (part == "evaluation") c.training.evaluated_step = c.training.step + 1;
  if (part == "best") c.training.best_step = -1;
  if (part == "patience") c.training.evaluations_since_best = int64_t{1} << 62;
  if (part == "accuracy") c.training.last_accuracy = std::nan("");
  ToyRun run(s);
  const Checkpoint before = copy_of(run.trainer.view());
  CHECK_THROWS_AS(run.trainer.resume(c), DataError);
  check_same(run.trainer.view(), before);
  CHECK(run.loader.cursor() == before.training.cursor);
}

TEST_CASE("evaluation uses the average") {
  ToyRun::Setup s = eventful();
  ToyRun run(s);
  run.trainer.run();
  const Checkpoint c = run.trainer.view();
  ToyModel model(DType::f32, true);
  model.load_state_dict(c.weights());
  const EvaluationOptions how{.batch_size = s.options.eval_batch_size};
  const Metrics m = *evaluate(logits_of(model), *run.task.validation, how);
  CHECK(m.loss() == run.records.back().loss);
  model.load_state_dict(c.model);
  CHECK(evaluate(logits_of(model), *run.task.validation, how)->loss() != m.loss());
}

TEST_CASE("the average extends across redraws, and is evaluated with the newest draw") {
  ToyRun::Setup s;
  s.dtype = DType::f64;
  s.options = {.steps = 7, .ema_decay = 0.9};  // ToyModel redraws after steps 3 and 6
  std::vector<double> expected;
  ToyRun run(s, {.on_progress = [&](const Progress& p) {
               const auto now = run.model.state_dict().at("weight").to_vector<double>();
               const double t = static_cast<double>(p.step), d = std::min(0.9, (1 + t) / (10 + t));
               for (size_t i = 0; i < now.size(); ++i)
                 expected[i] += (1 - d) * (now[i] - expected[i]);
             }});
  expected = run.model.state_dict().at("weight").to_vector<double>();
  run.trainer.run();
  const Checkpoint c = run.trainer.view();
  const auto average = c.ema.at("weight").to_vector<double>();
  for (size_t i = 0; i < average.size(); ++i) CHECK(std::abs(average[i] - expected[i]) <= 1e-12);
  CHECK_FALSE(c.ema.contains("noise"));
  const nn::StateDict weights = c.weights();
  CHECK(identical(weights.at("weight"), c.ema.at("weight")));
  CHECK(identical(weights.at("noise"), run.model.state_dict().at("noise")));
}

TEST_CASE("a model that omits targets is refused") {
  ToyRun::Setup s;
  s.options = {.steps = 1};
  ToyRun run(s);
  const LogitsFn first_row = [&](const data::Batch& batch, const nn::Pass& pass) {
    return Prediction{slice(run.model.forward(batch, pass), 0, 0, 1), batch.targets.slice(0, 0, 1)};
  };
  Trainer trainer(run.model, first_row, *run.optimizer, {}, run.loader, run.task, s.options);
  CHECK_THROWS_AS(trainer.run(), ShapeError);
}

TEST_CASE("trainer options are read and checked") {
  const auto read = [](const Options& options) {
    TrainerOptions o;
    OptionReader reader(options);
    o.describe(reader, 16);
    reader.check_unknown();
    return o;
  };
  Options section("train");
  section.set("steps", int64_t{500});
  section.set("micro_batches", int64_t{4});
  section.set("best_metric", std::string("accuracy"));
  const TrainerOptions o = read(section);
  CHECK(o.steps == 500);
  CHECK(o.step.micro_batches == 4);
  CHECK(o.eval_every == 50);
  CHECK(o.eval_batch_size == 16);
  CHECK(o.best_metric == "accuracy");

  const auto refused = [&](const std::string& key, OptionValue value) {
    INFO(key);
    Options bad("train");
    bad.set(key, value);
    CHECK_THROWS_AS(read(bad), ConfigError);
  };
  refused("steps", int64_t{0});
  refused("micro_batches", int64_t{17});
  refused("clip_norm", -1.0);
  refused("label_smoothing", 1.5);
  refused("ema_decay", 1.0);
  refused("log_every", int64_t{0});
  refused("eval_batch_size", int64_t{0});
  refused("best_metric", std::string("speed"));
  refused("target_accuracy", 1.5);
}

}  // namespace longhand::train
