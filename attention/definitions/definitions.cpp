#include "longhand/attention/definitions/definitions.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"

namespace longhand::attention::definitions {
namespace {

Variable heads(const Variable& x) { return transpose(x, 1, 2); }  // (B, H, N, D)
Variable transposed(const Variable& x) { return transpose(x, -2, -1); }
Variable ones(const Shape& shape, DType dtype) { return Variable(Tensor::full(shape, 1, dtype)); }
Variable zeros_like(const Variable& x) { return Variable(Tensor::zeros(x.shape(), x.dtype())); }

double root_of(const Variable& x) { return std::sqrt(static_cast<double>(x.size(-1))); }
Variable half_square(const Variable& x) { return sum(square(x), {-1}, true) / 2; }

// W x for each head, for x (B, N, H, D) and W (m, D) or (H, m, D): (B, N, H, m).
Variable project(const Variable& x, const Variable& W) {
  return heads(matmul(heads(x), transposed(W)));
}
Variable only(const Tensor& visible, const Variable& weights) {
  return where(visible, weights, zeros_like(weights));
}
// The keys j < i before each of N queries.
Tensor earlier(int64_t N) {
  Tensor out = visible(N, N, {.causal = true}).clone();
  for (int64_t i = 0; i < N; ++i) out.slice(2, i, i + 1).slice(3, i, i + 1).fill(0);
  return out;
}
// x with 1 in place of 0, as a divisor: 0 / 0 gives 0.
Variable or_one(const Variable& x) {
  Tensor zero = Tensor::empty(x.shape(), DType::u8);
  const auto values = x.value().to_vector<double>();
  std::transform(values.begin(), values.end(), zero.data<uint8_t>(),
                 [](double y) { return y == 0; });
  return where(zero, ones(x.shape(), x.dtype()), x);
}
// 1 where an element of x is at least the count-th largest of its row.
Tensor highest(const Tensor& x, int64_t count) {
  Tensor out = Tensor::empty(x.shape(), DType::u8);
  const auto values = x.to_vector<double>();
  const int64_t M = x.size(-1);
  for (int64_t at = 0; at < x.numel(); ++at) {
    const double* const row = values.data() + at / M * M;
    out.data<uint8_t>()[at] =
        std::count_if(row, row + M, [&](double y) { return y > values[at]; }) < count;
  }
  return out;
}
// The means of x (B, H, N, D) over m segments, the shorter ones first.
Variable segment_means(const Variable& x, int64_t m) {
  const int64_t N = x.size(2), size = N / m, longer = N % m;
  Variables all;
  for (int64_t i = 0, begin = 0; i < m; ++i) {
    const int64_t end = begin + size + (i >= m - longer ? 1 : 0);
    all.push_back(longhand::mean(slice(x, 2, begin, end), {2}, true));
    begin = end;
  }
  return concat(all, 2);
}
// exp(-|x_i - y_j|² / (2 sigma² sqrt(D))) for (…, N, D) and (…, M, D).
Variable gaussian_kernel(const Variable& x, const Variable& y, double sigma) {
  const Variable s = matmul(x, transposed(y)) - half_square(x) - transposed(half_square(y));
  return exp(s / (sigma * sigma * root_of(x)));
}

}  // namespace

Tensor visible(int64_t queries, int64_t keys, const Visibility& what) {
  const auto lengths =
      what.lengths.defined() ? what.lengths.to_vector<int32_t>() : std::vector<int32_t>{};
  const int64_t B = std::max<int64_t>(1, static_cast<int64_t>(lengths.size()));
  Tensor out = Tensor::empty({B, 1, queries, keys}, DType::u8);
  if (is_dry()) return out;
  uint8_t* to = out.data<uint8_t>();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const bool real = lengths.empty() || (i < lengths[b] && j < lengths[b]);
        const bool near =
            what.window < 0 || i < what.globals || j < what.globals ||
            (std::abs(i - j) <= what.window * what.dilation && (i - j) % what.dilation == 0);
        *to++ = real && near && (!what.causal || j <= i);
      }
  return out;
}

Variable apply(const Variable& weights, const Variable& v) {
  return heads(matmul(weights, heads(v)));
}

