#include "longhand/core/measure/multiply_adds.h"

#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/log_cumulative_sum_exp.h"
#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/core/layouts.h"
#include "longhand/core/measure/multiply_adds.h"
#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"
#include "tests/attention/recurrence.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

Tensor log_decays(Decay decay, int64_t B, int64_t N, int64_t H, int64_t m, uint64_t seed,
                  double strength = 1, DType dtype = DType::f64) {
  if (decay == Decay::none) return {};
  return uniform(decay == Decay::head ? Shape{B, N, H} : Shape{B, N, H, m}, seed, -strength, 0,
                 dtype);
}

Variable variable(const Tensor& t, bool gradient = false) {
  return t.defined() ? Variable(t, gradient) : Variable();
}

ScanState random_state(int64_t B, int64_t H, int64_t m, int64_t E, bool normalizer) {
  ScanState state{Variable(normal({B, H, m, E}, 51))};
  if (normalizer) state.z = Variable(uniform({B, H, m}, 52, 0.5, 1.5));
  return state;
}

}  // namespace

TEST_CASE("scan: a running maximum looks back only") {
  const Tensor x = Tensor::from(std::vector<double>{1, 9, 0, 10, 5, 3, 2, 11}, {1, 4, 2});
  CHECK(running_max(x).to_vector<double>() == std::vector<double>{1, 9, 1, 10, 5, 10, 5, 11});
}

TEST_CASE("scan: logarithms of cumulative sums of exponentials") {
  const Tensor x = normal({2, 9, 2, 3}, 1, DType::f64, 3);
  const Variable y = log_cumulative_sum_exp(Variable(x));
  CHECK(near(exp(y).value(), cumsum(exp(Variable(x)), 1).value(), 1e-14));
  const GradcheckReport report =
      gradcheck([](const Variables& in) { return log_cumulative_sum_exp(in[0]); }, {x});
  INFO(report);
  CHECK(report.ok);
  // For equal numbers x, the results are x + log 1, x + log 2, ...; large numbers do not overflow.
  const int64_t N = 70000;
  const Tensor equal = Tensor::full({1, N, 1, 1}, 800);
  const Tensor sums = log_cumulative_sum_exp(Variable(equal)).value();
  for (const int64_t i : {0, 1, 2, 3, 1000, 69999})
    CHECK(sums.at({0, i, 0, 0}) ==
          Approx(800 + std::log(static_cast<double>(i) + 1)).epsilon(1e-7));
}

TEST_CASE("scan equals the recurrence, with the state before and behind") {
  const int64_t N = GENERATE(1, 2, 7, 16, 17, 33, 48, 49, 97, 150);
  const Decay decay = GENERATE(from_range(all_decays));
  const bool normalizer = GENERATE(false, true), with_initial = GENERATE(false, true);
  INFO("N " << N << " decay " << static_cast<int>(decay) << " normalizer " << normalizer
            << " initial " << with_initial);
  const int64_t B = 2, H = 2, m = 5, E = 3;
  const Tensor q = normal({B, N, H, m}, 1), k = normal({B, N, H, m}, 2),
               v = normal({B, N, H, E}, 3), g = log_decays(decay, B, N, H, m, 4);
  const ScanState initial = random_state(B, H, m, E, normalizer);
  const ScanState* const start = with_initial ? &initial : nullptr;
  const Recurrent expected = recurrent(q, k, v, g, start, normalizer);
  for (const int64_t size : {0, 1, 5, 20, 48, 128}) {
    INFO("blocks of " << size);
    const ScanResult got = scan({Variable(q), Variable(k), Variable(v), variable(g)}, start,
                                {.normalizer = normalizer, .block = size});
    CHECK(near(got.out.value(), expected.out, 1e-13));
    CHECK(near(got.state.S.value(), expected.S, 1e-13));
    if (normalizer) CHECK(near(got.state.z.value(), expected.z, 1e-13));
    CHECK(got.state.z.defined() == normalizer);
  }
}

TEST_CASE("scan equals its N x N form") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t N = 61;
  const Variable q(normal({2, N, 2, 4}, 1)), k(normal({2, N, 2, 4}, 2)), v(normal({2, N, 2, 3}, 3)),
      g = variable(log_decays(decay, 2, N, 2, 4, 4));
  CHECK(near(scan({q, k, v, g}, nullptr, {.normalizer = false}).out.value(),
             definitions::apply(definitions::retention(q, k, g), v).value(), 1e-12));
}

