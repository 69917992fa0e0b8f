#include "longhand/autograd/ops.h"

#include "longhand/autograd/fixed_weights.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("linear: values") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4}, {2, 2}));
  const Variable w(Tensor::from<double>({1, 0, 0, 1, 1, 1}, {3, 2}));
  const Variable b(Tensor::from<double>({10, 20, 30}, {3}));
  CHECK(linear(x, w, b).value().to_vector<double>() == std::vector<double>{11, 22, 33, 13, 24, 37});
  CHECK(linear(x, w).value().to_vector<double>() == std::vector<double>{1, 2, 3, 3, 4, 7});
  const Variable nothing(Tensor::zeros({2, 0}, DType::f64)),
      none(Tensor::zeros({3, 0}, DType::f64));
  CHECK(linear(nothing, none, b).value().to_vector<double>() ==
        std::vector<double>{10, 20, 30, 10, 20, 30});
  // Sizes for which the product is split into tiles in several ways.
  for (const Shape& sizes : {Shape{500, 40, 50}, Shape{130, 200, 100}, Shape{63, 8, 8}}) {
    for (Layout layout : {Layout::row_major, Layout::reversed}) {
      const Variable a(random({sizes[0], sizes[1]}));
      const Variable m(with_layout(random({sizes[2], sizes[1]}), layout)), c(random({sizes[2]}));
      CHECK(close(linear(a, m, c).value(), (matmul(a, transpose(m, 0, 1)) + c).value(), 1e-12));
    }
  }
}

namespace {

// By definition, composed of other operations.
Variable composed(const Variables& in, LinearOptions options) {
  Variable x = in[0];
  if (options.norm) {
    const NormOptions& n = *options.norm;
    x = n.centred ? layer_norm(x, n.weight, n.bias, n.eps) : rms_norm(x, n.weight, n.eps);
  }
  if (options.gelu) x = gelu(x);
  const Variable a = dropout(x, options.input.p, options.input.generator);
  const Variable z = dropout(linear(a, in[1], in[2]), options.output.p, options.output.generator);
  return options.residual.defined() ? options.residual + z : z;
}

const std::vector<LinearOptions> all_options = [] {
  std::vector<LinearOptions> all;
  for (const bool gelu : {false, true})
    for (const double p : {0.0, 0.3})
      for (const double q : {0.0, 0.4})
        for (const int norm : {0, 1, 2}) {
          LinearOptions o{gelu, {p, Generator(5)}, {q, Generator(6)}};
          if (norm) o.norm = NormOptions{.eps = 1e-3, .centred = norm == 1};
          all.push_back(o);
        }
  return all;
}();

std::string name_of(const LinearOptions& o) {
  return concat_message("gelu ", o.gelu, " dropout ", o.input.p, ", ", o.output.p, " norm ",
                        !o.norm           ? "none"
                        : o.norm->centred ? "layer"
                                          : "rms");
}

// The options with input 3 as residual if there is one, and inputs 4 and 5 as parameters of the
// norm.
LinearOptions with_inputs(LinearOptions o, const Variables& in) {
  if (in.size() > 3) o.residual = in[3];
  if (o.norm && in.size() > 4) o.norm->weight = in[4];
  if (o.norm && o.norm->centred && in.size() > 5) o.norm->bias = in[5];
  return o;
}

Op with_options(const LinearOptions& options) {
  return [options](const Variables& in) {
    return linear(in[0], in[1], in[2], with_inputs(options, in));
  };
}

}  // namespace

