#include "longhand/attention/ops/delta_scan.h"

#include <limits>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "tests/attention/recurrence.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

// Operands in f64, with keys and queries of unit norm and write strengths up to 2.
struct Data {
  Tensor q, k, v, beta, g, read, write, initial;

  Data(Decay decay, int64_t B, int64_t N, int64_t H, int64_t m, int64_t E, double strength = 1)
      : q(unit({B, N, H, m}, 1)),
        k(unit({B, N, H, m}, 2)),
        v(normal({B, N, H, E}, 3)),
        beta(uniform({B, N, H}, 4, 0, 2)),
        initial(normal({B, H, m, E}, 5)) {
    if (decay == Decay::head) g = uniform({B, N, H}, 6, -strength, 0);
    if (decay == Decay::channel) g = uniform({B, N, H, m}, 6, -strength, 0);
  }
  static Tensor unit(const Shape& shape, uint64_t seed) {
    const Variable x(normal(shape, seed, DType::f64, 1));
    return (x / sqrt(sum(square(x), {3}, true))).value();
  }
  // The operands that are defined; q, k and v come first.
  std::vector<Tensor> all() const {
    std::vector<Tensor> out;
    for (const Tensor& t : {q, k, v, beta, g, read, write, initial})
      if (t.defined()) out.push_back(t);
    return out;
  }
  // The scan of `x`, the operands in the order of all().
  DeltaResult scan(const Variables& x, const DeltaOptions& options = {}) const {
    size_t i = 3;
    const auto next = [&](const Tensor& t) { return t.defined() ? x[i++] : Variable(); };
    DeltaInputs in{x[0], x[1], x[2]};
    in.beta = next(beta), in.log_decay = next(g), in.read = next(read), in.write = next(write);
    return delta_scan(in, next(initial), options);
  }
  // All operands as leaves of a dtype.
  Variables leaves(DType dtype = DType::f64) const {
    Variables out;
    for (const Tensor& t : all()) out.emplace_back(t.to(dtype), true);
    return out;
  }
};

// The recurrence of the header, token by token.
struct DeltaRecurrence {
  Tensor out, S;
};
DeltaRecurrence delta_recurrence(const Data& x) {
  const int64_t B = x.q.size(0), N = x.q.size(1), H = x.q.size(2), m = x.q.size(3), E = x.v.size(3);
  Tensor S = x.initial.defined() ? x.initial.contiguous().clone()
                                 : Tensor::zeros({B, H, m, E}, DType::f64);
  Tensor out = Tensor::zeros({B, N, H, E}, DType::f64);
  const std::vector<Row> q = rows_of(x.q), k = rows_of(x.k), v = rows_of(x.v),
                         r = rows_of(x.read.defined() ? x.read : x.k),
                         u = x.write.defined() ? rows_of(x.write) : std::vector<Row>();
  const auto g = x.g.defined() ? x.g.to_vector<double>() : std::vector<double>();
  const auto beta = x.beta.defined() ? x.beta.to_vector<double>() : std::vector<double>();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < N; ++i) {
        const int64_t token = (b * N + i) * H + h;
        double* const s = S.data<double>() + (b * H + h) * m * E;
        Row error = u.empty() ? v[token] : Row(E, 0.0);
        for (int64_t l = 0; l < m; ++l)
          for (int64_t e = 0; e < E; ++e) {
            if (!g.empty()) s[l * E + e] *= std::exp(g[x.g.rank() == 3 ? token : token * m + l]);
            error[e] -= r[token][l] * s[l * E + e];
          }
        for (int64_t l = 0; l < m; ++l)
          for (int64_t e = 0; e < E; ++e) {
            s[l * E + e] += (beta.empty() ? 1 : beta[token]) * k[token][l] * error[e];
            if (!u.empty()) s[l * E + e] += u[token][l] * v[token][e];
            out.data<double>()[token * E + e] += q[token][l] * s[l * E + e];
          }
      }
  return {out, S};
}

}  // namespace

TEST_CASE("delta_scan equals the recurrence, with the state before and behind") {
  const int64_t N = GENERATE(1, 2, 16, 17, 48, 49, 150);
  const Decay decay = GENERATE(from_range(all_decays));
  const bool initial = GENERATE(false, true), read = GENERATE(false, true),
             write = GENERATE(false, true);
  INFO("N " << N << " decay " << static_cast<int>(decay) << " initial " << initial << " read "
            << read << " write " << write);
  Data x(decay, 2, N, 2, 5, 3);
  if (!initial) x.initial = {};
  if (read) x.read = normal({2, N, 2, 5}, 7, DType::f64, 0.15);
  if (write) x.write = normal({2, N, 2, 5}, 9);
  const DeltaRecurrence expected = delta_recurrence(x);
  for (const int64_t size : {0, 1, 20, 48, 128}) {
    INFO("blocks of " << size);
    const DeltaResult got = x.scan(x.leaves(), {.block = size});
    CHECK(near(got.out.value(), expected.out, 1e-12));
    CHECK(near(got.state.value(), expected.S, 1e-12));
  }
}

