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

// Rising along axis 1, in jumps.
Tensor rising(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f64);
  fill_uniform(t, Generator(seed), -40, 40);
  return running_max(t);
}

}  // namespace

TEST_CASE("kernel attention: a running maximum looks back only") {
  const Tensor x = Tensor::from(std::vector<double>{1, 9, 0, 10, 5, 3, 2, 11}, {1, 4, 2});
  CHECK(running_max(x).to_vector<double>() == std::vector<double>{1, 9, 1, 10, 5, 10, 5, 11});
}

TEST_CASE("kernel attention: chunks of any size give the same") {
  const int64_t N = GENERATE(1, 2, 5, 8, 13);
  const bool scaled = GENERATE(false, true);
  const Shape features{2, N, 2, 3}, values{2, N, 2, 4};
  const Tensor fq = positive(features, 1), fk = positive(features, 2), v = normal(values, 3);
  const Tensor c = scaled ? rising({2, N, 2}, 4) : Tensor();
  // The definition, with e^c in the features of the keys.
  const Variable scaled_keys = scaled ? Variable(fk) * exp(Variable(c.unsqueeze(3))) : Variable(fk);
  const Tensor wanted = naive_kernel_attention(fq, scaled_keys.value(), v, dot, true);
  for (const int64_t chunk : {1, 2, 3, 4, 48}) {
    INFO("N " << N << " chunk " << chunk << " scaled " << scaled);
    const auto f = [&](const Variables& in) {
      return normalised(causal_kernel_sums(in[0], in[1], in[2], {.log_scale = c, .chunk = chunk}));
    };
    CHECK(near(f({Variable(fq), Variable(fk), Variable(v)}).value(), wanted, 1e-13));
    const GradcheckReport report = gradcheck(f, {fq, fk, v});
    INFO(report);
    CHECK(report.ok);
  }
}

TEST_CASE("kernel attention: causal exponentials of projections, in one group or several") {
  // 40 chunks of one token are three groups.
  const int64_t N = GENERATE(1, 7, 40);
  const bool projected = GENERATE(false, true);
  const Shape shape{1, N, 2, 3};
  const Tensor q = normal(shape, 1), k = normal(shape, 2), v = normal({1, N, 2, 4}, 3);
  CausalKernelOptions options{.exponentials = true, .chunk = 1};
  Variable tq(q), tk(k);
  if (projected) {
    options.projection = normal({5, 3}, 4);
    options.half_norm = 0.3;
    tq = linear(tq, Variable(options.projection));
    tk = linear(tk, Variable(options.projection)) - affine(sum(square(tk), {3}, true), 0.3);
  }
  const Tensor wanted = naive_kernel_attention(exp(tq).value(), exp(tk).value(), v, dot, true);
  for (const int64_t chunk : {1, 5, 48}) {
    INFO("N " << N << " projected " << projected << " chunk " << chunk);
    options.chunk = chunk;
    const auto f = [&](const Variables& in) {
      return normalised(causal_kernel_sums(in[0], in[1], in[2], options));
    };
    CHECK(near(f({Variable(q), Variable(k), Variable(v)}).value(), wanted, 1e-13));
    const GradcheckReport report = gradcheck(f, {q, k, v});
    INFO(report);
    CHECK(report.ok);
  }
}

