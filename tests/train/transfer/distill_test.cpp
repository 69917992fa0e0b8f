// Distillation: the terms of the loss, what counts, and errors.
#include "longhand/train/transfer/distill.h"

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/run/run.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using Catch::Contains;
using longhand::test::message_of;
using namespace test;

/// A model in f64 for the sequences of ToyDataset.
std::unique_ptr<attention::Transformer> model(const std::string& variant, uint64_t seed,
                                              const std::vector<std::string>& assignments = {}) {
  Config config = Config::parse(
      "[model]\nvocabulary = 8\nclasses = 3\nper_token = true\nmax_length = 6\n"
      "d_model = 8\nheads = 2\nlayers = 2\nd_mlp = 8\n",
      "model");
  config.assign("attention.type=" + variant);
  for (const std::string& assignment : assignments) config.assign(assignment);
  return std::make_unique<attention::Transformer>(nn::root(DType::f64, seed),
                                                  read_model(config, nullptr));
}

data::Batch toy_batch(int64_t size, bool per_token = true) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < size; ++i) indices.push_back(i);
  return ToyDataset(size, per_token, 3).collate(indices);
}

DistillOptions weighted(double logits, double outputs, double weights) {
  DistillOptions o;
  o.logits = logits, o.outputs = outputs, o.weights = weights;
  return o;
}

/// A student, its teacher, and their loss.
struct Pair {
  Pair(const std::string& student_variant, const DistillOptions& options, uint64_t teacher_seed = 2,
       const std::vector<std::string>& more = {})
      : student(model(student_variant, 1, more)),
        distillation(model("softmax", teacher_seed, more), *student, toy_task(true).info, options) {
  }
  Loss loss(const data::Batch& batch) {
    return distillation.loss(batch, size_of(batch), nn::Pass::evaluate());
  }

  std::unique_ptr<attention::Transformer> student;
  Distillation distillation;
};

/// The observed inputs and results of each layer in a forward pass.
struct Layers {
  std::vector<Variable> q, k, out;

  Layers(attention::Transformer& of, const data::Batch& batch) {
    const attention::analysis::ObservedLayers observed(
        of, [this](int64_t, const attention::Inputs& in, const auto&, const Variable& result) {
          q.push_back(in.q), k.push_back(in.k), out.push_back(result);
        });
    const NoGrad no_grad;
    logits = of.forward(batch.tokens, batch.lengths, {}).value().to_vector<double>();
  }
  std::vector<double> logits;
};

/// softmax(x / t) of one row.
std::vector<double> probabilities(const double* x, int64_t n, double t) {
  std::vector<double> p;
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += p.emplace_back(std::exp(x[j] / t));
  for (double& each : p) each /= sum;
  return p;
}

double divergence(const double* teacher, const double* student, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j)
    if (teacher[j] > 0) sum += teacher[j] * std::log(teacher[j] / student[j]);
  return sum;
}

}  // namespace

