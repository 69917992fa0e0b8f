// Yang et al. 2025 (arXiv 2505.16381), section 3. The tokens are cut into chunks of c, with rows Q,
// K, W (c, D). With tril and stril the parts of a matrix on and below, and strictly below, its
// diagonal, and B = diag(β), the UT transform of a chunk is
//
//   T = (I + stril(B W Wᵀ))^(-1) B,  Y = T stril(W Kᵀ),  Z = T W
//   S = Q Kᵀ - tril(Q Wᵀ) Y       S_ij = q_iᵀ H_i … H_(j+1) k_j for j <= i of the chunk
//   Q' = Q - tril(Q Wᵀ) Z         q'_i = q_iᵀ H_i … H_first
//   K' = K - Yᵀ W                 k'_j = H_last … H_(j+1) k_j
//   P = I - Wᵀ Z                  H_last … H_first
//
// and the score of query i of chunk n and key j of chunk m < n is q'_iᵀ P_(n-1) … P_(m+1) k'_j. A
// block of queries visits earlier chunks from the last to the first, multiplied by each P: X_(n-1)
// = Q'_n, X_(m-1) = X_m P_m. Softmax and its gradients are as in softmax_attention.cpp. The
// backward pass recomputes all X_m of the queries and visits them from the first chunk on:
//
//   dX_m = dS_m K'_m + dX_(m-1) P_mᵀ,  dP_m += X_mᵀ dX_(m-1),  dK'_m += dS_mᵀ X_m,  dQ'_n = dX_(n-1)
#include "longhand/attention/ops/path_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "longhand/attention/ops/inverse.h"
#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

using kernels::gemm_tile;

// Tensors (B H, chunks, …): S (c, c), rows (c, D), P - I (D, D), G (c) in f64 or undefined.
struct PathChunks {
  Tensor S, queries, keys, values, P, G;
};

template <class T>
class PathHead {
 public:
  PathHead(const PathChunks& x, double scale, bool gradients, Scratch& scratch)
      : x_(x),
        chunks_(x.S.size(1)),
        c_(x.S.size(2)),
        D_(x.P.size(2)),
        scale_(static_cast<T>(scale)),
        scores_(scratch.take<T>(c_ * c_)),
        transposed_(scratch.take<T>(std::max(c_, D_) * D_)),
        rows_(scratch.take<T>(c_ * D_ * (gradients ? chunks_ + 1 : 2))) {
    if (!gradients) return;
    dscores_ = scratch.take<T>(c_ * c_);
    carried_ = scratch.take<T>(2 * c_ * D_);
  }

  // Computes the result (c, D) and L (c) of the queries of chunk n of a head.
  void forward(int64_t head, int64_t n, T* out, T* log_sums) {
    std::vector<T>& m = top_;
    m.assign(static_cast<size_t>(c_), -std::numeric_limits<T>::infinity());
    std::fill_n(log_sums, c_, T{0});
    std::fill_n(out, c_ * D_, T{0});
    T *x = rows_, *next = rows_ + c_ * D_;
    std::copy_n(at(x_.queries, head, n), c_ * D_, x);
    for (int64_t key = n; key >= 0; --key) {
      compute_scores(head, n, key, x);
      simd([&, s = scores_, m = m.data()] {
        for (int64_t i = 0; i < c_; ++i) {
          T* const row = s + i * c_;
          const T most = std::max(m[i], kernels::row_max(row, c_)), shrink = math::exp(m[i] - most);
          for (int64_t j = 0; j < c_; ++j) row[j] = math::exp(row[j] - most);
          log_sums[i] = log_sums[i] * shrink + kernels::row_sum(row, c_);
          for (int64_t d = 0; d < D_; ++d) out[i * D_ + d] *= shrink;
          m[i] = most;
        }
      });
      gemm_tile<T>(c_, D_, c_, {scores_, c_, 1}, at(x_.values, head, key), D_, out, D_, true);
      if (key < n && key > 0) {
        pass_on(x, head, key, next);
        std::swap(x, next);
      }
    }
    for (int64_t i = 0; i < c_; ++i) {
      for (int64_t d = 0; d < D_; ++d) out[i * D_ + d] /= log_sums[i];
      log_sums[i] = m[static_cast<size_t>(i)] + std::log(log_sums[i]);
    }
  }

