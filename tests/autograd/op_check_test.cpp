// The properties of support/op_check.h find the mistakes that they are for.
#include "tests/support/op_check.h"

#include <cmath>

#include "longhand/autograd/ops.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor product(const Tensor& a, const Tensor& b) { return (Variable(a) * Variable(b)).value(); }

// The values in the order of memory, which is an error for permuted tensors.
Tensor without_strides(const Tensor& t) {
  return t.is_dense() ? t.in_memory_order().contiguous().reshape(t.shape()) : t;
}

// a b with a mistake: each function may be replaced. `to` is a slot, g the gradient for it.
struct Product {
  std::function<Tensor(const Tensor&, const Tensor&)> value = product;
  std::function<Tensor(const Tensor&dy, const Tensor&other)> left = product, right = product;
  std::function<void(GradSlot& to, const Tensor& g)> give = [](GradSlot& to, const Tensor& g) {
    to.take(g);
  };
  std::function<void(Tensor a, Tensor y)> behind = [](const Tensor&, const Tensor&) {};

  Variable operator()(const Variables& x) const {
    check<ShapeError>(x[0].defined() && x[1].defined(), "product: undefined");
    for (const Variable& each : x)
      check<ShapeError>(is_float(each.dtype()) && each.dtype() == x[0].dtype(), "product: got ",
                        each.dtype(), " and f32 or f64");
    const Tensor a = x[0].value(), b = x[1].value(), y = value(a, b);
    return record("product", y, {x[0], x[1]},
                  [p = *this, a, b, y](const Tensor& dy, std::span<GradSlot> dx) {
                    if (dx[0]) p.give(dx[0], p.left(dy, b));
                    if (dx[1]) p.give(dx[1], p.right(dy, a));
                    p.behind(a, y);
                  });
  }
};

OpLine line_of(const Op& op) {
  return {"product", op, {{{3, 4}, {3, 4}}, {{2, 37}, {2, 37}}}, {{{400, 401}, {400, 401}}}};
}

// The sum of x[0] x[1] by f(values), in their dtype.
template <class F>
Op sum_by(F f) {
  return [f](const Variables& x) {
    const Tensor terms = product(x[0].value(), x[1].value()).contiguous();
    Tensor y = Tensor::empty({}, terms.dtype());
    dispatch_float(terms.dtype(),
                   [&]<class T>() { *y.data<T>() = f(terms.data<T>(), terms.numel()); });
    return record("sum", y, {x[0]}, [b = x[1].value()](const Tensor& dy, std::span<GradSlot> dx) {
      dx[0].take(product(dy.expand(b.shape()), b));
    });
  };
}

