#include "longhand/train/evaluate/scores.h"

#include <cmath>
#include <numbers>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using namespace test;

/// Predicts the same logits for every example of the toy task.
LogitsFn constant(const std::vector<float>& logits) {
  return [logits](const data::Batch& batch, const nn::Pass&) {
    Tensor out = Tensor::empty({batch.tokens.size(0), classes});
    for (int64_t i = 0; i < out.numel(); ++i)
      out.data<float>()[i] = logits[static_cast<size_t>(i % classes)];
    return Prediction{Variable(out), batch.targets};
  };
}

}  // namespace

TEST_CASE("an ensemble predicts with the mean of the probabilities") {
  const data::Task task = toy_task(false);
  // Probabilities 1/2, 1/4, 1/4 and 1/8, 3/4, 1/8: their mean is 5/16, 1/2, 3/16.
  const double ln2 = std::numbers::ln2;
  const auto log = [](double x) { return static_cast<float>(std::log(x)); };
  const std::vector<LogitsFn> members = {constant({static_cast<float>(ln2), 0, 0}),
                                         constant({3, 3 + log(6), 3})};
  const auto segments = *evaluate_members(members, *task.validation, {.batch_size = 5});
  REQUIRE(segments.size() == 1);
  REQUIRE(segments[0].ensemble);
  const ExampleScores& examples = segments[0].ensemble->examples;
  double sum = 0;
  for (int64_t i = 0; i < task.validation->size(); ++i) {
    const int32_t target = task.validation->collate({&i, 1}).targets.data<int32_t>()[0];
    const double p = target == 0 ? 5.0 / 16 : target == 1 ? 1.0 / 2 : 3.0 / 16;
    CHECK(examples.loss[i] == Approx(-std::log(p)).epsilon(1e-6));
    CHECK(examples.correct[i] == (target == 1));
    CHECK(segments[0].members[0].examples.correct[i] == (target == 0));
    CHECK(segments[0].members[1].examples.correct[i] == (target == 1));
    sum += examples.loss[i];
  }
  CHECK(segments[0].ensemble->metrics.loss_sum == Approx(sum));
  CHECK(segments[0].ensemble->metrics.examples == 23);

  // Probabilities below the smallest double have a loss, too.
  const std::vector<LogitsFn> sure = {constant({2000, 0, 0}), constant({3000, 0, 0})};
  const Scores extreme = *total(*evaluate_members(sure, *task.validation)).ensemble;
  for (int64_t i = 0; i < extreme.examples.size(); ++i)
    CHECK(extreme.examples.loss[i] ==
          Approx(extreme.examples.correct[i] == 1 ? 0 : 2000 + ln2).margin(1e-6));
}

TEST_CASE("scores by example sum to the metrics, with the bits of evaluate") {
  const bool per_token = GENERATE(false, true);
  ToyModel model(DType::f32, per_token), other(DType::f64, per_token);
  const data::Task task = toy_task(per_token);
  const EvaluationOptions options{.batch_size = 4, .limit = 19};
  const auto run = [&] {
    const std::vector<LogitsFn> both = {logits_of(model), logits_of(other)};
    return total(*evaluate_members(both, *task.validation, options));
  };
  const SegmentScores scores = run();
  const Metrics expected = *evaluate(logits_of(model), *task.validation, options);
  const Scores& own = scores.members[0];
  CHECK(own.metrics.loss_sum == expected.loss_sum);
  CHECK(own.metrics.correct == expected.correct);
  CHECK(own.metrics.tokens == expected.tokens);
  CHECK(own.metrics.examples == 19);
  double loss = 0, correct = 0, targets = 0;
  for (int64_t i = 0; i < own.examples.size(); ++i) {
    loss += own.examples.loss[i];
    correct += own.examples.correct[i];
    targets += own.examples.targets[i];
    // In the order of the dataset, though batches are in the order of lengths.
    const data::Batch batch = task.validation->collate({&i, 1});
    const Metrics one = measure(model.forward(batch, {}).value(), batch.targets);
    CHECK(own.examples.loss[i] == Approx(one.loss_sum).epsilon(1e-5));
    CHECK(own.examples.targets[i] == static_cast<double>(one.targets));
  }
  CHECK(own.examples.size() == 19);
  CHECK(loss == Approx(expected.loss_sum));
  CHECK(correct == static_cast<double>(expected.correct));
  CHECK(targets == static_cast<double>(expected.targets));
  CHECK(loss_of(own.examples).mean == Approx(expected.loss()));
  CHECK(accuracy_of(own.examples).mean == Approx(expected.accuracy()));

  // The same bits with any number of threads.
  SegmentScores one, three;
  {
    const WithThreads with(1);
    one = run();
  }
  {
    const WithThreads with(3);
    three = run();
  }
  CHECK(one.ensemble->examples.loss == three.ensemble->examples.loss);
  CHECK(one.ensemble->metrics.loss_sum == three.ensemble->metrics.loss_sum);
  CHECK(one.members[1].examples.loss == three.members[1].examples.loss);
}

TEST_CASE("differences are paired by example") {
  const ExampleScores a{{1, 2, 3}, {1, 0, 2}, {1, 1, 2}}, b{{0.5, 1, 2}, {1, 1, 1}, {1, 1, 2}};
  const ScoreDifference d = difference(a, b);
  CHECK(d.loss.mean == Approx((0.5 + 1 + 1) / 4));
  CHECK(d.accuracy.mean == Approx(0));
  // t sqrt(g / (g - 1) Σ (d_i - r t_i)²) / 4, with r = 0.625 and g = 4² / (1 + 1 + 4)
  const double squares = std::pow(-0.125, 2) + std::pow(0.375, 2) + std::pow(-0.25, 2);
  CHECK(d.loss.high - d.loss.mean ==
        Approx(student_quantile(0.975, 5. / 3) * std::sqrt(1.6 * squares) / 4));
  const std::vector<ExampleScores> both = {a, b};
  const ExampleScores middle = mean(both);
  CHECK(middle.loss == std::vector<double>{0.75, 1.5, 2.5});
  CHECK(middle.correct == std::vector<double>{1, 0.5, 1.5});
  CHECK_THROWS_AS(difference(a, {{0.5}, {1}, {1}}), Error);
  CHECK(std::isnan(accuracy_of({{0}, {0}, {0}}).mean));
}

TEST_CASE("members must predict the same") {
  const data::Task task = toy_task(false);
  const LogitsFn wide = [](const data::Batch& batch, const nn::Pass&) {
    return Prediction{Variable(Tensor::zeros({batch.tokens.size(0), classes + 1})), batch.targets};
  };
  const std::vector<LogitsFn> differing = {constant({0, 0, 0}), wide};
  CHECK_THROWS_AS(evaluate_members(differing, *task.validation), ShapeError);
}

}  // namespace longhand::train