TEST_CASE("scan: gradients of every input, through every result") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool normalizer = GENERATE(false, true);
  // In one block with several steps, in several blocks, and in several groups.
  const auto [N, size] =
      GENERATE(table<int64_t, int64_t>({{1, 48}, {21, 48}, {50, 0}, {19, 3}, {40, 1}}));
  const int64_t B = 1, H = 2, m = 3, E = 2;
  INFO("N " << N << " blocks of " << size << " decay " << static_cast<int>(decay) << " normalizer "
            << normalizer);
  std::vector<Tensor> in{normal({B, N, H, m}, 1), normal({B, N, H, m}, 2), normal({B, N, H, E}, 3),
                         normal({B, H, m, E}, 51)};
  if (normalizer) in.push_back(uniform({B, H, m}, 52, 0.5, 1.5));
  if (decay != Decay::none) in.push_back(log_decays(decay, B, N, H, m, 4));
  for (const int which : {0, 1, 2}) {  // out, the state, both
    const auto f = [&, size = size](const Variables& x) {
      const ScanState initial{x[3], normalizer ? x[4] : Variable()};
      const ScanResult r = scan({x[0], x[1], x[2], decay != Decay::none ? x.back() : Variable()},
                                &initial, {.normalizer = normalizer, .block = size});
      Variables all;
      if (which != 1) all.push_back(reshape(r.out, {r.out.value().numel()}));
      if (which != 0) all.push_back(reshape(r.state.S, {r.state.S.value().numel()}));
      if (which != 0 && normalizer) all.push_back(reshape(r.state.z, {r.state.z.value().numel()}));
      return concat(all, 0);
    };
    const GradcheckReport report = gradcheck(f, in, {.max_elements = 40});
    INFO("results " << which << ": " << report);
    CHECK(report.ok);
  }
}

TEST_CASE("scan: decays that need a gradient where nothing else does") {
  const Decay decay = GENERATE(Decay::head, Decay::channel);
  const Variable q(normal({1, 30, 1, 3}, 1)), k(normal({1, 30, 1, 3}, 2)),
      v(normal({1, 30, 1, 2}, 3));
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) {
        return scan({q, k, v, in[0]}).out;
      },
      {log_decays(decay, 1, 30, 1, 3, 4)});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("scan: cut anywhere, the state handed on, it is the same") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t N = 101, cut = GENERATE(1, 16, 47, 48, 49, 100);
  INFO("cut at " << cut << " decay " << static_cast<int>(decay));
  const Tensor data[3] = {normal({2, N, 2, 4}, 1), normal({2, N, 2, 4}, 2),
                          normal({2, N, 2, 3}, 3)};
  const Tensor g = log_decays(decay, 2, N, 2, 4, 4), cotangent = normal({2, N, 2, 4}, 5);
  std::vector<Tensor> results[2];
  for (const bool parts : {false, true}) {
    std::vector<Variable> x;
    for (const Tensor& t : data) x.emplace_back(t, true);
    if (g.defined()) x.emplace_back(g, true);
    const auto piece = [&](int64_t begin, int64_t end) {
      const auto of = [&](const Variable& t) { return slice(t, 1, begin, end); };
      return ScanInputs{of(x[0]), of(x[1]), of(x[2]), g.defined() ? of(x[3]) : Variable()};
    };
    Variable out;
    ScanState last;
    if (parts) {
      const ScanResult first = scan(piece(0, cut)), second = scan(piece(cut, N), &first.state);
      out = concat({first.out, second.out}, 1);
      last = second.state;
    } else {
      const ScanResult all = scan(piece(0, N));
      out = all.out, last = all.state;
    }
    backward(sum(out * Variable(cotangent)) + sum(square(last.S)) + sum(square(last.z)));
    results[parts] = {out.value(), last.S.value(), last.z.value()};
    for (const Variable& t : x) results[parts].push_back(t.grad());
  }
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(near(results[1][i], results[0][i], 1e-12));
}

