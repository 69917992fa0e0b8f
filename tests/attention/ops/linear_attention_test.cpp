#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/ops/scan.h"

#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

Tensor positive(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f64);
  fill_uniform(t, Generator(seed), 0.1, 1);
  return t;
}

// The definition. The features of x are t, e^t or waves; those of keys from their lengths on are 0.
Tensor features_of(const Tensor& x, const LinearAttentionOptions& options, bool keys) {
  Variable t(x);
  Variable factor(Tensor::full({1}, 1, x.dtype()));
  if (options.features.projection.defined()) {
    const Variable W(options.features.projection);
    t = W.rank() == 2 ? linear(t, W)
                      : transpose(matmul(transpose(t, 1, 2), transpose(W, 1, 2)), 1, 2);
    const Variable norm = affine(sum(square(Variable(x)), {-1}, true), options.features.half_norm);
    if (keys && options.features.waves) factor = exp(-norm);
    if (keys && !options.features.waves) t = t - norm;
  }
  if (options.features.exponentials) t = exp(t);
  if (options.features.phases.defined())
    t = slice(cos_sin(t + Variable(options.features.phases)), -1, 0, t.size(-1));
  else if (options.features.waves)
    t = cos_sin(t);
  Tensor f = (t * factor).value().contiguous().clone();
  if (keys && options.key_lengths.defined())
    for (int64_t b = 0; b < f.size(0); ++b)
      f.select(0, b).slice(0, options.key_lengths.data<int32_t>()[b], f.size(1)).fill(0);
  return f;
}

struct LinearCase {
  const char* name;
  Shape q, k;
  LinearAttentionOptions options;
};

std::vector<LinearCase> linear_cases() {
  const Tensor lengths = Tensor::from(std::vector<int32_t>{5, 0}, {2});
  // Small angles, so that normalisers are not near 0.
  const auto small_angles = [](const Shape& shape) {
    return affine(Variable(normal(shape, 4)), 0.3).value();
  };
  const Tensor small = small_angles({75, 5}), of_heads = small_angles({2, 4, 3});
  return {
      {"plain", {2, 3, 2, 5}, {2, 7, 2, 5}, {}},
      {"lengths", {2, 3, 2, 5}, {2, 7, 2, 5}, {.key_lengths = lengths}},
      {"exponentials", {2, 3, 2, 5}, {2, 7, 2, 5}, {.features = {.exponentials = true}}},
      {"exponentials, lengths",
       {2, 3, 2, 5},
       {2, 7, 2, 5},
       {.features = {.exponentials = true}, .key_lengths = lengths}},
      {"projection",
       {2, 3, 2, 5},
       {2, 7, 2, 5},
       {.features = {.exponentials = true, .projection = normal({6, 5}, 4), .half_norm = 0.3}}},
      {"projection of each head, lengths, two tiles",
       {2, 50, 2, 3},
       {2, 60, 2, 3},
       {.features = {.exponentials = true, .projection = normal({2, 4, 3}, 4), .half_norm = 0.3},
        .key_lengths = lengths}},
      {"features in parts",
       {2, 3, 1, 5},
       {2, 7, 1, 5},
       {.features = {.exponentials = true, .projection = normal({150, 5}, 4), .half_norm = 0.3}}},
      {"features in parts, no projection", {2, 3, 1, 70}, {2, 7, 1, 70}, {.key_lengths = lengths}},
      {"exponents in parts, no projection",
       {2, 3, 1, 70},
       {2, 7, 1, 70},
       {.features = {.exponentials = true}}},
      {"waves",
       {2, 3, 2, 5},
       {2, 7, 2, 5},
       {.features = {.projection = small.slice(0, 0, 6), .half_norm = -0.3, .waves = true}}},
      {"waves of each head, lengths, two tiles",
       {2, 50, 2, 3},
       {2, 70, 2, 3},
       {.features = {.projection = of_heads, .waves = true}, .key_lengths = lengths}},
      {"waves in parts",
       {2, 3, 1, 5},
       {2, 70, 1, 5},
       {.features = {.projection = small, .half_norm = -0.5, .waves = true}}},
      {"waves with phases, in parts",
       {2, 3, 1, 5},
       {2, 7, 1, 5},
       {.features =
            {.projection = small, .half_norm = -0.3, .waves = true, .phases = positive({75}, 5)}}},
      {"waves with phases of each head, lengths",
       {2, 3, 2, 3},
       {2, 7, 2, 3},
       {.features = {.projection = of_heads, .waves = true, .phases = positive({2, 4}, 5)},
        .key_lengths = lengths}},
  };
}

}  // namespace