TEST_CASE("linear: with options it equals the composition of other operations") {
  // Widths that are not multiples of 8, several blocks of rows, several partial sums.
  for (const Shape& sizes : {Shape{3, 5, 7}, Shape{4000, 13, 33}, Shape{700, 100, 34}}) {
    const std::vector<Tensor> inputs = {random({sizes[0], sizes[1]}),
                                        random({sizes[2], sizes[1]}, DType::f64, -1, 1, 2),
                                        random({sizes[2]}, DType::f64, -1, 1, 3),
                                        random({sizes[0], sizes[2]}, DType::f64, -1, 1, 4),
                                        random({sizes[1]}, DType::f64, -1, 1, 5),
                                        random({sizes[1]}, DType::f64, -1, 1, 6)};
    for (const LinearOptions& options : all_options)
      for (const DType dtype : {DType::f64, DType::f32}) {
        std::vector<Tensor> in;
        for (const Tensor& t : inputs) in.push_back(t.to(dtype));
        INFO(sizes << " of " << dtype << " " << name_of(options));
        const auto found = run(with_options(options), in);
        const auto expected =
            run([&](const Variables& v) { return composed(v, with_inputs(options, v)); }, in);
        for (size_t i = 0; i < found.size(); ++i) {
          INFO(i);
          CHECK(close(found[i], expected[i], dtype == DType::f64 ? 1e-11 : 2e-4));
        }
      }
  }
}

TEST_CASE("linear: the gradient is written over an input that has no other owner") {
  const std::vector<Tensor> in = {random({700, 20}), random({50, 20}), random({50}),
                                  random({20, 50}),  random({20}),     random({50})};
  const NormOptions norm{.weight = Variable(random({50})), .bias = Variable(random({50}))};
  const NormOptions rms{.weight = norm.weight, .centred = false};
  for (const LinearOptions& options :
       {LinearOptions{.gelu = true}, LinearOptions{.gelu = true, .input = {0.3, Generator(5)}},
        LinearOptions{.norm = norm}, LinearOptions{.norm = rms},
        LinearOptions{.gelu = true, .input = {0.3, Generator(5)}, .norm = norm}}) {
    INFO(name_of(options));
    const auto again = [&](const Variable& h, const Variables& v) {
      LinearOptions o = options;
      if (o.norm) o.norm->weight = v[5];
      return linear(h, v[3], v[4], o);
    };
    const auto block = [&](const Variables& v, Variable* owner) {
      const Variable h = linear(v[0], v[1], v[2]);
      if (owner) *owner = h;
      return again(h, v);
    };
    std::vector<Tensor> used = in;
    if (!options.norm) used.pop_back();
    Variable owner;
    const auto found = run([&](const Variables& v) { return block(v, nullptr); }, used);
    const auto expected = run([&](const Variables& v) { return block(v, &owner); }, used);
    for (size_t i = 0; i < found.size(); ++i)
      CHECK(found[i].to_vector<double>() == expected[i].to_vector<double>());
    CHECK(owner.value().to_vector<double>() ==
          linear(Variable(in[0]), Variable(in[1]), Variable(in[2])).value().to_vector<double>());
    // It is in the same memory unless the value has another owner.
    for (const bool shared : {false, true}) {
      const void *value = nullptr, *gradient = nullptr;
      const auto spied = [&](const Variable& x) {
        const Tensor copy = x.value().clone();
        value = copy.data<double>();
        return record("spy", copy, {x}, [&](const Tensor& grad, std::span<GradSlot> slots) {
          gradient = grad.data<double>();
          slots[0].take(grad);
        });
      };
      run(
          [&](const Variables& v) {
            const Variable h = spied(linear(v[0], v[1], v[2]));
            if (shared) owner = h;
            return again(h, v);
          },
          used);
      CHECK((value == gradient) == !shared);
    }
    // The value has another gradient already.
    const auto twice = run(
        [&](const Variables& v) {
          const Variable h = linear(v[0], v[1], v[2]);
          return again(h, v) + again(h, v);
        },
        used);
    for (size_t i = 1; i < found.size(); ++i)
      CHECK(close(twice[i], (Variable(found[i]) * 2).value(), 1e-12));
  }
}

TEST_CASE("linear: keeps the order of rows in memory") {
  const Variable x(random({2, 5, 3, 4}).transpose(1, 2));
  CHECK(linear(x, Variable(random({7, 4}))).value().strides() == Strides{105, 7, 21, 1});
}

