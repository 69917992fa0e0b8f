#include "longhand/train/step/optimizers.h"

#include <cmath>

#include "longhand/core/random.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"
#include "tests/train/toy.h"

namespace longhand::train {
namespace {

using test::normal;

/// A matrix and a vector, as in a linear layer.
Parameters two_parameters(DType dtype) {
  return {{"weight", Variable(normal({3, 5}, dtype, 1), true)},
          {"bias", Variable(normal({5}, dtype, 2), true)}};
}

Gradients two_gradients(DType dtype, uint64_t step) {
  return {normal({3, 5}, dtype, 100 + step), normal({5}, dtype, 200 + step)};
}

/// One number and its moving averages, by the formulas of the papers.
struct Reference {
  double theta, m = 0, v = 0;

  void sgd(double g, double lr, double mu, bool nesterov, double lambda) {
    g += lambda * theta;
    m = mu * m + g;
    theta -= lr * (nesterov ? g + mu * m : m);
  }
  void adam(double g, double lr, double b1, double b2, double eps, double lambda, bool decoupled,
            int t) {
    if (decoupled)
      theta -= lr * lambda * theta;
    else
      g += lambda * theta;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, t)), v_hat = v / (1 - std::pow(b2, t));
    theta -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

/// Runs six steps of `optimizer` and of `formula` side by side.
template <class Formula>
void compare(Optimizer& optimizer, DType dtype, double scale, Decay decay, double lambda,
             Formula formula) {
  std::vector<std::vector<Reference>> references;
  for (const auto& [name, parameter] : optimizer.parameters()) {
    references.emplace_back();
    for (const double x : parameter.value().template to_vector<double>())
      references.back().push_back({x});
  }
  for (int t = 1; t <= 6; ++t) {
    const double lr = 0.1 / t;
    const Gradients gradients = two_gradients(dtype, t);
    optimizer.step(lr, gradients, scale);
    for (size_t p = 0; p < references.size(); ++p) {
      const Tensor& value = optimizer.parameters()[p].second.value();
      const double l = decay == Decay::all || value.rank() > 1 ? lambda : 0;
      const auto g = gradients[p].to_vector<double>();
      const auto found = value.to_vector<double>();
      for (size_t i = 0; i < found.size(); ++i) {
        formula(references[p][i], scale * g[i], lr, l, t);
        const double expected = references[p][i].theta;
        INFO("step " << t << " parameter " << p << " element " << i);
        CHECK(std::abs(found[i] - expected) <=
              (dtype == DType::f64 ? 1e-13 : 2e-6) * (1 + std::abs(expected)));
      }
    }
  }
  CHECK(optimizer.steps() == 6);
}

}  // namespace

TEST_CASE("sgd follows its formula") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const double momentum = GENERATE(0.0, 0.9);
  const bool nesterov = GENERATE(false, true);
  const Decay decay = GENERATE(Decay::all, Decay::matrices);
  const double lambda = GENERATE(0.0, 0.3), scale = GENERATE(1.0, 0.25);
  if (nesterov && momentum == 0) return;
  const auto optimizer = make_sgd(two_parameters(dtype), {momentum, nesterov, lambda, decay});
  compare(*optimizer, dtype, scale, decay, lambda,
          [&](Reference& r, double g, double lr, double l, int) {
            r.sgd(g, lr, momentum, nesterov, l);
          });
}

TEST_CASE("adam and adamw follow their formulas") {
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const bool decoupled = GENERATE(false, true);
  const Decay decay = GENERATE(Decay::all, Decay::matrices);
  const double lambda = GENERATE(0.0, 0.3), scale = GENERATE(1.0, 0.25);
  const double eps = GENERATE(1e-8, 0.5);  // a large value reveals where it is added
  const auto optimizer =
      make_adam(two_parameters(dtype), {0.8, 0.95, eps, lambda, decoupled, decay});
  compare(*optimizer, dtype, scale, decay, lambda,
          [&](Reference& r, double g, double lr, double l, int t) {
            r.adam(g, lr, 0.8, 0.95, eps, l, decoupled, t);
          });
}