TEST_CASE("linear_attention: the definition, and gradients") {
  for (const LinearCase& c : linear_cases()) {
    INFO(c.name);
    const Tensor q = positive(c.q, 1), k = positive(c.k, 2),
                 v = normal({c.k[0], c.k[1], c.k[2], 4}, 3);
    const auto f = [&](const Variables& in) {
      return linear_attention(in[0], in[1], in[2], c.options);
    };
    const Tensor expected = naive_kernel_attention(features_of(q, c.options, false),
                                                   features_of(k, c.options, true), v, dot);
    const Tensor out = f({Variable(q), Variable(k), Variable(v)}).value();
    for (int64_t b = 0; b < 2; ++b) {
      if (b == 1 && c.options.key_lengths.defined())
        CHECK(all_zero(out.select(0, b)));
      else
        CHECK(near(out.select(0, b), expected.select(0, b), 1e-13));
    }
    const GradcheckReport report = gradcheck(f, {q, k, v});
    INFO(report);
    CHECK(report.ok);
  }
}

TEST_CASE("linear_attention: sums in groups, for any number of threads, of any strides") {
  // Long enough for several groups of keys and of queries.
  const Shape shape{1, 1300, 1, 8};
  const bool waves = GENERATE(false, true);
  CAPTURE(waves);
  const LinearAttentionOptions options{
      .features = {.exponentials = !waves,
                   .projection =
                       affine(Variable(normal({90, 8}, 4)), waves ? 0.1 : 1).value().to(DType::f32),
                   .half_norm = waves ? -0.5 : 0.5,
                   .waves = waves},
      .key_lengths = Tensor::from(std::vector<int32_t>{1200}, {1})};
  const Tensor q = normal(shape, 1).to(DType::f32), k = normal(shape, 2).to(DType::f32),
               v = normal(shape, 3).to(DType::f32), seed = normal(shape, 5).to(DType::f32);
  const int before = threads();
  std::vector<Tensor> first;
  for (const int n : {1, 2, 5}) {
    set_threads(n);
    for (const bool strided : {false, true}) {
      INFO(n << " threads, strided " << strided);
      std::vector<Variable> in;
      for (const Tensor& x : {q, k, v}) {
        Tensor wide = Tensor::zeros({1, 1300, 1, 24});
        copy_into(wide.slice(3, 8, 16), x);
        in.emplace_back(strided ? wide.slice(3, 8, 16) : x, true);
      }
      const Variable y = linear_attention(in[0], in[1], in[2], options);
      backward(y, seed);
      const std::vector<Tensor> got{y.value(), in[0].grad(), in[1].grad(), in[2].grad()};
      if (first.empty()) first = got;
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(identical(got[i].contiguous(), first[i].contiguous()));
    }
  }
  set_threads(before);
  LinearAttentionOptions wide = options;
  wide.features.projection = options.features.projection.to(DType::f64);
  const Tensor fq = features_of(q.to(DType::f64), wide, false),
               fk = features_of(k.to(DType::f64), wide, true);
  CHECK(near(first[0].to(DType::f64), naive_kernel_attention(fq, fk, v.to(DType::f64), dot), 1e-5));
}

TEST_CASE("linear_attention: exponents of any size") {
  // 100 features are a whole and a partial block of features, 60 tokens a whole and a partial
  // block.
  const int64_t D = GENERATE(3, 100);
  const Shape shape{1, 60, 1, D};
  const LinearAttentionOptions options{.features = {.exponentials = true}};
  for (const double size : {0.0, 1e3, 1e6}) {
    INFO(D << " features, " << size);
    const Variable q(affine(Variable(normal(shape, 1)), size).value().to(DType::f32), true),
        k(affine(Variable(normal(shape, 2)), size).value().to(DType::f32), true),
        v(normal(shape, 3).to(DType::f32), true);
    Tensor normalisers;
    const Variable out = linear_attention(q, k, v, options, &normalisers);
    backward(out, Tensor::full(shape, 1));
    CHECK(all_finite(out.value()));
    for (const Variable& x : {q, k, v}) CHECK(all_finite(x.grad()));
    for (const float den : normalisers.to_vector<float>()) CHECK(den >= 0.999f);
  }
}