Variable softmax(const Variable& q, const Variable& k, const Tensor& visible, double scale,
                 const Variable& bias) {
  Variable scores = matmul(heads(q), transposed(heads(k))) * (scale != 0 ? scale : 1 / root_of(q));
  if (bias.defined()) scores = scores + bias;
  return longhand::softmax(masked_scores(visible, scores));
}

Variable forgetting(const Variable& q, const Variable& k, const Variable& log_decay,
                    const Tensor& visible) {
  const Variable G = heads(unsqueeze(cumsum(log_decay, 1), 3));  // (B, H, N, 1)
  return softmax(q, k, visible, 0, G - transposed(G));
}

Variable path(const Variable& q, const Variable& k, const Variable& w, const Variable& beta,
              const Variable& log_decay, const Tensor& visible) {
  const int64_t N = q.size(1);
  // Row i of the scores: q_i with the keys j <= i, multiplied by H_(j+1), …, H_i.
  Variables rows;
  Variable keys;  // (B, H, tokens so far, D)
  for (int64_t i = 0; i < N; ++i) {
    const auto token = [&](const Variable& x) { return heads(slice(x, 1, i, i + 1)); };
    if (i > 0) {
      const Variable along = matmul(keys, transposed(token(w)));  // w·k_j
      keys = keys - along * token(w) * heads(unsqueeze(slice(beta, 1, i, i + 1), 3));
    }
    keys = i > 0 ? concat({keys, token(k)}, 2) : token(k);
    Variable row = matmul(token(q), transposed(keys));  // (B, H, 1, i + 1)
    if (i + 1 < N)
      row = concat({row, Variable(Tensor::zeros({q.size(0), q.size(2), 1, N - i - 1}, q.dtype()))},
                   3);
    rows.push_back(row);
  }
  Variable scores = concat(rows, 2);
  if (log_decay.defined()) {
    const Variable G = heads(unsqueeze(cumsum(log_decay, 1), 3));
    scores = scores + G - transposed(G);
  }
  return longhand::softmax(masked_scores(visible, scores / root_of(q)));
}

Variable half(const Variable& x, int64_t s) { return slice(x, 3, s, x.size(3), 2); }

Variable differential(const Variable& q, const Variable& k, double lambda, const Tensor& visible) {
  return softmax(half(q, 0), half(k, 0), visible) -
         softmax(half(q, 1), half(k, 1), visible) * lambda;
}

Variable topk(const Variable& q, const Variable& k, int64_t count, const Tensor& visible) {
  const Variable s = masked_scores(visible, matmul(heads(q), transposed(heads(k))) / root_of(q));
  return longhand::softmax(masked_scores(highest(s.value(), count), s));
}

Variable moba(const Variable& q, const Variable& k, int64_t block, int64_t count,
              const Tensor& visible) {
  const int64_t N = q.size(1), rows = q.size(0) * q.size(2) * N, blocks = (N + block - 1) / block;
  Variables means;
  for (int64_t c = 0; c < blocks; ++c)
    means.push_back(
        longhand::mean(slice(heads(k), 2, c * block, std::min(N, (c + 1) * block)), {2}, true));
  const auto scores = matmul(heads(q), transposed(concat(means, 2))).value().to_vector<double>();
  Tensor keep = Tensor::empty({q.size(0), q.size(2), N, N}, DType::u8);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t j = 0; j < N; ++j) {
      const double* const s = scores.data() + row * blocks;
      const int64_t own = row % N / block, c = j / block;
      keep.data<uint8_t>()[row * N + j] =
          c == own ||
          (c < own && std::count_if(s, s + own, [=](double y) { return y > s[c]; }) < count - 1);
    }
  return longhand::softmax(masked_scores(
      keep, masked_scores(visible, matmul(heads(q), transposed(heads(k))) / root_of(q))));
}

