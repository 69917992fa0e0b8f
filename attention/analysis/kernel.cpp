#include "longhand/attention/analysis/kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::analysis {
namespace {

using Values = std::vector<double>;

// |x - y|²
double square_distance(std::span<const double> x, std::span<const double> y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sum;
}

std::span<const double> row(const Tensor& x, int64_t i) {
  return {x.data<double>() + i * x.size(1), static_cast<size_t>(x.size(1))};
}

// κ(x_i, y_j) for rows x (n, D) and y (m, D).
Tensor kernel_of(Kernel kernel, const Tensor& x, const Tensor& y) {
  Tensor out = Tensor::empty({x.size(0), y.size(0)}, DType::f64);
  for (int64_t i = 0; i < x.size(0); ++i)
    for (int64_t j = 0; j < y.size(0); ++j)
      out.data<double>()[i * y.size(0) + j] =
          std::exp(kernel == Kernel::softmax ? dot(row(x, i), row(y, j))
                                             : -square_distance(row(x, i), row(y, j)) / 2);
  return out;
}

constexpr std::pair<Landmarks, const char*> landmark_methods[] = {
    {Landmarks::uniform, "uniform"},
    {Landmarks::segment, "segment"},
    {Landmarks::kmeans, "kmeans"},
    {Landmarks::leverage, "leverage"}};

Tensor features(Kernel kernel, Estimator estimator, bool orthogonal, const Tensor& points,
                int64_t m, const Generator& generator) {
  const NoGrad no_grad;
  const Tensor W = (orthogonal ? draw_orthogonal : draw_gaussian)(generator.fork("rows"), m,
                                                                  points.size(1), RowNorm::chi);
  Tensor phases;
  if (estimator == Estimator::trigonometric_bias) {
    phases = Tensor::empty({m}, DType::f64);
    fill_uniform(phases, generator.fork("phases"), 0, 2 * std::numbers::pi);
  }
  return kernel == Kernel::softmax ? softmax_features(estimator, points, W, phases)
                                   : gaussian_features(points, W, phases);
}

// (Σ variance / m)^(1/2) / |K|
double expected_error(Kernel kernel, Estimator estimator, const Tensor& points, int64_t m,
                      double norm) {
  double sum = 0;
  for (int64_t i = 0; i < points.size(0); ++i)
    for (int64_t j = 0; j < points.size(0); ++j)
      sum += kernel == Kernel::softmax
                 ? softmax_variance(estimator, row(points, i), row(points, j))
                 : gaussian_variance(estimator == Estimator::trigonometric_bias, row(points, i),
                                     row(points, j));
  return std::sqrt(sum / static_cast<double>(m)) / norm;
}

void add(Tensor& sum, const Tensor& x, double factor) {
  double* const to = sum.data<double>();
  const double* const from = x.data<double>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] += factor * from[i];
}

// The measurements of one method at one size. `matrix(m, generator)` draws an approximation.
template <class Matrix>
void measure(KernelError& e, const Tensor& K, double largest_eigenvalue, bool random, bool single,
             const KernelOptions& options, const Generator& generator, const Matrix& matrix) {
  const int64_t R = random ? options.draws : 1, E = random ? options.ensemble : 1;
  Values errors(R * E), of_mean(R), of_single(R), least(R);
  parallel_for_each(R, 1, [&](int64_t r) {
    const Generator own = generator.fork(static_cast<uint64_t>(r));
    Tensor mean = Tensor::zeros(K.shape(), DType::f64);
    for (int64_t i = 0; i < E; ++i) {
      const Tensor one = matrix(e.size, own.fork(static_cast<uint64_t>(i)));
      errors[r * E + i] = relative_error(one, K);
      if (i == 0) least[r] = symmetric_eigenvalues(one).data<double>()[0] / largest_eigenvalue;
      add(mean, one, 1 / static_cast<double>(E));
    }
    of_mean[r] = relative_error(mean, K);
    if (random && single) of_single[r] = relative_error(matrix(E * e.size, own.fork("single")), K);
  });
  e.draws = R * E;
  e.error = estimate_of_positive(errors);
  Values ratios;
  double squares = 0;
  for (const double error : errors) {
    squares += error * error / static_cast<double>(errors.size());
    ratios.push_back(error * error / (e.expected * e.expected));
  }
  e.rms = std::sqrt(squares);
  e.ratio = estimate(ratios);
  e.least_eigenvalue = *std::min_element(least.begin(), least.end());
  e.ensemble = E;
  if (random) e.ensemble_error = estimate_of_positive(of_mean);
  if (random && single) e.single_error = estimate_of_positive(of_single);
}