TEST_CASE("linear: errors") {
  const Variable x(random({2, 3})), w(random({4, 3}));
  CHECK_THROWS_WITH(linear(x, Variable(random({3, 4}))), Catch::Contains("linear") &&
                                                             Catch::Contains("[2, 3]") &&
                                                             Catch::Contains("[3, 4]"));
  CHECK_THROWS_WITH(linear(x, w, Variable(random({3}))), Catch::Contains("bias"));
  CHECK_THROWS_AS(linear(Variable(Tensor::scalar(1)), w), ShapeError);
  LinearOptions options;
  options.residual = x;
  CHECK_THROWS_WITH(linear(x, w, {}, options), Catch::Contains("residual"));
  CHECK_THROWS_AS(linear(x, w, {}, {.output = {1, Generator(1)}}), ConfigError);
  CHECK_THROWS_WITH(linear(x, w, {}, {.norm = NormOptions{.bias = w}}),
                    Catch::Contains("linear: norm") && Catch::Contains("[4, 3]"));
  CHECK_THROWS_AS(linear(x, w, {}, {.norm = NormOptions{.eps = -1}}), ConfigError);
}

TEST_CASE("linear: partial sums of a large weight's gradient stay within its own size") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // there is no arena to ask
#endif
  constexpr int64_t rows = 3072, in = 1024, out = 2048, weight_bytes = 4 * in * out;
  const Variable x(random({rows, in}, DType::f32), true), w(random({out, in}, DType::f32), true),
      b(random({out}, DType::f32), true);
  const Variable y = linear(x, w, b);
  const Tensor dy = random({rows, out}, DType::f32);
  // As much in use as ever was, so that what comes on top shows.
  const MemoryStats before = memory_stats();
  const Storage ballast(before.peak - before.in_use + 64);
  const size_t peak = memory_stats().peak;
  backward(y, dy);
  const auto more = static_cast<int64_t>(memory_stats().peak - peak);
  const int64_t gradients = 4 * rows * in + weight_bytes;
  INFO(more << " bytes, " << gradients << " of gradients");
  CHECK(more <= gradients + 3 * weight_bytes);  // the transposed weight and blocks of rows, too
}

TEST_CASE("linear: gradients of a large weight") {
  // Its gradient is one sum for all tasks; rows and columns are cut in several ways.
  for (const Shape& sizes : {Shape{1700, 1000, 700}, Shape{100, 8200, 65}, Shape{60, 50, 12000}}) {
    const std::vector<Tensor> in = {random({sizes[0], sizes[1]}, DType::f32, -1, 1),
                                    random({sizes[2], sizes[1]}, DType::f32, -0.1, 0.1),
                                    random({sizes[2]}, DType::f32)};
    std::vector<Tensor> wide;
    for (const Tensor& t : in) wide.push_back(t.to(DType::f64));
    const auto op = [](const Variables& v) {
      return linear(v[0], v[1], v[2],
                    {.gelu = true, .input = {0.1, Generator(3)}, .output = {0.2, Generator(4)}});
    };
    const auto found = run(op, in), expected = run(op, wide);
    for (size_t i = 0; i < found.size(); ++i) {
      INFO(sizes << " " << i);
      CHECK(close(found[i], expected[i], 1e-4));
    }
    // Gradients of a second use are added to those of the first.
    const auto twice = run([&](const Variables& v) { return op(v) + op(v); }, in);
    for (size_t i = 1; i < found.size(); ++i)
      CHECK(close(twice[i], (Variable(found[i]) * 2).value(), 1e-4));
  }
}

namespace {

// Layers of one x, from the inputs x, weight, bias, weight, bias, …
ShortVector<LinearParameters> layers_of(const Variables& in) {
  ShortVector<LinearParameters> layers;
  for (size_t i = 1; i + 1 < in.size(); i += 2) layers.push_back({in[i], in[i + 1]});
  return layers;
}

}  // namespace

