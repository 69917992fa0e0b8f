#include "longhand/core/gemm.h"

#include <cmath>
#include <limits>

#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

// alpha a b + beta out by index arithmetic in double, and the sum of magnitudes, to which the error
// of any order of summation is proportional.
struct Naive {
  std::vector<double> value, magnitude;
};

template <class T>
Naive naive(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
  Naive result;
  const int64_t depth = a.size(-1);
  const T* const x = a.data<T>();
  const T* const y = b.data<T>();
  const auto start = [](const Tensor& t, const Shape& index) {
    int64_t at = 0;
    for (int i = 3; i <= t.rank(); ++i)
      if (t.size(-i) != 1) at += index[-i] * t.strides()[-i];
    return at;
  };
  const int64_t a_step = a.strides()[-1], b_step = b.strides()[-2];
  for_each_index(out.shape(), [&](const Shape& i) {
    const T* const row = x + start(a, i) + i[-2] * a.strides()[-2];
    const T* const col = y + start(b, i) + i[-1] * b.strides()[-1];
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const double term =
          static_cast<double>(row[k * a_step]) * static_cast<double>(col[k * b_step]);
      sum += term;
      magnitude += std::abs(term);
    }
    const double old =
        beta == 0 ? 0 : beta * static_cast<double>(out.data<T>()[offset_of(i, out.strides())]);
    result.value.push_back(alpha * sum + old);
    result.magnitude.push_back(std::abs(alpha) * magnitude + std::abs(old));
  });
  return result;
}

template <class T>
void check_product(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta) {
  const Naive expected = naive<T>(out, a, b, alpha, beta);
  const double unit = static_cast<double>(std::numeric_limits<T>::epsilon());
  Tensor first;
  for (const int n : {1, 2, 3, 8}) {
    const WithThreads with(n);
    // Uninitialised memory may hold anything.
    Tensor c = Tensor::empty_ordered(out.shape(), out.dtype(), out.strides());
    if (beta == 0)
      c.fill(std::numeric_limits<double>::quiet_NaN());
    else
      copy_into(c, out);
    matmul_into(c, a, b, alpha, beta);
    if (n > 1) {
      REQUIRE(identical(c, first));
      continue;
    }
    first = c;
    const std::vector<T> got = values_of<T>(c);
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(static_cast<double>(got[i]) - expected.value[i]);
      const double bound =
          unit * std::sqrt(static_cast<double>(a.size(-1)) + 4) * (expected.magnitude[i] + 1e-300);
      if (!(error / bound <= worst)) worst = error / bound;
    }
    INFO(concat_message(a.shape(), a.strides(), " times ", b.shape(), b.strides()));
    REQUIRE(worst <= 2);
  }
}

// Gaussian values in the strides of a random view, or a view with any axis broadcast.
Tensor gaussian(const Shape& shape, DType dtype, RandomStream& random, ViewKind kind = {}) {
  if (kind.broadcast && random.below(4) == 0) return random_view(shape, dtype, random, kind);
  Tensor t = random_view(shape, dtype, random, {.holes = kind.holes});
  fill_normal(t, Generator(random.bits()));
  if (kind.broadcast && t.rank() > 2 && t.size(0) > 0 && random.below(2))
    return t.slice(0, 0, 1).expand(shape);
  return t;
}

template <class T>
void check_random_products(uint64_t seed) {
  RandomStream random{Generator(seed)};
  const int64_t sizes[] = {0, 1, 1, 2, 3, 5, 8, 17, 33};
  for (int round = 0; round < 300; ++round) {
    const auto size = [&] { return sizes[random.below(9)]; };
    const int64_t m = size(), n = size(), k = size();
    Shape batch;
    for (int64_t i = pick(random, 0, 3); i > 0; --i) batch.push_back(pick(random, 0, 3));
    const auto operand = [&](int64_t rows, int64_t cols) {
      Shape shape;
      // Some batch axes are absent, others have size 1 or stride 0.
      for (int i = static_cast<int>(pick(random, 0, batch.rank())); i < batch.rank(); ++i)
        shape.push_back(random.below(4) == 0 ? 1 : batch[i]);
      shape.push_back(rows);
      shape.push_back(cols);
      return gaussian(shape, dtype_of<T>, random,
                      {.holes = random.below(2) == 0, .broadcast = true});
    };
    const Tensor a = operand(m, k), b = operand(k, n);
    Shape shape = batch;
    shape.push_back(m);
    shape.push_back(n);
    // The rows of the result are contiguous; its other axes may have any order and holes.
    Shape padded = shape;
    padded[-1] += random.below(2);
    std::vector<int> order = random_order(random, shape.rank() - 1);
    order.push_back(shape.rank() - 1);
    Shape laid = padded;
    for (int i = 0; i < padded.rank(); ++i) laid[order[i]] = padded[i];
    Tensor out = Tensor::empty(laid, dtype_of<T>);
    fill_normal(out, Generator(random.bits()));
    out = out.permute(order).slice(-1, 0, n);
    check_product<T>(out, a, b, round % 2 ? 1 : -0.5, round % 3 ? 0 : round % 5 ? 1 : 0.25);
  }
}

}  // namespace

