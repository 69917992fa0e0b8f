#include "longhand/core/kernels/rows.h"

#include <cmath>
#include <limits>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/core/simd.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

template <class T>
std::vector<T> numbers(int64_t n, uint64_t seed = 1) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i)
    x[i] = static_cast<T>(Generator(seed).normal(static_cast<uint64_t>(i)));
  return x;
}

// The order of additions documented in rows.h, one at a time.
template <class T>
T sum_in_lanes(const std::vector<T>& x) {
  double total = 0;
  for (size_t begin = 0; begin < x.size(); begin += 1024) {
    T lane[16] = {};
    for (size_t i = begin; i < std::min(x.size(), begin + 1024); ++i)
      lane[(i - begin) % 16] += x[i];
    for (int half : {8, 4, 2, 1})
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    total += static_cast<double>(lane[0]);
  }
  return static_cast<T>(total);
}

}  // namespace

TEMPLATE_TEST_CASE("rows: sums have one order for any vector width", "", float, double) {
  for (int64_t n : {0, 1, 2, 15, 16, 17, 31, 33, 1023, 1024, 1025, 1041, 5000}) {
    INFO(n);
    const auto x = numbers<TestType>(n), y = numbers<TestType>(n, 2);
    std::vector<TestType> products(n), squares(n);
    for (int64_t i = 0; i < n; ++i) products[i] = x[i] * y[i], squares[i] = x[i] * x[i];
    TestType sum, dot, sum_of_squares;
    simd([&] {
      sum = kernels::row_sum(x.data(), n);
      dot = kernels::row_dot(x.data(), y.data(), n);
      sum_of_squares = kernels::row_sum_of_squares(x.data(), n);
    });
    CHECK(sum == sum_in_lanes(x));
    CHECK(dot == sum_in_lanes(products));
    CHECK(sum_of_squares == sum_in_lanes(squares));
  }
}

TEMPLATE_TEST_CASE("rows: sums of several rows are those of each", "", float, double) {
  constexpr int64_t most = kernels::rows_together;
  for (const int64_t n : {0, 16, 17, 48, 1024, 1040})
    for (int64_t count = 1; count <= most; ++count) {
      INFO(count << " rows of " << n);
      std::vector<std::vector<TestType>> rows;
      for (int64_t r = 0; r < count; ++r) rows.push_back(numbers<TestType>(n, 3 + r));
      TestType sums[most];
      simd([&] {
        kernels::lane_sums<TestType>(
            count, n, [&rows](int64_t r, int64_t i) { return rows[r][i]; }, sums);
      });
      for (int64_t r = 0; r < count; ++r) CHECK(sums[r] == sum_in_lanes(rows[r]));
    }
}

TEST_CASE("rows: a sum of a million f32 keeps its digits") {
  const std::vector<float> x(1'000'000, 0.1f);
  CHECK(kernels::row_sum(x.data(), 1'000'000) == Approx(0.1f * 1e6).epsilon(1e-6));
}

TEMPLATE_TEST_CASE("rows: maximum", "", float, double) {
  using Limits = std::numeric_limits<TestType>;
  const auto max = [](std::vector<TestType> x) {
    TestType m;
    simd([&] { m = kernels::row_max(x.data(), static_cast<int64_t>(x.size())); });
    return m;
  };
  CHECK(max({}) == -Limits::infinity());
  CHECK(max({-3, -2, -5}) == -2);
  CHECK(max({-Limits::infinity(), -Limits::max()}) == -Limits::max());
  CHECK(max({-Limits::infinity()}) == -Limits::infinity());
  CHECK(max({1, Limits::infinity(), 2}) == Limits::infinity());
  CHECK(max({0, -Limits::min()}) == 0);
  CHECK(max({-1, Limits::denorm_min()}) == Limits::denorm_min());
  for (TestType nan : {Limits::quiet_NaN(), -Limits::quiet_NaN()}) {
    CHECK(std::isnan(max({nan})));
    CHECK(std::isnan(max({1, nan, Limits::infinity()})));
    CHECK(std::isnan(max({-Limits::infinity(), nan})));
  }
  for (int64_t n : {1, 7, 16, 65, 300}) {
    auto x = numbers<TestType>(n);
    for (int64_t i = 0; i < n; ++i) {
      x[i] += 100;
      CHECK(max(x) == x[i]);
      x[i] -= 100;
    }
  }
}

TEMPLATE_TEST_CASE("rows: beta 0 does not read", "", float, double) {
  const TestType nan = std::numeric_limits<TestType>::quiet_NaN();
  std::vector<TestType> y(5, nan);
  const auto f = [](int64_t i) { return static_cast<TestType>(i); };
  simd([&] { kernels::row_accumulate(y.data(), 5, TestType{0}, f); });
  CHECK(y == std::vector<TestType>{0, 1, 2, 3, 4});
  simd([&] { kernels::row_accumulate(y.data(), 5, TestType{1}, f); });
  CHECK(y == std::vector<TestType>{0, 2, 4, 6, 8});
}

TEMPLATE_TEST_CASE("rows: softmax", "", float, double) {
  using Limits = std::numeric_limits<TestType>;
  const TestType inf = Limits::infinity();
  const auto softmax = [](std::vector<TestType> x) {
    simd([&] { kernels::softmax_row(x.data(), x.data(), static_cast<int64_t>(x.size())); });
    return x;
  };
  CHECK(softmax({}) == std::vector<TestType>{});
  CHECK(softmax({-700}) == std::vector<TestType>{1});
  CHECK(softmax({-inf, -inf, -inf}) == std::vector<TestType>{0, 0, 0});
  CHECK(softmax({-inf, 5, -inf, 5}) == std::vector<TestType>{0, 0.5, 0, 0.5});
  CHECK(softmax({1e30f, 1e30f}) == std::vector<TestType>{0.5, 0.5});
  for (TestType y : softmax({1, Limits::quiet_NaN(), -inf})) CHECK(std::isnan(y));
  for (TestType y : softmax({-inf, Limits::quiet_NaN()})) CHECK(std::isnan(y));
  for (TestType y : softmax({1, inf})) CHECK(std::isnan(y));
}