TEST_CASE("distillation: every term is as defined") {
  const DistillOptions options = weighted(0.25, 2, 3);
  Pair pair("softmax", options);
  const data::Batch batch = toy_batch(5);
  const Loss loss = pair.loss(batch);
  const auto teacher_model = model("softmax", 2);
  const Layers student(*pair.student, batch), teacher(*teacher_model, batch);
  const BatchSize size = size_of(batch);
  REQUIRE(size.targets < size.tokens);
  REQUIRE(size.tokens < batch.tokens.numel());

  const auto targets = batch.targets.to_vector<int32_t>();
  double cross_entropy = 0, logits = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == data::ignore_index) continue;
    const double* const x = student.logits.data() + 3 * i;
    cross_entropy -= std::log(probabilities(x, 3, 1)[static_cast<size_t>(targets[i])]);
    const auto p = probabilities(x, 3, 2), q = probabilities(teacher.logits.data() + 3 * i, 3, 2);
    logits += 4 * divergence(q.data(), p.data(), 3);
  }
  cross_entropy /= static_cast<double>(size.targets);
  logits /= static_cast<double>(size.targets);

  const auto lengths = batch.lengths.to_vector<int32_t>();
  const int64_t B = batch.tokens.size(0), N = batch.tokens.size(1), H = 2, D = 4;
  double outputs = 0, weights = 0;
  const Tensor visible = attention::definitions::visible(N, N, {.lengths = batch.lengths});
  for (size_t layer = 0; layer < 2; ++layer) {
    const auto a = student.out[layer].value().to_vector<double>(),
               b = teacher.out[layer].value().to_vector<double>();
    const auto maps = [&](const Layers& of) {
      return attention::definitions::softmax(of.q[layer], of.k[layer], visible)
          .value()
          .to_vector<double>();
    };
    const auto p = maps(student), q = maps(teacher);
    for (int64_t s = 0; s < B; ++s)
      for (int64_t i = 0; i < lengths[static_cast<size_t>(s)]; ++i) {
        for (int64_t e = (s * N + i) * H * D; e < (s * N + i + 1) * H * D; ++e)
          outputs += (a[e] - b[e]) * (a[e] - b[e]);
        for (int64_t h = 0; h < H; ++h) {
          const int64_t row = ((s * H + h) * N + i) * N;
          weights += divergence(q.data() + row, p.data() + row, N);
        }
      }
  }
  outputs /= static_cast<double>(2 * size.tokens * H * D);
  weights /= static_cast<double>(2 * size.tokens * H);

  CHECK(loss.terms.size() == 4);
  CHECK(loss.terms.at("cross_entropy") == Approx(cross_entropy).epsilon(1e-10));
  CHECK(loss.terms.at("distill_logits") == Approx(logits).epsilon(1e-10));
  CHECK(loss.terms.at("distill_outputs") == Approx(outputs).epsilon(1e-10));
  CHECK(loss.terms.at("distill_weights") == Approx(weights).epsilon(1e-8));
  CHECK(loss.value.value().item() ==
        Approx(0.75 * cross_entropy + 0.25 * logits + 2 * outputs + 3 * weights).epsilon(1e-9));
}

TEST_CASE("distillation: terms without a weight are left out") {
  const data::Batch batch = toy_batch(3);
  const auto terms = [&](const DistillOptions& options) {
    std::vector<std::string> names;
    for (const auto& [name, value] : Pair("softmax", options).loss(batch).terms)
      names.push_back(name);
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(terms(weighted(0, 1, 0)) == Names{"cross_entropy", "distill_outputs"});
  CHECK(terms(weighted(0, 0, 1)) == Names{"cross_entropy", "distill_weights"});
  CHECK(terms(weighted(1, 0, 0)) == Names{"cross_entropy", "distill_logits"});
  Pair pair("softmax", weighted(1, 0, 0));
  const Loss loss = pair.loss(batch);
  CHECK(loss.value.value().item() == Approx(loss.terms.at("distill_logits")));
}

TEST_CASE("distillation: the teacher has the weights of its run") {
  const TemporaryDirectory dir;
  Run::create(tiny_run(), dir / "run")->train();
  const Teacher teacher = load_teacher({.from = (dir / "run").string(), .checkpoint = "last"});
  const nn::StateDict expected = load(dir / "run/checkpoints/last.h5").model;
  const nn::StateDict found = teacher.model->state_dict();
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    CHECK(identical(found.at(name), tensor));
  }
}

