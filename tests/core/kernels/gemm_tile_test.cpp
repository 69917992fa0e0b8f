#include "longhand/core/kernels/gemm_tile.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "longhand/core/kernels/gemm_tile_kernels.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"
#include "tests/support/lower_sets.h"

using namespace longhand;
using kernels::Addend;
using kernels::gemm_tile;
using kernels::Strided;

namespace {

template <class T>
constexpr T not_a_number = std::numeric_limits<T>::quiet_NaN();

// A matrix of random numbers whose elements are `row` and `col` apart, NaN in between and around.
template <class T>
struct Matrix {
  std::vector<T> memory;
  int64_t start, row, col;

  Matrix(int64_t rows, int64_t cols, int64_t row_, int64_t col_, RandomStream& random)
      : memory(static_cast<size_t>(100 + rows * row_ + cols * col_), not_a_number<T>),
        start(50),
        row(row_),
        col(col_) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) at(i, j) = static_cast<T>(random.normal());
  }
  T& at(int64_t i, int64_t j) { return memory[static_cast<size_t>(start + i * row + j * col)]; }
  T* data() { return memory.data() + start; }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// What computes c = to + a b: gemm_tile, or one of its kernels.
template <class T>
using Multiply = std::function<void(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b,
                                    int64_t ldb, T* c, int64_t ldc, Addend<T> to)>;

// What is added to: nothing, c itself, other rows, or one row.
constexpr uint64_t addends = 4;
template <class T>
Addend<T> addend_of(uint64_t kind, Matrix<T>& c, Matrix<T>& other) {
  if (kind == 0) return {};
  if (kind == 1) return {c.data(), c.row};
  return {other.data(), kind == 2 ? other.row : 0};
}

// What is added to element (i, j), given c before the product.
template <class T>
double added(uint64_t kind, Matrix<T>& before, Matrix<T>& other, int64_t i, int64_t j) {
  if (kind == 0) return 0;
  return static_cast<double>(kind == 1 ? before.at(i, j) : other.at(kind == 2 ? i : 0, j));
}

// Against sums in double, and whole against in parts. Returns c and what lies around it.
template <class T>
std::vector<T> check_tiles(int64_t m, int64_t n, int64_t k, RandomStream& random,
                           const Multiply<T>& multiply) {
  const bool transposed = random.below(2);
  const uint64_t kind = random.below(addends);
  const auto gap = [&] { return static_cast<int64_t>(random.below(3)); };
  INFO("(" << m << ", " << k << ") times (" << k << ", " << n << "), addend " << kind
           << ", a transposed " << transposed);
  // Any two strides that keep the elements apart.
  const int64_t near = 1 + gap();
  Matrix<T> a(m, k, transposed ? near : near * k + gap(), transposed ? near * m + gap() : near,
              random);
  Matrix<T> b(k, n, n + gap(), 1, random), c(m, n, n + gap(), 1, random);
  Matrix<T> other(m, n, n + gap(), 1, random), expected = c;
  if (kind != 1)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c.at(i, j) = not_a_number<T>;
  Matrix<T> in_parts = c;

  multiply(m, n, k, {a.data(), a.row, a.col}, b.data(), b.row, c.data(), c.row,
           addend_of(kind, c, other));
  bool all_near = true;
  const double unit = static_cast<double>(std::numeric_limits<T>::epsilon());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = added(kind, expected, other, i, j);
      double magnitude = std::abs(sum);
      for (int64_t l = 0; l < k; ++l) {
        const double term = static_cast<double>(a.at(i, l)) * static_cast<double>(b.at(l, j));
        sum += term;
        magnitude += std::abs(term);
      }
      const double error = std::abs(static_cast<double>(c.at(i, j)) - sum);
      all_near = all_near && error <= unit * std::sqrt(static_cast<double>(k) + 4) * magnitude;
      expected.at(i, j) = c.at(i, j);
    }
  REQUIRE(all_near);
  // Nothing else was written.
  REQUIRE(same_bits(c.memory, expected.memory));

  const int64_t rows = static_cast<int64_t>(random.below(static_cast<uint64_t>(m + 1)));
  const int64_t cols = static_cast<int64_t>(random.below(static_cast<uint64_t>(n + 1)));
  for (const auto& [i, mi] : {std::pair{int64_t{0}, rows}, std::pair{rows, m - rows}})
    for (const auto& [j, nj] : {std::pair{int64_t{0}, cols}, std::pair{cols, n - cols}}) {
      Addend<T> to = addend_of(kind, in_parts, other);
      if (to.data) to.data += i * to.row + j;
      multiply(mi, nj, k, {a.data() + i * a.row, a.row, a.col}, b.data() + j, b.row,
               in_parts.data() + i * c.row + j, c.row, to);
    }
  REQUIRE(same_bits(c.memory, in_parts.memory));
  return c.memory;
}

template <class T>
std::vector<std::vector<T>> check_sizes(const Multiply<T>& multiply) {
  RandomStream random{Generator(1)};
  std::vector<std::vector<T>> results;
  for (int64_t m = 0; m <= 26; ++m)
    for (const int64_t n : {0, 1, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 63, 65})
      for (const int64_t k : {0, 1, 3, 16, 33})
        results.push_back(check_tiles<T>(m, n, k, random, multiply));
  results.push_back(check_tiles<T>(101, 130, 67, random, multiply));
  return results;
}

}  // namespace

