// Predictions by example.
#include "longhand/train/evaluate/predict.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "longhand/core/parallel.h"
#include "longhand/train/config/experiment.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

/// Examples of different lengths, so that batches are not in the order of the data.
Config listops() {
  return Config::parse(R"([model]
d_model = 8
heads = 2
layers = 1
d_mlp = 8
[data]
task = "listops"
min_length = 4
max_length = 60
train_size = 4
validation_size = 4
test_size = 23
[train]
batch_size = 4
)",
                       "listops");
}

}  // namespace

TEST_CASE("predictions are those of an evaluation, in the order of the examples") {
  for (const bool per_token : {false, true}) {
    CAPTURE(per_token);
    Experiment e(per_token ? test::tiny_run() : listops());
    const data::Dataset& data = *e.task.test;
    const LogitsFn model = logits_of(e.model);
    const EvaluationOptions options{.batch_size = 4};
    const Predictions p = *predict(model, data, false, options);
    const Metrics expected = *evaluate(model, data, options);
    CHECK(p.metrics.loss_sum == expected.loss_sum);
    CHECK(p.metrics.examples == data.size());
    CHECK(p.size() == expected.targets);
    CHECK(std::is_sorted(p.example.begin(), p.example.end()));
    CHECK(p.position.empty() != per_token);
    int64_t correct = 0;
    double loss = 0;
    const int64_t C = p.values.size(1);
    for (int64_t r = 0; r < p.size(); ++r) {
      const float* const row = p.values.data<float>() + r * C;
      const auto at = static_cast<size_t>(r);
      // Targets of the data, at the place that is stated.
      const std::vector<int64_t> one = {p.example[at]};
      const Tensor targets = data.collate(one).targets;
      CHECK(targets.data<int32_t>()[per_token ? p.position[at] : 0] == p.target[at]);
      double sum = 0;
      for (int64_t c = 0; c < C; ++c) sum += row[c];
      CHECK(sum == Approx(1));
      CHECK(std::max_element(row, row + C) - row == p.predicted[at]);
      correct += p.predicted[at] == p.target[at];
      loss -= std::log(row[p.target[at]]);
    }
    CHECK(correct == expected.correct);
    CHECK(loss == Approx(expected.loss_sum).epsilon(1e-5));

    const Predictions logits = *predict(model, data, true, options);
    CHECK(logits.predicted == p.predicted);
    CHECK_FALSE(identical(logits.values, p.values));
    const int before = threads();
    for (const int count : {1, 3}) {
      set_threads(count);
      CHECK(identical(predict(model, data, false, options)->values, p.values));
    }
    set_threads(before);
    const Predictions few = *predict(model, data, false, {.batch_size = 4, .limit = 5});
    CHECK(few.example.back() == 4);
    int64_t counted = 0;
    predict(model, data, false, options, [&](int64_t targets) {
      CHECK(targets >= counted);
      counted = targets;
    });
    CHECK(counted == p.size());
    // Counting targets is not part of what can be stopped.
    const auto asked = [&](const auto& run) {
      int64_t times = 0;
      EvaluationOptions stoppable = options;
      stoppable.should_stop = [&] { return ++times < 0; };
      run(stoppable);
      return times;
    };
    CHECK(asked([&](const EvaluationOptions& o) { predict(model, data, false, o); }) ==
          asked([&](const EvaluationOptions& o) { evaluate(model, data, o); }));
    const auto refuse = [](int64_t) { throw ConfigError("too many"); };
    CHECK_THROWS_AS(predict(model, data, false, options, refuse), ConfigError);
  }
}

TEST_CASE("predictions as lines of JSON and as tensors have the same numbers") {
  Predictions p;
  p.example = {0, 0, 2};
  p.target = {1, 0, 1};
  p.predicted = {1, 1, 0};
  p.values = Tensor::from(std::vector<float>{0.25f, 0.75f, 0.1f, 0.9f, 1, 0}, {3, 2});
  SECTION("of tokens") {
    p.position = {3, 7, 1};
    CHECK(to_json_lines(p) ==
          "{\"example\": 0, \"positions\": [3, 7], \"targets\": [1, 0], \"predictions\": [1, 1], "
          "\"probabilities\": [[0.25, 0.75], [0.1, 0.9]]}\n"
          "{\"example\": 2, \"positions\": [1], \"targets\": [1], \"predictions\": [0], "
          "\"probabilities\": [[1, 0]]}\n");
    CHECK(to_tensors(p).tensors.size() == 5);
  }
  SECTION("of sequences") {
    p.example = {0, 1, 2};
    p.logits = true;
    p.values.data<float>()[0] = -INFINITY;
    std::istringstream lines(to_json_lines(p));
    std::string line;
    std::getline(lines, line);
    CHECK(Json::parse(line) == Json::parse(R"({"example": 0, "target": 1, "prediction": 1,
                                               "logits": ["-Infinity", 0.75]})"));
    std::getline(lines, line);
    CHECK(static_cast<float>(Json::parse(line)["logits"][0]) == 0.1f);
    const TensorFile file = to_tensors(p);
    CHECK(identical(file.tensors.at("logits"), p.values));
    CHECK(file.tensors.size() == 4);
  }
}