TEST_CASE("distillation: gradients agree with differences") {
  const std::string variant = GENERATE("softmax", "linear", "efficient", "performer");
  CAPTURE(variant);
  Pair pair(variant, weighted(0.6, 2, 3));
  const data::Batch batch = toy_batch(3);
  backward(pair.loss(batch).value);
  for (auto& [name, parameter] : pair.student->named_parameters()) {
    Variable handle = parameter;
    const Tensor gradient = handle.take_grad();
    CAPTURE(name);
    double* const value = handle.mutable_value().data<double>();
    for (const int64_t i : {int64_t{0}, handle.value().numel() / 2}) {
      const double before = value[i], step = 1e-5;
      const auto at = [&](double x) {
        const NoGrad no_grad;
        value[i] = x;
        return pair.loss(batch).value.value().item();
      };
      const double numeric = (at(before + step) - at(before - step)) / (2 * step);
      value[i] = before;
      const double analytic = gradient.defined() ? gradient.to_vector<double>()[i] : 0;
      CHECK(analytic == Approx(numeric).margin(1e-7).epsilon(1e-5));
    }
  }
}

TEST_CASE("distillation: a student equal to its teacher has loss 0 and gradient 0") {
  Pair pair("softmax", weighted(1, 1, 1), 1);
  const Loss loss = pair.loss(toy_batch(4));
  CHECK(loss.terms.at("cross_entropy") > 0);
  for (const char* const term : {"distill_logits", "distill_outputs", "distill_weights"})
    CHECK(loss.terms.at(term) == 0);
  CHECK(loss.value.value().item() == 0);
  backward(loss.value);
  for (auto& [name, parameter] : pair.student->named_parameters()) {
    INFO(name);
    const Tensor gradient = Variable(parameter).take_grad();
    if (gradient.defined())
      for (const double g : gradient.to_vector<double>()) CHECK(std::abs(g) < 1e-14);
  }
}

TEST_CASE("distillation: padding and ignored targets do not count") {
  const DistillOptions options = weighted(0.5, 1, 1);
  Pair pair("linear", options);
  const data::Batch batch = toy_batch(4);
  const double loss = pair.loss(batch).value.value().item();
  const auto lengths = batch.lengths.to_vector<int32_t>();
  data::Batch padded = batch;
  padded.tokens = batch.tokens.clone();
  const int64_t N = batch.tokens.size(1);
  for (int64_t b = 0; b < 4; ++b)
    for (int64_t i = lengths[static_cast<size_t>(b)]; i < N; ++i)
      padded.tokens.data<int32_t>()[b * N + i] = 7;
  CHECK(pair.loss(padded).value.value().item() == loss);

  // Without targets, a sequence adds nothing to the divergence of the predictions.
  Pair logits("linear", weighted(1, 0, 0));
  data::Batch some = batch;
  some.targets = batch.targets.clone();
  some.targets.select(0, 3).fill(data::ignore_index);
  const data::Batch three{batch.tokens.slice(0, 0, 3), batch.targets.slice(0, 0, 3),
                          batch.lengths.slice(0, 0, 3)};
  CHECK(logits.loss(some).value.value().item() ==
        Approx(logits.loss(three).value.value().item()).epsilon(1e-12));
}

TEST_CASE("distillation: the parts of a batch add up to the whole") {
  const std::vector<std::string> sequences = {"model.per_token=false", "model.pooling=cls"};
  const bool per_token = GENERATE(true, false);
  Pair pair("linear", weighted(0.5, 1, 1), 2, per_token ? std::vector<std::string>{} : sequences);
  const data::Batch batch = toy_batch(5, per_token);
  const Loss whole = pair.loss(batch);
  std::map<std::string, double> sums;
  for (const auto& [begin, end] : {std::pair{0, 2}, {2, 5}}) {
    const data::Batch part{batch.tokens.slice(0, begin, end), batch.targets.slice(0, begin, end),
                           batch.lengths.slice(0, begin, end)};
    const Loss loss = pair.distillation.loss(part, size_of(batch), nn::Pass::evaluate());
    for (const auto& [name, value] : loss.terms) sums[name] += value;
  }
  for (const auto& [name, value] : whole.terms) {
    INFO(name);
    CHECK(sums.at(name) == Approx(value).epsilon(1e-11));
  }
}

