#include "longhand/train/step/evaluation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "longhand/autograd/gradcheck.h"
#include "longhand/train/step/cross_entropy.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using namespace test;

constexpr int32_t ignored = data::ignore_index;

}  // namespace

TEST_CASE("loss and accuracy are means over the targets that count") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const int64_t C = GENERATE(1, 2, 15, 16, 17, 40);
  Tensor logits = Tensor::empty({5, 7, C}, dtype);
  fill_normal(logits, Generator(1), 0, 3);
  std::vector<int32_t> targets(35);
  for (int i = 0; i < 35; ++i)
    targets[i] = i % 3 == 2 ? ignored : static_cast<int32_t>(Generator(2).bits(i) % C);

  const auto x = logits.to_vector<double>();
  double loss = 0;
  int64_t correct = 0, count = 0;
  for (int i = 0; i < 35; ++i) {
    if (targets[i] == ignored) continue;
    double sum = 0;
    bool top = true;
    for (int64_t c = 0; c < C; ++c) {
      sum += std::exp(x[i * C + c]);
      top = top && x[i * C + c] <= x[i * C + targets[i]];
    }
    loss += std::log(sum) - x[i * C + targets[i]];
    correct += top;
    ++count;
  }
  const Tensor given = Tensor::from(targets, {5, 7});
  const Metrics m = measure(logits, given);
  CHECK(std::abs(m.loss() - loss / static_cast<double>(count)) <=
        (dtype == DType::f64 ? 1e-12 : 1e-5));
  CHECK(m.correct == correct);
  CHECK(m.targets == count);
  CHECK(m.targets == data::count_targets(given));
  CHECK(m.accuracy() == static_cast<double>(correct) / static_cast<double>(count));
  CHECK(m.perplexity() == std::exp(m.loss()));
  CHECK(m.bits_per_byte() == Approx(m.loss() / std::log(2.0)));
  CHECK(count_correct(logits, given) == correct);

  // Permuted logits are the same logits.
  const Tensor permuted = logits.permute({2, 1, 0}).contiguous().permute({2, 1, 0});
  CHECK(measure(permuted, given).loss_sum == m.loss_sum);
}

TEST_CASE("logits of the targets that count give the metrics of all") {
  Tensor logits = Tensor::empty({2, 3, 4}, DType::f64);
  fill_normal(logits, Generator(1));
  const Tensor targets = Tensor::from<int32_t>({ignored, 2, ignored, 0, 3, ignored}, {2, 3});
  const std::vector<int32_t> places{1, 3, 4};
  CHECK(counted_places(targets).to_vector<int32_t>() == places);
  Tensor some = Tensor::empty({3, 4}, DType::f64);
  for (int64_t i = 0; i < 3; ++i)
    copy_into(some.select(0, i), logits.reshape({6, 4}).select(0, places[i]));
  const Tensor counted = targets_at(targets, counted_places(targets));
  CHECK(counted.to_vector<int32_t>() == std::vector<int32_t>{2, 0, 3});
  const Metrics all = measure(logits, targets), few = measure(some, counted);
  CHECK(few.targets == 3);
  CHECK(few.correct == all.correct);
  CHECK(few.loss() == Approx(all.loss()).epsilon(1e-12));
  CHECK_THROWS_AS(measure(some.slice(0, 0, 2), counted), ShapeError);
}

TEST_CASE("logits that are far apart neither overflow nor lose the loss") {
  const Tensor logits = Tensor::from(std::vector<float>{1000, 0, -1000, 1000, -5, -5}, {3, 2});
  const Metrics m = measure(logits, Tensor::from(std::vector<int32_t>{0, 0, 1}, {3}));
  CHECK(m.loss() == Approx((0 + 2000 + std::log(2.0)) / 3));
  CHECK(m.correct == 1);  // on ties, the first is the prediction
}