TEST_CASE("linear_attention: factors of waves of any size") {
  // Keys in two blocks whose norms rise and fall: with the largest of all norms, factors of other keys
  // are 0, so every query has the value of that key.
  const Shape shape{1, 100, 1, 3};
  const auto f32 = [](const Tensor& x) { return x.to(DType::f32); };
  const LinearAttentionOptions options{
      .features = {.projection = f32(normal({40, 3}, 4)), .half_norm = -0.5, .waves = true}};
  Tensor keys = normal(shape, 2);
  keys.slice(1, 70, 71).fill(5);
  for (const double size : {1e2, 1e6}) {
    INFO(size);
    const Variable q(f32(normal(shape, 1)), true),
        k(f32(affine(Variable(keys), size).value()), true), v(f32(normal(shape, 3)), true);
    const Variable out = linear_attention(q, k, v, options);
    backward(out, Tensor::full(shape, 1));
    for (int64_t i = 0; i < shape[1]; ++i)
      CHECK(near(out.value().slice(1, i, i + 1), v.value().slice(1, 70, 71), 1e-4));
    for (const Variable& x : {q, k, v}) CHECK(all_finite(x.grad()));
  }
}

TEST_CASE("linear_attention: lanes beyond the last token give nothing") {
  // The exponents of 60 queries, a whole and a partial block, are all -88.9. In lanes without a
  // query, e^88.9 times the gradient 0 would be NaN.
  const Shape shape{1, 60, 1, 3};
  const Variable q(Tensor::full(shape, -88.86), true), k(Tensor::zeros(shape), true),
      v(normal(shape, 3).to(DType::f32), true);
  backward(linear_attention(q, k, v, {.features = {.exponentials = true}}), Tensor::full(shape, 1));
  for (const Variable& x : {q, k, v}) CHECK(all_finite(x.grad()));
}

TEST_CASE("linear_attention: normalisers whose inverse would overflow count as 0") {
  // Normalisers of f32: subnormal, normal but too small, large enough.
  const Tensor q = Tensor::from(std::vector<float>{1e-41f, 1e-32f, 1e-27f, 1}, {1, 4, 1, 1});
  const auto run = [&](bool causal) {
    const Variable x(q, true), k(Tensor::full({1, 4, 1, 1}, causal ? 1 : 0.25), true),
        v(Tensor::full({1, 4, 1, 1}, 3), true);
    Tensor normalisers;
    Variable out;
    if (causal) {
      const Variable sums = scan({x, k, v}, nullptr, {.final_state = false}).out;
      normalisers = sums.value().select(3, 1);
      out = normalised(sums);
    } else {
      out = linear_attention(x, k, v, {}, &normalisers);
    }
    backward(out, Tensor::full(q.shape(), 1e3));
    for (const Variable& each : {x, k, v}) CHECK(all_finite(each.grad()));
    const auto dq = x.grad().to_vector<double>(), result = out.value().to_vector<double>();
    CHECK(result[0] == 0);
    CHECK(result[1] == 0);
    CHECK(result[2] == Approx(3));
    CHECK(dq[0] == 0);
    CHECK(dq[1] == 0);
    CHECK(nonpositive_normalisers(normalisers, {}) == 2);
  };
  run(false);
  run(true);
}

TEST_CASE("linear_attention: signed normalisers of rounding errors count as 0") {
  const double unit = 64;
  const auto vanish = [&]<class T>(T) {
    const double eps = std::numeric_limits<T>::epsilon();
    const std::vector<double> dens = {0.5 * eps * unit, 2 * eps * unit, std::sqrt(eps) * unit / 2,
                                      std::sqrt(eps) * unit * 2, -2 * std::sqrt(eps) * unit};
    const Tensor q = Tensor::from(dens, {1, 5, 1, 1}).to(dtype_of<T>);
    const Variable one(Tensor::full({1, 1, 1, 1}, 1, dtype_of<T>)), x(q, true);
    const Guard guard{.unit = unit};
    const Variable out = linear_attention(x, one, one, {.guard = guard});
    const auto result = out.value().to_vector<double>();
    CHECK(result[0] == 0);
    for (size_t i = 1; i < result.size(); ++i) CHECK(result[i] == Approx(1));
    // With any guard, as quotients of sums, too.
    for (const auto kind : {Guard::Kind::none, Guard::Kind::add, Guard::Kind::clamp}) {
      const Guard small{kind, 1e-30, unit};
      const auto quotients = normalised(concat({x, x}, -1), small).value().to_vector<double>();
      CHECK(quotients[0] == 0);
      CHECK(quotients[1] == 1);
      CHECK(linear_attention(x, one, one, {.guard = small}).value().to_vector<double>()[0] == 0);
    }
    // As small as these, or negative.
    CHECK(nonpositive_normalisers(q.squeeze(3), {}, guard) == 4);
    CHECK(nonpositive_normalisers(q.squeeze(3), {}) == 1);
  };
  vanish(1.0f);
  vanish(1.0);
}