TEST_CASE("adam takes the right steps for betas near 1, or refuses them") {
  const double beta2 = GENERATE(0.999, 0.99999, 0.999999, 0.9999999, 0.99999999);
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const double beta1 = GENERATE(0.0, 0.3, 0.9, 0.999);
  CAPTURE(beta1, beta2, dtype);
  Variable x(Tensor::zeros({1}, dtype), true);
  const AdamOptions options{.beta1 = beta1, .beta2 = beta2, .eps = 1e-30};
  if (dtype == DType::f32 && beta2 > 0.999999) {
    // f32 cannot add a 10-millionth of a square to an average of squares.
    CHECK_THROWS_WITH(make_adam({{"x", x}}, options), Catch::StartsWith("adam: beta2"));
    return;
  }
  const auto optimizer = make_adam({{"x", x}}, options);
  double m = 0, v = 0;
  for (int t = 1; t <= 300; ++t) {
    const Tensor g = normal({1}, dtype, 100 + t);
    const double value = g.at({0});
    m += (1 - beta1) * (value - m);
    v += (1 - beta2) * (value * value - v);
    const auto weights = [&](double beta) {
      return beta == 0 ? 1 : -std::expm1(t * std::log(beta));
    };
    const double expected = -(m / weights(beta1)) / std::sqrt(v / weights(beta2));
    x.mutable_value().fill(0);
    optimizer->step(1, {g});
    INFO("step " << t << ": " << x.value().at({0}) << ", expected " << expected);
    // Where the average of gradients is near 0, its error is that of the gradients.
    CHECK(std::abs(x.value().at({0}) - expected) <=
          (dtype == DType::f64 ? 1e-12 : 2e-6) * std::max(std::abs(expected), 0.3));
  }
}

TEST_CASE("every optimizer finds the minimum of a quadratic") {
  const std::string type = GENERATE("sgd", "adam", "adamw");
  Options section("optimizer");
  section.set("type", type);
  section.set("weight_decay", 0.0);
  if (type == "sgd") section.set("momentum", 0.5);
  Variable x(Tensor::from(std::vector<double>{3, -2, 0.5}, {3}), true);
  const auto optimizer = make_optimizer(read_section<OptimizerOptions>(section), {{"x", x}});
  const std::vector<double> minimum = {1, 2, -1}, curvature = {1, 0.5, 2};
  for (int t = 0; t < 600; ++t) {
    const auto at = x.value().to_vector<double>();
    Tensor g = Tensor::empty({3}, DType::f64);
    for (int i = 0; i < 3; ++i) g.data<double>()[i] = curvature[i] * (at[i] - minimum[i]);
    optimizer->step(t < 300 ? 0.1 : 0.01, {g});
  }
  for (int i = 0; i < 3; ++i)
    CHECK(std::abs(x.value().to_vector<double>()[i] - minimum[i]) <= 1e-2);
}

TEST_CASE("gradients may have any strides") {
  const auto a = make_adam(two_parameters(DType::f64)), b = make_adam(two_parameters(DType::f64));
  Gradients gradients = two_gradients(DType::f64, 1);
  a->step(0.1, gradients);
  gradients[0] = gradients[0].transpose(0, 1).contiguous().transpose(0, 1);
  REQUIRE_FALSE(gradients[0].is_contiguous());
  b->step(0.1, gradients);
  CHECK(identical(a->parameters()[0].second.value(), b->parameters()[0].second.value()));
}

TEST_CASE("a parameter without a gradient is unchanged") {
  const auto optimizer = make_adam(two_parameters(DType::f32), {.weight_decay = 0.5});
  const Tensor before = optimizer->parameters()[1].second.value().clone();
  Gradients gradients = two_gradients(DType::f32, 1);
  gradients[1] = Tensor();
  optimizer->step(0.1, gradients);
  CHECK(identical(optimizer->parameters()[1].second.value(), before));
}

TEST_CASE("gradients that do not fit are refused before anything changes") {
  const auto optimizer = make_sgd(two_parameters(DType::f32));
  const Tensor before = optimizer->parameters()[0].second.value().clone();
  Gradients gradients = two_gradients(DType::f32, 1);
  SECTION("shape") {
    gradients[1] = normal({4}, DType::f32, 1);
    CHECK_THROWS_WITH(optimizer->step(0.1, gradients),
                      "optimizer: bias: expected a gradient of f32 [5], got f32 [4]");
  }
  SECTION("dtype") {
    gradients[1] = normal({5}, DType::f64, 1);
    CHECK_THROWS_AS(optimizer->step(0.1, gradients), ShapeError);
  }
  SECTION("number") {
    gradients.pop_back();
    CHECK_THROWS_AS(optimizer->step(0.1, gradients), ShapeError);
  }
  CHECK(identical(optimizer->parameters()[0].second.value(), before));
  CHECK(optimizer->steps() == 0);
}

TEST_CASE("a step has the same bits on one thread and on three") {
  std::vector<Tensor> results;
  for (const int n : {1, 3}) {
    const WithThreads with(n);
    Variable x(normal({300, 311}, DType::f32, 1), true);
    const auto optimizer = make_adam({{"x", x}});
    for (int t = 0; t < 3; ++t) optimizer->step(0.1, {normal({300, 311}, DType::f32, 10 + t)});
    results.push_back(x.value());
  }
  CHECK(identical(results[0], results[1]));
}

