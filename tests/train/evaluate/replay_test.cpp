// replay(): injected faults are named.
#include "longhand/train/evaluate/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "longhand/attention/registry.h"
#include "longhand/autograd/observer.h"
#include "longhand/core/parallel.h"
#include "longhand/core/random.h"
#include "longhand/data/file.h"
#include "longhand/nn/module.h"
#include "longhand/train/run/run.h"
#include "longhand/train/transfer/saved_model.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::test;
using namespace longhand::train;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

std::string running_path() {
  const nn::Running* running = nn::Running::innermost();
  return running ? running->module().full_name() : "";
}

/// One operation or rule of a step.
struct Event {
  std::string operation, path;
  bool gradient = false;
};

/// Lists the events of a step, and replaces one element of the result of one of them.
class Injector final : public OperationObserver {
 public:
  std::vector<Event> events;  // of the current step
  int64_t at = -1;            // the event to change; -1: none
  uint64_t element = 0;       // modulo their number
  double value = NAN;

  void begin_step() { events.clear(); }

  void on_result(const Operation& operation, Tensor& result) override {
    const Event event{std::string(operation.name), running_path()};
    if (operation.number) paths_[*operation.number] = event.path;
    change(event, result);
  }
  void on_gradients(std::string_view operation, uint64_t number, const Tensor&,
                    std::span<Tensor* const> grads) override {
    for (Tensor* const grad : grads)
      if (grad && grad->defined()) {
        change({std::string(operation), paths_.at(number), true}, *grad);
        return;
      }
  }

 private:
  void change(const Event& event, Tensor& tensor) {
    const bool here = std::ssize(events) == at;
    events.push_back(event);
    if (!here || !is_float(tensor.dtype())) return;
    tensor = tensor.clone();
    dispatch_float(tensor.dtype(), [&]<class T>() {
      tensor.data<T>()[element % tensor.numel()] = static_cast<T>(value);
    });
  }

  std::map<uint64_t, std::string> paths_;
};

/// The first event whose result is not finite; masks of scores, which are -Inf, excepted.
class FirstBad final : public OperationObserver {
 public:
  std::optional<Event> first;

  void on_result(const Operation& operation, Tensor& result) override {
    const std::string path = running_path();
    if (operation.number) paths_[*operation.number] = path;
    bool masked = operation.name == "where";
    for (const Variable& input : operation.inputs)
      masked = masked || (input.defined() && has(input.value(), minus_infinite));
    if (!first &&
        (has(result, not_a_number_or_infinite) || (!masked && has(result, minus_infinite))))
      first = {std::string(operation.name), path, false};
  }
  void on_gradients(std::string_view operation, uint64_t number, const Tensor&,
                    std::span<Tensor* const> grads) override {
    for (Tensor* const grad : grads)
      if (!first && grad && grad->defined() &&
          (has(*grad, not_a_number_or_infinite) || has(*grad, minus_infinite)))
        first = {std::string(operation), paths_.at(number), true};
  }

 private:
  static bool minus_infinite(double x) { return std::isinf(x) && x < 0; }
  static bool not_a_number_or_infinite(double x) {
    return std::isnan(x) || (std::isinf(x) && x > 0);
  }
  static bool has(const Tensor& t, bool (*what)(double)) {
    if (!is_float(t.dtype())) return false;
    const std::vector<double> values = t.to_vector<double>();
    return std::any_of(values.begin(), values.end(), what);
  }
  std::map<uint64_t, std::string> paths_;
};

Config with_options(const std::vector<std::string>& assignments) {
  Config config = tiny_run();
  for (const char* each :
       {"model.layers=2", "model.norm_type=rms_norm", "train.steps=3", "train.eval_every=0"})
    config.assign(each);
  for (const std::string& each : assignments) config.assign(each);
  return config;
}

fs::path snapshot_of(const fs::path& run, int step) {
  return run / "checkpoints" / ("before-step-0000000" + std::to_string(step) + ".h5");
}

/// Trains until step 2, before which `poke` may change the weights, and replays its snapshot if it is
/// bad. `injector`, if there is one, changes that step.
std::optional<ReplayedStep> diverge(const Config& config, Injector* injector,
                                    const std::function<void(Run&)>& poke = {}) {
  const TemporaryDirectory folder;
  const auto run = Run::create(config, folder / "run");
  const int64_t at = injector ? std::exchange(injector->at, -1) : -1;
  Observer observer;
  observer.on_progress = [&](const Progress& p) {
    if (p.step == 1 && poke) poke(*run);
    if (!injector) return;
    injector->begin_step();
    injector->at = p.step == 1 ? at : -1;
  };
  if (injector) injector->begin_step();
  bool diverged = false;
  try {
    run->train(observer);
  } catch (const DivergedError& error) {
    diverged = true;
    CHECK_THAT(error.what(),
               Catch::StartsWith("step 2: ") && Contains(snapshot_of(folder / "run", 2).string()));
  }
  if (!diverged) return std::nullopt;
  if (injector) {
    injector->begin_step();
    injector->at = at;
  }
  return replay(load_model(snapshot_of(folder / "run", 2)));
}