Tensor kmeans(const Tensor& points, int64_t m, RandomStream& random) {
  const int64_t n = points.size(0), D = points.size(1);
  // k-means++: each further centre is a point drawn in proportion to its squared distance.
  std::vector<int64_t> chosen{static_cast<int64_t>(random.below(static_cast<uint64_t>(n)))};
  Values nearest(n, std::numeric_limits<double>::infinity());
  while (static_cast<int64_t>(chosen.size()) < m) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      nearest[i] =
          std::min(nearest[i], square_distance(row(points, i), row(points, chosen.back())));
      sum += nearest[i];
    }
    double left = random.uniform() * sum;
    int64_t next = 0;
    while (next < n - 1 && (left -= nearest[next]) >= 0) ++next;
    chosen.push_back(next);
  }
  Tensor centres = rows_of(points, chosen);
  for (int step = 0; step < 10; ++step) {
    Tensor sums = Tensor::zeros({m, D}, DType::f64);
    std::vector<int64_t> counts(m);
    for (int64_t i = 0; i < n; ++i) {
      int64_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (int64_t c = 0; c < m; ++c)
        if (const double d = square_distance(row(points, i), row(centres, c)); d < least)
          least = d, best = c;
      ++counts[best];
      for (int64_t d = 0; d < D; ++d) sums.data<double>()[best * D + d] += row(points, i)[d];
    }
    for (int64_t c = 0; c < m; ++c)
      for (int64_t d = 0; d < D && counts[c] > 0; ++d)
        centres.data<double>()[c * D + d] =
            sums.data<double>()[c * D + d] / static_cast<double>(counts[c]);
  }
  return centres;
}

// m points, without replacement, in proportion to their ridge leverage scores: those with the
// smallest exponential variates of these rates.
std::vector<int64_t> by_leverage(const Tensor& K, int64_t m, RandomStream& random) {
  const int64_t n = K.size(0);
  const Svd d = svd(K);  // of a positive semi-definite matrix: its eigenvectors
  const Values eigenvalues = d.s.to_vector<double>();
  const auto scores_sum = [&](double lambda) {
    double sum = 0;
    for (const double e : eigenvalues) sum += e / (e + lambda);
    return sum;
  };
  double low = 1e-14 * eigenvalues[0], high = static_cast<double>(n) * eigenvalues[0];
  for (int i = 0; i < 100; ++i) {
    const double middle = std::sqrt(low * high);
    (scores_sum(middle) > static_cast<double>(m) ? low : high) = middle;
  }
  std::vector<std::pair<double, int64_t>> arrivals(n);
  for (int64_t i = 0; i < n; ++i) {
    double score = 0;
    for (int64_t j = 0; j < n; ++j)
      score +=
          std::pow(d.u.data<double>()[i * n + j], 2) * eigenvalues[j] / (eigenvalues[j] + high);
    arrivals[i] = {-std::log(1 - random.uniform()) / score, i};
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + m, arrivals.end());
  std::vector<int64_t> out;
  for (int64_t i = 0; i < m; ++i) out.push_back(arrivals[i].second);
  std::sort(out.begin(), out.end());
  return out;
}

double over_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

}  // namespace

Tensor softmax_features(Estimator estimator, const Tensor& x, const Tensor& W,
                        const Tensor& phases) {
  const Variable h = half_square(Variable(x), 1);
  const bool has_waves =
      estimator == Estimator::trigonometric || estimator == Estimator::trigonometric_bias;
  if (has_waves) return (Variable(gaussian_features(x, W, phases)) * exp(h)).value();
  const Variable t =
      exponents(linear(Variable(x), Variable(W)), estimator == Estimator::hyperbolic) - h;
  return affine(exp(t), over_root(t.size(-1))).value();
}

Tensor gaussian_features(const Tensor& x, const Tensor& W, const Tensor& phases) {
  const double scale = over_root(W.size(0)) * (phases.defined() ? std::numbers::sqrt2 : 1);
  return affine(waves(linear(Variable(x), Variable(W)), phases), scale).value();
}

std::string name_of(Kernel kernel) { return kernel == Kernel::softmax ? "softmax" : "gaussian"; }

Tensor kernel_matrix(Kernel kernel, const Tensor& points) {
  return kernel_of(kernel, points, points);
}

