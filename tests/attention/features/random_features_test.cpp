#include "longhand/attention/features/random_features.h"

#include "longhand/attention/analysis/kernel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;
using namespace longhand::test;

namespace {

double row_dot(const Tensor& w, int64_t a, int64_t b) {
  double sum = 0;
  for (int64_t d = 0; d < w.size(1); ++d) sum += w.at({a, d}) * w.at({b, d});
  return sum;
}

Options features(int64_t interval, const std::string& draw = "orthogonal") {
  Options options("attention");
  options.set("features", int64_t{10});
  options.set("redraw_interval", interval);
  options.set("draw", draw);
  return options;
}

struct Moments {
  double mean, standard_error;
};
template <class F>
Moments moments(int count, F f) {
  double sum = 0, squares = 0;
  for (int i = 0; i < count; ++i) {
    const double x = f(i);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / count;
  return {mean, std::sqrt((squares / count - mean * mean) / (count - 1))};
}

}  // namespace

TEST_CASE("random features: orthogonal within blocks, independent between them") {
  const int64_t D = 4, m = 10;
  const Tensor w = draw_orthogonal(Generator(3), m, D);
  REQUIRE(w.shape() == Shape{m, D});
  for (int64_t a = 0; a < m; ++a)
    for (int64_t b = 0; b < a; ++b) {
      const double cosine = row_dot(w, a, b) / std::sqrt(row_dot(w, a, a) * row_dot(w, b, b));
      INFO(a << ", " << b << ": " << cosine);
      if (a / D == b / D)
        CHECK(std::abs(cosine) <= 1e-12);
      else
        CHECK(std::abs(cosine) > 1e-6);
    }
  CHECK(identical(w, draw_orthogonal(Generator(3), m, D)));
  CHECK_FALSE(identical(w, draw_orthogonal(Generator(4), m, D)));
  // More features begin with the same ones.
  CHECK(identical(draw_orthogonal(Generator(3), 6, D), w.slice(0, 0, 6).contiguous()));
}

TEST_CASE("random features: rotations are orthogonal within blocks and not the axes") {
  const int64_t D = 6;
  const Tensor w = draw_givens(Generator(3), 8, D);
  for (int64_t a = 0; a < 8; ++a)
    for (int64_t b = 0; b < a; ++b)
      CHECK((std::abs(row_dot(w, a, b)) <= 1e-12) == (a / D == b / D));
  // Over many draws every row is symmetric and spread over all coordinates.
  for (const int64_t row : {0, 5})
    for (const int64_t d : {0, 3}) {
      const auto entry = [&](int i) {
        return draw_givens(Generator(8).fork(i), D, D).at({row, d});
      };
      const auto [mean, error] = moments(4000, entry);
      CHECK(std::abs(mean) <= 4 * error);
      const auto [square, square_error] = moments(4000, [&](int i) { return entry(i) * entry(i); });
      CHECK(std::abs(square - 1) <= 4 * square_error + 0.01);  // they mix, although not perfectly
    }
  CHECK(draw_givens(Generator(1), 3, 1).shape() == Shape{3, 1});
}

TEST_CASE("random features: rows of norm sqrt(D) where asked for") {
  for (const auto draw : {draw_gaussian, draw_orthogonal, draw_givens}) {
    const Tensor w = draw(Generator(2), 7, 5, RowNorm::sqrt_d);
    for (int64_t row = 0; row < 7; ++row) CHECK(row_dot(w, row, row) == Approx(5).epsilon(1e-12));
    // The directions are the same as with the other norm.
    const Tensor chi = draw(Generator(2), 7, 5, RowNorm::chi);
    for (int64_t row = 0; row < 7; ++row) {
      double both = 0;
      for (int64_t d = 0; d < 5; ++d) both += w.at({row, d}) * chi.at({row, d});
      CHECK(both == Approx(std::sqrt(5 * row_dot(chi, row, row))).epsilon(1e-12));
    }
  }
}

TEST_CASE("random features: the estimators' formulas") {
  const Tensor x = normal({3, 4}, 1), W = normal({5, 4}, 2), b = normal({5}, 3);
  const auto dot_of = [&](int64_t i, int64_t l) {
    double sum = 0;
    for (int64_t d = 0; d < 4; ++d) sum += x.at({i, d}) * W.at({l, d});
    return sum;
  };
  const Tensor positive = softmax_features(Estimator::positive, x, W);
  const Tensor hyperbolic = softmax_features(Estimator::hyperbolic, x, W);
  const Tensor waves_of = softmax_features(Estimator::trigonometric, x, W);
  const Tensor biased = softmax_features(Estimator::trigonometric_bias, x, W, b);
  const Tensor gaussian = gaussian_features(x, W), gaussian_biased = gaussian_features(x, W, b);
  for (int64_t i = 0; i < 3; ++i) {
    double h = 0;
    for (int64_t d = 0; d < 4; ++d) h += x.at({i, d}) * x.at({i, d}) / 2;
    for (int64_t l = 0; l < 5; ++l) {
      const double u = dot_of(i, l), phase = std::cos(u + b.at({l}));
      CHECK(positive.at({i, l}) == Approx(std::exp(u - h) / std::sqrt(5)).epsilon(1e-12));
      CHECK(hyperbolic.at({i, l}) == Approx(std::exp(u - h) / std::sqrt(10)).epsilon(1e-12));
      CHECK(hyperbolic.at({i, 5 + l}) == Approx(std::exp(-u - h) / std::sqrt(10)).epsilon(1e-12));
      CHECK(gaussian.at({i, l}) == Approx(std::cos(u) / std::sqrt(5)).margin(1e-14));
      CHECK(gaussian.at({i, 5 + l}) == Approx(std::sin(u) / std::sqrt(5)).margin(1e-14));
      CHECK(gaussian_biased.at({i, l}) == Approx(phase * std::sqrt(0.4)).margin(1e-14));
      CHECK(waves_of.at({i, 5 + l}) ==
            Approx(std::exp(h) * std::sin(u) / std::sqrt(5)).margin(1e-14));
      CHECK(biased.at({i, l}) == Approx(std::exp(h) * phase * std::sqrt(0.4)).margin(1e-14));
    }
  }
}

TEST_CASE("random features: one feature, one dimension") {
  CHECK(draw_orthogonal(Generator(1), 1, 1).shape() == Shape{1, 1});
  CHECK(draw_orthogonal(Generator(1), 3, 1).shape() == Shape{3, 1});
  CHECK(draw_orthogonal(Generator(1), 1, 5).shape() == Shape{1, 5});
}

// Every row is N(0, I): E exp(w·x - |x|²/2) = 1. LAPACK's Q without corrected signs gives 0.83
// here, and 0.32 for the first row alone.
TEST_CASE("random features: every row of an orthogonal block is unbiased") {
  const int64_t D = 4;
  const int draws = 20000;
  const std::vector<double> x{1, 0, 0, 0}, y{0.5, 0.5, -0.5, 0.5};
  for (const auto& z : {x, y})
    for (const int64_t row : {0, 1, 3, 4}) {
      const auto [mean, error] = moments(draws, [&](int i) {
        const Tensor w = draw_orthogonal(Generator(5).fork(i), row + 1, D);
        double u = 0;
        for (int64_t d = 0; d < D; ++d) u += w.at({row, d}) * z[d];
        return std::exp(u - 0.5);
      });
      INFO("row " << row << ": " << mean << " +- " << error);
      CHECK(std::abs(mean - 1) <= 4 * error);
      CHECK(error <= 0.02);
    }
}

// Choromanski et al. 2020, theorem 2: orthogonal rows estimate the kernel better than independent
// ones.
TEST_CASE("random features: orthogonal draws have less error than independent ones") {
  const int64_t D = 8, m = 8;
  const auto squared_error = [&](auto draw) {
    return moments(4000, [&](int i) {
      const Tensor w = draw(Generator(6).fork(i), m, D);
      double estimate = 0;  // of exp(x·y) for x = y = e_1 / 2, |x + y| = 1
      for (int64_t l = 0; l < m; ++l) estimate += std::exp(w.at({l, 0}) - 0.25);
      const double error = estimate / static_cast<double>(m) - std::exp(0.25);
      return error * error;
    });
  };
  const Moments orthogonal = squared_error(
      [](const Generator& g, int64_t rows, int64_t dim) { return draw_orthogonal(g, rows, dim); });
  const Moments iid = squared_error(
      [](const Generator& g, int64_t rows, int64_t dim) { return draw_gaussian(g, rows, dim); });
  // MSE of independent positive features: exp(|x + y|²) exp(2 x·y) (1 - exp(-|x + y|²)) / m.
  const double theory =
      std::exp(1.0) * std::exp(0.5) * (1 - std::exp(-1.0)) / static_cast<double>(m);
  INFO("orthogonal " << orthogonal.mean << " iid " << iid.mean << " theory " << theory);
  CHECK(std::abs(iid.mean - theory) <= 5 * iid.standard_error);
  CHECK(orthogonal.mean < iid.mean - 2 * (iid.standard_error + orthogonal.standard_error));
}

TEST_CASE("random features: redrawn at the right optimizer steps, and only there") {
  const std::string name = GENERATE(as<std::string>(), "performer", "rff");
  const std::string of = GENERATE(as<std::string>(), "features", "phases");
  const bool per_head = GENERATE(false, true);
  Options options = features(3);
  if (of == "phases")
    options.set(name == "rff" ? "waves" : "kernel",
                std::string(name == "rff" ? "cos_bias" : "trigonometric_bias"));
  if (per_head) options.set("heads", std::string("per_head"));
  const auto variant = make_variant(name, {}, options);
  const auto w = [&] { return variant->state_dict().at(of).clone(); };
  CHECK(w().rank() == (of == "phases" ? 1 : 2) + per_head);
  if (per_head) CHECK_FALSE(identical(w().select(0, 0).clone(), w().select(0, 1).clone()));
  const Tensor first = w();
  const Variable x(normal({1, 5, 2, 4}, 1));
  std::vector<Tensor> seen{first};
  for (int step = 1; step <= 9; ++step) {
    const Tensor before = w();
    // Forward passes do not change the features, in training or not.
    variant->forward(x, x, x, {}, {.training = true});
    variant->forward(x, x, x, {}, {});
    CHECK(identical(w(), before));
    variant->after_step();
    INFO("step " << step);
    CHECK(identical(w(), before) == (step % 3 != 0));
    if (step % 3 == 0) {
      for (const Tensor& other : seen) CHECK_FALSE(identical(w(), other));
      seen.push_back(w());
    }
  }
  const nn::StateDict state = variant->state_dict();
  CHECK(state.at("steps").item() == 9);
  CHECK(state.at("redraws").item() == 3);
  CHECK(state.at("random_state").shape() == Shape{2});
}

TEST_CASE("random features: 0 means never") {
  const auto variant = make_variant("performer", {}, features(0));
  const Tensor before = variant->state_dict().at("features").clone();
  for (int step = 0; step < 5; ++step) variant->after_step();
  CHECK(identical(variant->state_dict().at("features"), before));
}

TEST_CASE("random features: a loaded state goes on to the same draws") {
  const std::string draw = GENERATE(as<std::string>(), "orthogonal", "iid", "givens");
  const auto straight = make_variant("performer", {}, features(2, draw));
  for (int step = 0; step < 3; ++step) straight->after_step();
  nn::StateDict saved;
  for (const auto& [name, tensor] : straight->state_dict()) saved[name] = tensor.clone();
  // Another seed: the draws depend only on the loaded state.
  const auto resumed = make_variant("performer", {.seed = 1234}, features(2, draw));
  CHECK_FALSE(identical(resumed->state_dict().at("features"), saved.at("features")));
  resumed->load_state_dict(saved);
  for (int step = 0; step < 5; ++step) {
    straight->after_step();
    resumed->after_step();
    for (const auto& [name, tensor] : straight->state_dict())
      CHECK(identical(tensor, resumed->state_dict().at(name)));
  }
}

TEST_CASE("random features: the same seed gives the same features in f32 and f64") {
  const auto narrow = make_variant("performer", {.dtype = DType::f32});
  const auto wide = make_variant("performer", {});
  CHECK(identical(wide->state_dict().at("features").to(DType::f32),
                  narrow->state_dict().at("features")));
  const auto other = make_variant("performer", {.seed = 8});
  CHECK_FALSE(identical(wide->state_dict().at("features"), other->state_dict().at("features")));
}