/// The events of a step without a fault.
std::vector<Event> events_of(const Config& config) {
  const TemporaryDirectory folder;
  const auto run = Run::create(config, folder / "run");
  Injector injector;
  std::vector<Event> events;
  Observer observer;
  observer.on_progress = [&](const Progress& p) {
    if (p.step == 2) events = injector.events;
    injector.begin_step();
  };
  run->train(observer);
  return events;
}

bool is_in(const std::string& layer, const std::string& path) {
  return path.empty() || layer == path || layer.starts_with(path + ".");
}

/// Norms are computed in the operation of the layer that follows.
bool is_of_norm(const std::string& parameter) {
  return parameter.starts_with("norm.") || parameter.find(".norm") != std::string::npos;
}

struct Tally {
  int64_t tried = 0, harmless = 0, named = 0;
  std::map<std::string, int64_t> of_kind;  // named
};

/// Whether the event of the fault is the one that the replay names.
bool names(const ReplayedStep& step, const Event& event) {
  const bool right = step.first && step.first->operation == event.operation &&
                     is_in(step.first->layer, event.path) && step.first->backward == event.gradient;
  if (!right)
    UNSCOPED_INFO("expected " << (event.gradient ? "the gradient of " : "") << event.operation
                              << " in " << event.path << ", got "
                              << (step.first
                                      ? (step.first->backward ? "the gradient of " : "") +
                                            step.first->operation + " in " + step.first->layer
                                      : step.error));
  return right;
}

/// Injects faults, chosen at random, until `wanted` of them made a step bad.
Tally inject(int64_t wanted, uint64_t seed) {
  static const std::vector<std::vector<std::string>> configurations = {
      {"attention.type=softmax"},
      {"attention.type=linear", "train.recompute=true"},
      {"attention.type=performer", "train.micro_batches=2"},
      {"attention.type=nystrom", "model.positions=sinusoidal"},
      {"attention.type=linformer", "model.norm=post"},
      {"attention.type=window", "model.norm_type=layer_norm"},
  };
  const std::vector<double> values = {NAN, std::numeric_limits<double>::infinity(), 1e38};
  RandomStream random{Generator(seed)};
  std::vector<std::vector<Event>> clean(configurations.size());
  Tally tally;
  while (tally.named < wanted && tally.tried < 4 * wanted) {
    const size_t which = tally.tried % configurations.size();
    const Config config = with_options(configurations[which]);
    const std::string kind = std::vector<std::string>{"weights", "embeddings", "operation",
                                                      "gradient"}[tally.tried / 6 % 4];
    const double value = values[random.below(values.size())];
    ++tally.tried;
    INFO(configurations[which][0] << ", " << kind << ", " << value);
    std::optional<ReplayedStep> step;
    bool right = false;
    if (kind == "weights" || kind == "embeddings") {
      std::string name;
      const uint64_t choice = random.bits(), element = random.bits();
      const auto poke = [&](Run& run) {
        nn::StateDict state = run.experiment().model.state_dict();
        std::vector<std::string> from;
        for (const auto& [each, tensor] : state)
          if (is_float(tensor.dtype()) && each.starts_with("embeddings.") == (kind == "embeddings"))
            from.push_back(each);
        name = from[choice % from.size()];
        Tensor& tensor = state.at(name);
        // A row of an embedding may not occur in the batch.
        if (kind == "embeddings")
          tensor.fill(value);
        else
          tensor.data<float>()[element % tensor.numel()] = static_cast<float>(value);
      };
      FirstBad reference;
      step = diverge(config, nullptr, poke);
      if (step) {
        REQUIRE(reference.first);
        right = names(*step, *reference.first);
        if (!std::isfinite(value))
          right = right && step->state.size() == 1 && step->state[0].name == name &&
                  (is_in(name, step->first->layer) || is_of_norm(name));
        else
          right = right && step->state.empty();
      }
    } else {
      if (clean[which].empty()) clean[which] = events_of(config);
      std::vector<int64_t> from;
      for (int64_t i = 0; i < std::ssize(clean[which]); ++i)
        if (clean[which][i].gradient == (kind == "gradient")) from.push_back(i);
      Injector injector;
      injector.at = from[random.below(from.size())];
      injector.element = random.bits();
      injector.value = std::isfinite(value) ? -NAN : value;
      const int64_t at = injector.at;
      step = diverge(config, &injector);
      if (step) right = names(*step, clean[which][at]) && step->state.empty();
    }
    if (!step) {
      ++tally.harmless;
      continue;
    }
    CHECK(right);
    if (!right) continue;
    ++tally.named;
    ++tally.of_kind[kind];
  }
  return tally;
}

}  // namespace