template <class T>
T sum_in_order(const T* x, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

struct Mistake {
  const char* what;
  std::string (*property)(const OpLine&);
  Op op;
  const char* message;
};

const std::vector<Mistake> mistakes{
    {"a gradient with a missing factor", property::gradients,
     Product{.right = [](const Tensor& dy, const Tensor&) { return dy; }}, "worst at input 1"},
    {"the strides of the second argument are ignored", property::layouts,
     Product{
         .value = [](const Tensor& a, const Tensor& b) { return product(a, without_strides(b)); }},
     "[3, 4] row_major, [3, 4] reversed; gradient of the result row_major; f64: the value has"},
    {"the strides of the gradient are ignored", property::layouts,
     Product{
         .left = [](const Tensor& dy, const Tensor& b) { return product(without_strides(dy), b); }},
     "gradient of the result reversed; f64: the gradient of argument 0 has"},
    {"f32 has fewer digits than it could", property::f32,
     Product{.value =
                 [](const Tensor& a, const Tensor& b) {
                   return a.dtype() == DType::f32 ? (Variable(product(a, b)) * (1 + 1e-5)).value()
                                                  : product(a, b);
                 }},
     "f64: the value has"},
    {"f32 gives f64", property::f32,
     [](const Variables& x) { return Variable(x[0].value().to(DType::f64)); }, "the value is f64"},
    {"the result is an argument", property::aliasing,
     [](const Variables& x) {
       return record("same", x[0].value(), {x[0]},
                     [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
     },
     "the result shares memory with argument 0"},
    {"the forward pass writes to an argument", property::aliasing,
     Product{.value =
                 [](Tensor a, const Tensor& b) {
                   const Tensor y = product(a, b);
                   a.fill(0);
                   return y;
                 }},
     "the forward pass: argument 0 was written to"},
    {"the backward pass writes to an argument", property::aliasing,
     Product{.behind = [](Tensor a, const Tensor&) { a.fill(0); }},
     "the backward pass: argument 0 was written to"},
    {"the backward pass writes to the result", property::aliasing,
     Product{.behind = [](const Tensor&, Tensor y) { y.fill(0); }},
     "the backward pass: result 0 was written to"},
    {"one gradient for a variable that is given twice", property::aliasing,
     [](const Variables& x) {
       const bool once = x[0].value().shares_memory_with(x[1].value());
       return once ? Product{}({x[0], x[1].detach()}) : Product{}(x);
     },
     "arguments 0 and 1 of one variable, and apart"},
    {"another gradient if an argument has no other owner", property::aliasing,
     [](const Variables& x) {
       const Tensor a = x[0].value();
       return record("square", product(a, a), {x[0]},
                     [a](const Tensor& dy, std::span<GradSlot> dx) {
                       dx[0].take((Variable(product(dy, a)) * (a.unique() ? 3 : 2)).value());
                     });
     },
     "with other owners of the arguments"},
    {"NaN is lost", property::non_finite,
     Product{.value =
                 [](const Tensor& a, const Tensor& b) {
                   Tensor y = product(a, b).clone();
                   dispatch_float(y.dtype(), [&]<class T>() {
                     for (int64_t i = 0; i < y.numel(); ++i)
                       if (std::isnan(y.data<T>()[i])) y.data<T>()[i] = 0;
                   });
                   return y;
                 }},
     "nan at element 0 of argument 0: element 0 of the value is 0 in spite of NaN"},
    {"NaN reaches other rows", property::non_finite,
     Product{.value =
                 [](const Tensor& a, const Tensor& b) {
                   return (Variable(product(a, b)) + sum(Variable(a)) * 0.0).value();
                 }},
     "element 1 of the value, which no finite number there affects"},
    {"NaN in the gradient reaches other rows", property::non_finite,
     Product{.left =
                 [](const Tensor& dy, const Tensor& b) {
                   return (Variable(product(dy, b)) + sum(Variable(dy)) * 0.0).value();
                 }},
     "of the gradient of the result: element 1 of the gradients"},
    {"infinity is finite in f32", property::non_finite,
     Product{.value =
                 [](const Tensor& a, const Tensor& b) {
                   Tensor y = product(a, b).clone();
                   if (y.dtype() == DType::f32)
                     for (int64_t i = 0; i < y.numel(); ++i)
                       y.data<float>()[i] = std::clamp(y.data<float>()[i], -3e38F, 3e38F);
                   return y;
                 }},
     "classes of numbers are"},
    {"gradients replace earlier ones", property::accumulation,
     Product{.give = [](GradSlot& to, const Tensor& g) { copy_into(to.accumulate().grad, g); }},
     "with the gradient of an earlier pass"},
    {"constants require a gradient", property::dry,
     [](const Variables& x) {
       return Product{}({Variable(x[0].value(), true), x[1]});
     },
     "no gradient for arguments 0 1: the result requires a gradient"},
    {"another value without gradients", property::dry,
     [](const Variables& x) { return Product{}(x) * (x[1].requires_grad() ? 1.0 : 1 + 1e-15); },
     "no gradient for arguments 1: other bits in the value"},
    {"another gradient beside a constant", property::dry,
     [](const Variables& x) {
       return x[1].requires_grad()
                  ? Product{}(x)
                  : Product{.left = [](const Tensor& dy, const Tensor&) { return dy; }}(x);
     },
     "no gradient for arguments 1: the value has"},
    {"an error without the operation", property::errors,
     [](const Variables& x) {
       check<ShapeError>(x[0].defined() && x[1].defined() && is_float(x[0].dtype()), "wrong");
       return Product{}(x);
     },
     "the message lacks \"product\": wrong"},
    {"no error", property::errors,
     [](const Variables& x) { return x[1].defined() ? x[1] : Variable(); }, "no error"},
    {"a row-major result of a permuted argument", property::order,
     Product{.value = [](const Tensor& a, const Tensor& b) { return product(a, b).contiguous(); }},
     "axis 0 of the result has stride 4, that of the first argument 1"},
    {"a sum that is split by the number of threads", property::same_bits,
     sum_by([](const auto* x, int64_t n) {
       auto sum = x[0] * 0;
       for (int64_t t = 0; t < threads(); ++t)
         sum += sum_in_order(x + n * t / threads(), n * (t + 1) / threads() - n * t / threads());
       return sum;
     }),
     "other bits in the value"},
    {"a long sum in f32", property::long_sums,
     sum_by([](const auto* x, int64_t n) { return sum_in_order(x, n); }), "of the largest)"},
};

}  // namespace

TEST_CASE("operations: a product without mistakes has all properties") {
  for (const auto property :
       {property::gradients, property::layouts, property::f32, property::aliasing,
        property::non_finite, property::accumulation, property::dry, property::errors,
        property::order, property::same_bits, property::long_sums})
    CHECK(property(line_of(Product{})) == "");
}

TEST_CASE("operations: every property finds mistakes") {
  for (const Mistake& mistake : mistakes) {
    INFO(mistake.what);
    CHECK_THAT(mistake.property(line_of(mistake.op)), Catch::Contains(mistake.message));
  }
}

TEST_CASE("operations: a line without small sizes or large ones, a view that is none, exceptions") {
  OpLine line = line_of(Product{});
  CHECK(missing_sizes({line}) == "\n  product: size 0 size 1 ");
  line.cases = {{{0, 1}, {0, 1}}};
  CHECK(missing_sizes({line}).empty());
  line.large = {};
  CHECK(missing_sizes({line}) == "\n  product: large");
  line.options.view = true;
  CHECK(property::aliasing(line) == "\n  no case gives a view");
  line.op = [](const Variables&) -> Variable { throw Error("impossible"); };
  CHECK_THAT(property::layouts(line),
             Catch::Contains("[0, 1] row_major") && Catch::Contains("threw impossible"));
}