TEST_CASE("linear_attention: guards") {
  // One key and one feature: the normaliser of query i is q_i, below and above eps.
  const Tensor q = Tensor::from(std::vector<double>{-2, -1e-3, 0, 1e-3, 2}, {1, 5, 1, 1});
  const Variable k(Tensor::full({1, 1, 1, 1}, 1, DType::f64)),
      v(Tensor::full({1, 1, 1, 1}, 3, DType::f64));
  const auto run = [&](Guard guard) {
    Tensor normalisers;
    const Variable x(q, true);
    const Variable out = linear_attention(x, k, v, {.guard = guard}, &normalisers);
    backward(out, Tensor::full(q.shape(), 1, DType::f64));
    CHECK(near(normalisers, q.squeeze(3), 0));
    CHECK(nonpositive_normalisers(normalisers, {}) == 3);
    CHECK(nonpositive_normalisers(normalisers, Tensor::from(std::vector<int32_t>{2}, {1})) == 2);
    return std::pair{out.value().to_vector<double>(), x.grad().to_vector<double>()};
  };
  const auto close_to = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (std::abs(a[i] - b[i]) > 1e-9 * (1 + std::abs(b[i]))) return false;
    return true;
  };
  // d/dq of 3 q / q, 3 q / (q + 2 eps), 3 q / eps.
  const double eps = 0.01;
  const auto [none, dnone] = run({});
  CHECK(close_to(none, {3, 3, 0, 3, 3}));
  CHECK(close_to(dnone, {0, 0, 0, 0, 0}));
  const auto [add, dadd] = run({Guard::Kind::add, eps});
  CHECK(close_to(add, {3, -3e-3 / 0.019, 0, 3e-3 / 0.021, 3}));
  CHECK(close_to(dadd, {0, 0.06 / (0.019 * 0.019), 150, 0.06 / (0.021 * 0.021), 0}));
  const auto [clamp, dclamp] = run({Guard::Kind::clamp, eps});
  CHECK(close_to(clamp, {-600, -0.3, 0, 0.3, 3}));
  CHECK(close_to(dclamp, {300, 300, 300, 300, 0}));
}

TEST_CASE("linear_attention: what does not fit is refused") {
  const Variable q(normal({2, 3, 2, 4}, 1)), v(normal({2, 3, 2, 5}, 2));
  CHECK_NOTHROW(linear_attention(q, q, v, {}));
  CHECK_THROWS_AS(linear_attention(q, v, v, {}), ShapeError);
  CHECK_THROWS_AS(linear_attention(q, q, Variable(normal({2, 4, 2, 5}, 2)), {}), ShapeError);
  CHECK_THROWS_AS(linear_attention(q, q, Variable(normal({2, 3, 2, 5}, 2, DType::f32)), {}),
                  ShapeError);
  CHECK_THROWS_AS(linear_attention(q, q, v, {.features = {.projection = normal({6, 4}, 1)}}),
                  ShapeError);
  CHECK_THROWS_AS(
      linear_attention(q, q, v,
                       {.features = {.exponentials = true, .projection = normal({6, 5}, 1)}}),
      ShapeError);
  const Tensor W = normal({6, 4}, 1);
  CHECK_NOTHROW(linear_attention(
      q, q, v, {.features = {.projection = W, .waves = true, .phases = normal({6}, 1)}}));
  CHECK_THROWS_AS(linear_attention(q, q, v, {.features = {.waves = true}}), ShapeError);
  CHECK_THROWS_AS(
      linear_attention(q, q, v,
                       {.features = {.exponentials = true, .projection = W, .waves = true}}),
      ShapeError);
  CHECK_THROWS_AS(
      linear_attention(q, q, v,
                       {.features = {.projection = W, .waves = true, .phases = normal({5}, 1)}}),
      ShapeError);
  CHECK_THROWS_AS(
      linear_attention(
          q, q, v, {.features = {.exponentials = true, .projection = W, .phases = normal({6}, 1)}}),
      ShapeError);
  CHECK_THROWS_AS(
      linear_attention(q, q, v, {.key_lengths = Tensor::from(std::vector<int32_t>{1, 4}, {2})}),
      ShapeError);
}

TEST_CASE("linear_attention: 65,536 tokens at every third place in memory") {
  check_long_layout([](const Variable& q, const Variable& k, const Variable& v) {
    return linear_attention(q, k, v, {.features = {.exponentials = true}});
  });
}