TEST_CASE("linear: several layers of one input equal each alone") {
  // The last sizes have one sum for all tasks, whose tiles must not cross layers.
  for (const Shape& sizes : {Shape{5, 3, 4, 1, 7}, Shape{4000, 13, 33, 64, 2},
                             Shape{700, 100, 34, 34, 34}, Shape{500, 600, 400, 290, 310}})
    for (const bool norm : {false, true})
      for (const bool gelu : {false, true}) {
        std::vector<Tensor> in{random({sizes[0], sizes[1]}, DType::f32)};
        for (int l = 2; l < 5; ++l) {
          in.push_back(random({sizes[l], sizes[1]}, DType::f32, -0.1, 0.1, l));
          in.push_back(random({sizes[l]}, DType::f32, -1, 1, 10 + l));
        }
        LinearOptions options{.gelu = gelu, .input = {0.1, Generator(3)}};
        if (norm) options.norm = NormOptions{};
        const auto together = [&](const Variables& v) {
          return concat(linear(v[0], layers_of(v), options), 1);
        };
        const auto alone = [&](const Variables& v) {
          Variables out;
          for (const auto& [weight, bias] : layers_of(v))
            out.push_back(linear(v[0], weight, bias, options));
          return concat(out, 1);
        };
        const auto found = run(together, in), expected = run(alone, in);
        CHECK(found[0].to_vector<float>() == expected[0].to_vector<float>());
        for (size_t i = 1; i < found.size(); ++i) {
          INFO(sizes << ", norm " << norm << ", gelu " << gelu << ", gradient " << i);
          CHECK(close(found[i], expected[i], 1e-4));
        }
      }
}

TEST_CASE("linear: several layers, of which only some are used or need gradients") {
  const Variable x(random({6, 4}), true), w(random({3, 4}), true), frozen(random({2, 4})),
      unused(random({5, 4}), true);
  const Variables out = linear(x, {{w}, {frozen}, {unused}});
  backward(sum(out[0]) + sum(square(out[1])));
  const Variable x2(x.value(), true), w2(w.value(), true);
  backward(sum(linear(x2, w2)) + sum(square(linear(x2, frozen))));
  CHECK(close(x.grad(), x2.grad(), 1e-12));
  CHECK(close(w.grad(), w2.grad(), 1e-12));
  CHECK(unused.grad().to_vector<double>() == std::vector<double>(20, 0));
  CHECK_THROWS_AS(linear(x, {{w}, {frozen}}, {.residual = Variable(random({6, 3}))}), ShapeError);
  CHECK_THROWS_AS(linear(x, {{w}, {w}}, {.output = {0.5, Generator(1)}}), ConfigError);
}

// Few rows, so that tasks take columns; many, so that they do not.
TEST_CASE("linear: fixed weights give the same bits, on any number of threads") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t rows : {1, 3, 40}) {
      INFO(dtype << " " << rows);
      const Variable many(random({400, 300}, dtype)), x = slice(many, 0, 0, rows),
                                                      bias(random({515}, dtype));
      Variable weight(random({515, 300}, dtype), true);
      const NoGrad no_grad;
      const Tensor expected = linear(x, weight, bias).value();
      if (dtype == DType::f32)
        CHECK(identical(linear(many, weight, bias).value().slice(0, 0, rows), expected));
      FixedWeights fixed;
      const auto fixed_linear = [&] {
        const FixedWeights::Use use(fixed);
        return linear(x, weight, bias).value();
      };
      CHECK(identical(fixed_linear(), expected));
      const int before = threads();
      set_threads(before == 1 ? 2 : 1);
      CHECK(identical(linear(x, weight, bias).value(), expected));
      set_threads(before);
      // What was computed from the weight is used again, whatever it holds by now.
      weight.mutable_value().fill(0);
      CHECK(identical(fixed_linear(), expected));
      CHECK_FALSE(identical(linear(x, weight, bias).value(), expected));
    }
}

TEST_CASE("linear: only parameters count as fixed weights") {
  const Variable x(random({2, 5}, DType::f32));
  Variable weight(random({3, 5}, DType::f32));
  FixedWeights fixed;
  const FixedWeights::Use use(fixed);
  const Tensor before = linear(x, weight).value();
  weight.mutable_value().fill(0);
  CHECK_FALSE(identical(linear(x, weight).value(), before));
}