TEST_CASE("scan: states combine in any order") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t m = 4, cuts[] = {0, 13, 40, 70};
  const Variable q(normal({2, 70, 2, m}, 1)), k(normal({2, 70, 2, m}, 2)),
      v(normal({2, 70, 2, 3}, 3)), g = variable(log_decays(decay, 2, 70, 2, m, 4));
  ScanState s[3];
  Variable total[3];
  for (int i = 0; i < 3; ++i) {
    const auto of = [&](const Variable& t) {
      return t.defined() ? slice(t, 1, cuts[i], cuts[i + 1]) : t;
    };
    s[i] = scan({of(q), of(k), of(v), of(g)}).state;
    if (g.defined()) total[i] = sum(of(g), {1});
  }
  const ScanState all = scan({q, k, v, g}).state;
  const ScanState from_left = combine(combine(s[0], s[1], total[1]), s[2], total[2]);
  const ScanState from_right =
      combine(s[0], combine(s[1], s[2], total[2]), g.defined() ? total[1] + total[2] : Variable());
  for (const ScanState& state : {from_left, from_right}) {
    CHECK(near(state.S.value(), all.S.value(), 1e-13));
    CHECK(near(state.z.value(), all.z.value(), 1e-13));
  }
}

TEST_CASE("scan: combined states with scales, of a head or a channel, and their gradients") {
  const bool channels = GENERATE(false, true);
  const Shape scale = channels ? Shape{1, 2, 3} : Shape{1, 2};
  const auto state = [&](const Variables& x, size_t i, const Tensor& c) {
    return ScanState{x[i], x[i + 1], Variable(c)};
  };
  const Tensor c[3] = {normal(scale, 11, DType::f64, 2), normal(scale, 12, DType::f64, 2),
                       normal(scale, 13, DType::f64, 2)};
  const std::vector<Tensor> in{normal({1, 2, 3, 2}, 1),  normal({1, 2, 3}, 2),
                               normal({1, 2, 3, 2}, 3),  normal({1, 2, 3}, 4),
                               normal({1, 2, 3, 2}, 5),  normal({1, 2, 3}, 6),
                               uniform(scale, 7, -2, 0), uniform({1, 2}, 8, -2, 0)};
  // e^log_scale [S, z], which does not depend on the choice of the scale.
  const auto value = [&](const ScanState& s) {
    const Variable e = exp(channels ? s.log_scale : unsqueeze(s.log_scale, 2));
    return concat({s.S * unsqueeze(e, 3), unsqueeze(s.z * e, 3)}, 3);
  };
  const auto left = [&](const Variables& x) {
    return value(
        combine(combine(state(x, 0, c[0]), state(x, 2, c[1]), x[6]), state(x, 4, c[2]), x[7]));
  };
  Variables x;
  for (const Tensor& t : in) x.emplace_back(t);
  const ScanState right =
      combine(state(x, 0, c[0]), combine(state(x, 2, c[1]), state(x, 4, c[2]), x[7]),
              x[6] + (channels ? unsqueeze(x[7], 2) : x[7]));
  CHECK(near(left(x).value(), value(right).value(), 1e-13));
  // Gradients treat the scale of the result as a constant, which it is if the right scale is the
  // larger one.
  const auto smooth = [&](const Variables& y) {
    const ScanState r = combine(state(y, 0, Tensor::full(scale, -5, DType::f64)),
                                state(y, 2, Tensor::full(scale, -1, DType::f64)), y[6]);
    return concat({r.S, unsqueeze(r.z, 3)}, 3);
  };
  const GradcheckReport report = gradcheck(smooth, in, {});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("scan: states of any scale combine without overflow") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto state = [&](double scale) {
      return ScanState{Variable(Tensor::full({1, 1, 2, 2}, 3, dtype)),
                       Variable(Tensor::full({1, 1, 2}, 2, dtype)),
                       Variable(Tensor::full({1, 1}, scale, dtype))};
    };
    const double never = -std::numeric_limits<double>::infinity();
    for (const double a : {never, -1e6, 0.0, 1e6})
      for (const double b : {never, -1e6, 0.0, 1e6})
        for (const double g : {never, -1e6, 0.0}) {
          const ScanState r = combine(state(a), state(b), Variable(Tensor::full({1, 1}, g, dtype)));
          INFO(a << " " << b << " " << g);
          CHECK(all_finite(r.S.value()));
          CHECK(r.log_scale.value().item() == std::max(a + g, b));
          if (a + g < b) CHECK(r.S.value().at({0, 0, 0, 0}) == 3);
        }
  }
}