TEST_CASE("distillation: keys that the student cannot see have no infinite cost") {
  Pair pair("window", weighted(0, 0, 1), 2, {"attention.window=1"});
  const Loss loss = pair.loss(toy_batch(3));
  CHECK(std::isfinite(loss.value.value().item()));
  backward(loss.value);
  for (auto& [name, parameter] : pair.student->named_parameters())
    if (const Tensor gradient = Variable(parameter).take_grad(); gradient.defined())
      for (const double g : gradient.to_vector<double>()) CHECK(std::isfinite(g));
}

TEST_CASE("distillation: a teacher of another width teaches its predictions only") {
  const auto make = [](const DistillOptions& options) {
    const auto student = model("linear", 1);
    Distillation distillation(model("softmax", 2, {"model.d_model=16"}), *student,
                              toy_task(true).info, options);
    const data::Batch batch = toy_batch(3);
    return distillation.loss(batch, size_of(batch), nn::Pass::evaluate()).terms.size();
  };
  CHECK(make(weighted(0.5, 0, 0)) == 2);
  CHECK_THAT(message_of<ConfigError>([&] { make(weighted(0.5, 1, 0)); }),
             Contains("train.distill_outputs") && Contains("model.d_model = 16") &&
                 Contains("the student 8"));
}

TEST_CASE("distillation: errors name what differs") {
  const auto error = [](const std::string& student, const std::vector<std::string>& of_teacher,
                        const DistillOptions& options) {
    return message_of<ConfigError>([&] {
      const auto trained = model(student, 1);
      const Distillation made(model("softmax", 2, of_teacher), *trained, toy_task(true).info,
                              options);
    });
  };
  const DistillOptions logits = weighted(0.5, 0, 0);
  CHECK_THAT(
      error("linear", {"model.vocabulary=9"}, logits),
      Contains("train.distill_from") && Contains("model.vocabulary = 9") && Contains("student 8"));
  CHECK_THAT(error("linear", {"model.classes=4"}, logits), Contains("model.classes = 4"));
  CHECK_THAT(error("linear", {"model.per_token=false"}, logits),
             Contains("one target per sequence"));
  CHECK_THAT(error("linear", {"model.max_length=5"}, logits),
             Contains("model.max_length = 5") && Contains("sequences of up to 6"));
  CHECK_THAT(error("linear", {"model.layers=3"}, weighted(0.5, 0, 1)),
             Contains("train.distill_weights") && Contains("model.layers = 3"));
  CHECK_THAT(error("linear", {"model.heads=4"}, weighted(0.5, 1, 0)), Contains("model.heads = 4"));
  for (const std::string variant : {"nystrom", "skyformer", "rff", "linformer"}) {
    INFO(variant);
    CHECK_THAT(error(variant, {}, weighted(0.5, 0, 1)),
               Contains("layer 0 of the student, " + variant) && Contains("distill_outputs"));
  }
}

TEST_CASE("distillation: options that do not apply are refused") {
  const auto error = [](const std::string& options) {
    return message_of<ConfigError>([&] {
      check_config(Config::parse("[data]\ntask = 'copy'\n[train]\n" + options, "c.toml"));
    });
  };
  CHECK_THAT(error("distill_logits = 0.5\n"),
             Contains("train.distill_logits") && Contains("only with distill_from"));
  CHECK_THAT(error("init_checkpoint = 'last'\n"), Contains("only with init_from"));
  CHECK_THAT(error("recompute = true\ndistill_from = 'x'\ndistill_outputs = 1\n"),
             Contains("train.recompute = false"));
  CHECK_THAT(error("recompute = true\ndistill_from = 'x'\ndistill_weights = 1\n"),
             Contains("train.recompute = false"));
  CHECK_THAT(error("distill_from = 'x'\ndistill_logits = 1.5\n"),
             Contains("train.distill_logits = 1.5") && Contains("0 to 1"));
}

}  // namespace longhand::train