TEST_CASE("NaN is never a correct prediction") {
  const float nan = NAN, inf = std::numeric_limits<float>::infinity();
  const auto row = GENERATE_COPY(std::vector<float>{nan, 1}, std::vector<float>{1, nan},
                                 std::vector<float>{nan, nan}, std::vector<float>{inf, inf},
                                 std::vector<float>{-inf, -inf});
  const Tensor logits = Tensor::from(row, {1, 2});
  for (const int32_t target : {0, 1}) {
    const Metrics m = measure(logits, Tensor::from(std::vector<int32_t>{target}, {1}));
    CHECK(std::isnan(m.loss()));
    if (std::isnan(row[target])) CHECK(m.correct == 0);
  }
}

TEST_CASE("metrics of nothing are 0") {
  const Tensor targets = Tensor::full({2, 3}, ignored, DType::i32);
  const Metrics m = measure(Tensor::zeros({2, 3, 4}), targets);
  CHECK(m.loss() == 0);
  CHECK(m.accuracy() == 0);
  CHECK(m.targets == 0);
}

TEST_CASE("targets that do not fit the logits are refused") {
  const Tensor logits = Tensor::zeros({2, 3});
  CHECK_THROWS_WITH(measure(logits, Tensor::from(std::vector<int32_t>{0, 3}, {2})),
                    "metrics: target 3 is out of range for 3 classes");
  CHECK_THROWS_AS(measure(logits, Tensor::from(std::vector<int32_t>{0, -1}, {2})), DataError);
  CHECK_THROWS_AS(measure(logits, Tensor::zeros({3}, DType::i32)), ShapeError);
}

TEST_CASE("evaluation does not depend on the batches, nor on the threads") {
  const bool per_token = GENERATE(false, true);
  ToyModel model(DType::f64, per_token);
  const data::Task task = toy_task(per_token);
  const auto run = [&](int64_t batch_size, int64_t limit = 0) {
    return *evaluate(logits_of(model), *task.validation,
                     {.batch_size = batch_size, .limit = limit});
  };
  const Metrics all = run(23);
  CHECK(all.examples == 23);
  CHECK(run(4).loss() == Approx(all.loss()).epsilon(1e-12));
  CHECK(run(4).correct == all.correct);
  CHECK(run(4).tokens == all.tokens);
  CHECK(run(4, 9).examples == 9);
  CHECK(run(4, 99).examples == 23);
  Metrics parts;
  int64_t tokens = 0;
  for (int64_t i = 0; i < 9; ++i) {
    const data::Batch batch = task.validation->collate({&i, 1});
    parts += measure(model.forward(batch, {}).value(), batch.targets);
    tokens += data::count_tokens(batch);
  }
  CHECK(run(4, 9).tokens == tokens);
  CHECK(run(4, 9).loss() == Approx(parts.loss()).epsilon(1e-12));
  CHECK(run(4, 9).targets == parts.targets);

  double one_thread = 0;
  {
    const WithThreads with(1);
    one_thread = run(4).loss_sum;
  }
  const WithThreads with(3);
  CHECK(run(4).loss_sum == one_thread);
}

TEST_CASE("batches of more examples than are sorted at once hold each example once") {
  // Lengths alternate, so that sorting moves examples.
  struct Long final : data::Dataset {
    int64_t size() const override { return (1 << 20) + 300; }
    int64_t length(int64_t index) const override { return 1 + index % 2; }
    data::Batch collate(std::span<const int64_t>) const override { return {}; }
  };
  const Long dataset;
  std::vector<int> visits(static_cast<size_t>(dataset.size()));
  int64_t batches = 0;
  const auto visit = [&](const data::Batch&, std::span<const int64_t> examples) {
    ++batches;
    for (const int64_t i : examples) ++visits[static_cast<size_t>(i)];
  };
  REQUIRE(for_each_batch(dataset, {.batch_size = 1000, .begin = 100}, visit));
  CHECK(batches == (dataset.size() - 100 + 999) / 1000);
  CHECK(std::all_of(visits.begin(), visits.begin() + 100, [](int n) { return n == 0; }));
  CHECK(std::all_of(visits.begin() + 100, visits.end(), [](int n) { return n == 1; }));
}