TEST_CASE("scan: exponentials of projections, in one group or several, from a state or none") {
  // 40 blocks of one token are three groups.
  const int64_t N = GENERATE(1, 7, 40);
  const bool projected = GENERATE(false, true), decays = GENERATE(false, true);
  const Shape shape{1, N, 2, 3};
  const Tensor q = normal(shape, 1), k = normal(shape, 2), v = normal({1, N, 2, 4}, 3);
  const Tensor g = log_decays(decays ? Decay::head : Decay::none, 1, N, 2, 3, 4);
  ScanOptions options{.features = {.exponentials = true}, .final_state = false};
  Variable tq(q), tk(k);
  if (projected) {
    options.features.projection = normal({5, 3}, 4);
    options.features.half_norm = 0.3;
    tq = linear(tq, Variable(options.features.projection));
    tk =
        linear(tk, Variable(options.features.projection)) - affine(sum(square(tk), {3}, true), 0.3);
  }
  const Variable weights = definitions::retention(exp(tq), exp(tk), variable(g));
  const Tensor expected =
      definitions::apply(weights / sum(weights, {3}, true), Variable(v)).value();
  for (const int64_t size : {0, 1, 5, 48, 128}) {
    INFO("N " << N << " projected " << projected << " decays " << decays << " blocks of " << size);
    options.block = size;
    const auto f = [&](const Variables& in) {
      return normalised(
          scan({in[0], in[1], in[2], decays ? in[3] : Variable()}, nullptr, options).out);
    };
    Variables x{Variable(q), Variable(k), Variable(v)};
    std::vector<Tensor> in{q, k, v};
    if (decays) x.emplace_back(g), in.push_back(g);
    CHECK(near(f(x).value(), expected, 1e-13));
    const GradcheckReport report = gradcheck(f, in);
    INFO(report);
    CHECK(report.ok);
    if (N == 1) continue;
    // The same, split into two parts.
    const int64_t cut = N / 2 + 1;
    const auto part = [&](int64_t begin, int64_t end) {
      const auto of = [&](const Variable& t) { return slice(t, 1, begin, end); };
      return ScanInputs{of(x[0]), of(x[1]), of(x[2]), decays ? of(x[3]) : Variable()};
    };
    ScanOptions with_state = options;
    with_state.final_state = true;
    const ScanResult first = scan(part(0, cut), nullptr, with_state),
                     second = scan(part(cut, N), &first.state, with_state);
    CHECK(
        near(concat({normalised(first.out), normalised(second.out)}, 1).value(), expected, 1e-13));
  }
}

TEST_CASE("scan: what is kept for the gradients changes no bit") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool projected = decay != Decay::channel && GENERATE(false, true);
  const int64_t N = GENERATE(7, 100, 700);
  INFO("N " << N << " projected " << projected);
  const Tensor g = log_decays(decay, 2, N, 2, 3, 4);
  ScanOptions options{.final_state = false};
  if (projected)
    options.features = {.exponentials = true, .projection = normal({5, 3}, 4), .half_norm = 0.3};
  const auto gradients = [&](int64_t most_kept) {
    options.most_kept = most_kept;
    const Variable q(normal({2, N, 2, 3}, 1), true), k(normal({2, N, 2, 3}, 2), true),
        v(normal({2, N, 2, 4}, 3), true), decays = g.defined() ? Variable(g, true) : Variable();
    backward(sum(square(scan({q, k, v, decays}, nullptr, options).out)));
    std::vector<Tensor> all{q.grad(), k.grad(), v.grad()};
    if (g.defined()) all.push_back(decays.grad());
    return all;
  };
  const auto kept = gradients(ScanOptions().most_kept), computed = gradients(0);
  for (size_t i = 0; i < kept.size(); ++i) CHECK(identical(kept[i], computed[i]));
}