Variable reformer(const Variable& q, const Tensor& R, int64_t window, const Tensor& visible) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), rounds = R.size(1);
  const auto seen = [&](int64_t b, int64_t i, int64_t j) {
    return visible.select(0, visible.size(0) == 1 ? 0 : b).select(0, 0).at({i, j}) != 0;
  };
  Tensor keys = Tensor::zeros({B, H, N, N}, DType::u8);
  for (int64_t r = 0; r < rounds; ++r) {
    const Variable u = project(q.detach(), Variable(R.select(1, r).to(q.dtype())));
    const Tensor hashes = concat({u, -u}, 3).value().contiguous();  // (B, N, H, buckets)
    const int64_t buckets = hashes.size(3);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h) {
        std::vector<std::vector<int64_t>> members(static_cast<size_t>(buckets));
        for (int64_t i = 0; i < N; ++i) {
          if (!seen(b, i, i)) continue;  // padding
          const auto row = hashes.select(0, b).select(0, i).select(0, h).to_vector<double>();
          members[std::max_element(row.begin(), row.end()) - row.begin()].push_back(i);
        }
        for (const auto& bucket : members)
          for (size_t s = 0; s < bucket.size(); ++s)
            for (size_t t = 0; t < bucket.size(); ++t)
              if (s != t && std::max(s, t) - std::min(s, t) <= static_cast<size_t>(window) &&
                  seen(b, bucket[s], bucket[t]))
                keys.data<uint8_t>()[((b * H + h) * N + bucket[s]) * N + bucket[t]] = 1;
      }
  }
  for (int64_t row = 0; row < B * H * N; ++row) {
    uint8_t* const of = keys.data<uint8_t>() + row * N;
    const int64_t b = row / N / H, i = row % N;
    if (std::count(of, of + N, 1) == 0) of[i] = seen(b, i, i);
  }
  const Variable mean_square = longhand::mean(square(q), {3}, true);
  return softmax(q, q / sqrt(mean_square + 1e-6), keys);
}

Variable clustered(const Variable& q, const Variable& k, const Tensor& clusters, int64_t topk) {
  const int64_t B = clusters.size(0), H = clusters.size(1), N = clusters.size(2);
  // same (B, H, N, N): 1 where two queries are in one cluster.
  const auto ids = clusters.to_vector<int32_t>();
  Tensor same = Tensor::empty({B, H, N, N}, q.dtype());
  dispatch_float(q.dtype(), [&]<class T>() {
    for (int64_t at = 0; at < same.numel(); ++at)
      same.data<T>()[at] = ids[at / N] == ids[at / N / N * N + at % N] ? T{1} : T{0};
  });
  const Variable means = matmul(Variable(same), heads(q)) / sum(Variable(same), {3}, true);
  const Variable A =
      longhand::softmax(matmul(means, transposed(heads(k))) / root_of(q));  // (B, H, N, M)
  if (topk == 0) return A;
  const Tensor best = highest(A.value(), topk);
  const Variable share = sum(only(best, A), {3}, true);
  return where(best, share * softmax(q, k, best), A);
}

Variable eva(const Variable& q, const Variable& k, int64_t window, int64_t chunk, bool causal) {
  const int64_t N = q.size(1), chunks = (N + chunk - 1) / chunk;
  Tensor block = Tensor::empty({1, 1, N, N + chunks}, DType::u8),
         member = Tensor::empty({1, 1, chunks, N}, DType::u8);
  for (int64_t i = 0; i < N; ++i) {
    const auto seen = [&](int64_t j) { return i / window == j / window && (!causal || j <= i); };
    const auto other = [&](int64_t n) {
      const int64_t of = n * chunk / window;
      return causal ? of < i / window : of != i / window;
    };
    for (int64_t j = 0; j < N; ++j) block.data<uint8_t>()[i * (N + chunks) + j] = seen(j);
    for (int64_t n = 0; n < chunks; ++n) {
      block.data<uint8_t>()[i * (N + chunks) + N + n] = other(n);
      member.data<uint8_t>()[n * N + i] = i / chunk == n;
    }
  }
  const Variable Q = heads(q), K = heads(k), C(member.to(q.dtype())), sizes = sum(C, {3}, true);
  const Variable q_mean = matmul(C, Q) / sizes, k_mean = matmul(C, K) / sizes;
  const double scale = 1 / std::sqrt(root_of(q));
  const Variable omega = scale * (q_mean + k_mean), Y = scale * K;
  const Variable shares = longhand::softmax(
      masked_scores(member, matmul(omega, transposed(Y)) - transposed(half_square(Y))));
  const Variable of_keys = matmul(Q, transposed(K)) / root_of(q),
                 of_chunks = matmul(Q, transposed(k_mean)) / root_of(q) + transposed(log(sizes));
  const Variable P = longhand::softmax(masked_scores(block, concat({of_keys, of_chunks}, 3)));
  return slice(P, 3, 0, N) + matmul(slice(P, 3, N, N + chunks), shares);
}