  // Adds the contributions of the queries of chunk n to the gradients `to`.
  void backward(int64_t head, int64_t n, const T* out, const T* log_sums, const T* dout,
                const PathChunks& to) {
    const auto x = [&](int64_t key) { return rows_ + key * c_ * D_; };  // X for this chunk of keys
    if (n > 0) std::copy_n(at(x_.queries, head, n), c_ * D_, x(n - 1));
    for (int64_t key = n - 1; key > 0; --key) pass_on(x(key), head, key, x(key - 1));
    T *of_x = carried_, *next = carried_ + c_ * D_;  // dX_(m-1), dX_m
    for (int64_t key = 0; key <= n; ++key) {
      compute_scores(head, n, key, x(key));
      transpose(at(x_.values, head, key), c_, D_);
      gemm_tile<T>(c_, c_, D_, {dout, D_, 1}, transposed_, c_, dscores_, c_, false);
      double* const dG = to.G.defined() ? at<double>(to.G, head, key) : nullptr;
      simd([&, s = scores_, ds = dscores_] {
        for (int64_t i = 0; i < c_; ++i) {
          const T delta = kernels::row_dot(out + i * D_, dout + i * D_, D_);
          for (int64_t j = i * c_; j < (i + 1) * c_; ++j) {
            s[j] = math::exp(s[j] - log_sums[i]);
            ds[j] = scale_ * s[j] * (ds[j] - delta);
          }
          if (dG)  // Σ_j ds_ij = 0
            for (int64_t j = 0; j < c_; ++j) dG[j] -= static_cast<double>(ds[i * c_ + j]);
        }
      });
      gemm_tile<T>(c_, D_, c_, {scores_, 1, c_}, dout, D_, at(to.values, head, key), D_, true);
      if (key == n) break;
      gemm_tile<T>(c_, D_, c_, {dscores_, 1, c_}, x(key), D_, at(to.keys, head, key), D_, true);
      gemm_tile<T>(c_, D_, c_, {dscores_, c_, 1}, at(x_.keys, head, key), D_, next, D_, false);
      if (key > 0) {
        gemm_tile<T>(D_, D_, c_, {x(key), 1, D_}, of_x, D_, at(to.P, head, key), D_, true);
        for (int64_t l = 0; l < c_ * D_; ++l) next[l] += of_x[l];
        transpose(at(x_.P, head, key), D_, D_);
        gemm_tile<T>(c_, D_, D_, {of_x, D_, 1}, transposed_, D_, next, D_, true);
      }
      std::swap(of_x, next);
    }
    std::copy_n(dscores_, c_ * c_, at(to.S, head, n));
    if (n > 0)
      std::copy_n(of_x, c_ * D_, at(to.queries, head, n));
    else
      std::fill_n(at(to.queries, head, n), c_ * D_, T{0});
  }

 private:
  template <class U = T>
  U* at(const Tensor& x, int64_t head, int64_t chunk) const {
    return const_cast<U*>(x.data<U>()) +
           (head * chunks_ + chunk) * (x.numel() / (x.size(0) * chunks_));
  }
  // transposed_ = xᵀ, for x (m, k).
  void transpose(const T* x, int64_t m, int64_t k) {
    kernels::transpose_into<T>(m, k, x, k, T{1}, transposed_, m, false);
  }
  // next = x P
  void pass_on(const T* x, int64_t head, int64_t chunk, T* next) {
    gemm_tile<T>(c_, D_, D_, {x, D_, 1}, at(x_.P, head, chunk), D_, next, D_,
                 kernels::Addend<T>{x, D_});
  }
  // The scores of the queries of chunk n, whose rows at this chunk of keys are x.
  void compute_scores(int64_t head, int64_t n, int64_t key, const T* x) {
    if (key == n) {
      std::copy_n(at(x_.S, head, n), c_ * c_, scores_);
    } else {
      transpose(at(x_.keys, head, key), c_, D_);
      gemm_tile<T>(c_, c_, D_, {x, D_, 1}, transposed_, c_, scores_, c_, false);
    }
    const double* const of_query = x_.G.defined() ? at<double>(x_.G, head, n) : nullptr;
    const double* const of_key = x_.G.defined() ? at<double>(x_.G, head, key) : nullptr;
    simd([&, s = scores_] {
      for (int64_t i = 0; i < c_; ++i)
        for (int64_t j = 0; j < c_; ++j) {
          T& score = s[i * c_ + j];
          if (of_query) score += static_cast<T>(of_query[i] - of_key[j]);
          score = key == n && j > i ? -std::numeric_limits<T>::infinity() : score * scale_;
        }
    });
  }

