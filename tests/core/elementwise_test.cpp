#include "longhand/core/kernels/elementwise.h"

#include <cstring>
#include <limits>

#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;
using kernels::in;

namespace {

// Every ninth is large enough to be split into tasks.
Shape random_shape(RandomStream& random, int round) {
  Shape shape;
  for (int64_t i = pick(random, 0, round % 9 == 0 ? 1 : 4); i > 0; --i)
    shape.push_back(pick(random, 0, 5));
  if (round % 9 == 0) {
    shape.push_back(pick(random, 30, 90));
    shape.push_back(pick(random, 300, 600));
  }
  return shape;
}

template <class T>
void check_bits(const Tensor& got, const std::vector<T>& expected) {
  const std::vector<T> values = values_of<T>(got);
  REQUIRE(values.size() == expected.size());
  REQUIRE((expected.empty() ||
           std::memcmp(values.data(), expected.data(), expected.size() * sizeof(T)) == 0));
}

template <class T>
void compare_with_plain_loop(uint64_t seed) {
  RandomStream random{Generator(seed)};
  for (int round = 0; round < 63; ++round) {
    const Shape shape = random_shape(random, round);
    const ViewKind kind{.holes = random.below(2) == 0, .broadcast = random.below(2) == 0};
    const Tensor a = random_view(shape, dtype_of<T>, random, kind);
    const Tensor b = random_view(shape, dtype_of<T>, random, kind);
    const Tensor c = random_view(shape, DType::u8, random, kind);
    const Tensor before = random_view(shape, dtype_of<T>, random, {.holes = kind.holes});
    const auto f = [](T x, T y, uint8_t z) { return x / (y + 1) + static_cast<T>(z); };
    const std::vector<T> x = values_of<T>(a), y = values_of<T>(b), old = values_of<T>(before);
    const std::vector<uint8_t> z = values_of<uint8_t>(c);
    for (const double beta : {0.0, 1.0, 0.75}) {
      std::vector<T> expected(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        const T value = f(x[i], y[i], z[i]);
        expected[i] = beta == 0 ? value : static_cast<T>(beta) * old[i] + value;
      }
      for (const int n : {1, 4}) {
        const WithThreads with(n);
        // Memory that beta = 0 must not read; there may be other elements in between.
        Tensor out = random_view(shape, dtype_of<T>, random, {.holes = kind.holes});
        copy_into(out, before);
        if (beta == 0) out.fill(std::numeric_limits<T>::quiet_NaN());
        kernels::elementwise_accumulate<T>(out, beta, f, in<T>(a), in<T>(b), in<uint8_t>(c));
        check_bits(out, expected);
      }
    }
  }
}

}  // namespace

TEST_CASE("elementwise agrees with a plain loop over any strides") {
  compare_with_plain_loop<float>(1);
  compare_with_plain_loop<double>(2);
}

TEST_CASE("elementwise writes no elements in the holes of a view") {
  RandomStream random(Generator(3));
  for (int round = 0; round < 50; ++round) {
    Tensor memory = Tensor::full({5, 7, 6}, -1, DType::i32);
    Tensor out = memory.slice(0, 1, 5, 2).slice(1, 0, 7, 3).slice(2, 1, 6);
    out = out.permute(random_order(random, 3));
    kernels::elementwise<int32_t>(out, [] { return 5; });
    int64_t written = 0;
    for (int32_t x : values_of<int32_t>(memory)) written += x == 5;
    CHECK(written == out.numel());
    CHECK(values_of<int32_t>(out) == std::vector<int32_t>(out.numel(), 5));
  }
}

TEST_CASE("elementwise handles long rows with holes between them") {
  for (const int64_t width : {200, 300, 700, 5000}) {
    const Shape shape{90, width};
    Tensor memory = Tensor::empty({90, width + 3}), rows = Tensor::empty({90, width + 1});
    fill_normal(memory, Generator(1));
    fill_normal(rows, Generator(2));
    const Tensor x = rows.slice(1, 1, width + 1), bias = rows.slice(0, 3, 4).slice(1, 0, width);
    // One number per row or per element: the former is not contiguous along the loop.
    const Tensor scales[] = {rows.slice(1, 0, 1).expand(shape), x};
    for (const int n : {1, 4})
      for (const Tensor& scale : scales) {
        const WithThreads with(n);
        Tensor whole = memory.clone();
        Tensor out = whole.slice(1, 2, width + 2);
        const std::vector<float> old = values_of<float>(out), a = values_of<float>(x);
        kernels::elementwise_accumulate<float>(
            out, 2, [](float v, float b, float s) { return v * s + b; }, in<float>(x),
            in<float>(bias.expand(shape)), in<float>(scale));
        std::vector<float> expected;
        for_each_index(shape, [&](const Shape& i) {
          const size_t at = expected.size();
          const float b = bias.data<float>()[i[1]],
                      s = scale.data<float>()[offset_of(i, scale.strides())];
          expected.push_back(2 * old[at] + (a[at] * s + b));
        });
        check_bits(out, expected);
        CHECK(identical(whole.slice(1, 0, 2), memory.slice(1, 0, 2)));
        CHECK(
            identical(whole.slice(1, width + 2, width + 3), memory.slice(1, width + 2, width + 3)));
      }
  }
}

TEST_CASE("elementwise may write to one of its inputs") {
  for (const Shape& shape : {Shape{7}, Shape{300, 300}}) {
    Tensor x = Tensor::full(shape, 3, DType::f64);
    kernels::elementwise<double>(
        x, [](double v) { return v * v; }, in<double>(x));
    CHECK(values_of<double>(x) == std::vector<double>(x.numel(), 9));
    Tensor t = x.transpose(0, -1);
    kernels::elementwise_accumulate<double>(
        t, 2, [](double v, double w) { return v - w; }, in<double>(t), in<double>(t));
    CHECK(values_of<double>(x) == std::vector<double>(x.numel(), 18));
  }
}

TEST_CASE("elementwise rejects shapes and types that differ") {
  Tensor out = Tensor::zeros({2, 3});
  const Tensor x = Tensor::zeros({3, 2}), i = Tensor::zeros({2, 3}, DType::i32);
  const auto copy = [](float v) { return v; };
  CHECK_THROWS_AS(kernels::elementwise<float>(out, copy, in<float>(x)), ShapeError);
  CHECK_THROWS_AS(kernels::elementwise<float>(out, copy, in<float>(i)), ShapeError);
  CHECK_THROWS_AS(kernels::elementwise<double>(out, [] { return 1.0; }), ShapeError);
}