Variable lara(const Variable& q, const Variable& k, int64_t landmarks, bool balance) {
  const double scale = 1 / std::sqrt(root_of(q)), C = static_cast<double>(landmarks);
  const Variable X = scale * heads(q), Y = scale * heads(k);
  const Variable x_mean = segment_means(X, landmarks), mu = x_mean + segment_means(Y, landmarks);
  const Variable xi = exp(matmul(mu, transposed(Y)) - transposed(half_square(Y)));  // (B, H, C, N)
  // N(μ_c; μ_c', I) / N(μ_c; 0, I), and the same for its own density.
  const Variable densities = exp(matmul(mu, transposed(mu)) - transposed(half_square(mu)));
  const Variable own = exp(half_square(mu));
  Variable alpha = transposed(own / sum(densities, {3}, true));
  if (!balance) {
    const Variable t = longhand::softmax(matmul(X, transposed(x_mean)));
    alpha = relu(alpha + t - 1 / C - 1e-8) + 1e-8;
  }
  const Variable sums = sum(xi, {3}, true);
  const Variable w = alpha * exp(matmul(X, transposed(mu))) * transposed(sums / own);
  return matmul(w / sum(w, {3}, true), xi / sums);
}

Variable scatterbrain(const Variable& q, const Variable& k, const Variable& features_q,
                      const Variable& features_k, int64_t window, const Tensor& visible_keys) {
  const Tensor near = visible(q.size(1), k.size(1), {.window = window - 1});
  const Variable exact = exp(matmul(heads(q), transposed(heads(k))) / root_of(q)),
                 rest = matmul(heads(features_q), transposed(heads(features_k)));
  const Variable a = only(visible_keys, where(near, exact, rest)), sums = sum(a, {3}, true);
  return a / or_one(sums);
}

Variable latent(const Variable& q, const Variable& k, const Variable& L, const Tensor& visible) {
  const Variable to_latents = matmul(heads(q), transposed(L)) / root_of(q);  // (B, H, N, m)
  const Variable of_latents = matmul(L, transposed(heads(k))) / root_of(q);  // (B, H, m, M)
  const Tensor seen = visible.slice(2, 0, 1);  // every query sees the same keys
  return matmul(longhand::softmax(to_latents), longhand::softmax(masked_scores(seen, of_latents)));
}

Variable linformer(const Variable& q, const Variable& k, const Variable& E, const Variable& F) {
  const Variable mixed = matmul(E, heads(k));  // (B, H, p, D)
  return matmul(longhand::softmax(matmul(heads(q), transposed(mixed)) / root_of(q)), F);
}

Variable nystrom(const Variable& q, const Variable& k, int64_t landmarks, int64_t iterations) {
  const auto scores = [&](const Variable& x, const Variable& y) {
    return longhand::softmax(matmul(x, transposed(y)) / root_of(q));
  };
  const Variable Q = heads(q), K = heads(k), Q_means = segment_means(Q, landmarks),
                 K_means = segment_means(K, landmarks);
  const Variable A = scores(Q_means, K_means);
  const Variable start = transposed(A) / max(sum(A, {-2}, true), -1, true);
  const Variable Z = iterations ? iterative_pinv(A, start, iterations) : pinv(A);
  return matmul(matmul(scores(Q, K_means), Z), scores(Q_means, K));
}

Variable svd(const Variable& q, const Variable& k, int64_t rank, const Tensor& visible) {
  const Variable P = softmax(q, k, visible);
  const int64_t B = P.size(0), H = P.size(1), r = std::min({rank, P.size(2), P.size(3)});
  Tensor U = Tensor::empty({B, H, P.size(2), r}, P.dtype());
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      copy_into(U.select(0, b).select(0, h),
                longhand::svd(P.value().select(0, b).select(0, h).to(DType::f64).contiguous())
                    .u.slice(1, 0, r)
                    .to(P.dtype()));
  const Variable Ur(U);
  return matmul(Ur, matmul(transposed(Ur), P));
}

