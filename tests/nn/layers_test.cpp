#include <cmath>
#include <numbers>

#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/embedding.h"
#include "longhand/nn/feed_forward.h"
#include "longhand/nn/norm.h"
#include "longhand/nn/position.h"
#include "longhand/nn/residual.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::nn;

namespace {

Tensor random(const Shape& shape, uint64_t seed, DType dtype = DType::f64) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, Generator(seed));
  return t;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    if (!(d <= worst)) worst = d;  // NaN is kept
  }
  return worst;
}

}  // namespace

TEST_CASE("linear: x Wᵀ + b") {
  Linear layer(root(DType::f64, 1), 3, 2);
  layer.bias->mutable_value().fill(0.5);
  const Tensor x = random({4, 3}, 1);
  const Tensor y = layer.forward(Variable(x)).value();
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t o = 0; o < 2; ++o) {
      double want = 0.5;
      for (int64_t k = 0; k < 3; ++k) want += x.at({i, k}) * layer.weight.value().at({o, k});
      CHECK(std::abs(y.at({i, o}) - want) <= 1e-14);
    }
  Linear bare(root(DType::f64, 1), 3, 2, false);
  CHECK(bare.named_parameters().size() == 1);
  CHECK(worst_difference(bare.forward(Variable(x)).value(), (Variable(y) - 0.5).value()) <= 1e-14);
}

TEST_CASE("norm: layer norm has a bias, rms norm has none, other types are errors") {
  Norm layer(root(DType::f64), "layer_norm", 6), rms(root(DType::f64), "rms_norm", 6);
  CHECK(layer.named_parameters().size() == 2);
  CHECK(rms.named_parameters().size() == 1);
  CHECK_THROWS_AS(Norm(root(), "batch_norm", 6), ConfigError);
  const Variable x(random({3, 6}, 1));
  const Tensor y = layer.forward(x).value(), z = rms.forward(x).value();
  for (int64_t r = 0; r < 3; ++r) {
    double sum = 0, squares = 0, rms_squares = 0;
    for (int64_t j = 0; j < 6; ++j) {
      sum += y.at({r, j});
      squares += y.at({r, j}) * y.at({r, j});
      rms_squares += z.at({r, j}) * z.at({r, j});
    }
    CHECK(std::abs(sum) <= 1e-12);
    CHECK(std::abs(squares / 6 - 1) <= 1e-4);
    CHECK(std::abs(rms_squares / 6 - 1) <= 1e-4);
  }
}

TEST_CASE("dropout: off when evaluating, of its own name when training") {
  class Two : public Module {
   public:
    Two() : Module(root()), a(scope("a"), 0.5), b(scope("b"), 0.5) {}
    Dropout a, b;
  } two;
  const Variable x(Tensor::full({1000}, 1));
  CHECK(identical(two.a.forward(x, {}).value(), x.value()));
  const Pass pass{true, Generator(1)};
  const Tensor y = two.a.forward(x, pass).value();
  CHECK(identical(y, two.a.forward(x, pass).value()));
  CHECK_FALSE(identical(y, two.b.forward(x, pass).value()));
  CHECK_FALSE(identical(y, two.a.forward(x, {true, Generator(2)}).value()));
  CHECK_THROWS_AS(Dropout(root(), 1.0), ConfigError);
  CHECK_THROWS_AS(Dropout(root(), -0.1), ConfigError);
}

TEST_CASE("dropout: training without random numbers is an error that names the module") {
  class One : public Module {
   public:
    explicit One(double p) : Module(root()), drop(scope("drop"), p) {}
    Dropout drop;
  } half(0.5), none(0);
  const Variable x(Tensor::full({1000}, 1));
  Pass pass;
  pass.training = true;
  CHECK_THROWS_WITH(half.drop.forward(x, pass),
                    Catch::StartsWith("drop: ") && Catch::Contains("nn::Pass::train"));
  CHECK(identical(none.drop.forward(x, pass).value(), x.value()));  // needs no random numbers
}

TEST_CASE("feed-forward: fc2(silu(a) b) for (a, b) = fc1 x") {
  const int64_t rank = GENERATE(0, 3);
  FeedForward mlp(root(DType::f64, 3), FeedForward::Kind::swiglu, 4, 7, 0, rank);
  StateDict p = mlp.state_dict();
  p["fc1.bias"] = random({14}, 2);
  mlp.load_state_dict(p);
  const auto of = [&](const char* name) { return Variable(p.at(name)); };
  const Variable W = rank ? matmul(of("fc1.weight_out"), of("fc1.weight_in")) : of("fc1.weight");
  CHECK(W.shape() == Shape{14, 4});
  CHECK(of("fc2.weight").shape() == Shape{4, 7});
  const Variable x(random({2, 3, 4}, 1));
  const Variable h = linear(x, W, of("fc1.bias")), a = slice(h, 2, 0, 7), b = slice(h, 2, 7, 14);
  const Tensor want = linear(a / (exp(-a) + 1) * b, of("fc2.weight"), of("fc2.bias")).value();
  CHECK(worst_difference(mlp.forward(x, {}).value(), want) <= 1e-14);
}