TEST_CASE("matmul_into agrees with sums in double over any strides, batches and sizes") {
  check_random_products<float>(1);
  check_random_products<double>(2);
}

TEST_CASE("products that are split into tasks") {
  RandomStream random(Generator(3));
  struct Case {
    Shape a, b;
  };
  const Case cases[] = {
      {{300, 70}, {70, 260}},        // blocks of rows
      {{2, 40, 3000}, {3000, 24}},   // chunks of the summed axis
      {{9, 3000}, {3000, 9}},        // the same, small
      {{70, 16, 16}, {70, 16, 16}},  // many small products in one task
      {{130, 2100}, {2100, 66}},     // both blocks and chunks
  };
  for (const Case& c : cases)
    for (const bool transposed : {false, true}) {
      const auto make = [&](const Shape& shape) {
        if (!transposed) return gaussian(shape, DType::f32, random, {.holes = false});
        Shape swapped = shape;
        std::swap(swapped[-1], swapped[-2]);
        Tensor t = Tensor::empty(swapped);
        fill_normal(t, Generator(random.bits()));
        return t.transpose(-1, -2);
      };
      const Tensor a = make(c.a), b = make(c.b);
      Tensor out = Tensor::empty(matmul_shape(a.shape(), b.shape()));
      fill_normal(out, Generator(random.bits()));
      check_product<float>(out, a, b, 1, 0);
      check_product<float>(out, a, b, 2, 1);
    }
}

TEST_CASE("heads are multiplied without copies") {
  const int64_t batch = 2, time = 37, heads = 3, dim = 8;
  Tensor q = Tensor::empty({batch, time, heads * dim}),
         k = Tensor::empty({batch, time, heads * dim});
  fill_normal(q, Generator(1));
  fill_normal(k, Generator(2));
  const auto split = [&](const Tensor& t) {
    return t.reshape({batch, time, heads, dim}).permute({0, 2, 1, 3});
  };
  const Tensor scores = Tensor::empty({batch, heads, time, time});
  check_product<float>(scores, split(q), split(k).transpose(-1, -2), 0.25, 0);
  // ... and written back to (B, T, H, D).
  Tensor p = Tensor::empty({batch, heads, time, time});
  fill_normal(p, Generator(3));
  Tensor out = Tensor::zeros({batch, time, heads, dim});
  check_product<float>(out.permute({0, 2, 1, 3}), p, split(q), 1, 0);
  check_product<float>(out.permute({0, 2, 1, 3}), p.transpose(-1, -2), split(q), 1, 1);
}

TEST_CASE("rows and columns with stride 0 are multiplied too") {
  Tensor row = Tensor::empty({1, 9}, DType::f64), b = Tensor::empty({9, 4}, DType::f64);
  fill_normal(row, Generator(1));
  fill_normal(b, Generator(2));
  const Tensor out = Tensor::zeros({5, 4}, DType::f64);
  check_product<double>(out, row.expand({5, 9}), b, 1, 0);
  check_product<double>(out, row.reshape({9, 1}).expand({9, 5}).transpose(0, 1), b, 1, 0);
  check_product<double>(out, Tensor::scalar(3, DType::f64).expand({5, 9}), b, 1, 0);
  check_product<double>(out, b.slice(0, 0, 5), row.slice(1, 0, 4).expand({4, 4}), 1, 0);
  check_product<double>(out, Tensor::full({5, 1}, 2, DType::f64).expand({5, 9}), b, 1, 0);
}

TEST_CASE("an empty sum is beta times the result") {
  const Tensor a = Tensor::empty({3, 0}), b = Tensor::empty({0, 2});
  Tensor out = Tensor::full({3, 2}, std::numeric_limits<double>::quiet_NaN());
  matmul_into(out, a, b);
  CHECK(out.to_vector<float>() == std::vector<float>(6, 0));
  out.fill(3);
  matmul_into(out, a, b, 1, 2);
  CHECK(out.to_vector<float>() == std::vector<float>(6, 6));
}

TEST_CASE("NaN and infinity propagate through a product") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor a = Tensor::from<float>({inf, 1, 1, 0}, {2, 2});
  const Tensor b = Tensor::from<float>({1, 0, 1, 1}, {2, 2});
  Tensor out = Tensor::empty({2, 2});
  matmul_into(out, a, b);
  CHECK(out.at({0, 0}) == inf);
  CHECK(std::isnan(out.at({0, 1})));
  CHECK(out.at({1, 0}) == 1);
}