TEST_CASE("evaluation records nothing and can be stopped") {
  ToyModel model(DType::f32, false);
  const data::Task task = toy_task(false);
  int calls = 0;
  const LogitsFn logits = [&](const data::Batch& batch, const nn::Pass& pass) {
    ++calls;
    CHECK_FALSE(pass.training);
    const Variable out = model.forward(batch, pass);
    CHECK_FALSE(out.requires_grad());
    return Prediction{out, batch.targets};
  };
  CHECK_FALSE(evaluate(logits, *task.validation,
                       {.batch_size = 5, .should_stop = [&] { return calls == 2; }}));
  CHECK(calls == 2);
  CHECK(grad_enabled());
  CHECK_THROWS_AS(evaluate(logits, *task.validation, {.batch_size = 0}), ConfigError);
}

TEST_CASE("evaluation of a mixture, segment by segment") {
  Options options("data");
  options.set("task", "copy");
  options.set("length", std::vector<int64_t>{8, 12});
  options.set("count", std::vector<int64_t>{2, 4});
  options.set("symbols", 5);
  options.set("test_size", std::vector<int64_t>{6, 9});
  const data::Task task = data::make_task(options, 1);
  // Always predicts symbol 1.
  const LogitsFn logits = [](const data::Batch& batch, const nn::Pass&) {
    Tensor out = Tensor::zeros({batch.tokens.size(0), batch.tokens.size(1), 7});
    Tensor ones = out.select(-1, 1);
    copy_into(ones, Tensor::full(ones.shape(), 1));
    return Prediction{Variable(out), batch.targets};
  };
  std::vector<int64_t> done;
  const auto parts = *evaluate_segments(
      logits, *task.test, {.batch_size = 4, .on_progress = [&](const EvaluationProgress& p) {
                             CHECK(p.all_examples == 15);
                             CHECK(p.all_batches == 5);
                             done.push_back(p.examples);
                           }});
  CHECK(done == std::vector<int64_t>{0, 4, 6, 6, 10, 14, 15});
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].name == "length 8, 2 symbols");
  CHECK(parts[0].metrics.examples == 6);
  CHECK(parts[0].metrics.targets == 12);
  CHECK(parts[1].metrics.targets == 36);
  Metrics sum = parts[0].metrics;
  sum += parts[1].metrics;
  const Metrics all = *evaluate(logits, *task.test, {.batch_size = 4});
  CHECK(sum.correct == all.correct);
  CHECK(sum.correct > 0);
  CHECK(sum.targets == all.targets);
  CHECK((*evaluate_segments(logits, *task.test, {.limit = 2}))[1].metrics.examples == 2);

  options.set("length", std::vector<int64_t>{8});
  options.set("count", std::vector<int64_t>{2});
  options.set("test_size", std::vector<int64_t>{6});
  const data::Task one = data::make_task(options, 1);
  const auto whole = *evaluate_segments(logits, *one.test);
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].name.empty());
  CHECK(whole[0].metrics.correct == parts[0].metrics.correct);
}

TEST_CASE("the parts of a batch have the logits of the whole, on all threads") {
  ToyModel model(DType::f64, true);
  const LogitsFn whole = logits_of(model);
  Tensor tokens = Tensor::zeros({7, 100}, DType::i32),
         targets = Tensor::zeros({7, 100}, DType::i32);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data<int32_t>()[i] = targets.data<int32_t>()[i] = static_cast<int32_t>(i % 3);
  const data::Batch batch{tokens, targets, {}};
  std::atomic<int> calls = 0, recorded = 0;
  const LogitsFn parts = in_parts([&](const data::Batch& part, const nn::Pass& pass) {
    ++calls;
    recorded += grad_enabled();
    return whole(part, pass);
  });
  const WithThreads with(3);
  const NoGrad no_grad;
  const Prediction joined = parts(batch, {}), expected = whole(batch, {});
  CHECK(calls == 7);  // of at most 128 tokens
  CHECK(recorded == 0);
  CHECK(joined.targets.to_vector<int32_t>() == targets.to_vector<int32_t>());
  const auto all = expected.logits.value().to_vector<double>(),
             found = joined.logits.value().to_vector<double>();
  REQUIRE(found.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) CHECK(found[i] == Approx(all[i]).epsilon(1e-12));
}