TEST_CASE("the range of a tensor is that of its finite values") {
  const double infinity = std::numeric_limits<double>::infinity();
  const ValueRange range = range_of(
      Tensor::from(std::vector<double>{2, NAN, -3, infinity, 7, -infinity, infinity, 0}, {4, 2}),
      "x");
  CHECK(range.name == "x");
  CHECK(range.shape == Shape{4, 2});
  CHECK(range.least == -3);
  CHECK(range.greatest == 7);
  CHECK(range.nan == 1);
  CHECK(range.positive_infinity == 2);
  CHECK(range.negative_infinity == 1);
  CHECK_FALSE(range.finite());
  CHECK(std::isnan(range_of(Tensor::from(std::vector<float>{NAN}, {1})).least));
  CHECK_THROWS_AS(range_of(Tensor::zeros({2}, DType::i32)), ShapeError);
}

TEST_CASE("replay names the operation and the layer of injected faults") {
  const Tally tally = inject(16, 1);
  CHECK(tally.named == 16);
  CHECK(tally.of_kind.size() == 4);
}

TEST_CASE("replay names the module around projections that are one operation") {
  const Config config = with_options({"attention.type=softmax"});
  const std::vector<Event> events = events_of(config);
  const auto projection = std::find_if(events.begin(), events.end(), [](const Event& each) {
    return each.operation == "linear" && each.path.ends_with(".attention");
  });
  REQUIRE(projection != events.end());
  Injector injector;
  injector.at = projection - events.begin();
  injector.value = NAN;
  const auto step = diverge(config, &injector);
  REQUIRE(step);
  REQUIRE(step->first);
  CHECK(step->first->operation == "linear");
  CHECK(step->first->layer == projection->path);
}

TEST_CASE("replay names the operation whose -Inf becomes NaN elsewhere") {
  const auto step = diverge(with_options({}), nullptr, [](Run& run) {
    run.experiment().model.state_dict().at("head.bias").fill(-INFINITY);
  });
  REQUIRE(step);
  CHECK(names(*step, {"linear", "head"}));
}

// Hidden, because it takes long: LONGHAND_FAULTS=100 test_train "replay of many faults"
TEST_CASE("replay of many faults", "[.long]") {
  const char* const count = std::getenv("LONGHAND_FAULTS");
  const int64_t wanted = count ? std::atoll(count) : 100;
  const Tally tally = inject(wanted, 2);
  const int64_t bad = tally.tried - tally.harmless;
  std::string kinds;
  for (const auto& [kind, n] : tally.of_kind)
    kinds += (kinds.empty() ? "" : ", ") + std::to_string(n) + " " + kind;
  std::printf("%lld faults injected, %lld without effect; %lld of %lld named (%s)\n",
              static_cast<long long>(tally.tried), static_cast<long long>(tally.harmless),
              static_cast<long long>(tally.named), static_cast<long long>(bad), kinds.c_str());
  CHECK(tally.named == wanted);
  CHECK(tally.named == bad);
}

TEST_CASE("replay has the bits of the step, and finds nothing in a good one") {
  for (const std::string& name : attention::names()) {
    INFO(name);
    const TemporaryDirectory folder;
    double loss = 0, norm = 0;
    {
      std::vector<std::string> options{"attention.type=" + name, "train.keep_every=2"};
      if (attention::capabilities(name).causal_only) options.push_back("model.causal=true");
      const auto run = Run::create(with_options(options), folder / "run");
      Observer observer;
      observer.on_record = [&](const Record& record) {
        if (record.step != 3 || record.split != "train") return;
        loss = record.loss;
        norm = *record.gradient_norm;
      };
      run->train(observer);
    }
    const SavedModel before = load_model(folder / "run", "step-00000002");
    const ReplayedStep step = replay(before);
    CHECK(step.good());
    CHECK(step.step == 3);
    CHECK(step.loss == loss);
    CHECK(step.gradient_norm == norm);
    REQUIRE(step.gradients.size() > 1);
    CHECK(step.gradients[0].norm >= step.gradients[1].norm);
  }
}

TEST_CASE("a snapshot does not depend on the threads, and nothing else is written") {
  const TemporaryDirectory folder;
  const auto diverges = [&](const char* name, int count) {
    const int before = threads();
    set_threads(count);
    const auto run = Run::create(with_options({"optimizer.lr=1e30"}), folder / name);
    CHECK_THROWS_AS(run->train(), DivergedError);
    set_threads(before);
    return data::read_file(snapshot_of(folder / name, 2));
  };
  CHECK(diverges("one", 1) == diverges("three", 3));
  CHECK_FALSE(fs::exists(folder / "one/checkpoints/last.h5"));
}
