#include "longhand/attention/analysis/error.h"

#include <cmath>

#include "longhand/attention/analysis/measures.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;

namespace {

std::vector<HeadInputs> inputs(int64_t count, const RandomInputs& what, uint64_t seed = 1) {
  std::vector<HeadInputs> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(random_head(what, Generator(seed).fork(static_cast<uint64_t>(i))));
  return out;
}

Candidate with(const std::string& variant, OptionSet options = {}) {
  return {variant, std::move(options)};
}

}  // namespace

TEST_CASE("analysis: Performer's error decreases as m^(-1/2)") {
  const auto in = inputs(2, {.length = 96, .dim = 16, .norm = 1});
  const std::vector<double> sizes{16, 64, 256, 1024};
  for (const bool hyperbolic : {false, true}) {
    std::vector<Candidate> candidates;
    for (const double m : sizes)
      candidates.push_back(
          with("performer", {{"features", static_cast<int64_t>(m)},
                             {"draw", std::string("iid")},
                             {"kernel", std::string(hyperbolic ? "hyperbolic" : "positive")}}));
    const auto found = errors(in, candidates, {.draws = 6});
    std::vector<double> output, weights, gradient;
    for (size_t i = 1; i < found.size(); ++i) {
      output.push_back(found[i].output.mean);
      weights.push_back(found[i].weights.mean);
      gradient.push_back(found[i].dq.mean);
      CHECK(found[i].draws == 6);
      // |error|² = bias² + variance, of which little is bias.
      CHECK(found[i].bias_squared.mean + found[i].variance.mean ==
            Approx(std::pow(found[i].output.mean, 2)).epsilon(0.05));
      CHECK(std::abs(found[i].bias_squared.mean) <= 0.3 * found[i].variance.mean);
    }
    CHECK(fit_power(sizes, output).slope == Approx(-0.5).margin(0.05));
    CHECK(fit_power(sizes, weights).slope == Approx(-0.5).margin(0.05));
    CHECK(fit_power(sizes, gradient).slope == Approx(-0.5).margin(0.08));
    CHECK(output[0] > 2 * found.back().output.mean);
    CHECK(found[0].dq.mean == Approx(1));  // uniform attention, which ignores queries
  }
}

TEST_CASE("analysis: nystrom is exact at its rank, with A⁺, and no rank beats the SVD") {
  // Queries and keys that repeat: segment means are the tokens themselves, and P has rank 8.
  auto in = inputs(2, {.length = 8, .dim = 8, .norm = 5});
  for (HeadInputs& head : in)
    for (Tensor* const x : {&head.q, &head.k, &head.v}) {
      Tensor longer = Tensor::empty({1, 32, 1, 8}, DType::f64);
      for (int64_t i = 0; i < 32; ++i) copy_into(longer.select(1, i), x->select(1, i / 4));
      *x = longer;
    }
  const auto found =
      errors(in, {with("nystrom", {{"landmarks", int64_t{8}}, {"pinv", std::string("svd")}}),
                  with("nystrom", {{"landmarks", int64_t{4}}, {"pinv", std::string("svd")}}),
                  with("nystrom", {{"landmarks", int64_t{32}}})});
  CHECK(found[1].rank == 8);
  CHECK(found[1].output.mean <= 1e-9);
  CHECK(found[1].weights.mean <= 1e-9);
  CHECK(found[1].svd_floor.mean <= 1e-12);
  CHECK(found[2].weights.mean >= found[2].svd_floor.mean);
  CHECK(found[2].svd_floor.mean >= 1e-3);
  CHECK(!found[3].algorithm.empty());  // exact attention, and it says so
  CHECK(found[3].output.mean <= 1e-12);
}

TEST_CASE("analysis: exact variants have no error, and their gradients neither") {
  const auto in = inputs(2, {.length = 40, .dim = 8, .norm = 3, .correlation = 0.5});
  for (const bool causal : {false, true}) {
    const auto found = errors(in, {with("softmax"), with("window", {{"window", int64_t{40}}})},
                              {.causal = causal});
    for (size_t i = 1; i < 3; ++i)
      for (const Estimate* const e :
           {&found[i].output, &found[i].weights, &found[i].dq, &found[i].dk, &found[i].dv}) {
        CHECK(e->mean <= 1e-12);
        CHECK(e->count == 2);
      }
    CHECK(found[0].output.mean >= 0.1);
    CHECK(found[1].draws == 1);
  }
  CHECK_THROWS_AS(errors(in, {with("performer", {{"featurez", int64_t{4}}})}), ConfigError);
  CHECK_THROWS_AS(errors(in, {with("nystrom")}, {.causal = true}), ConfigError);
}

TEST_CASE("analysis: the floor of rank r is that of the singular values") {
  const auto in = inputs(1, {.length = 24, .dim = 6, .norm = 3});
  const auto found = rank_errors(in, {1, 6, 24});
  const auto svd_variant = errors(in, {with("svd", {{"rank", int64_t{6}}})});
  CHECK(found[1].weights.mean == Approx(svd_variant[1].weights.mean).epsilon(1e-9));
  CHECK(found[1].output.mean == Approx(svd_variant[1].output.mean).epsilon(1e-9));
  CHECK(svd_variant[1].svd_floor.mean == Approx(svd_variant[1].weights.mean).epsilon(1e-9));
  CHECK(found[0].weights.mean > found[1].weights.mean);
  CHECK(found[2].weights.mean <= 1e-12);
}

TEST_CASE("analysis: the residual of the pseudo-inverse by iteration") {
  const auto in = inputs(2, {.length = 64, .dim = 16, .norm = 12, .correlation = 0.95});
  const InverseError e = inverse_errors(in, 8, 60);
  REQUIRE(e.steps.size() == 61);
  CHECK(e.steps[0].residual.mean > 0.1);
  for (size_t i = 1; i < e.steps.size(); ++i)
    CHECK(e.steps[i].residual.mean <= e.steps[i - 1].residual.mean * 1.01 + 1e-9);
  CHECK(e.steps[60].residual.mean <= 1e-6);
  CHECK(e.steps[60].output.mean == Approx(e.pseudo_inverse.mean).epsilon(1e-3));
  // The estimate of the number of steps: the residual has vanished by then, but not long before.
  const auto expected = static_cast<size_t>(std::ceil(e.expected_steps.high));
  REQUIRE(expected < e.steps.size());
  CHECK(e.steps[expected].residual.mean <= 1e-3);
  // Six iterations are what the variant does.
  const auto variant =
      errors(in, {with("nystrom", {{"landmarks", int64_t{8}}, {"pinv_iterations", int64_t{6}}})});
  CHECK(e.steps[6].output.mean == Approx(variant[1].output.mean).epsilon(1e-6));
  CHECK_THROWS_AS(inverse_errors(in, 65), ConfigError);
}

TEST_CASE("analysis: errors are the same for any number of threads") {
  const auto in = inputs(2, {.length = 70, .dim = 8, .norm = 2});
  const int before = threads();
  std::vector<double> found[2];
  for (int i = 0; i < 2; ++i) {
    set_threads(i == 0 ? 1 : 3);
    for (const VariantError& e : errors(
             in, {with("performer", {{"features", int64_t{16}}}), with("nystrom")}, {.draws = 2}))
      found[i].insert(found[i].end(), {e.output.mean, e.weights.mean, e.dq.high, e.variance.low});
  }
  set_threads(before);
  CHECK(found[0] == found[1]);
}