TEST_CASE("kernel attention: causal groups with a scale that rises") {
  const Shape shape{1, 40, 2, 3};
  const Tensor fq = positive(shape, 1), fk = positive(shape, 2), v = normal(shape, 3);
  const CausalKernelOptions options{.log_scale = rising({1, 40, 2}, 4), .chunk = 1};
  const auto f = [&](const Variables& in) {
    return normalised(causal_kernel_sums(in[0], in[1], in[2], options));
  };
  const Variable keys = Variable(fk) * exp(Variable(options.log_scale.unsqueeze(3)));
  CHECK(near(f({Variable(fq), Variable(fk), Variable(v)}).value(),
             naive_kernel_attention(fq, keys.value(), v, dot, true), 1e-13));
  const GradcheckReport report = gradcheck(f, {fq, fk, v});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("kernel attention: causal sums for any number of threads, of any strides") {
  const Shape shape{1, 1800, 1, 8};
  const CausalKernelOptions options{
      .exponentials = true, .projection = normal({20, 8}, 4).to(DType::f32), .half_norm = 0.5};
  const Tensor x[3] = {normal(shape, 1, DType::f32), normal(shape, 2, DType::f32),
                       normal(shape, 3, DType::f32)};
  const Tensor seed = normal({1, 1800, 1, 9}, 5, DType::f32);
  const int before = threads();
  std::vector<Tensor> first;
  for (const int n : {1, 2, 5}) {
    set_threads(n);
    for (const bool strided : {false, true}) {
      INFO(n << " threads, strided " << strided);
      std::vector<Variable> in;
      for (const Tensor& t : x) {
        Tensor wide = Tensor::zeros({1, 1800, 1, 24});
        copy_into(wide.slice(3, 8, 16), t);
        in.emplace_back(strided ? wide.slice(3, 8, 16) : t, true);
      }
      const Variable y = causal_kernel_sums(in[0], in[1], in[2], options);
      backward(y, seed);
      const std::vector<Tensor> got{y.value(), in[0].grad(), in[1].grad(), in[2].grad()};
      if (first.empty()) first = got;
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(identical(got[i].contiguous(), first[i].contiguous()));
    }
  }
  set_threads(before);
  const NoGrad no_grad;  // which keeps fewer states
  CHECK(
      identical(causal_kernel_sums(Variable(x[0]), Variable(x[1]), Variable(x[2]), options).value(),
                first[0]));
}

TEST_CASE("kernel attention: causal exponents of any size") {
  const Shape shape{1, 120, 1, 3};
  for (const double size : {0.0, 1e3, 1e6}) {
    INFO(size);
    const Variable q(affine(Variable(normal(shape, 1)), size).value().to(DType::f32), true),
        k(affine(Variable(normal(shape, 2)), size).value().to(DType::f32), true),
        v(normal(shape, 3).to(DType::f32), true);
    const Variable sums = causal_kernel_sums(q, k, v, {.exponentials = true});
    backward(normalised(sums), Tensor::full(shape, 1));
    CHECK(all_finite(sums.value()));
    for (const Variable& x : {q, k, v}) CHECK(all_finite(x.grad()));
  }
}

TEST_CASE("kernel attention: causal sums refuse what does not fit") {
  const Variable q(normal({2, 3, 2, 4}, 1)), v(normal({2, 3, 2, 5}, 2));
  const Tensor c = Tensor::zeros({2, 3, 2}, DType::f64);
  CHECK_NOTHROW(causal_kernel_sums(q, q, v, {.log_scale = c}));
  CHECK_THROWS_AS(causal_kernel_sums(q, v, v), ShapeError);
  CHECK_THROWS_AS(causal_kernel_sums(q, q, Variable(normal({2, 4, 2, 5}, 2))), ShapeError);
  CHECK_THROWS_AS(causal_kernel_sums(q, q, v, {.projection = normal({6, 4}, 1)}), ShapeError);
  CHECK_THROWS_AS(causal_kernel_sums(q, q, v, {.exponentials = true, .log_scale = c}), ShapeError);
  CHECK_THROWS_AS(causal_kernel_sums(q, q, v, {.chunk = 49}), ShapeError);
}

TEST_CASE("causal_kernel_sums: inputs and gradients in every memory layout") {
  const auto layouts = all_layouts();
  for (const int64_t N : {1, 7, 131})
    for (size_t round = 0; round < 2 * layouts.size(); ++round) {
      const auto layout = [&](size_t i) {
        return layouts[(round < layouts.size() ? round : round + i) % layouts.size()];
      };
      INFO(N << " tokens, " << to_string(layout(0)) << " " << to_string(layout(5)) << " "
             << to_string(layout(7)));
      const Shape shape{2, N, 2, 5};
      const Tensor q = with_layout(normal(shape, 1), layout(0)),
                   k = with_layout(normal(shape, 2), layout(5)),
                   v = with_layout(normal(shape, 3), layout(7)),
                   seed = with_layout(normal(Shape{2, N, 2, 6}, 4), layout(3));
      const auto run = [&](const std::vector<Tensor>& x, const Tensor& cotangent) {
        const Variable in[3] = {Variable(x[0], true), Variable(x[1], true), Variable(x[2], true)};
        const Variable y = causal_kernel_sums(in[0], in[1], in[2], {.exponentials = true});
        backward(y, cotangent);
        return std::vector<Tensor>{y.value(), in[0].grad(), in[1].grad(), in[2].grad()};
      };
      const auto strided = run({q, k, v}, seed);
      const auto dense = run({q.contiguous(), k.contiguous(), v.contiguous()}, seed.contiguous());
      for (size_t i = 0; i < dense.size(); ++i) CHECK(near(strided[i], dense[i], 1e-10));
    }
}

TEST_CASE("causal_kernel_sums: 65,536 tokens at every third place in memory") {
  const Shape shape{1, 65536, 1, 4};
  const auto run = [&](Layout layout) {
    const auto input = [&](uint64_t seed) {
      return Variable(with_layout(normal(shape, seed, DType::f32), layout), true);
    };
    const Variable in[3] = {input(1), input(2), input(3)};
    const Variable y = causal_kernel_sums(in[0], in[1], in[2], {.exponentials = true});
    backward(y, normal(Shape{1, 65536, 1, 5}, 4, DType::f32));
    return std::vector<Tensor>{y.value(), in[0].grad(), in[1].grad(), in[2].grad()};
  };
  const auto strided = run(Layout::stride_3), dense = run(Layout::row_major);
  for (size_t i = 0; i < dense.size(); ++i) CHECK(near(strided[i], dense[i], 1e-5));
}
