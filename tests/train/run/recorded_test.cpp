// What training records, by hand: losses, terms, accuracies and bits per byte.
#include <cmath>
#include <numbers>

#include "longhand/train/step/cross_entropy.h"
#include "longhand/train/step/optimizers.h"
#include "longhand/train/trainer.h"
#include "tests/support/catch.h"

namespace longhand::train {
namespace {

// One token in each of 12 examples of two classes. Every third target is ignored, so that tokens and targets
// differ in number.
class Fixed : public data::Dataset {
 public:
  int64_t size() const override { return 12; }
  int64_t length(int64_t) const override { return 3; }
  data::Batch collate(std::span<const int64_t> indices) const override {
    const int64_t B = std::ssize(indices);
    std::vector<int32_t> targets;
    for (int64_t b = 0; b < B; ++b) targets.insert(targets.end(), {0, 1, data::ignore_index});
    return {Tensor::full({B, 3}, 0, DType::i32), Tensor::from(targets, {B, 3}), {}};
  }
};

// The logits ln 3 and 0 for every token: the probabilities 3/4 and 1/4.
struct Constant : nn::Module {
  Constant() : Module(nn::root(DType::f64)) {}
  nn::Parameter logits{scope("logits"), {2}, [](Tensor& t, const Generator&) {
                         t.data<double>()[0] = std::log(3);
                         t.data<double>()[1] = 0;
                       }};
};

struct Recorded {
  std::vector<Record> records;  // of training
  Record validation;
  int64_t evaluated = 0;  // examples
  double logit = 0;       // the first one in the end
};

Recorded train_constant(TrainerOptions options, LossFn loss = {}) {
  Constant model;
  data::Task task;
  task.info = {.name = "fixed",
               .vocabulary = 1,
               .classes = 2,
               .per_token = true,
               .bytes = true,
               .max_length = 3};
  task.train = std::make_unique<Fixed>();
  task.validation = std::make_unique<Fixed>();
  data::Loader loader(*task.train, {.batch_size = 4}, Generator(1));
  const auto optimizer = make_sgd(model.named_parameters(), {});
  Recorded out;
  const LogitsFn logits = [&](const data::Batch& batch, const nn::Pass&) {
    return Prediction{broadcast_to(model.logits, {batch.tokens.size(0), 3, 2}), batch.targets};
  };
  // A learning rate near 0: the logits stay what they are up to rounding.
  Trainer trainer(
      model, logits, *optimizer, {Schedule::Kind::constant, 1e-9, 0, options.steps}, loader, task,
      options,
      {.on_record =
           [&](const Record& r) {
             if (r.split == "train")
               out.records.push_back(r);
             else
               out.validation = r;
           },
       .on_evaluation = [&](const EvaluationProgress& p) { out.evaluated = p.all_examples; }},
      {}, "", std::move(loss));
  trainer.run();
  out.logit = model.logits.value().data<double>()[0];
  return out;
}

// Cross entropies of the targets 0 and 1.
const double of_zero = std::log(4. / 3), of_one = std::log(4.);
const double of_data = (of_zero + of_one) / 2;

}  // namespace

TEST_CASE("records: the loss is that of the data, with label smoothing too") {
  const bool per_batch = GENERATE(true, false);
  TrainerOptions options{.step = {.micro_batches = per_batch ? 1 : 3}, .steps = 4, .log_every = 2};
  for (const double smoothing : {0.0, 0.4}) {
    CAPTURE(per_batch, smoothing);
    options.label_smoothing = smoothing;
    const Recorded found = train_constant(options);
    REQUIRE(found.records.size() == 2);
    for (const Record& record : found.records) {
      CHECK(record.loss == Approx(of_data));
      REQUIRE(record.bits_per_byte);
      CHECK(*record.bits_per_byte == Approx(of_data / std::numbers::ln2));
      // Half of the targets, not of the tokens, and of both steps of the interval.
      CHECK(record.accuracy == 0.5);
    }
    // What is minimised: the gradient of the first logit is 3/4 - q, q = (1 - e) 1/2 + e 1/2 = 1/2.
    CHECK(found.logit == Approx(std::log(3) - 4e-9 / 4).epsilon(1e-12));
  }
}

TEST_CASE("records: label smoothing is minimised") {
  // A single class of targets: q_0 = (1 - e) + e / 2 = 0.8 with e = 0.4; cross entropy 0.8 a + 0.2 b.
  Constant model;
  const LogitsFn logits = [&](const data::Batch& batch, const nn::Pass&) {
    return Prediction{broadcast_to(model.logits, {batch.tokens.size(0), 2}), batch.targets};
  };
  const data::Batch batch{
      Tensor::full({5, 1}, 0, DType::i32), Tensor::full({5}, 0, DType::i32), {}};
  const Loss loss = cross_entropy_loss(logits, 0.4)(batch, size_of(batch), nn::Pass::evaluate());
  CHECK(loss.value.value().item() == Approx(0.8 * of_zero + 0.2 * of_one));
  CHECK(loss.recorded() == Approx(of_zero));
  CHECK(loss.correct == 5);
  const Loss plain = cross_entropy_loss(logits, 0)(batch, size_of(batch), nn::Pass::evaluate());
  CHECK(plain.value.value().item() == Approx(of_zero));
  CHECK(plain.recorded() == plain.value.value().item());
}

TEST_CASE("records: terms are means over steps, and bits per byte are of the cross entropy") {
  const LossFn loss = [](const data::Batch& part, const BatchSize& whole, const nn::Pass&) {
    const double share =
        static_cast<double>(part.tokens.size(0)) / static_cast<double>(whole.sequences);
    Loss out;
    out.value = Variable(Tensor::full({}, 7 * share, DType::f64), true);
    out.terms = {{"cross_entropy", 3 * share}, {"other", 4 * share}};
    return out;
  };
  const Recorded found =
      train_constant({.step = {.micro_batches = 2}, .steps = 6, .log_every = 3}, loss);
  REQUIRE(found.records.size() == 2);
  for (const Record& record : found.records) {
    CHECK(record.loss == Approx(7));
    CHECK(record.terms.at("cross_entropy") == Approx(3));
    CHECK(record.terms.at("other") == Approx(4));
    CHECK(*record.bits_per_byte == Approx(3 / std::numbers::ln2));
  }
}

TEST_CASE("records: eval_batches counts batches, and validation is that of the data") {
  TrainerOptions options{.steps = 1, .label_smoothing = 0.4, .eval_every = 1};
  options.eval_batches = 2;
  options.eval_batch_size = 5;
  const Recorded found = train_constant(options);
  CHECK(found.evaluated == 10);
  const Record& validation = found.validation;
  CHECK(validation.split == "validation");
  CHECK(validation.loss == Approx(of_data));
  CHECK(*validation.bits_per_byte == Approx(of_data / std::numbers::ln2));
  CHECK(validation.accuracy == 0.5);
}

}  // namespace longhand::train
