#include "longhand/core/linalg.h"

#include <cmath>
#include <limits>

#include "longhand/core/gemm.h"
#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

Tensor gaussian(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, Generator(seed));
  return t;
}

Tensor product(const Tensor& a, const Tensor& b) {
  Tensor out = Tensor::empty(matmul_shape(a.shape(), b.shape()), a.dtype());
  matmul_into(out, a, b);
  return out;
}

double max_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = x.size() == y.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    const double d = std::abs(x[i] - y[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

Tensor identity(int64_t n, DType dtype) {
  Tensor t = Tensor::zeros({n, n}, dtype);
  for (int64_t i = 0; i < n; ++i) t.select(0, i).select(0, i).fill(1);
  return t;
}

const Shape shapes[] = {{1, 1}, {5, 1}, {1, 5}, {6, 6}, {9, 4}, {4, 9}, {40, 33}};

double tolerance_of(DType dtype) { return dtype == DType::f32 ? 2e-5 : 1e-13; }

}  // namespace

TEST_CASE("qr: a = q r, q orthonormal, r upper triangular with a positive diagonal") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : shapes) {
      const double tolerance = tolerance_of(dtype);
      const Tensor a = gaussian(shape, dtype, 1);
      const Qr f = qr(a);
      const int64_t k = std::min(shape[0], shape[1]);
      REQUIRE(f.q.shape() == Shape{shape[0], k});
      REQUIRE(f.r.shape() == Shape{k, shape[1]});
      CHECK(max_difference(product(f.q, f.r), a) <= tolerance);
      CHECK(max_difference(product(f.q.transpose(0, 1), f.q), identity(k, dtype)) <= tolerance);
      for (int64_t i = 0; i < k; ++i) {
        CHECK(f.r.at({i, i}) > 0);
        for (int64_t j = 0; j < i; ++j) CHECK(f.r.at({i, j}) == 0);
      }
    }
}

TEST_CASE("qr reads transposed views, and succeeds for a zero matrix") {
  const Tensor a = gaussian({4, 7}, DType::f64, 2);
  CHECK(identical(qr(a.transpose(0, 1)).q, qr(a.transpose(0, 1).contiguous()).q));
  const Qr zero = qr(Tensor::zeros({3, 2}, DType::f64));
  CHECK(max_difference(product(zero.q.transpose(0, 1), zero.q), identity(2, DType::f64)) <= 1e-15);
  CHECK(max_difference(zero.r, Tensor::zeros({2, 2}, DType::f64)) == 0);
}

TEST_CASE("q of Gaussian matrices is Haar-distributed") {
  // Every element of q has mean 0 and variance 1 / n; without the signs of r the first column of
  // LAPACK's q is biased (all q_11 have the sign of -a_11, and q_nn that of the determinant).
  const int64_t n = 4, samples = 4000;
  std::vector<double> sum(n * n), square(n * n);
  double trace = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const std::vector<double> q = qr(gaussian({n, n}, DType::f64, 100 + s)).q.to_vector<double>();
    for (int64_t i = 0; i < n * n; ++i) {
      sum[i] += q[i];
      square[i] += q[i] * q[i];
    }
    for (int64_t i = 0; i < n; ++i) trace += q[i * n + i];
  }
  const double count = static_cast<double>(samples);
  // Standard deviation of a mean: 0.5 / sqrt(4000) = 0.008; of the mean trace: 1 / sqrt(4000).
  for (int64_t i = 0; i < n * n; ++i) {
    CHECK(std::abs(sum[i] / count) <= 0.032);
    CHECK(std::abs(square[i] / count - 0.25) <= 0.02);
  }
  CHECK(std::abs(trace / count) <= 0.064);
}