TEST_CASE(
    "delta_scan: several steps of a token are tokens without decays and queries before them") {
  const int64_t N = GENERATE(1, 20, 43), n = GENERATE(2, 3, 20);
  const Decay decay = GENERATE(Decay::none, Decay::head);
  const bool initial = GENERATE(false, true), both = GENERATE(false, true);
  INFO("N " << N << " steps " << n << " decay " << static_cast<int>(decay) << " initial " << initial
            << " read and write " << both);
  Data x(decay, 2, n * N, 2, 5, 3);
  if (!initial) x.initial = {};
  if (both) {
    x.read = normal(x.k.shape(), 7, DType::f64, 0.15);
    x.write = normal(x.k.shape(), 9);
  }
  const Variables a = x.leaves();
  // Queries of the last steps and decays of the first ones, and then the same with zeros for the others.
  const auto only = [&](const Variable& y, int64_t step) {
    const Variable part = slice(y, 1, step, n * N, n);
    Variables steps(n, Variable(Tensor::zeros(part.shape(), DType::f64)));
    steps[step] = part;
    return reshape(stack(steps, 2), y.shape());
  };
  Variables of_steps = a;
  of_steps[0] = only(a[0], n - 1);
  if (x.g.defined()) of_steps[4] = only(a[4], 0);
  const Tensor d = normal({2, N, 2, 3}, 8), dS = normal({2, 2, 5, 3}, 10);
  const auto gradients = [&](const Variable& out, const Variable& state) {
    backward(sum(out * Variable(d)) + sum(state * Variable(dS)));
    std::vector<Tensor> all;
    for (Variable y : a) all.push_back(y.take_grad());
    return all;
  };
  const DeltaResult expected = x.scan(of_steps);
  const Variable reads = slice(expected.out, 1, n - 1, n * N, n);
  const auto slow = gradients(reads, expected.state);
  for (const int64_t size : {0, 1, 30, 128}) {
    INFO("blocks of " << size);
    Variables of_tokens = a;
    of_tokens[0] = slice(a[0], 1, n - 1, n * N, n);
    if (x.g.defined()) of_tokens[4] = slice(a[4], 1, 0, n * N, n);
    const DeltaResult got = x.scan(of_tokens, {.block = size});
    CHECK(near(got.out.value(), reads.value(), 1e-12));
    CHECK(near(got.state.value(), expected.state.value(), 1e-12));
    const auto fast = gradients(got.out, got.state);
    for (size_t i = 0; i < a.size(); ++i) {
      INFO("operand " << i);
      CHECK(near(fast[i], slow[i], 1e-11));
    }
  }
}

TEST_CASE("delta_scan equals its N x N form, with its gradients") {
  const Decay decay = GENERATE(from_range(all_decays));
  Data x(decay, 2, 53, 2, 4, 3);
  x.initial = {};
  const Tensor cotangent = normal({2, 53, 2, 3}, 8);
  const Variables a = x.leaves(), b = x.leaves();
  const Variable chunked = x.scan(a).out;
  const Variable quadratic = definitions::apply(
      definitions::delta(b[0], b[1], b[3], x.g.defined() ? b[4] : Variable()), b[2]);
  CHECK(near(chunked.value(), quadratic.value(), 1e-12));
  backward(chunked, cotangent);
  backward(quadratic, cotangent);
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("operand " << i);
    CHECK(near(a[i].grad(), b[i].grad(), 1e-11));
  }
}

TEST_CASE("delta_scan: gradients of every operand, through every result") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool read = GENERATE(false, true), write = GENERATE(false, true);
  // In one block with several steps, and in several runs of blocks.
  const auto [N, size] = GENERATE(table<int64_t, int64_t>({{1, 48}, {21, 48}, {33, 0}, {19, 3}}));
  INFO("N " << N << " blocks of " << size << " decay " << static_cast<int>(decay) << " write "
            << write);
  Data x(decay, 1, N, 2, 3, 2);
  if (read) x.read = normal({1, N, 2, 3}, 7);
  if (write) x.write = normal({1, N, 2, 3}, 9);
  for (const int which : {0, 1, 2}) {  // out, the state, both
    const GradcheckReport report = gradcheck(
        [&, size = size](const Variables& in) {
          const DeltaResult r = x.scan(in, {.block = size});
          Variables all;
          if (which != 1) all.push_back(reshape(r.out, {r.out.value().numel()}));
          if (which != 0) all.push_back(reshape(r.state, {r.state.value().numel()}));
          return concat(all, 0);
        },
        x.all());
    INFO("results " << which << ": " << report);
    CHECK(report.ok);
  }
}

