#include "longhand/attention/analysis/landmarks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "longhand/attention/analysis/measures.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::analysis {
namespace {

constexpr LandmarkTarget targets[] = {LandmarkTarget::linear, LandmarkTarget::exponential,
                                      LandmarkTarget::softmax, LandmarkTarget::nystrom};

// The values of the kernel for all pairs of rows, (n, m).
Tensor kernel(LandmarkTarget target, const Tensor& q, const Tensor& k) {
  Tensor s = product(q, k.transpose(0, 1));
  if (target == LandmarkTarget::linear) return s;
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(1)));
  const int64_t M = s.size(1);
  for (double* row = s.data<double>(); row < s.data<double>() + s.numel(); row += M) {
    const double most = target == LandmarkTarget::exponential ? 0 : *std::max_element(row, row + M);
    double sum = 0;
    for (int64_t j = 0; j < M; ++j) sum += row[j] = std::exp(scale * (row[j] - most));
    if (target != LandmarkTarget::exponential)
      for (int64_t j = 0; j < M; ++j) row[j] /= sum;
  }
  return s;
}

Tensor rows(const Tensor& x, const std::vector<int64_t>& which) {
  Tensor out = Tensor::empty({static_cast<int64_t>(which.size()), x.size(1)}, x.dtype());
  for (size_t i = 0; i < which.size(); ++i)
    copy_into(out.select(0, static_cast<int64_t>(i)), x.select(0, which[i]));
  return out;
}
Tensor columns(const Tensor& x, const std::vector<int64_t>& which) {
  return rows(x.transpose(0, 1), which).transpose(0, 1).contiguous();
}

// With S, the kernel of all pairs.
double error_of(LandmarkTarget target, const Tensor& S, const Tensor& q, const Tensor& k,
                const std::vector<int64_t>& J) {
  constexpr double tolerance = 1e-10;
  if (target == LandmarkTarget::nystrom) {
    const Tensor Q = rows(q, J), K = rows(k, J);
    const Tensor inverse = pseudo_inverse(kernel(target, Q, K), tolerance);
    return relative_error(product(product(kernel(target, q, K), inverse), kernel(target, Q, k)), S);
  }
  const Tensor C = columns(S, J), R = rows(S, J);
  return relative_error(product(product(C, pseudo_inverse(columns(R, J), tolerance)), R), S);
}

}  // namespace

std::string name_of(LandmarkTarget target) {
  switch (target) {
    case LandmarkTarget::linear:
      return "linear";
    case LandmarkTarget::exponential:
      return "exponential";
    case LandmarkTarget::softmax:
      return "softmax";
    case LandmarkTarget::nystrom:
      return "nystrom";
  }
  return "";
}

std::vector<int64_t> draw_subset(RandomStream& random, int64_t n, int64_t m) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < m; ++i)
    std::swap(all[i], all[i + static_cast<int64_t>(random.below(static_cast<uint64_t>(n - i)))]);
  all.resize(static_cast<size_t>(m));
  std::sort(all.begin(), all.end());
  return all;
}

double landmark_error(LandmarkTarget target, const Tensor& q, const Tensor& k,
                      const std::vector<int64_t>& landmarks) {
  return error_of(target, kernel(target, q, k), q, k, landmarks);
}

std::vector<LandmarkError> landmark_errors(const LandmarkOptions& options) {
  const int64_t N = options.tokens, D = options.dim;
  check<ConfigError>(N >= 1 && D >= 1 && options.draws >= 2,
                     "landmarks: expected at least 1 token, 1 dimension and 2 draws, got ", N, ", ",
                     D, " and ", options.draws);
  std::vector<int64_t> sizes = options.landmarks;
  if (sizes.empty())
    for (int64_t m = 1; m <= std::min(N, 2 * D); ++m) sizes.push_back(m);
  for (const int64_t m : sizes)
    check<ConfigError>(m >= 1 && m <= N, "landmarks: expected 1 to ", N, " landmarks, got ", m);
  const double std = options.norm > 0 ? options.norm / std::sqrt(static_cast<double>(D)) : 1.0;
  // errors[target][size][draw]
  const std::vector<std::vector<double>> of_target(sizes.size(),
                                                   std::vector<double>(options.draws));
  std::vector<std::vector<std::vector<double>>> errors(std::size(targets), of_target);
  parallel_for(options.draws, 1, [&](int64_t begin, int64_t end) {
    for (int64_t draw = begin; draw < end; ++draw) {
      const Generator generator = Generator(options.seed).fork("landmarks").fork(draw);
      Tensor q = Tensor::empty({N, D}, DType::f64), k = Tensor::empty({N, D}, DType::f64);
      fill_normal(q, generator.fork("q"), 0, std);
      fill_normal(k, generator.fork("k"), 0, std);
      for (size_t t = 0; t < std::size(targets); ++t) {
        const Tensor S = kernel(targets[t], q, k);
        for (size_t i = 0; i < sizes.size(); ++i) {
          RandomStream random(generator.fork("landmarks").fork(i));
          errors[t][i][draw] = error_of(targets[t], S, q, k, draw_subset(random, N, sizes[i]));
        }
      }
    }
  });
  std::vector<LandmarkError> out;
  for (size_t t = 0; t < std::size(targets); ++t)
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::vector<double>& of = errors[t][i];
      const auto exact = std::count_if(of.begin(), of.end(), [](double e) { return e <= 1e-6; });
      out.push_back({targets[t], sizes[i], estimate(of), quantile(of, 0.1), quantile(of, 0.5),
                     quantile(of, 0.9),
                     static_cast<double>(exact) / static_cast<double>(of.size())});
    }
  return out;
}

}  // namespace longhand::attention::analysis
