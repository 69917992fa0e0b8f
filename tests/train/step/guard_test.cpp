#include "longhand/train/step/guard.h"

#include <cmath>
#include <limits>

#include "longhand/core/options.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::test;
using namespace longhand::train;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// Poisons a weight before the steps in `bad`, and restores it after them.
class Poison {
 public:
  explicit Poison(std::vector<int64_t> bad) : bad_(std::move(bad)) {}

  Observer observer(Run& run) {
    Observer out;
    out.on_progress = [this, &run](const train::Progress& p) { prepare(run, p.step + 1); };
    out.on_record = [this](const Record& r) {
      if (r.split == "train") records.push_back(r);
    };
    out.on_skipped = [this](const std::string& reason) { reasons.push_back(reason); };
    return out;
  }

  void prepare(Run& run, int64_t step) {
    Tensor weight = run.experiment().model.state_dict().at("head.bias");
    const bool bad = std::find(bad_.begin(), bad_.end(), step) != bad_.end();
    float& x = *weight.data<float>();
    if (bad && !std::isnan(x)) good_ = x;
    if (bad)
      x = std::numeric_limits<float>::quiet_NaN();
    else if (std::isnan(x))
      x = good_;
  }

  std::vector<Record> records;
  std::vector<std::string> reasons;

 private:
  std::vector<int64_t> bad_;
  float good_ = 0;
};

fs::path checkpoint(const fs::path& run, const std::string& name) {
  return run / "checkpoints" / (name + ".h5");
}

}  // namespace

TEST_CASE("the spread of a number") {
  Spread spread;
  for (const double x : {1.0, 3.0, 5.0, 7.0}) spread.add(x, 100);
  CHECK(spread.mean == Approx(4));
  CHECK(spread.variance == Approx(5));  // of these four numbers
  CHECK(spread.score(4 + 3 * std::sqrt(5.0)) == Approx(3));
  // Beyond the window, a number has the weight 1 / window.
  Spread recent;
  for (int i = 0; i < 1000; ++i) recent.add(2, 10);
  recent.add(12, 10);
  CHECK(recent.mean == Approx(3));
  CHECK(recent.variance == Approx(9));
  // Rounding of a constant is no outlier.
  Spread constant;
  for (int i = 0; i < 100; ++i) constant.add(1 + 1e-9 * (i % 2), 10);
  CHECK(constant.score(1 + 1e-6) < 0.01);
}

TEST_CASE("which steps are bad") {
  GuardOptions options;
  GuardState state;
  const auto judged = [&](double loss, double norm) {
    GuardState copy = state;
    return judge(options, copy, loss, norm);
  };
  CHECK(judged(1, 1).empty());
  CHECK_THAT(judged(-std::abs(NAN), 1), Contains("the loss is nan"));
  CHECK_THAT(judged(1, INFINITY), Contains("the gradient norm inf"));
  options.outlier_limit = 4;
  options.outlier_window = 20;
  for (int i = 0; i < 19; ++i)
    CHECK(judge(options, state, 1 + 0.1 * (i % 2), 2 + 0.1 * (i % 2)).empty());
  CHECK(judged(100, 2).empty());  // too early to judge
  CHECK(judge(options, state, 1.1, 2.1).empty());
  CHECK(judged(1.2, 2.2).empty());
  CHECK(judged(-100, 0).empty());
  CHECK_THAT(judged(2, 2), Contains("the loss is 2, ") && Contains("= 4"));
  CHECK_THAT(judged(1, 3), Contains("the gradient norm is 3, "));

  // Bad steps are counted, and do not change what is usual.
  const GuardState before = state;
  CHECK(!judge(options, state, 2, 2).empty());
  CHECK(!judge(options, state, NAN, 2).empty());
  CHECK(state.loss == before.loss);
  CHECK(state.gradient_norm == before.gradient_norm);
  CHECK(state.skipped_in_turn == 2);
  CHECK(judge(options, state, 1, 2).empty());
  CHECK(state.skipped == 2);
  CHECK(state.skipped_interval == 2);
  CHECK(state.skipped_in_turn == 0);
}