TEST_CASE("delta_scan: what is kept for the gradients changes no bit") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool write = GENERATE(false, true), initial = GENERATE(false, true);
  INFO("write " << write << " initial " << initial);
  Data data(decay, 2, 40, 2, 5, 4);
  data.read = Data::unit({2, 40, 2, 5}, 7);
  if (write) data.write = Data::unit({2, 40, 2, 5}, 8);
  if (!initial) data.initial = {};
  const auto gradients = [&](int64_t most_kept) {
    const Variables x = data.leaves();
    const DeltaResult r = data.scan(x, {.most_kept = most_kept});
    backward(sum(square(r.out)) + sum(r.state));
    std::vector<Tensor> all;
    for (const Variable& leaf : x) all.push_back(leaf.grad());
    return all;
  };
  const auto kept = gradients(DeltaOptions().most_kept), computed = gradients(0);
  for (size_t i = 0; i < kept.size(); ++i) CHECK(identical(kept[i], computed[i]));
}

TEST_CASE("delta_scan: cut anywhere, the state handed on, it is the same") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t N = 101, cut = GENERATE(1, 47, 48, 100);
  INFO("cut at " << cut << " decay " << static_cast<int>(decay));
  Data x(decay, 2, N, 2, 4, 3);
  x.initial = {};
  const Tensor cotangent = normal({2, N, 2, 3}, 8);
  std::vector<Tensor> results[2];
  for (const bool parts : {false, true}) {
    const Variables leaves = x.leaves();
    Variable out, last;
    if (parts) {
      Variable state;
      Variables outs;
      for (const auto& [begin, end] : {std::pair(int64_t{0}, cut), std::pair(cut, N)}) {
        const auto of = [&, begin = begin, end = end](size_t i) {
          return i < leaves.size() ? slice(leaves[i], 1, begin, end) : Variable();
        };
        const DeltaResult r = delta_scan({of(0), of(1), of(2), of(3), of(4)}, state);
        outs.push_back(r.out), state = r.state;
      }
      out = concat(outs, 1), last = state;
    } else {
      const DeltaResult r = x.scan(leaves);
      out = r.out, last = r.state;
    }
    backward(sum(out * Variable(cotangent)) + sum(square(last)));
    results[parts] = {out.value(), last.value()};
    for (const Variable& t : leaves) results[parts].push_back(t.grad());
  }
  for (size_t i = 0; i < results[0].size(); ++i) CHECK(near(results[1][i], results[0][i], 1e-11));
}

TEST_CASE("delta_scan: one token at a time") {
  const Decay decay = GENERATE(from_range(all_decays));
  const bool write = GENERATE(false, true);
  Data x(decay, 2, 60, 2, 5, 3);
  x.initial = {};
  if (write) x.write = normal({2, 60, 2, 5}, 9);
  const DeltaResult all = x.scan(x.leaves());
  Tensor state;
  for (int64_t i = 0; i < 60; ++i) {
    const auto at = [&](const Tensor& t) { return t.defined() ? t.select(1, i) : t; };
    CHECK(near(delta_step(state, {at(x.q), at(x.k), at(x.v), at(x.beta), at(x.g), {}, at(x.write)}),
               all.out.value().select(1, i), 1e-12));
  }
  CHECK(near(state, all.state.value(), 1e-12));
}

TEST_CASE("delta_scan: later tokens change no bit and get no gradient") {
  const Decay decay = GENERATE(from_range(all_decays));
  const DType dtype = GENERATE(DType::f32, DType::f64);
  const int64_t N = 110, seen = GENERATE(1, 20, 48, 67);
  const Data x(decay, 1, N, 2, 4, 3);
  Variables other;
  for (const Variable& t : x.leaves(dtype)) other.emplace_back(t.value().clone(), true);
  for (size_t i = 0; i + 1 < other.size(); ++i)
    other[i].mutable_value().slice(1, seen, N).fill(i == 4 ? -3 : 0.4);
  const Variable a = x.scan(x.leaves(dtype)).out, b = x.scan(other).out;
  CHECK(identical(a.value().slice(1, 0, seen).contiguous(),
                  b.value().slice(1, 0, seen).contiguous()));
  backward(sum(slice(b, 1, 0, seen)));
  for (size_t i = 0; i + 1 < other.size(); ++i) CHECK(all_zero(other[i].grad().slice(1, seen, N)));
}