TEST_CASE("scan: sums and their scales, from either end, with the norms of queries") {
  const bool reverse = GENERATE(false, true), decays = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 60);
  INFO("reverse " << reverse << " decays " << decays << " N " << N);
  const Shape shape{2, N, 2, 3};
  const Tensor W = normal({5, 3}, 4), v = normal({2, N, 2, 4}, 3),
               g = log_decays(decays ? Decay::head : Decay::none, 2, N, 2, 3, 4);
  const auto in_order = [&](const Variable& x) {
    Variables tokens;
    for (int64_t i = 0; i < N; ++i) {
      const int64_t at = reverse ? N - 1 - i : i;
      tokens.push_back(slice(x, 1, at, at + 1));
    }
    return concat(tokens, 1);
  };
  const Variable q(normal(shape, 1), true), k(normal(shape, 2), true);
  const auto map = [&](const Variable& x) {
    return exp(linear(x, Variable(W)) - affine(sum(square(x), {3}, true), 0.3));
  };
  const Variable weights = definitions::retention(in_order(map(q)), in_order(map(k)),
                                                  decays ? in_order(Variable(g)) : Variable());
  const Variable v1 = concat({Variable(v), Variable(Tensor::full({2, N, 2, 1}, 1, DType::f64))}, 3);
  const Variable expected = in_order(definitions::apply(weights, in_order(v1)));
  const Tensor seed = normal(expected.shape(), 5);
  backward(expected, seed);
  const Tensor dq = q.grad(), dk = k.grad();
  const Variable q2(q.value(), true), k2(k.value(), true);
  const ScanResult r = scan({q2, k2, Variable(v), variable(g)}, nullptr,
                            {.features = {.exponentials = true, .projection = W, .half_norm = 0.3},
                             .query_norm = true,
                             .reverse = reverse,
                             .log_scales = true,
                             .final_state = false,
                             .block = 5});
  const Variable found = r.out * exp(unsqueeze(transpose(Variable(r.log_scales), 1, 2), 3));
  backward(found, seed);
  CHECK(near(found.value(), expected.value(), 1e-12));
  CHECK(near(q2.grad(), dq, 1e-12));
  CHECK(near(k2.grad(), dk, 1e-12));
}

TEST_CASE("scan: one token at a time") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool normalizer = GENERATE(false, true);
  const int64_t N = 60;
  const Tensor q = normal({2, N, 2, 5}, 1), k = normal({2, N, 2, 5}, 2),
               v = normal({2, N, 2, 3}, 3), g = log_decays(decay, 2, N, 2, 5, 4);
  const ScanResult all = scan({Variable(q), Variable(k), Variable(v), variable(g)}, nullptr,
                              {.normalizer = normalizer});
  ScanState stepped, scanned;
  for (int64_t i = 0; i < N; ++i) {
    const Tensor row = all.out.value().select(1, i);
    CHECK(near(scan_step(stepped,
                         {q.select(1, i), k.select(1, i), v.select(1, i),
                          g.defined() ? g.select(1, i) : g},
                         normalizer ? Normalizer::column : Normalizer::none),
               row, 1e-13));
    const auto of = [&](const Tensor& t) {
      return t.defined() ? Variable(t.slice(1, i, i + 1)) : Variable();
    };
    const ScanResult one =
        scan({of(q), of(k), of(v), of(g)}, i ? &scanned : nullptr, {.normalizer = normalizer});
    scanned = one.state;
    CHECK(near(one.out.value().select(1, 0), row, 1e-13));
  }
  for (const ScanState& state : {stepped, scanned})
    CHECK(near(state.S.value(), all.state.S.value(), 1e-13));
}

TEST_CASE("scan: retention as matrix, as recurrence and in blocks") {
  // γ_h = 1 - 2^(-5-h), Sun et al. 2023 (arXiv 2307.08621), eq. 8.
  const int64_t B = 1, N = 200, H = 4, D = 6;
  Tensor g = Tensor::empty({B, N, H}, DType::f64);
  for (int64_t i = 0; i < N * H; ++i)
    g.data<double>()[i] = std::log1p(-std::exp2(-5.0 - static_cast<double>(i % H)));
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, H, D}, 2),
               v = normal({B, N, H, D}, 3);
  const Tensor matrix =
      definitions::apply(definitions::retention(Variable(q), Variable(k), Variable(g)), Variable(v))
          .value();
  CHECK(near(recurrent(q, k, v, g, nullptr, false).out, matrix, 1e-12));
  const auto blocks = [&](const Tensor& decay) {
    return scan({Variable(q), Variable(k), Variable(v), Variable(decay)}, nullptr,
                {.normalizer = false})
        .out.value();
  };
  CHECK(near(blocks(g), matrix, 1e-12));
  // A decay per head equals the same decay for all of its channels.
  CHECK(near(blocks(g.unsqueeze(3).expand({B, N, H, D})), matrix, 1e-12));
}