TEST_CASE("an optimizer continues from a saved state") {
  const bool adam = GENERATE(false, true);
  const auto make = [&](Parameters p) {
    return adam ? make_adam(std::move(p)) : make_sgd(std::move(p), {.momentum = 0.9});
  };
  const auto a = make(two_parameters(DType::f32));
  for (int t = 1; t <= 3; ++t) a->step(0.1, two_gradients(DType::f32, t));
  nn::StateDict state;
  for (const auto& [name, tensor] : a->state_dict()) state[name] = tensor.clone();
  CHECK(state.at("step").item() == 3);

  Parameters copies;
  for (const auto& [name, p] : a->parameters())
    copies.emplace_back(name, Variable(p.value().clone(), true));
  const auto b = make(copies);
  b->load_state_dict(state);
  for (int t = 4; t <= 6; ++t) {
    a->step(0.1, two_gradients(DType::f32, t));
    b->step(0.1, two_gradients(DType::f32, t));
  }
  for (size_t i = 0; i < 2; ++i)
    CHECK(identical(a->parameters()[i].second.value(), b->parameters()[i].second.value()));
  CHECK(b->steps() == 6);
}

TEST_CASE("a state that does not fit is refused whole") {
  const auto adam = make_adam(two_parameters(DType::f32));
  adam->step(0.1, two_gradients(DType::f32, 1));
  nn::StateDict state;
  for (const auto& [name, tensor] : adam->state_dict()) state[name] = tensor.clone();
  const nn::StateDict before = state;
  state.erase("m.bias");
  state["v.weight"] = Tensor::zeros({3, 4});
  state["step"].fill(7);
  state["other"] = Tensor::zeros({1});
  CHECK_THROWS_WITH(adam->load_state_dict(state),
                    "the state does not match the optimizer:\n  m.bias is missing"
                    "\n  v.weight has shape [3, 4], expected [3, 5]\n  other is unexpected");
  for (const auto& [name, tensor] : adam->state_dict())
    if (name != "step") CHECK(identical(tensor, before.at(name)));
  CHECK(adam->steps() == 1);
}

TEST_CASE("optimizer options are read and checked") {
  const auto refused = [](const std::string& key, OptionValue value,
                          const std::string& type = "adamw") {
    Options section("optimizer");
    section.set("type", type);
    section.set(key, value, "here");
    CHECK_THROWS_AS(read_section<OptimizerOptions>(section), ConfigError);
  };
  refused("type", std::string("adamax"));
  refused("beta1", 1.0);
  refused("beta2", 1.0);
  refused("beta2", -0.1);
  refused("eps", 0.0);
  refused("weight_decay", -1.0);
  refused("decay", std::string("some"));
  refused("momentum", 1.0, "sgd");
  refused("nesterov", true, "sgd");  // without momentum
  refused("beta1", 0.5, "sgd");
  refused("momentum", 0.5);

  CHECK_THROWS_AS(make_optimizer({.type = "adamax"}, two_parameters(DType::f32)), ConfigError);

  // The options read are used: one step from equal states, with decay of the matrix only.
  Options adamw("optimizer");
  adamw.set("decay", std::string("matrices"));
  adamw.set("weight_decay", 0.5);
  const auto optimizer =
      make_optimizer(read_section<OptimizerOptions>(adamw), two_parameters(DType::f64));
  const auto before = two_parameters(DType::f64);
  optimizer->step(0.1, {Tensor::zeros({3, 5}, DType::f64), Tensor::zeros({5}, DType::f64)});
  CHECK(optimizer->parameters()[0].second.value().at({1, 1}) ==
        Approx(0.95 * before[0].second.value().at({1, 1})));
  CHECK(identical(optimizer->parameters()[1].second.value(), before[1].second.value()));
}

// U V' of x = U S V', as Muon approximates it, with sums written out.
std::vector<double> orthogonalised(std::vector<double> x, int64_t rows, int64_t columns) {
  double square = 0;
  for (const double v : x) square += v * v;
  for (double& v : x) v /= std::sqrt(square) + 1e-7;
  const auto at = [&](const std::vector<double>& m, int64_t r, int64_t c) {
    return m[static_cast<size_t>(r * columns + c)];
  };
  for (int step = 0; step < 5; ++step) {
    std::vector<double> gram(static_cast<size_t>(rows * rows)), poly = gram, next = x;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rows; ++j)
        for (int64_t k = 0; k < columns; ++k)
          gram[static_cast<size_t>(i * rows + j)] += at(x, i, k) * at(x, j, k);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < rows; ++j) {
        double sum = -4.7750 * gram[static_cast<size_t>(i * rows + j)];
        for (int64_t k = 0; k < rows; ++k)
          sum += 2.0315 * gram[static_cast<size_t>(i * rows + k)] *
                 gram[static_cast<size_t>(k * rows + j)];
        poly[static_cast<size_t>(i * rows + j)] = sum;
      }
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 3.4445 * at(x, i, c);
        for (int64_t k = 0; k < rows; ++k)
          sum += poly[static_cast<size_t>(i * rows + k)] * at(x, k, c);
        next[static_cast<size_t>(i * columns + c)] = sum;
      }
    x = next;
  }
  return x;
}

