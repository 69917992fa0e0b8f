#include "longhand/attention/bases/landmarks.h"

#include <algorithm>
#include <numeric>

#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// Writes the weights of the mean of each cluster: `count` rows of `tokens` weights; nothing if
// `weights` is null. The row of an empty cluster is unchanged.
template <class T>
void weigh_clusters(const std::vector<int64_t>& members, int64_t count, int64_t tokens,
                    T* weights) {
  if (!weights) return;
  std::vector<int64_t> sizes(count, 0);
  for (const int64_t c : members) ++sizes[c];
  for (int64_t c = 0; c < count; ++c)
    if (sizes[c]) std::fill_n(weights + c * tokens, tokens, T{0});
  for (size_t j = 0; j < members.size(); ++j)
    weights[members[j] * tokens + static_cast<int64_t>(j)] =
        T{1} / static_cast<T>(sizes[members[j]]);
}

// The means (count, D) of clusters of x (n, D), with stride `step` between tokens; the mean of an
// empty cluster is unchanged.
template <class T>
void update_means(const std::vector<int64_t>& members, const T* x, int64_t step, int64_t count,
                  int64_t D, std::vector<T>& means) {
  std::vector<int64_t> sizes(count, 0);
  for (const int64_t c : members) {
    if (sizes[c]++ == 0) std::fill_n(means.begin() + c * D, D, T{0});
  }
  for (size_t j = 0; j < members.size(); ++j)
    for (int64_t d = 0; d < D; ++d)
      means[members[j] * D + d] += x[static_cast<int64_t>(j) * step + d];
  for (int64_t c = 0; c < count; ++c)
    for (int64_t d = 0; sizes[c] > 0 && d < D; ++d) means[c * D + d] /= static_cast<T>(sizes[c]);
}

// Clusters x (n, D), with stride `step` between tokens. Returns the cluster of each token.
template <class T>
std::vector<int64_t> cluster_head(const T* x, int64_t step, int64_t n, int64_t D, int64_t count,
                                  int64_t steps, int64_t tokens, T* weights) {
  std::vector<int64_t> members(n), next(n);
  const std::vector<int64_t> begin = segments(n, count);
  for (int64_t c = 0; c < count; ++c)
    std::fill(members.begin() + begin[c], members.begin() + begin[c + 1], c);
  weigh_clusters(members, count, tokens, weights);
  constexpr int64_t together = 64;  // tokens
  std::vector<T> means(count * D), near(together * count);
  for (int64_t round = 0; round < steps; ++round) {
    update_means(members, x, step, count, D, means);
    // |x - c|² = |x|² - 2 (x·c - |c|²/2): the nearest mean has the largest x·c - |c|²/2.
    std::vector<T> columns(D * count), halves(count);
    const auto none = static_cast<int32_t>(count);
    kernels::transpose_into<T>(count, D, means.data(), D, T{1}, columns.data(), count, false);
    simd([&] {
      for (int64_t c = 0; c < count; ++c)
        halves[c] = kernels::row_sum_of_squares(means.data() + c * D, D) / 2;
    });
    for (int64_t first = 0; first < n; first += together) {
      const int64_t some = std::min(together, n - first);
      kernels::gemm_tile<T>(some, count, D, {x + first * step, step, 1}, columns.data(), count,
                            near.data(), count, false);
      simd([&] {
        for (int64_t j = 0; j < some; ++j) {
          T* const row = near.data() + j * count;
          for (int64_t c = 0; c < count; ++c) row[c] -= halves[c];
          const T largest = kernels::row_max(row, count);
          int32_t nearest = none;
          for (int32_t c = 0; c < none; ++c)
            nearest = std::min(nearest, row[c] == largest ? c : none);
          next[first + j] = nearest < none ? nearest : 0;  // any cluster for NaN
        }
      });
    }
    if (next == members) break;
    members = next;
    weigh_clusters(members, count, tokens, weights);
  }
  return members;
}

}  // namespace

std::vector<int64_t> segments(int64_t n, int64_t count) {
  std::vector<int64_t> begin;
  for (int64_t i = 0; i <= count; ++i)
    begin.push_back(i * (n / count) + std::max<int64_t>(0, i - (count - n % count)));
  return begin;
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

std::vector<int32_t> landmark_counts(const std::vector<int32_t>& lengths, int64_t m) {
  std::vector<int32_t> counts;
  for (const int32_t n : lengths)
    counts.push_back(std::clamp<int32_t>(n, 1, static_cast<int32_t>(m)));
  return counts;
}

Tensor segment_weights(const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts,
                       int64_t m, int64_t first, int64_t tokens, DType dtype) {
  Tensor W = Tensor::zeros({static_cast<int64_t>(lengths.size()), 1, m, tokens}, dtype);
  if (is_dry()) return W;
  dispatch_float(dtype, [&]<class T>() {
    for (size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] == 0) continue;
      const std::vector<int64_t> begin = segments(lengths[b], counts[b]);
      T* row = W.data<T>() + static_cast<int64_t>(b) * m * tokens;
      for (int64_t i = 0; i < counts[b]; ++i, row += tokens) {
        const T weight = T{1} / static_cast<T>(begin[i + 1] - begin[i]);
        const auto in_row = [&](int64_t at) { return std::clamp<int64_t>(at - first, 0, tokens); };
        std::fill(row + in_row(begin[i]), row + in_row(begin[i + 1]), weight);
      }
    }
  });
  return W;
}

Variable segment_means(const Variable& x, const std::vector<int32_t>& lengths,
                       const std::vector<int32_t>& counts, int64_t m) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2), D = x.size(3);
  if (N % m == 0 && *std::min_element(lengths.begin(), lengths.end()) == N)
    return mean(reshape(x, {B, m, N / m, H, D}), {2});
  const Variable W(segment_weights(lengths, counts, m, 0, N, x.dtype()));
  return transpose(matmul(W, transpose(x, 1, 2)), 1, 2);
}

Clusters cluster(const Tensor& x, const std::vector<int32_t>& lengths,
                 const std::vector<int32_t>& counts, int64_t m, int64_t steps, bool with_means) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2), D = x.size(3);
  const Tensor dense = x.contiguous();
  Clusters out{with_means ? Tensor::zeros({B, H, m, N}, x.dtype()) : Tensor(),
               Tensor::zeros({B, H, N}, DType::i32)};
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for(B * H, 1, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) {
        const size_t b = lengths.size() == 1 ? 0 : i / H;
        const std::vector<int64_t> members =
            cluster_head(dense.data<T>() + i / H * N * H * D + i % H * D, H * D,
                         static_cast<int64_t>(lengths[b]), D, counts[b], steps, N,
                         with_means ? out.means.data<T>() + i * m * N : nullptr);
        std::copy(members.begin(), members.end(), out.members.data<int32_t>() + i * N);
      }
    });
  });
  return out;
}

}  // namespace longhand::attention