TEST_CASE("svd: a = u s vt with orthonormal u and v and descending s") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : shapes) {
      const double tolerance = tolerance_of(dtype);
      const Tensor a = gaussian(shape, dtype, 3);
      const Svd d = svd(a);
      const int64_t k = std::min(shape[0], shape[1]);
      REQUIRE(d.u.shape() == Shape{shape[0], k});
      REQUIRE(d.s.shape() == Shape{k});
      REQUIRE(d.vt.shape() == Shape{k, shape[1]});
      Tensor diagonal = Tensor::zeros({k, k}, dtype);
      for (int64_t i = 0; i < k; ++i) {
        diagonal.select(0, i).select(0, i).fill(d.s.at({i}));
        CHECK(d.s.at({i}) >= 0);
        if (i > 0) CHECK(d.s.at({i}) <= d.s.at({i - 1}));
      }
      CHECK(max_difference(product(product(d.u, diagonal), d.vt), a) <= tolerance);
      CHECK(max_difference(product(d.u.transpose(0, 1), d.u), identity(k, dtype)) <= tolerance);
      CHECK(max_difference(product(d.vt, d.vt.transpose(0, 1)), identity(k, dtype)) <= tolerance);
    }
}

TEST_CASE("the pseudo-inverse satisfies Penrose's four conditions") {
  const auto check_penrose = [](const Tensor& a) {
    const Tensor p = pseudo_inverse(a);
    const double tolerance = 50 * tolerance_of(a.dtype());
    REQUIRE(p.shape() == Shape{a.size(1), a.size(0)});
    const Tensor ap = product(a, p), pa = product(p, a);
    CHECK(max_difference(product(ap, a), a) <= tolerance);
    CHECK(max_difference(product(pa, p), p) <= tolerance);
    CHECK(max_difference(ap, ap.transpose(0, 1)) <= tolerance);
    CHECK(max_difference(pa, pa.transpose(0, 1)) <= tolerance);
  };
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{5, 1}, Shape{1, 5}, Shape{9, 4}, Shape{4, 9}, Shape{6, 6}})
      check_penrose(gaussian(shape, dtype, 4));
    // Of rank 3; the other singular values, which are rounding errors, are not inverted.
    check_penrose(product(gaussian({8, 3}, dtype, 5), gaussian({3, 10}, dtype, 6)));
    check_penrose(Tensor::full({4, 4}, 1, dtype));
    check_penrose(Tensor::zeros({2, 3}, dtype));
  }
}

TEST_CASE("the pseudo-inverse drops singular values below the tolerance") {
  const Tensor a = Tensor::from<double>({2, 0, 0, 1e-3}, {2, 2});
  CHECK(max_difference(pseudo_inverse(a), Tensor::from<double>({0.5, 0, 0, 1e3}, {2, 2})) <= 1e-9);
  CHECK(max_difference(pseudo_inverse(a, 1e-2), Tensor::from<double>({0.5, 0, 0, 0}, {2, 2})) <=
        1e-15);
}

TEST_CASE("factorisations reject arguments that are not matrices of floats") {
  CHECK_THROWS_AS(qr(Tensor::zeros({2, 2, 2})), ShapeError);
  CHECK_THROWS_AS(svd(Tensor::zeros({3})), ShapeError);
  CHECK_THROWS_AS(qr(Tensor::zeros({0, 3})), ShapeError);
  CHECK_THROWS_AS(svd(Tensor::zeros({2, 2}, DType::i32)), ShapeError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(qr(Tensor::full({2, 2}, nan)), Error);
  CHECK_THROWS_AS(svd(Tensor::full({2, 2}, nan)), Error);
}

TEST_CASE("linalg: eigenvalues of a symmetric matrix") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    // A = Q diag(-2, 0.5, 3) Qᵀ
    const Tensor q = qr(gaussian({3, 3}, dtype, 5)).q;
    Tensor d = Tensor::zeros({3, 3}, dtype);
    for (const auto& [i, value] : {std::pair(0, 3.0), {1, -2.0}, {2, 0.5}})
      d.select(0, i).select(0, i).fill(value);
    const Tensor a = product(product(q, d), q.transpose(0, 1));
    CHECK(max_difference(symmetric_eigenvalues(a), Tensor::from<double>({-2, 0.5, 3}, {3})) <=
          (dtype == DType::f32 ? 1e-5 : 1e-13));
  }
  CHECK_THROWS_AS(symmetric_eigenvalues(Tensor::zeros({2, 3})), ShapeError);
}