TEST_CASE("feed-forward: fc2(gelu(fc1 x))") {
  FeedForward mlp(root(DType::f64, 3), FeedForward::Kind::gelu, 4, 7, 0);
  CHECK(mlp.named_parameters()[0].first == "fc1.weight");
  const auto p = mlp.named_parameters();
  const Variable x(random({2, 3, 4}, 1));
  const Tensor want =
      linear(gelu(linear(x, p[0].second, p[1].second)), p[2].second, p[3].second).value();
  CHECK(identical(mlp.forward(x, {}).value(), want));
}

TEST_CASE("feed-forward: fc2(f(fc1 x)) with ReLU, and with the tanh approximation of GELU") {
  using Kind = FeedForward::Kind;
  for (const Kind kind : {Kind::relu, Kind::gelu_tanh}) {
    FeedForward mlp(root(DType::f64, 3), kind, 4, 7, 0);
    const auto p = mlp.named_parameters();
    const Variable x(random({2, 3, 4}, 1)), h = linear(x, p[0].second, p[1].second);
    const Variable cubic = (h + h * h * h * 0.044715) * std::sqrt(2 / std::numbers::pi);
    const Variable y = kind == Kind::relu ? relu(h) : h * (tanh(cubic) + 1) * 0.5;
    CHECK(worst_difference(mlp.forward(x, {}).value(),
                           linear(y, p[2].second, p[3].second).value()) <= 1e-14);
    CHECK(worst_difference(y.value(), gelu(h).value()) <= (kind == Kind::relu ? 0.2 : 1e-3));
  }
}

TEST_CASE("embedding: rows of a table") {
  Embedding table(root(DType::f32, 1), 5, 3);
  const Tensor tokens = Tensor::from<int32_t>({4, 0, 4}, {3});
  const Tensor y = table.forward(tokens).value();
  CHECK(identical(y.select(0, 0), table.weight.value().select(0, 4)));
  CHECK(identical(y.select(0, 0), y.select(0, 2)));
  CHECK_THROWS_AS(table.forward(Tensor::from<int32_t>({5}, {1})), ShapeError);
}

TEST_CASE("sinusoids: sin and cos of decreasing frequencies, also of odd widths") {
  for (const int64_t width : {1, 4, 7}) {
    const Tensor s = sinusoids(9, width, DType::f64);
    for (int64_t n = 0; n < 9; ++n)
      for (int64_t c = 0; c < width; ++c) {
        const double angle =
            static_cast<double>(n) /
            std::pow(10000.0, 2.0 * static_cast<double>(c / 2) / static_cast<double>(width));
        CHECK(std::abs(s.at({n, c}) - (c % 2 ? std::cos(angle) : std::sin(angle))) <= 1e-12);
      }
  }
}

TEST_CASE("rotary: inner products depend on the distance alone, lengths are preserved") {
  // The same vector at every position: q_n · k_m must be a function of n - m.
  const Tensor q = random({1, 1, 2, 6}, 1), k = random({1, 1, 2, 6}, 2);
  const Shape all{1, 8, 2, 6};
  const Variable turns = turns_of_positions(0, 8, 6, DType::f64);
  const Tensor rq = rotate_pairs(Variable(q.expand(all)), turns).value();
  const Tensor rk = rotate_pairs(Variable(k.expand(all)), turns).value();
  const auto dot = [&](const Tensor& a, const Tensor& b, int64_t n, int64_t m) {
    double s = 0;
    for (int64_t d = 0; d < 6; ++d) s += a.at({0, n, 1, d}) * b.at({0, m, 1, d});
    return s;
  };
  for (int64_t n = 0; n + 1 < 8; ++n)
    for (int64_t m = 0; m + 1 < 8; ++m)
      CHECK(std::abs(dot(rq, rk, n, m) - dot(rq, rk, n + 1, m + 1)) <= 1e-12);
  CHECK(std::abs(dot(rq, rk, 3, 0) - dot(rq, rk, 0, 0)) >= 1e-3);
  CHECK(std::abs(dot(rq, rq, 5, 5) - dot(rq, rq, 0, 0)) <= 1e-12);
  CHECK_THROWS_AS(turns_of_positions(0, 2, 3, DType::f64), ShapeError);
  CHECK(identical(turns_of_positions(3, 5, 6, DType::f64).value(),
                  turns_of_positions(0, 8, 6, DType::f64).value().slice(0, 3, 8)));
}