TEST_CASE("optimizer: muon follows its formula for matrices and AdamW for the rest") {
  const bool tall = GENERATE(false, true);
  const double scale = GENERATE(1.0, 0.25), lambda = 0.1, mu = 0.9;
  const Shape shape = tall ? Shape{5, 3} : Shape{3, 5};
  Parameters parameters{{"blocks.weight", Variable(normal(shape, DType::f64, 1), true)},
                        {"embeddings.token.weight", Variable(normal({3, 5}, DType::f64, 2), true)},
                        {"head.weight", Variable(normal({3, 5}, DType::f64, 3), true)},
                        {"blocks.bias", Variable(normal({5}, DType::f64, 4), true)}};
  Parameters copies;
  for (const auto& [name, parameter] : parameters)
    copies.emplace_back(name, Variable(parameter.value().clone(), true));
  MuonOptions options{.momentum = mu, .others = {.weight_decay = lambda}};
  const auto muon = make_muon(parameters, options);
  const auto adam = make_adam(copies, options.others);
  std::vector<double> theta = parameters[0].second.value().to_vector<double>(), b(15);
  for (uint64_t t = 1; t <= 3; ++t) {
    const double lr = 0.1 / static_cast<double>(t);
    Gradients gradients{normal(shape, DType::f64, 10 + t), normal({3, 5}, DType::f64, 20 + t),
                        normal({3, 5}, DType::f64, 30 + t), normal({5}, DType::f64, 40 + t)};
    muon->step(lr, gradients, scale);
    adam->step(lr, gradients, scale);
    const std::vector<double> g = gradients[0].to_vector<double>();
    std::vector<double> u(15);
    for (size_t i = 0; i < 15; ++i) {
      b[i] = mu * b[i] + (1 - mu) * scale * g[i];
      u[i] = (1 - mu) * scale * g[i] + mu * b[i];
    }
    if (tall) {  // the transpose of what the transpose becomes
      std::vector<double> turned(15);
      for (size_t i = 0; i < 15; ++i) turned[i % 3 * 5 + i / 3] = u[i];
      turned = orthogonalised(turned, 3, 5);
      for (size_t i = 0; i < 15; ++i) u[i] = turned[i % 3 * 5 + i / 3];
    } else {
      u = orthogonalised(u, 3, 5);
    }
    const std::vector<double> now = parameters[0].second.value().to_vector<double>();
    for (size_t i = 0; i < 15; ++i) {
      theta[i] = (1 - lr * lambda) * theta[i] - 0.2 * std::sqrt(5.0) * lr * u[i];
      CHECK(now[i] == Approx(theta[i]).epsilon(1e-9).margin(1e-12));
    }
    for (size_t i = 1; i < 4; ++i)
      CHECK(identical(parameters[i].second.value(), copies[i].second.value()));
  }
  const nn::StateDict state = muon->state_dict();
  CHECK(state.contains("momentum.blocks.weight"));
  CHECK_FALSE(state.contains("m.blocks.weight"));
  CHECK_FALSE(state.contains("momentum.blocks.bias"));
  CHECK(state.contains("v.embeddings.token.weight"));
}

TEST_CASE("optimizer: muon makes all directions of a step equally long") {
  // Singular values 1, 0.1 and 0.03: those of the step are between 0.6 and 1.3 of each other's unit.
  Tensor g = Tensor::zeros({3, 8}, DType::f32);
  const double s[] = {1, 0.1, 0.03};
  for (int64_t i = 0; i < 3; ++i) g.data<float>()[i * 8 + i] = static_cast<float>(s[i]);
  Parameters parameters{{"w", Variable(Tensor::zeros({3, 8}, DType::f32), true)}};
  MuonOptions options;
  options.others.weight_decay = 0;
  make_muon(parameters, options)->step(1, {g});
  for (int64_t i = 0; i < 3; ++i) {
    const double value =
        -parameters[0].second.value().data<float>()[i * 8 + i] / (0.2 * std::sqrt(8.0));
    INFO(i);
    CHECK(value > 0.6);
    CHECK(value < 1.3);
  }
}

}  // namespace longhand::train