TEST_CASE("delta_scan: tokens without strength or decay change nothing") {
  const Decay decay = GENERATE(from_range(all_decays));
  Data x(decay, 1, 90, 2, 4, 3);
  const auto first = [](const Tensor& t) { return t.defined() ? t.slice(1, 0, 60) : t; };
  x.beta.slice(1, 60, 90).fill(0);
  if (x.g.defined()) x.g.slice(1, 60, 90).fill(0);
  Data alone = x;
  alone.q = first(x.q), alone.k = first(x.k), alone.v = first(x.v);
  alone.beta = first(x.beta), alone.g = first(x.g);
  const Tensor all = x.scan(x.leaves()).state.value();
  CHECK(near(all, alone.scan(alone.leaves()).state.value(), 1e-14));
}

TEST_CASE("delta_scan: decays of any size, to none of the state") {
  const Decay decay = GENERATE(Decay::head, Decay::channel);
  const DType dtype = GENERATE(DType::f32, DType::f64);
  Data x(decay, 1, 130, 2, 4, 3, 0.02);
  for (const int64_t i : {0, 5, 47, 48, 60, 61, 62, 100, 129})
    x.g.slice(1, i, i + 1).fill(i % 2 ? -std::numeric_limits<double>::infinity() : -1e5);
  x.g.slice(1, 20, 30).fill(-90);
  const Variables in = x.leaves(dtype);
  const DeltaResult r = x.scan(in);
  CHECK(near(r.out.value(), delta_recurrence(x).out, dtype == DType::f32 ? 2e-5 : 1e-12));
  backward(sum(r.out) + sum(r.state));
  for (const Variable& t : in) CHECK(all_finite(t.grad()));
}

TEST_CASE("delta_scan: f32 over 65,536 tokens is near f64") {
  const Decay decay = GENERATE(from_range(all_decays));
  const int64_t N = 65536;
  Data x(decay, 1, N, 1, 4, 3, 1e-3);
  x.initial = {};
  x.beta = affine(Variable(x.beta), 1e-3).value();  // thousands of tokens count
  // Operands that f32 holds exactly.
  for (Tensor* const t : {&x.q, &x.k, &x.v, &x.beta, &x.g})
    if (t->defined()) *t = t->to(DType::f32).to(DType::f64);
  std::vector<Tensor> results[2];
  for (const bool exact : {false, true}) {
    const DType dtype = exact ? DType::f64 : DType::f32;
    const Variables in = x.leaves(dtype);
    const Variable out = x.scan(in, {.final_state = false}).out;
    backward(out, normal({1, N, 1, 3}, 8, DType::f32).to(dtype));
    results[exact] = {out.value()};
    for (const Variable& t : in) results[exact].push_back(t.grad());
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    const double error = conformance::relative_error(results[0][i].to(DType::f64), results[1][i]);
    INFO("result " << i << ": " << error);
    CHECK(error < 2e-5);
  }
}

TEST_CASE("delta_scan refuses what does not fit") {
  const auto x = [](const Shape& shape, DType dtype = DType::f64) {
    return Variable(Tensor::zeros(shape, dtype));
  };
  const Variable q = x({2, 3, 2, 4}), v = x({2, 3, 2, 5});
  CHECK_NOTHROW(delta_scan({q, q, v, x({2, 3, 2}), x({2, 3, 2, 4}), q}, x({2, 2, 4, 5})));
  CHECK_THROWS_AS(delta_scan({q, v, v}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, x({2, 4, 2, 5})}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, x({2, 3, 2, 5}, DType::f32)}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, v, x({2, 3, 1})}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, v, {}, x({2, 3, 2, 5})}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, v, {}, {}, v}), ShapeError);
  CHECK_THROWS_AS(delta_scan({.q = q, .k = q, .v = v, .write = v}), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, v}, x({2, 2, 4, 4})), ShapeError);
  CHECK_THROWS_AS(delta_scan({q, q, v}, {}, {.block = 129}), ShapeError);
  CHECK_THROWS_WITH(delta_scan({q, q, v, x({2, 3, 1})}),
                    Catch::Contains("expected beta") && Catch::Contains("got"));
  Tensor state = Tensor::zeros({2, 2, 4, 4}, DType::f64);
  const Tensor one = Tensor::zeros({2, 2, 4}, DType::f64);
  CHECK_NOTHROW(delta_step(state, {one, one, one, {}, {}, {}}));
  CHECK_THROWS_AS(delta_step(state, {one, one, Tensor::zeros({2, 2, 5}, DType::f64), {}, {}, {}}),
                  ShapeError);
}
