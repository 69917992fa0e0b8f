// The Monte-Carlo experiment with landmarks, and spectra.
#include "longhand/attention/analysis/landmarks.h"

#include <cmath>
#include <map>

#include "longhand/attention/analysis/spectrum.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;

TEST_CASE("analysis: on the linear kernel, D landmarks are exact; on softmax, only all tokens") {
  const auto found = landmark_errors(
      {.tokens = 50, .dim = 10, .landmarks = {1, 5, 9, 10, 11, 20, 50}, .draws = 60});
  std::map<LandmarkTarget, std::map<int64_t, LandmarkError>> of;
  for (const LandmarkError& e : found) of[e.target][e.landmarks] = e;
  REQUIRE(of.size() == 4);
  for (const int64_t m : {1, 5, 9}) {
    CHECK(of[LandmarkTarget::linear][m].exact == 0);
    CHECK(of[LandmarkTarget::linear][m].median > 0.1);
  }
  for (const int64_t m : {10, 11, 20, 50}) {
    CHECK(of[LandmarkTarget::linear][m].exact >= 0.95);
    CHECK(of[LandmarkTarget::linear][m].median <= 1e-9);
  }
  for (const LandmarkTarget target :
       {LandmarkTarget::exponential, LandmarkTarget::softmax, LandmarkTarget::nystrom}) {
    INFO(name_of(target));
    for (const int64_t m : {1, 10, 20}) CHECK(of[target][m].exact == 0);
    CHECK(of[target][20].median > 0.01);
    CHECK(of[target][50].median <= 1e-6);
  }
  for (const auto& e : found) {
    CHECK(e.low <= e.median);
    CHECK(e.median <= e.high);
    CHECK(e.mean.count == 60);
  }
  CHECK_THROWS_AS(landmark_errors({.tokens = 5, .landmarks = {6}}), ConfigError);
  CHECK(landmark_errors({.tokens = 6, .dim = 2, .draws = 2}).size() == 4 * 4);  // 1 … 2 D
}

TEST_CASE("analysis: landmark errors are the same for any number of threads") {
  const int before = threads();
  std::vector<double> found[2];
  for (int i = 0; i < 2; ++i) {
    set_threads(i == 0 ? 1 : 3);
    for (const LandmarkError& e : landmark_errors({.tokens = 12, .dim = 3, .draws = 9}))
      found[i].push_back(e.mean.mean);
  }
  set_threads(before);
  CHECK(found[0] == found[1]);
}

TEST_CASE("analysis: subsets are uniform and without repetition") {
  std::vector<int> counts(6);
  RandomStream random(Generator(1));
  for (int i = 0; i < 3000; ++i) {
    const auto subset = draw_subset(random, 6, 2);
    REQUIRE(subset.size() == 2);
    CHECK(subset[0] < subset[1]);
    for (const int64_t each : subset) ++counts[each];
  }
  for (const int n : counts) CHECK(std::abs(n - 1000) <= 110);
}

TEST_CASE("analysis: energy and rank of singular values") {
  const std::vector<double> values{4, 2, 1, 1};
  CHECK(cumulative_energy(values, false) == std::vector<double>{0.5, 0.75, 0.875, 1});
  CHECK(cumulative_energy(values, true)[0] == Approx(16.0 / 22));
  CHECK(energy_rank(values, 0.75, false) == 2);
  CHECK(energy_rank(values, 0.751, false) == 3);
  CHECK(energy_rank(values, 0.9, true) == 2);
  CHECK(energy_rank(values, 1, false) == 4);
  CHECK(entropy_rank({3, 3, 3}) == Approx(3));
  CHECK(entropy_rank({5, 0, 0}) == Approx(1));
}

TEST_CASE("analysis: spectra of attention") {
  const auto heads = [](double norm, int64_t length) {
    std::vector<HeadInputs> out;
    for (uint64_t i = 0; i < 3; ++i)
      out.push_back(random_head({.length = length, .dim = 8, .norm = norm}, Generator(i)));
    return out;
  };
  // Scores of norm 0 make all weights equal: rank 1.
  const Spectrum flat = spectrum(heads(0, 20));
  CHECK(flat.rank90.mean == 1);
  CHECK(flat.entropy_rank.mean == Approx(1));
  const Spectrum sharp = spectrum(heads(6, 64)), soft = spectrum(heads(1, 64));
  CHECK(sharp.rank90.mean > 2 * soft.rank90.mean);
  CHECK(sharp.rank90_squared.mean < sharp.rank90.mean);
  REQUIRE(sharp.points.size() == 64);
  CHECK(sharp.points[0].value.mean == 1);
  CHECK(sharp.points[63].energy.mean == Approx(1));
  CHECK(sharp.points[0].energy.count == 3);
  for (size_t i = 1; i < 64; ++i)
    CHECK(sharp.points[i].energy.mean >= sharp.points[i - 1].energy.mean);
  auto two = heads(2, 10);
  two[0] = heads(2, 12)[0];
  CHECK_THROWS_AS(spectrum(two), ConfigError);
}