Variable of_features(const Variable& features_q, const Variable& features_k,
                     const Tensor& visible) {
  const Variable weights = only(visible, matmul(heads(features_q), transposed(heads(features_k))));
  const Variable sums = sum(weights, {3}, true);
  return weights / or_one(sums);
}

Variable linear_features(const std::string& map, const Variable& x, int64_t max_length,
                         const Variable& A) {
  if (map == "elu1") return elu(x) + 1;
  if (map == "relu") return relu(x);
  if (map == "squared_relu") return square(relu(x));
  if (map == "exp") return exp(x);
  if (map == "taylor2") {
    const Variable y = x / std::sqrt(root_of(x)),
                   products = unsqueeze(y, 4) * unsqueeze(y, 3) / std::numbers::sqrt2;
    Shape one = x.shape(), all = x.shape();
    one[3] = 1, all[3] = x.size(3) * x.size(3);
    return concat({ones(one, x.dtype()), y, reshape(products, all)}, 3);
  }
  if (map == "cosformer") {
    Tensor angles = Tensor::empty({1, x.size(1), 1, 1}, DType::f64);
    for (int64_t i = 0; i < x.size(1); ++i)
      angles.data<double>()[i] =
          std::numbers::pi * static_cast<double>(i + 1) / (2 * static_cast<double>(max_length));
    const Variable waves = cos_sin(Variable(angles.to(x.dtype())));  // (1, N, 1, 2)
    return concat({relu(x) * slice(waves, 3, 0, 1), relu(x) * slice(waves, 3, 1, 2)}, 3);
  }
  check<ConfigError>(map == "hedgehog", "definitions: unknown feature map \"", map, "\"");
  const Variable u = project(x, A);
  return longhand::softmax(concat({u, -u}, 3));
}

Variable dpfp_features(const Variable& x, int64_t nu) {
  const Variable r = concat({relu(x), relu(-x)}, 3);
  const int64_t n = r.size(3);
  Variables all;
  for (int64_t j = 1; j <= nu; ++j)
    all.push_back(r * concat({slice(r, 3, j, n), slice(r, 3, 0, j)}, 3));
  return concat(all, 3);
}

Variable rebased_features(const Variable& x, const Variable& scale, const Variable& shift) {
  const Variable centred = x - longhand::mean(x, {3}, true);
  const Variable y =
      centred / sqrt(longhand::mean(square(centred), {3}, true) + 1e-5) * scale + shift;
  Shape all = x.shape();
  all[3] = x.size(3) * x.size(3);
  return reshape(unsqueeze(y, 4) * unsqueeze(y, 3), all);
}

Variable t2r_features(const Variable& x, const Variable& W, const Variable& b) {
  return relu(project(x, W) + b);
}

Variable gaussian_features(const Variable& x, const Variable& W, const Variable& phases) {
  const Variable u = project(x, W);
  const int64_t m = u.size(3);
  return phases.defined() ? slice(cos_sin(u + phases), 3, 0, m) : cos_sin(u);
}

Variable performer_features(const std::string& kernel, const Variable& x_, const Variable& W,
                            double eps, const Variable& phases) {
  const Variable x = x_ / std::sqrt(root_of(x_)), u = project(x, W);
  if (kernel == "positive") return exp(u - half_square(x));
  if (kernel == "hyperbolic") return exp(concat({u, -u}, 3) - half_square(x));
  if (kernel == "trigonometric" || kernel == "trigonometric_bias")
    return exp(half_square(x)) * gaussian_features(x, W, phases);
  if (kernel == "relu") return relu(u) + eps;
  if (kernel == "exp") return exp(u) + eps;
  if (kernel == "gelu") return gelu(u) + eps;
  check<ConfigError>(kernel == "square", "definitions: unknown kernel \"", kernel, "\"");
  return square(u) + eps;
}

Variable efficient(const Variable& q, const Variable& k, const Tensor& visible) {
  const Variable K = heads(k), e = exp(K - max(K.detach(), 2, true));
  const Variable seen =
      only(visible, ones({K.size(0), K.size(1), q.size(1), k.size(1)}, q.dtype()));
  const Variable sums = matmul(seen, e);  // (B, H, N, D)
  const Variable rho = longhand::softmax(heads(q)) / or_one(sums);
  return only(visible, matmul(rho, transposed(e)));
}