TEST_CASE("evaluation reports its progress") {
  ToyModel model(DType::f32, false);
  const data::Task task = toy_task(false);
  std::vector<int64_t> batches, examples;
  evaluate(logits_of(model), *task.validation,
           {.batch_size = 5, .limit = 12, .on_progress = [&](const EvaluationProgress& p) {
              CHECK(p.all_batches == 3);
              CHECK(p.all_examples == 12);
              batches.push_back(p.batches);
              examples.push_back(p.examples);
            }});
  CHECK(batches == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(examples == std::vector<int64_t>{0, 5, 10, 12});
}

TEST_CASE("the loss of numbers is the squared error, of labels the binary cross entropy") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const double tolerance = dtype == DType::f64 ? 1e-13 : 1e-5;
  Tensor logits = Tensor::empty({7, 3}, dtype), numbers = Tensor::empty({7, 3});
  fill_normal(logits, Generator(1), 0, 3);
  fill_normal(numbers, Generator(2), 1, 2);
  Tensor labels = Tensor::empty({7, 3}, DType::u8);
  for (int i = 0; i < 21; ++i) labels.data<uint8_t>()[i] = Generator(3).bits(i) % 3 == 0;
  const auto x = logits.to_vector<double>(), y = numbers.to_vector<double>(),
             l = labels.to_vector<double>();
  double squares = 0, entropy = 0, right = 0, tp = 0, wrong = 0;
  for (size_t i = 0; i < 21; ++i) {
    squares += (x[i] - y[i]) * (x[i] - y[i]) / 21;
    const double p = 1 / (1 + std::exp(-x[i]));
    entropy -= (l[i] * std::log(p) + (1 - l[i]) * std::log(1 - p)) / 21;
    (p > 0.5) == (l[i] == 1) ? ++right : ++wrong;
    tp += p > 0.5 && l[i] == 1;
  }
  const Metrics of_numbers = measure(logits, numbers), of_labels = measure(logits, labels);
  CHECK(std::abs(of_numbers.loss() - squares) <= tolerance * squares);
  CHECK(std::abs(of_numbers.rmse() - std::sqrt(squares)) <= tolerance * squares);
  CHECK(std::isnan(of_numbers.accuracy()));
  CHECK(of_numbers.targets == 21);
  CHECK(std::abs(of_labels.loss() - entropy) <= tolerance);
  CHECK(of_labels.accuracy() == right / 21);
  CHECK(of_labels.f1() == 2 * tp / (2 * tp + wrong));
  // What is trained is the same, also in two parts, and has the right gradients.
  for (const Tensor& targets : {numbers, labels}) {
    const BatchSize whole{.sequences = 7, .targets = 21};
    const double want = measure(logits, targets).loss();
    CHECK(std::abs(loss_of_targets(Variable(logits), targets, whole, 0).value().item() - want) <=
          tolerance * want);
    double sum = 0;
    for (const auto& [begin, end] : {std::pair{0, 3}, {3, 7}})
      sum += loss_of_targets(Variable(logits.slice(0, begin, end)), targets.slice(0, begin, end),
                             whole, 0)
                 .value()
                 .item();
    CHECK(std::abs(sum - want) <= tolerance * want);
    if (dtype == DType::f64) {
      const auto report = gradcheck(
          [&](const Variables& in) { return loss_of_targets(in[0], targets, whole, 0); }, {logits});
      INFO(report);
      CHECK(report.ok);
    }
    CHECK_THROWS_WITH(measure(logits.slice(1, 0, 2), targets),
                      Catch::Contains("one prediction for each number or label"));
  }
  // No overflow, and a NaN predicts nothing.
  const Tensor far = Tensor::from(std::vector<float>{1000, -1000, std::nanf("")}, {1, 3}),
               ones = Tensor::full({1, 3}, 1, DType::u8);
  const Metrics m = measure(far.slice(1, 0, 2), ones.slice(1, 0, 2));
  CHECK(m.loss() == 500);
  CHECK(m.correct == 1);
  CHECK(measure(far, ones).correct == 1);
}

}  // namespace longhand::train