double softmax_variance(Estimator estimator, std::span<const double> x, std::span<const double> y) {
  const double xx = dot(x, x), yy = dot(y, y), xy = dot(x, y);
  const double z = xx + yy + 2 * xy;
  const double positive = std::exp(z + 2 * xy) * -std::expm1(-z);
  switch (estimator) {
    case Estimator::positive:
      return positive;
    case Estimator::hyperbolic:
      return positive * -std::expm1(-z) / 2;
    case Estimator::trigonometric:
    case Estimator::trigonometric_bias:
      return std::exp(xx + yy) *
             gaussian_variance(estimator == Estimator::trigonometric_bias, x, y);
  }
  return 0;
}

double gaussian_variance(bool with_phases, std::span<const double> x, std::span<const double> y) {
  const double delta = square_distance(x, y);
  return with_phases ? 1 + std::exp(-2 * delta) / 2 - std::exp(-delta)
                     : std::pow(std::expm1(-delta), 2) / 2;
}

Tensor choose_landmarks(Landmarks how, Kernel kernel, const Tensor& points, int64_t m,
                        const Generator& generator) {
  check<ConfigError>(m >= 1 && m <= points.size(0), "landmarks: expected 1 to ", points.size(0),
                     ", got ", m);
  RandomStream random(generator);
  switch (how) {
    case Landmarks::uniform:
      return rows_of(points, draw_subset(random, points.size(0), m));
    case Landmarks::segment:
      return segment_means(points, m);
    case Landmarks::kmeans:
      return kmeans(points, m, random);
    case Landmarks::leverage:
      return rows_of(points, by_leverage(kernel_matrix(kernel, points), m, random));
  }
  return {};
}

Tensor nystrom_matrix(Kernel kernel, const Tensor& points, const Tensor& landmarks) {
  const Tensor C = kernel_of(kernel, points, landmarks);
  const Tensor inverse = pseudo_inverse(kernel_of(kernel, landmarks, landmarks), 1e-10);
  return product(product(C, inverse), C.transpose(0, 1));
}

std::vector<KernelError> kernel_errors(const Tensor& points, Kernel kernel,
                                       const KernelOptions& options) {
  check<ConfigError>(options.draws >= 2 && options.ensemble >= 1,
                     "kernel: expected at least 2 draws and an ensemble of 1, got ", options.draws,
                     " and ", options.ensemble);
  const Tensor K = kernel_matrix(kernel, points);
  const double norm = std::sqrt(square_norm(K));
  const Values eigenvalues = symmetric_eigenvalues(K).to_vector<double>();  // ascending
  const int64_t n = points.size(0);
  const auto estimators_of_kernel =
      std::span(estimators).subspan(kernel == Kernel::softmax ? 0 : 2);
  const Generator generator = Generator(options.seed).fork("kernel");
  std::vector<KernelError> out;
  for (const int64_t m : options.sizes) {
    check<ConfigError>(m >= 1, "kernel: expected sizes of at least 1, got ", m);
    const Generator own = generator.fork(static_cast<uint64_t>(m));
    for (const bool orthogonal : {false, true})
      for (const auto& [estimator, name] : estimators_of_kernel) {
        KernelError e{.kernel = kernel,
                      .method = name,
                      .draw = orthogonal ? "orthogonal" : "iid",
                      .size = m,
                      .features = m};
        if (estimator == Estimator::trigonometric || estimator == Estimator::hyperbolic)
          e.features = 2 * m;
        e.expected = expected_error(kernel, estimator, points, m, norm);
        measure(e, K, eigenvalues.back(), true, true, options, own.fork(e.method).fork(e.draw),
                [&, of = estimator](int64_t rows, const Generator& g) {
                  const Tensor f = features(kernel, of, orthogonal, points, rows, g);
                  return product(f, f.transpose(0, 1));
                });
        out.push_back(e);
      }
    for (const auto& [how, name] : landmark_methods) {
      if (m > n) continue;
      KernelError e{.kernel = kernel, .method = name, .size = m, .features = m};
      double left = 0;  // squares of all eigenvalues but the m largest
      for (int64_t i = 0; i < n - m; ++i) left += eigenvalues[i] * eigenvalues[i];
      e.expected = std::sqrt(left) / norm;
      measure(e, K, eigenvalues.back(), how != Landmarks::segment, options.ensemble * m <= n,
              options, own.fork(e.method), [&, by = how](int64_t count, const Generator& g) {
                return nystrom_matrix(kernel, points,
                                      choose_landmarks(by, kernel, points, count, g));
              });
      e.ratio = {};
      out.push_back(e);
    }
  }
  return out;
}

}  // namespace longhand::attention::analysis