TEMPLATE_TEST_CASE("gemm_tile: against plain sums, alone and in parts", "[gemm_tile]", float,
                   double) {
  check_sizes<TestType>([](auto... args) { gemm_tile<TestType>(args...); });
}

TEST_CASE("gemm_tile: every micro-kernel that this CPU can run", "[gemm_tile]") {
  std::string tested;
  std::vector<std::vector<float>> fused;  // results of the first kernel that fuses
  for (const kernels::TileKernel& kernel : kernels::tile_kernels()) {
    INFO(kernel.name);
    const auto results = check_sizes<float>(kernel.multiply);
    tested += (tested.empty() ? "" : ", ") + std::string(kernel.name);
    if (kernel.needs == Isa::baseline) continue;
    if (fused.empty()) fused = results;
    for (size_t i = 0; i < results.size(); ++i) REQUIRE(same_bits(results[i], fused[i]));
  }
  std::string available;
  for (const Isa set : all_isas)
    if (set <= machine_isa()) available += " " + std::string(name_of(set));
  std::cout << "instruction sets: this CPU has" << available << "; in use: " << name_of(isa())
            << "; micro-kernels tested: " << tested << std::endl;
}

TEMPLATE_TEST_CASE("gemm_panels: against plain sums", "[gemm_tile]", float, double) {
  RandomStream random{Generator(2)};
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {97, 33, 0}, {100, 70, 40}, {7, 31, 1030}, {193, 32, 513}, {5, 100, 512}}) {
    const bool across = random.below(2);
    const uint64_t kind = random.below(addends);
    INFO("(" << m << ", " << k << ") times (" << k << ", " << n << "), addend " << kind
             << ", b transposed " << across);
    Matrix<TestType> a(m, k, k + 1, 1, random), c(m, n, n + 2, 1, random);
    Matrix<TestType> b(k, n, across ? 1 : n + 3, across ? k + 2 : 1, random);
    std::vector<TestType> panels(static_cast<size_t>(kernels::panels_size(k, n)),
                                 not_a_number<TestType>);
    const int64_t count = kernels::panels_of(n);
    const int64_t some = static_cast<int64_t>(random.below(static_cast<uint64_t>(count + 1)));
    for (const auto& [begin, end] : {std::pair{int64_t{0}, some}, std::pair{some, count}})
      kernels::pack_panels<TestType>(k, n, {b.data(), b.row, b.col}, 2, begin, end, panels.data());
    Matrix<TestType> expected = c, other(m, n, n + 1, 1, random);
    kernels::gemm_panels<TestType>(m, n, k, {a.data(), a.row, a.col}, panels.data(), c.data(),
                                   c.row, addend_of(kind, c, other));
    bool all_near = true;
    const double unit = static_cast<double>(std::numeric_limits<TestType>::epsilon());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = added(kind, expected, other, i, j);
        double magnitude = std::abs(sum);
        for (int64_t l = 0; l < k; ++l) {
          const double term = 2 * static_cast<double>(a.at(i, l)) * static_cast<double>(b.at(l, j));
          sum += term;
          magnitude += std::abs(term);
        }
        const double error = std::abs(static_cast<double>(c.at(i, j)) - sum);
        all_near = all_near && error <= unit * std::sqrt(static_cast<double>(k) + 4) * magnitude;
        expected.at(i, j) = c.at(i, j);
      }
    REQUIRE(all_near);
    REQUIRE(same_bits(c.memory, expected.memory));
  }
}

TEMPLATE_TEST_CASE("transpose_into: element by element", "[gemm_tile]", float, double) {
  RandomStream random{Generator(3)};
  for (const int64_t m : {0, 1, 7, 8, 9, 16, 23})
    for (const int64_t k : {0, 1, 5, 8, 15, 16, 24, 26})
      for (const bool add : {false, true}) {
        INFO("(" << m << ", " << k << "), add " << add);
        Matrix<TestType> a(m, k, k + 2, 1, random), to(k, m, m + 3, 1, random);
        Matrix<TestType> expected = to;
        kernels::transpose_into<TestType>(m, k, a.data(), a.row, 3, to.data(), to.row, add);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t l = 0; l < k; ++l)
            expected.at(l, i) = 3 * a.at(i, l) + (add ? expected.at(l, i) : 0);
        REQUIRE(same_bits(to.memory, expected.memory));
      }
}

TEST_CASE("gemm_tile: a product is summed before it is added to what is there", "[gemm_tile]") {
  constexpr float most = 1 << 24;  // + 1 is itself in f32
  const int64_t k = 96;
  const std::vector<float> ones(size_t{2 * 40 * 96}, 1);
  for (const kernels::TileKernel& kernel : kernels::tile_kernels()) {
    INFO(kernel.name);
    std::vector<float> c(size_t{2 * 40}, most);
    kernel.multiply(2, 40, k, {ones.data(), k, 1}, ones.data(), 40, c.data(), 40, {c.data(), 40});
    CHECK(c == std::vector<float>(c.size(), most + k));
  }
}

TEST_CASE("gemm_tile: on lower instruction sets") { test::check_on_lower_sets("[gemm_tile]"); }