  const PathChunks& x_;
  int64_t chunks_, c_, D_;
  T scale_;
  T *const scores_, *const transposed_, *const rows_;
  T *dscores_ = nullptr, *carried_ = nullptr;
  std::vector<T> top_;
};

PathChunks chunks_of(std::span<const Tensor> x) {
  return {x[0], x[1], x[2], x[3], x[4], x.size() > 5 ? x[5] : Tensor()};
}

// The softmax over all chunks: (B H, chunks, c, D).
Variable over_chunks(const Variables& operands, double scale) {
  std::vector<Tensor> values;
  for (const Variable& x : operands) values.push_back(x.value().contiguous());
  const PathChunks x = chunks_of(values);
  const int64_t heads = x.S.size(0), chunks = x.S.size(1), c = x.S.size(2);
  Tensor out = Tensor::empty(x.queries.shape(), x.queries.dtype()),
         log_sums = Tensor::empty({heads, chunks, c}, x.queries.dtype());
  dispatch_float(out.dtype(), [&]<class T>() {
    const int64_t of_chunk = c * out.size(3);
    parallel_for_each(heads * chunks, 1, [&](int64_t r) {
      Workspace<PathHead<T>> work(x, scale, false);
      work->forward(r / chunks, r % chunks, out.data<T>() + r * of_chunk,
                    log_sums.data<T>() + r * c);
    });
  });
  return record(
      "path_attention", out, operands, [=](const Tensor& grad, std::span<GradSlot> slots) {
        const Tensor dout = grad.contiguous();
        std::vector<Tensor> gradients;
        for (const Tensor& value : values)
          gradients.push_back(Tensor::zeros(value.shape(), value.dtype()));
        const PathChunks to = chunks_of(gradients);
        dispatch_float(out.dtype(), [&]<class T>() {
          const int64_t of_chunk = c * out.size(3);
          parallel_for_each(heads, 1, [&](int64_t head) {
            Workspace<PathHead<T>> work(x, scale, true);
            for (int64_t n = 0; n < chunks; ++n) {
              const int64_t r = head * chunks + n;
              work->backward(head, n, out.data<T>() + r * of_chunk, log_sums.data<T>() + r * c,
                             dout.data<T>() + r * of_chunk, to);
            }
          });
        });
        for (size_t i = 0; i < slots.size(); ++i)
          if (slots[i]) slots[i].take(gradients[i]);
      });
}

// (c, c) u8, 1 on and below the diagonal, or with strict only below.
Tensor lower(int64_t c, bool strict) {
  Tensor out = Tensor::empty({c, c}, DType::u8);
  if (is_dry()) return out;
  for (int64_t i = 0; i < c; ++i)
    for (int64_t j = 0; j < c; ++j) out.data<uint8_t>()[i * c + j] = j < i || (!strict && j == i);
  return out;
}

}  // namespace

int64_t path_chunk(int64_t N, int64_t D) {
  const auto products = [&](int64_t c) {  // per query: in its own chunk, and by the P before it
    const double tokens = static_cast<double>(c), d = static_cast<double>(D),
                 chunks = std::ceil(static_cast<double>(N) / tokens);
    return tokens * (7 * d + 2 * tokens) + d * d * (chunks - 1) * (chunks - 2) / (2 * chunks);
  };
  int64_t best = std::min<int64_t>(64, N);
  for (const int64_t c : {32, 16})
    if (c < best && products(c) < products(best)) best = c;
  return best;
}

