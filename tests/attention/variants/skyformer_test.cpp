#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {}  // namespace

TEST_CASE("skyformer: all rows as landmarks with an exact inverse are exact") {
  const bool padded = GENERATE(false, true);
  const int64_t N = 9;
  const Mask mask = padded ? lengths({9, 4}) : Mask{};
  // Far enough apart that the kernel matrix is well conditioned.
  const Tensor q = normal({2, N, 2, 4}, 1, DType::f64, 2),
               k = normal({2, N, 2, 4}, 2, DType::f64, 2), v = normal({2, N, 2, 4}, 3);
  const auto exact = make_variant("gaussian", {}, options_of({{"normalized", false}}));
  const Tensor expected = forward(*exact, q, k, v, mask);
  for (const int64_t landmarks : {18, 40}) {
    const auto variant =
        make_variant("skyformer", {},
                     options_of({{"landmarks", landmarks}, {"gamma", 0.0}, {"inverse", "exact"}}));
    CHECK(near(forward(*variant, q, k, v, mask), expected, 1e-9));
    CHECK_FALSE(variant->algorithm(9).empty());
    CHECK(variant->algorithm(900).empty());
    // The iteration converges to the same.
    const auto iterated = make_variant(
        "skyformer", {},
        options_of({{"landmarks", landmarks}, {"gamma", 0.0}, {"inverse_iterations", 40}}));
    CHECK(near(forward(*iterated, q, k, v, mask), expected, 1e-6));
  }
  const auto few = make_variant(
      "skyformer", {}, options_of({{"landmarks", 4}, {"gamma", 0.0}, {"inverse", "exact"}}));
  CHECK_FALSE(near(forward(*few, q, k, v, mask), expected, 1e-2));
}

TEST_CASE("skyformer: landmarks interpolate their own rows") {
  // gamma = 0: C is exact between landmarks. For close points, landmarks explain most of the
  // kernel.
  const auto variant =
      make_variant("skyformer", {.heads = 1, .max_length = 64},
                   options_of({{"landmarks", 32}, {"gamma", 1e-9}, {"inverse", "exact"}}));
  const auto exact =
      make_variant("gaussian", {.heads = 1, .max_length = 64}, options_of({{"normalized", false}}));
  const Tensor q = normal({1, 64, 1, 4}, 1, DType::f64, 0.4),
               k = normal({1, 64, 1, 4}, 2, DType::f64, 0.4), v = normal({1, 64, 1, 4}, 3);
  CHECK(near(forward(*variant, q, k, v), forward(*exact, q, k, v), 0.05));
}

TEST_CASE("skyformer: landmarks are drawn by optimizer steps and restored from a checkpoint") {
  const auto options = [] { return options_of({{"landmarks", 4}, {"redraw_interval", 2}}); };
  const auto variant = make_variant("skyformer", {}, options());
  const Tensor q = normal({2, 13, 2, 4}, 1), k = normal({2, 13, 2, 4}, 2),
               v = normal({2, 13, 2, 4}, 3);
  const Tensor first = forward(*variant, q, k, v);
  CHECK(identical(forward(*variant, q, k, v), first));
  variant->after_step();
  CHECK(identical(forward(*variant, q, k, v), first));
  variant->after_step();
  const Tensor second = forward(*variant, q, k, v);
  CHECK_FALSE(near(second, first, 1e-3));
  const auto resumed = make_variant("skyformer", {.seed = 99}, options());
  CHECK_FALSE(near(forward(*resumed, q, k, v), second, 1e-3));
  resumed->load_state_dict(variant->state_dict());
  CHECK(identical(forward(*resumed, q, k, v), second));
}

TEST_CASE("skyformer: all tokens are drawn equally often") {
  const auto variant =
      make_variant("skyformer", {.heads = 1}, options_of({{"landmarks", 4}, {"inverse", "exact"}}));
  // Points are far apart: a key has weight only on itself, if it is a landmark.
  const int64_t N = 6, draws = 3000;
  Tensor x = Tensor::zeros({1, N, 1, 4}, DType::f64);
  for (int64_t i = 0; i < N; ++i) x.slice(1, i, i + 1).fill(static_cast<double>(30 * i));
  const Tensor ones = Tensor::full({1, N, 1, 4}, 1, DType::f64);
  std::vector<double> hits(N, 0);
  for (int64_t draw = 0; draw < draws; ++draw) {
    variant->after_step();
    const Tensor out = forward(*variant, x, x, ones);
    for (int64_t i = 0; i < N; ++i) hits[i] += out.at({0, i, 0, 0}) > 0.5;
  }
  // A row is missed if it is neither of 2 queries nor of 2 keys drawn from 6.
  const double expected = 1 - (4.0 / 6) * (4.0 / 6);
  for (const double count : hits)
    CHECK(std::abs(count / draws - expected) <= 4 * std::sqrt(expected * (1 - expected) / draws));
}

TEST_CASE("skyformer: options that do not apply are refused, with the reason") {
  const auto with = [](const Settings& settings, bool causal = false) {
    const Options options = options_of(settings);
    make_variant("skyformer", {.causal = causal}, options);
  };
  CHECK_NOTHROW(with({{"landmarks", 4}}));
  CHECK_THROWS_WITH(with({{"landmarks", 4}}, true), Catch::Contains("all tokens"));
  CHECK_THROWS_WITH(with({{"landmarks", 3}}), Catch::Contains("even"));
  CHECK_THROWS_WITH(with({{"dropout", 0.1}}), Catch::Contains("no attention probabilities"));
  CHECK_THROWS_AS(with({{"normalized", false}}), ConfigError);
  CHECK_THROWS_WITH(with({{"inverse", "exact"}, {"inverse_iterations", 3}}),
                    Catch::Contains("inverse = \"iterative\""));
}
