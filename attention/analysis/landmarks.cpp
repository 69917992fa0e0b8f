#include "longhand/attention/analysis/landmarks.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/bases/landmarks.h"
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

Tensor columns_of(const Tensor& x, const std::vector<int64_t>& which) {
  return rows_of(x.transpose(0, 1), which).transpose(0, 1).contiguous();
}

// landmark_error(), given S, the kernel of all pairs.
double error_of(LandmarkTarget target, const Tensor& S, const Tensor& q, const Tensor& k,
                const std::vector<int64_t>& J) {
  constexpr double tolerance = 1e-10;
  if (target == LandmarkTarget::nystrom) {
    const Tensor Q = rows_of(q, J), K = rows_of(k, J);
    const Tensor inverse = pseudo_inverse(kernel(target, Q, K), tolerance);
    return relative_error(product(product(kernel(target, q, K), inverse), kernel(target, Q, k)), S);
  }
  const Tensor C = columns_of(S, J), R = rows_of(S, J);
  return relative_error(product(product(C, pseudo_inverse(columns_of(R, J), tolerance)), R), S);
}

}  // namespace

std::string name_of(LandmarkTarget target) {
  constexpr const char* names[] = {"linear", "exponential", "softmax", "nystrom"};
  return names[static_cast<size_t>(target)];
}

double landmark_error(LandmarkTarget target, const Tensor& q, const Tensor& k,
                      const std::vector<int64_t>& landmarks) {
  return error_of(target, kernel(target, q, k), q, k, landmarks);
}

std::vector<LandmarkError> landmark_errors(const LandmarkOptions& options,
                                           std::span<const HeadInputs> heads) {
  const int64_t N = heads.empty() ? options.tokens : heads[0].length();
  const int64_t D = heads.empty() ? options.dim : heads[0].dim();
  check<ConfigError>(N >= 1 && D >= 1 && options.draws >= 2,
                     "landmarks: expected at least 1 token, 1 dimension and 2 draws, got ", N, ", ",
                     D, " and ", options.draws);
  std::vector<int64_t> sizes = options.landmarks;
  if (sizes.empty())
    for (int64_t m = 1; m <= std::min(N, 2 * D); ++m) sizes.push_back(m);
  for (const int64_t m : sizes)
    check<ConfigError>(m >= 1 && m <= N, "landmarks: expected 1 to ", N, " landmarks, got ", m);
  const double std = options.norm > 0 ? options.norm / std::sqrt(static_cast<double>(D)) : 1.0;
  std::vector<LandmarkError> out;
  for (const LandmarkTarget target : targets)
    for (const int64_t m : sizes) out.push_back({.target = target, .landmarks = m});
  std::vector<std::vector<double>> errors(out.size(), std::vector<double>(options.draws));
  parallel_for_each(options.draws, 1, [&](int64_t draw) {
    const Generator generator = Generator(options.seed).fork("landmarks").fork(draw);
    Tensor q, k;
    if (heads.empty()) {
      q = Tensor::empty({N, D}, DType::f64), k = Tensor::empty({N, D}, DType::f64);
      fill_normal(q, generator.fork("q"), 0, std);
      fill_normal(k, generator.fork("k"), 0, std);
    } else {
      const HeadInputs& head = heads[static_cast<size_t>(draw % std::ssize(heads))];
      q = head.q.reshape({N, D}), k = head.k.reshape({N, D});
    }
    Tensor S;
    for (size_t e = 0; e < out.size(); ++e) {
      const size_t i = e % sizes.size();
      if (i == 0) S = kernel(out[e].target, q, k);
      RandomStream random(generator.fork("landmarks").fork(i));
      errors[e][draw] = error_of(out[e].target, S, q, k, draw_subset(random, N, sizes[i]));
    }
  });
  for (size_t e = 0; e < out.size(); ++e) {
    const auto quantile_of = [&](double p) { return quantile(errors[e], p); };
    out[e].mean = estimate(errors[e]);
    out[e].low = quantile_of(0.1), out[e].median = quantile_of(0.5), out[e].high = quantile_of(0.9);
    const auto exact = std::ranges::count_if(errors[e], [](double error) { return error <= 1e-6; });
    out[e].exact = static_cast<double>(exact) / static_cast<double>(options.draws);
  }
  return out;
}

}  // namespace longhand::attention::analysis