Variable path_attention(const PathInputs& in) {
  const Shape& shape = in.q.shape();
  check<ShapeError>(shape.rank() == 4 && shape.numel() > 0,
                    "path_attention: expected q (B, N, H, D) that is not empty, got ", shape);
  const int64_t B = shape[0], N = shape[1], H = shape[2], D = shape[3];
  const auto expect = [&](const char* name, const Variable& x, const Shape& expected) {
    tile::check_operand("path_attention", name, x.value(), in.q.dtype(), expected);
  };
  expect("k", in.k, shape), expect("v", in.v, shape), expect("w", in.w, shape);
  expect("beta", in.beta, {B, N, H});
  if (in.log_decay.defined()) expect("log_decay", in.log_decay, {B, N, H});
  const int64_t c = path_chunk(N, D), chunks = (N + c - 1) / c;
  // (B, N, H, E) as (B H, chunks, c, E), padded with zeros after the last token.
  const auto cut = [&](const Variable& x) {
    const int64_t E = x.size(3);
    const Variable whole =
        chunks * c == N
            ? x
            : concat({x, Variable(Tensor::zeros({B, chunks * c - N, H, E}, x.dtype()))}, 1);
    return reshape(contiguous(permute(whole, {0, 2, 1, 3})), {B * H, chunks, c, E});
  };
  const auto transposed = [](const Variable& x) { return transpose(x, 2, 3); };
  const Tensor below = lower(c, true), upto = lower(c, false);
  const Variable Q = cut(in.q), K = cut(in.k), W = cut(in.w), beta = cut(unsqueeze(in.beta, 3));
  const Variable T = lower_inverse(matmul(W, transposed(W)) * beta) * transposed(beta);
  const Variable A = where(upto, matmul(Q, transposed(W)), 0.0),
                 Y = matmul(T, where(below, matmul(W, transposed(K)), 0.0)), Z = matmul(T, W);
  Variables operands{matmul(Q, transposed(K)) - matmul(A, Y), Q - matmul(A, Z),
                     K - matmul(transposed(Y), W), cut(in.v), matmul(transposed(W), Z, -1)};
  if (in.log_decay.defined()) {
    const Variable g = cast(cut(unsqueeze(in.log_decay, 3)), DType::f64);
    operands.push_back(cumsum(reshape(g, {B * H, chunks * c}), 1));
    operands.back() = reshape(operands.back(), {B * H, chunks, c});
  }
  const Variable out = over_chunks(operands, 1 / std::sqrt(static_cast<double>(D)));
  return contiguous(slice(permute(reshape(out, {B, H, chunks * c, D}), {0, 2, 1, 3}), 1, 0, N));
}

void reflect_keys(const Tensor& keys, const Tensor& w, const Tensor& beta) {
  const int64_t H = keys.size(1), t = keys.size(2), D = keys.size(3);
  check<ShapeError>(keys.strides()[3] == 1 || D == 1,
                    "reflect_keys: expected keys with contiguous rows, got strides ",
                    keys.strides());
  const Tensor rows = w.contiguous(), strengths = beta.contiguous();
  dispatch_float(keys.dtype(), [&]<class T>() {
    parallel_for_each(keys.size(0) * H, std::max<int64_t>(1, 16384 / (t * D)), [&](int64_t r) {
      simd([=, step = keys.strides()[2], strength = strengths.data<T>()[r],
            of = rows.data<T>() + r * D,
            first = const_cast<T*>(keys.data<T>()) + r / H * keys.strides()[0] +
                    r % H * keys.strides()[1]] {
        T dots[kernels::rows_together];
        for (int64_t begin = 0; begin < t; begin += kernels::rows_together) {
          const int64_t count = std::min(kernels::rows_together, t - begin);
          T* const some = first + begin * step;
          kernels::lane_sums<T>(
              count, D, [=](int64_t j, int64_t d) { return some[j * step + d] * of[d]; }, dots);
          for (int64_t j = 0; j < count; ++j) {
            T* const key = some + j * step;
            const T factor = strength * dots[j];
#pragma GCC ivdep
            for (int64_t d = 0; d < D; ++d) key[d] -= factor * of[d];
          }
        }
      });
    });
  });
}

}  // namespace longhand::attention