TEST_CASE("scan: exponents of any size") {
  const Shape shape{1, 120, 1, 3};
  for (const double size : {0.0, 1e3, 1e6}) {
    INFO(size);
    const Variable q(affine(Variable(normal(shape, 1)), size).value().to(DType::f32), true),
        k(affine(Variable(normal(shape, 2)), size).value().to(DType::f32), true),
        v(normal(shape, 3).to(DType::f32), true);
    const Variable sums = scan({q, k, v}, nullptr, {.features = {.exponentials = true}}).out;
    backward(normalised(sums), Tensor::full(shape, 1));
    CHECK(all_finite(sums.value()));
    for (const Variable& x : {q, k, v}) CHECK(all_finite(x.grad()));
  }
}

TEST_CASE("scan: decays of any size, to none of the state") {
  const Decay decay = GENERATE(Decay::head, Decay::channel);
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const int64_t N = 130;
  const Tensor q = normal({1, N, 2, 4}, 1), k = normal({1, N, 2, 4}, 2),
               v = normal({1, N, 2, 3}, 3);
  Tensor g = log_decays(decay, 1, N, 2, 4, 4, 0.02);
  for (const int64_t i : {0, 5, 47, 48, 60, 61, 62, 100, 129})
    g.slice(1, i, i + 1).fill(i % 2 ? -std::numeric_limits<double>::infinity() : -1e5);
  g.slice(1, 20, 30).fill(-90);
  std::vector<Variable> in;
  for (const Tensor& t : {q, k, v, g}) in.emplace_back(t.to(dtype), true);
  const ScanResult r = scan({in[0], in[1], in[2], in[3]});
  CHECK(near(r.out.value(),
             recurrent(in[0].value(), in[1].value(), in[2].value(), in[3].value().to(DType::f64),
                       nullptr, true)
                 .out,
             dtype == DType::f32 ? 2e-6 : 1e-12));
  backward(sum(r.out) + sum(r.state.S));
  for (const Variable& x : in) CHECK(all_finite(x.grad()));
}

TEST_CASE("scan: f32 over 65,536 tokens is near f64") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t N = 65536, m = 4, E = 3;
  const DType f32 = DType::f32;
  // Positive features: sums grow with the tokens, and nothing cancels.
  const Tensor q = uniform({1, N, 1, m}, 1, 0.1, 1, f32), k = uniform({1, N, 1, m}, 2, 0.1, 1, f32),
               v = uniform({1, N, 1, E}, 3, 0.1, 1, f32),
               g = log_decays(decay, 1, N, 1, m, 4, 1e-3, f32);
  const Tensor expected = recurrent(q, k, v, g.defined() ? g.to(DType::f64) : g, nullptr, true).out;
  std::vector<Variable> in, exact;
  for (const Tensor& t : {q, k, v, g})
    if (t.defined()) in.emplace_back(t, true), exact.emplace_back(t.to(DType::f64), true);
  const auto run = [&](const std::vector<Variable>& x) {
    return scan({x[0], x[1], x[2], g.defined() ? x[3] : Variable()}, nullptr,
                {.final_state = false})
        .out;
  };
  const Variable out = run(in);
  const auto a = out.value().to_vector<double>(), b = expected.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] / b[i] - 1));
  CHECK(worst < 1e-5);
  backward(normalised(out), normal({1, N, 1, E}, 5, f32));
  backward(normalised(run(exact)), normal({1, N, 1, E}, 5, f32).to(DType::f64));
  for (size_t i = 0; i < in.size(); ++i) {
    const auto x = in[i].grad().to_vector<double>(), y = exact[i].grad().to_vector<double>();
    double error = 0, scale = 0;
    for (size_t j = 0; j < x.size(); ++j)
      error += (x[j] - y[j]) * (x[j] - y[j]), scale += y[j] * y[j];
    INFO("input " << i << ": " << std::sqrt(error / scale));
    // Weights are nearly equal: gradients of q and g are small differences of large sums.
    CHECK(std::sqrt(error / scale) < 5e-4);
  }
  INFO(worst);
}