Variable gaussian(const Variable& q, const Variable& k, const Tensor& visible, double sigma,
                  bool normalized) {
  const Variable weights = only(visible, gaussian_kernel(heads(q), heads(k), sigma));
  if (!normalized) return weights;
  const Variable scores = log(gaussian_kernel(heads(q), heads(k), sigma));
  return longhand::softmax(masked_scores(visible, scores));
}

Variable sigmoid(const Variable& q, const Variable& k, const Tensor& visible, double bias) {
  return only(visible,
              longhand::sigmoid(matmul(heads(q), transposed(heads(k))) / root_of(q) + bias));
}

Variable skyformer(const Variable& q, const Variable& k, const Variable& landmarks, double sigma,
                   double gamma) {
  const Variable Q = heads(q), K = heads(k), L = heads(landmarks);
  const Variable I = none(visible(L.size(2), L.size(2), {}), L.dtype());
  const Variable inverse = pinv(gaussian_kernel(L, L, sigma) + gamma * I);
  return matmul(matmul(gaussian_kernel(Q, L, sigma), inverse), gaussian_kernel(L, K, sigma));
}

Variable retention(const Variable& q, const Variable& k, const Variable& log_decay) {
  const Variable products = unsqueeze(heads(q), 3) * unsqueeze(heads(k), 2);  // (B, H, N, N, D)
  const Tensor past = visible(q.size(1), k.size(1), {.causal = true});
  if (!log_decay.defined()) return only(past, sum(products, {4}));
  const Variable g = log_decay.rank() == 3 ? unsqueeze(log_decay, 3) : log_decay;
  const Variable G = heads(cumsum(g, 1));  // (B, H, N, 1 or D)
  const Variable powers = exp(masked_scores(past.unsqueeze(4), unsqueeze(G, 3) - unsqueeze(G, 2)));
  return sum(products * powers, {4});
}

Variable log_linear(const Variable& q, const Variable& k, const Variable& log_decay,
                    const Variable& scales) {
  const int64_t N = q.size(1), last = scales.size(3) - 1;
  Tensor level = Tensor::zeros({1, 1, N, N}, DType::i32);
  for (int64_t i = 0; i < N; ++i)
    for (int64_t j = 0; j < i; ++j)
      for (int64_t l = 1; i >> (l - 1) != 0; ++l)
        if ((i >> (l - 1) & 1) == 1 && j >> (l - 1) == (i >> (l - 1)) - 1)
          level.data<int32_t>()[i * N + j] = static_cast<int32_t>(std::min(l, last));
  const Tensor of_pairs = level.expand({q.size(0), q.size(2), N, N}).contiguous();
  return retention(q, k, log_decay) * gather(heads(scales), 3, of_pairs);
}

Variable delta(const Variable& q, const Variable& k, const Variable& beta,
               const Variable& log_decay, const Variable& read) {
  const int64_t N = k.size(1);
  const Variable L = retention(read.defined() ? read : k, k, log_decay),
                 B = heads(unsqueeze(beta, 3));
  const Variable I = none(visible(N, N, {}), k.dtype());
  // Row i of T = (I + B L)⁻¹ B: β_i (e_i - Σ_(j<i) L_ij T_j).
  Variable T = slice(B, 2, 0, 1) * slice(I, 2, 0, 1);
  for (int64_t i = 1; i < N; ++i) {
    const Variable earlier = matmul(slice(slice(L, 2, i, i + 1), 3, 0, i), T);
    T = concat({T, slice(B, 2, i, i + 1) * (slice(I, 2, i, i + 1) - earlier)}, 2);
  }
  return matmul(retention(q, k, log_decay), T);
}

Variable rwkv7(const Variable& q, const Variable& read, const Variable& removed,
               const Variable& written, const Variable& log_decay) {
  const int64_t N = q.size(1);
  const Variable L = retention(read, removed, log_decay),
                 values = only(earlier(N), retention(read, written, log_decay));
  // Row i of R = (I + L_p)⁻¹ L_u is what token i reads: values, less what was removed.
  Variable R = slice(values, 2, 0, 1);
  for (int64_t i = 1; i < N; ++i) {
    const Variable gone = matmul(slice(slice(L, 2, i, i + 1), 3, 0, i), R);
    R = concat({R, slice(values, 2, i, i + 1) - gone}, 2);
  }
  return retention(q, written, log_decay) - matmul(retention(q, removed, log_decay), R);
}