TEST_CASE("gemm multiplies views with any transposition") {
  RandomStream random(Generator(4));
  for (const Trans ta : {Trans::no, Trans::yes})
    for (const Trans tb : {Trans::no, Trans::yes}) {
      const int64_t m = 5, n = 7, k = 4;
      const bool at = ta == Trans::yes, bt = tb == Trans::yes;
      Tensor a = Tensor::empty({at ? k : m, (at ? m : k) + 2}, DType::f64);
      Tensor b = Tensor::empty({bt ? n : k, (bt ? k : n) + 1}, DType::f64);
      Tensor c = Tensor::full({m, n + 3}, 9, DType::f64);
      fill_normal(a, Generator(random.bits()));
      fill_normal(b, Generator(random.bits()));
      const Tensor& x = a;
      const Tensor& y = b;
      gemm<double>(ta, tb, 2, {x.data<double>(), x.size(0), x.size(1) - 2, x.size(1)},
                   {y.data<double>(), y.size(0), y.size(1) - 1, y.size(1)}, 0.5,
                   {c.data<double>(), m, n, n + 3});
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 4.5;
          for (int64_t l = 0; l < k; ++l)
            sum += 2 * (at ? x.at({l, i}) : x.at({i, l})) * (bt ? y.at({j, l}) : y.at({l, j}));
          CHECK(std::abs(c.at({i, j}) - sum) <= 1e-13);
        }
        CHECK(c.at({i, n}) == 9);
      }
    }
  const float* const none = nullptr;
  float x = 1;
  CHECK_THROWS_AS(
      gemm<float>(Trans::no, Trans::no, 1, {none, 2, 3, 3}, {none, 2, 3, 3}, 0, {&x, 2, 3, 3}),
      ShapeError);
}

TEST_CASE("matmul_into rejects shapes and dtypes that do not match") {
  const Tensor a = Tensor::zeros({2, 3}), b = Tensor::zeros({3, 4});
  const auto into = [&](const Shape& shape, const Tensor& x, const Tensor& y) {
    Tensor out = Tensor::zeros(shape);
    matmul_into(out, x, y);
  };
  CHECK_NOTHROW(into({2, 4}, a, b));
  CHECK_NOTHROW(into({5, 2, 4}, a, b));
  CHECK_THROWS_AS(into({2, 4}, b, a), ShapeError);
  CHECK_THROWS_AS(into({4, 2}, a, b), ShapeError);
  CHECK_THROWS_AS(into({3, 4}, a, b), ShapeError);
  // A product of one row (or column) is not broadcast.
  CHECK_THROWS_AS(into({5, 4}, a.slice(0, 0, 1), b), ShapeError);
  CHECK_THROWS_AS(into({2, 4}, a, b.slice(1, 0, 1)), ShapeError);
  CHECK_THROWS_AS(into({2, 4}, a, b.to(DType::f64)), ShapeError);
  CHECK_THROWS_AS(into({2, 4}, Tensor::zeros({3}), b), ShapeError);
  CHECK_THROWS_AS(into({2, 4}, Tensor::zeros({3, 2, 3}), b), ShapeError);
  CHECK_THROWS_AS(into({3, 2, 4}, Tensor::zeros({2, 2, 3}), b), ShapeError);
  Tensor transposed = Tensor::zeros({4, 2});
  CHECK_THROWS_AS(
      [&] {
        Tensor out = transposed.transpose(0, 1);
        matmul_into(out, a, b);
      }(),
      ShapeError);
  Tensor ints = Tensor::zeros({2, 4}, DType::i32);
  CHECK_THROWS_AS(matmul_into(ints, a.to(DType::i32), b.to(DType::i32)), ShapeError);
  CHECK(matmul_shape({7, 1, 2, 3}, {5, 3, 4}) == Shape{7, 5, 2, 4});
}

TEST_CASE("blas_description names the BLAS in use") {
  CHECK_THAT(blas_description(), Catch::StartsWith("OpenBLAS 0."));
  CHECK_NOTHROW(check_blas(1));
}

TEST_CASE("better_blas_core names a core if OpenBLAS uses less than the instruction set in use") {
  for (const char* core : {"Prescott", "Nehalem", "Sandybridge"}) {
    CHECK(better_blas_core(core, Isa::baseline) == "");
    CHECK(better_blas_core(core, Isa::avx2) == "Haswell");
    CHECK(better_blas_core(core, Isa::avx512) == "SkylakeX");
  }
  for (const char* core : {"Haswell", "Zen"}) {
    CHECK(better_blas_core(core, Isa::avx2) == "");
    CHECK(better_blas_core(core, Isa::avx512) == "SkylakeX");
  }
  for (const char* core : {"SkylakeX", "Cooperlake", "SapphireRapids", "of tomorrow"})
    CHECK(better_blas_core(core, Isa::avx512) == "");
}

TEST_CASE("blas_advice says what to set if nothing else could be used") {
  const std::string core = blas_description().substr(blas_description().rfind(' ') + 1),
                    better = better_blas_core(core, isa()), text = blas_advice();
  CHECK(text.empty() == better.empty());
  if (!better.empty()) CHECK_THAT(text, Catch::EndsWith("set OPENBLAS_CORETYPE=" + better));
}