TEST_CASE("bad steps are skipped: nothing changes but the batch") {
  const TemporaryDirectory folder;
  Config config = tiny_run("on_bad_step = \"skip\"\nema_decay = 0.9\nkeep_every = 1\n");
  // A variant that counts in its forward passes and after each step.
  for (const char* each : {"attention.type=performer", "attention.kernel=relu",
                           "attention.redraw_interval=1", "train.log_every=3"})
    config.assign(each);
  const auto run = Run::create(config, folder / "run");
  Poison poison({3, 4});
  run->train(poison.observer(*run));
  CHECK(run->summary().status == "finished");
  CHECK(run->summary().skipped == 2);
  CHECK(read_run(folder / "run").summary->skipped == 2);
  REQUIRE(poison.reasons.size() == 2);
  CHECK_THAT(poison.reasons[0],
             Catch::StartsWith("step 3: the loss is nan") && Contains("before-step-00000003.h5"));
  CHECK_THAT(poison.reasons[1], !Contains("before-step"));
  CHECK_FALSE(fs::exists(checkpoint(folder / "run", "before-step-00000004")));
  REQUIRE(poison.records.size() == 2);
  for (const Record& record : poison.records) {  // each of three steps
    CHECK(record.skipped == 1);
    CHECK(std::isfinite(record.loss));
  }

  const Checkpoint two = load(checkpoint(folder / "run", "step-00000002"));
  const Checkpoint four = load(checkpoint(folder / "run", "step-00000004"));
  for (const auto& [before, after] : {std::pair{&two.model, &four.model},
                                      {&two.optimizer, &four.optimizer},
                                      {&two.ema, &four.ema}})
    for (const auto& [name, tensor] : *before) {
      INFO(name);
      if (name != "head.bias" || before != &two.model)  // poisoned
        CHECK(identical(tensor, after->at(name)));
    }
  CHECK(four.training.cursor.batch == two.training.cursor.batch + 2);
  CHECK(four.training.guard.skipped_in_turn == 2);
}

TEST_CASE("too many consecutive bad steps stop the run") {
  const TemporaryDirectory folder;
  const auto run = Run::create(tiny_run("on_bad_step = \"skip\"\nmax_skips = 2\n"), folder / "run");
  Poison poison({2, 4, 5, 6});  // the first is forgotten after step 3
  const std::string message = message_of<DivergedError>([&] { run->train(poison.observer(*run)); });
  CHECK_THAT(message, Catch::StartsWith("step 6: ") && Contains("train.max_skips") &&
                          Contains("before-step-00000006.h5"));
  CHECK(run->summary().status == "diverged");
}

TEST_CASE("an outlier stops the run, and a resumed run sees the same outlier") {
  auto config = [&] {
    train::Config out = tiny_run();
    for (const char* each : {"train.outlier_limit=3", "train.outlier_window=3", "train.steps=40",
                             "optimizer.lr=3.0", "optimizer.type=sgd"})
      out.assign(each);
    return out;
  };
  const TemporaryDirectory folder;
  const auto stop = [&](Run& run) { return message_of<DivergedError>([&] { run.train(); }); };
  std::string whole, resumed;
  {
    const auto run = Run::create(config(), folder / "whole");
    whole = stop(*run);
    CHECK_THAT(whole, Contains("standard deviations above its mean"));
    REQUIRE(run->step() > 2);
  }
  {
    int64_t step = 0;
    const auto run = Run::create(config(), folder / "parts");
    CHECK(run->train(stop_after(2, step)) == Stopped::signal);
  }
  resumed = stop(*Run::resume(folder / "parts"));
  const auto reason = [](const std::string& text) { return text.substr(0, text.find(';')); };
  CHECK(reason(resumed) == reason(whole));
}