Variable mesa(const Variable& q, const Variable& k, const Variable& beta, const Variable& log_decay,
              const Variable& lambda) {
  const int64_t B = k.size(0), N = k.size(1), H = k.size(2), D = k.size(3);
  const Variable weighed = k * unsqueeze(beta, 3), one = ones({B, N, H, 1}, k.dtype());
  const Variable squares = unsqueeze(heads(weighed), 4) * unsqueeze(heads(k), 3);  // β k kᵀ
  const Variable A = reshape(
      matmul(retention(one, one, log_decay), reshape(squares, {B, H, N, D * D})), {B, H, N, D, D});
  const Variable I = none(visible(D, D, {}), k.dtype());  // (1, 1, D, D)
  const Variable M = A + unsqueeze(unsqueeze(lambda, 1), 3) * I;
  const Variable x = squeeze(matmul(pinv(M), unsqueeze(heads(q), 4)), 4);
  return retention(heads(x), weighed, log_decay);
}

Variable mamba3(const Variable& q, const Variable& k, const Variable& steps, const Variable& blends,
                const Variable& log_decay, const Variable& angles) {
  const int64_t N = q.size(1), m = angles.size(3);
  const Variable turned = cos_sin(cumsum(angles, 1)), cosines = slice(turned, 3, 0, m),
                 sines = slice(turned, 3, m, 2 * m);
  const auto rotated = [&](const Variable& x) {
    const Variable a = slice(x, 3, 0, m), b = slice(x, 3, m, 2 * m);
    return concat({a * cosines - b * sines, a * sines + b * cosines, slice(x, 3, 2 * m, x.size(3))},
                  3);
  };
  const Variable Q = rotated(q), K = rotated(k);
  // The share that a token leaves to the key before it; after the last token it is not visible.
  const Variable left = (1 - blends) * steps,
                 of_next = concat({slice(left, 1, 1, N), slice(left, 1, 0, 1)}, 1);
  return retention(Q, K * unsqueeze(blends * steps, 3), log_decay) +
         only(earlier(N), retention(Q, K * unsqueeze(of_next, 3), log_decay));
}

Variable lowrank(const Variable& U, const Variable& V, bool softmax, const Tensor& visible) {
  const Variable products = unsqueeze(matmul(U, transposed(V)), 0);
  return softmax ? longhand::softmax(masked_scores(visible, products)) : only(visible, products);
}

Variable synthesizer(const Variable& hidden, const Variable& W, const Variable& b,
                     const Tensor& visible) {
  const Variable scores = project(relu(hidden), W) + b;  // (B, N, H, M)
  return longhand::softmax(masked_scores(visible, heads(scores)));
}

Variable aft(const Variable& q, const Variable& k, const Variable& v, const Variable& w,
             const Tensor& visible) {
  const Tensor seen = visible.squeeze(1).unsqueeze(3).unsqueeze(4);  // (B or 1, N, N, 1, 1)
  const Variable terms = unsqueeze(unsqueeze(unsqueeze(w, 0), 3), 4) + unsqueeze(k, 1);
  const Variable p = longhand::softmax(permute(masked_scores(seen, terms), {0, 1, 3, 4, 2}));
  return sigmoid(q) * sum(p * unsqueeze(permute(v, {0, 2, 3, 1}), 1), {4});
}

Variable random(const Variable& R, const Tensor& visible) {
  return longhand::softmax(masked_scores(visible, unsqueeze(R, 0)));
}

Variable mean(const Tensor& visible, DType dtype) {
  return longhand::softmax(masked_scores(visible, Variable(Tensor::zeros(visible.shape(), dtype))));
}

Variable none(const Tensor& visible, DType dtype) {
  Tensor I = Tensor::zeros(visible.shape(), dtype);
  for (int64_t i = 0; i < std::min(visible.size(2), visible.size(3)); ++i)
    I.slice(2, i, i + 1).slice(3, i, i + 1).fill(1);
  return only(visible, Variable(I));
}

}  // namespace longhand::attention::definitions