TEST_CASE("position: a learned table is a parameter, sinusoids are none") {
  const Variable x(Tensor::zeros({2, 3, 4}, DType::f64));
  Position learned(root(DType::f64, 1), "learned", 5, 4);
  CHECK(learned.named_parameters().size() == 1);
  CHECK(identical(learned.forward(x).value().select(0, 1),
                  learned.named_parameters()[0].second.value().slice(0, 0, 3)));
  CHECK_THROWS_WITH(learned.forward(Variable(Tensor::zeros({1, 6, 4}, DType::f64))),
                    Catch::Contains("6 tokens") && Catch::Contains("5 positions"));
  Position fixed(root(DType::f64, 1), "sinusoidal", 5, 4);
  CHECK(fixed.state_dict().empty());
  CHECK(worst_difference(fixed.forward(x).value().select(0, 0), sinusoids(3, 4, DType::f64)) <= 0);
  CHECK(identical(Position(root(), "none", 5, 4).forward(x).value(), x.value()));
  CHECK_THROWS_AS(Position(root(), "absolute", 5, 4), ConfigError);
}

TEST_CASE("lazy: layers compose into one linear() with its neighbours") {
  class Branch : public Module {
   public:
    explicit Branch(const std::string& type)
        : Module(root(DType::f64, 3)),
          norm(scope("norm"), type, 6),
          in(scope("in"), 6, 9),
          inner(scope("inner"), 0.25),
          out(scope("out"), 9, 6),
          outer(scope("outer"), 0.5) {}
    Norm norm;
    Linear in;
    Dropout inner;
    Linear out;
    Dropout outer;
  };
  const Pass pass{true, Generator(4)};
  for (const std::string type : {"layer_norm", "rms_norm"}) {
    const Branch b(type);
    const Variable x(random({5, 6}, 1));
    const auto branch = [&](const Lazy& h) {
      return b.out.forward(b.inner.forward(gelu(b.in.forward(h)), pass));
    };
    // The same calls of linear(), so the same bits.
    const NormOptions norm =
        type == "layer_norm" ? NormOptions{.weight = b.norm.weight, .bias = *b.norm.bias}
                             : NormOptions{.weight = b.norm.weight, .eps = 1e-6, .centred = false};
    const auto random_of = [&](double p, const char* name) {
      return DropoutOptions{p, pass.random.fork(name)};
    };
    const Variable hidden = linear(x, b.in.weight, *b.in.bias, {.norm = norm});
    const Tensor fused = linear(hidden, b.out.weight, *b.out.bias,
                                {.gelu = true,
                                 .input = random_of(0.25, "inner"),
                                 .output = random_of(0.5, "outer"),
                                 .residual = x})
                             .value();
    CHECK(identical(residual_branch(x, b.norm, NormPlace::pre, b.outer, pass, branch).value(),
                    fused));
    // The same result as separate steps.
    const Variable normed = b.norm.forward(x);
    const Variable h = gelu(Variable(b.in.forward(normed)));
    const Variable z = b.out.forward(Variable(b.inner.forward(h, pass)));
    const Variable dropped = b.outer.forward(z, pass);
    CHECK(worst_difference(fused, add(x, dropped).value()) <= 1e-13);
    const Tensor post = residual_branch(x, b.norm, NormPlace::post, b.outer, pass, branch).value();
    const Variable unnormed = branch(x);
    CHECK(worst_difference(post, b.norm.forward(add(x, b.outer.forward(unnormed, pass))).value()) <=
          1e-13);
  }
}

TEST_CASE("lazy: a step outside of the formula computes its input once") {
  const Variable x(random({4, 3}, 1)), w(random({3, 3}, 2)), none;
  const DropoutOptions drop{0.5, Generator(1)}, again{0.5, Generator(2)};
  const auto same = [](const Lazy& a, const Variable& b) {
    return worst_difference(a.value(), b.value()) <= 1e-14;
  };
  CHECK(same(linear(linear(Lazy(x), w, none), w, none), linear(linear(x, w), w)));
  CHECK(same(gelu(gelu(Lazy(x))), gelu(gelu(x))));
  CHECK(same(norm(gelu(Lazy(x)), {}), layer_norm(gelu(x), {}, {})));
  CHECK(same(norm(linear(Lazy(x), w, none), {}), layer_norm(linear(x, w), {}, {})));
  CHECK(same(dropout(dropout(Lazy(x), drop), again),
             dropout(dropout(x, 0.5, drop.generator), 0.5, again.generator)));
  const Lazy twice = dropout(dropout(linear(Lazy(x), w, none), drop), again);
  CHECK(same(twice, dropout(dropout(linear(x, w), 0.5, drop.generator), 0.5, again.generator)));
  CHECK(same(x + twice, add(x, twice)));
  CHECK(same(x + gelu(Lazy(x)), add(x, gelu(x))));
  // A residual that broadcasts is a separate addition.
  const Variable row(random({3}, 3));
  CHECK(same(row + linear(Lazy(x), w, none), add(row, linear(x, w))));
  CHECK(linear(Lazy(x), Variable(random({7, 3}, 4)), none).shape() == Shape{4, 7});
  const Lazy value = gelu(Lazy(x));
  CHECK(value.value().data<double>() == Lazy(value).value().data<double>());
}