TEST_CASE("scan refuses what does not fit") {
  const Variable q(normal({2, 3, 2, 4}, 1)), v(normal({2, 3, 2, 5}, 2));
  const auto g = [](const Shape& shape) { return Variable(Tensor::zeros(shape, DType::f64)); };
  CHECK_NOTHROW(scan({q, q, v, g({2, 3, 2})}));
  CHECK_NOTHROW(scan({q, q, v, g({2, 3, 2, 4})}));
  CHECK_THROWS_AS(scan({q, v, v}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, Variable(normal({2, 4, 2, 5}, 2))}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v, g({2, 3, 1})}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v, g({2, 3, 2, 5})}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v}, nullptr, {.features = {.projection = normal({6, 4}, 1)}}),
                  ShapeError);
  CHECK_THROWS_AS(scan({q, q, v, g({2, 3, 2, 4})}, nullptr, {.features = {.exponentials = true}}),
                  ShapeError);
  CHECK_THROWS_AS(scan({q, q, v, g({2, 3, 2, 4})}, nullptr, {.reverse = true}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v}, nullptr, {.block = 129}), ShapeError);
  const ScanState state = scan({q, q, v}).state, other = scan({q, q, q}).state;
  CHECK_NOTHROW(scan({q, q, v}, &state));
  CHECK_THROWS_AS(scan({q, q, v}, &other), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v}, &state, {.normalizer = false}), ShapeError);
  CHECK_THROWS_AS(scan({q, q, v}, &state, {.features = {.exponentials = true}}), ShapeError);
  CHECK_THROWS_AS(combine(state, other, {}), ShapeError);
  CHECK_THROWS_AS(combine(state, state, g({2, 3})), ShapeError);
  CHECK_THROWS_WITH(scan({q, q, v}, &other), Catch::Contains("expected") && Catch::Contains("got"));
}

TEST_CASE("scan: tokens behind the last that counts get no gradient at all") {
  const Decay decay = GENERATE(Decay::head, Decay::channel);
  const int64_t N = 90, last = 60;
  std::vector<Variable> in;
  for (const Tensor& t : {normal({1, N, 2, 4}, 1), normal({1, N, 2, 4}, 2), normal({1, N, 2, 3}, 3),
                          log_decays(decay, 1, N, 2, 4, 4)})
    in.emplace_back(t.to(DType::f32), true);
  backward(sum(slice(scan({in[0], in[1], in[2], in[3]}).out, 1, 0, last + 1)));
  for (const Variable& x : in) CHECK(all_zero(x.grad().slice(1, last + 1, N)));
}

TEST_CASE("scan: 65,536 tokens at every third place in memory") {
  check_long_layout([](const Variable& q, const Variable& k, const Variable& v) {
    return scan({q, k, v}, nullptr, {.features = {.exponentials = true}}).out;
  });
}

TEST_CASE("scan: f32 sums of 65,536 equal tokens") {
  const Decay decay = GENERATE(Decay::none, Decay::channel);
  const int64_t N = 65536, H = 32;  // enough heads to keep threads busy without groups
  const auto full = [&](double x) { return Variable(Tensor::full({1, N, H, 1}, x)); };
  const Variable g = decay == Decay::none ? Variable() : full(0);
  const Variable out =
      scan({full(0.3), full(0.3), full(0.7), g}, nullptr, {.final_state = false}).out;
  for (const int64_t i : {100, 16383, 65535})
    CHECK(out.value().at({0, i, 0, 0}) ==
          Approx(0.3 * 0.3 * 0.7 * static_cast<double>(i + 1)).epsilon(1e-5));
}

// Of the forward pass: N (N + 16) D products of pairs, in steps of 16, against 3 N D² with states.
TEST_CASE("scan: a sequence of up to 2 D tokens is one block, without a state") {
  const int64_t N = 128, D = 128;
  const Variable q(normal({1, N, 1, D}, 1, DType::f32)), k(normal({1, N, 1, D}, 2, DType::f32)),
      v(normal({1, N, 1, D}, 3, DType::f32));
  const ScanOptions options{.normalizer = false, .final_state = false};
  const MultiplyAdds counted;
  (void)scan({q, k, v}, nullptr, options);
  CHECK(counted.count() == N * (N + 16) * D);
}
