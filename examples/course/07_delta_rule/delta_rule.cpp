// Chapter 7: the delta rule: a memory that overwrites, a sign that follows parity, and chunks.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/delta_scan.h"
#include "longhand/autograd/ops.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;

Variable zeros(const Shape& shape) { return Variable(Tensor::zeros(shape, DType::f64)); }
Variable normal(const Shape& shape, const char* name) {
  Tensor x = Tensor::empty(shape, DType::f64);
  fill_normal(x, Generator(7).fork(name));
  return Variable(x);
}
Variable unit(const Variable& x) { return x / sqrt(sum(square(x), {-1}, true)); }
Variable identity(int64_t n) {
  std::vector<double> I(n * n);
  for (int64_t i = 0; i < n; ++i) I[i * n + i] = 1;
  return Variable(Tensor::from(I, {n, n}));
}
Variable rows(const Variable& x, int64_t begin, int64_t end) { return slice(x, 0, begin, end); }

// S + β kᵀ (v - k S) for a state S (D, E) and rows k (1, D), v (1, E); or for a batch of each.
Variable delta_rule(const Variable& S, const Variable& k, const Variable& v, double beta) {
  return S + matmul(transpose(k, -2, -1), v - matmul(k, S), beta);
}

// Writes one of 16 symbols under one of 8 keys, token by token, all random, in 200 sequences at once. The fraction of
// keys that then recall the last symbol written under them.
double recalled(int64_t tokens, double decay, bool delta) {
  const int64_t sequences = 200, keys = 8, D = 16;
  const Variable k = unit(normal({sequences * keys, D}, "k")), symbols = identity(D);
  Variable S = zeros({sequences, D, D});
  std::vector<int32_t> last(sequences * keys), key(sequences), symbol(sequences);
  RandomStream random(Generator(7).fork("tokens"));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t b = 0; b < sequences; ++b) {
      key[b] = static_cast<int32_t>(b * keys + (t < keys ? t : random.below(keys)));
      last[key[b]] = symbol[b] = static_cast<int32_t>(random.below(D));
    }
    const Variable k_t = embedding(k, Tensor::from(key, {sequences, 1})),
                   v_t = embedding(symbols, Tensor::from(symbol, {sequences, 1}));
    S = delta ? delta_rule(S, k_t, v_t, 1) : decay * S + matmul(transpose(k_t, 1, 2), v_t);
  }
  const auto read = matmul(reshape(k, {sequences, keys, D}), S).value().to_vector<double>();
  double right = 0;
  for (int64_t i = 0; i < sequences * keys; ++i)
    right += std::max_element(&read[i * D], &read[i * D] + D) - &read[i * D] == last[i];
  return right / static_cast<double>(sequences * keys);
}

// The results of a chunk of tokens with β = 1, given the state S before it, which becomes the state after it.
Variable chunk(Variable& S, const Variable& q, const Variable& k, const Variable& v) {
  const Variable k_T = transpose(k, 0, 1), L = matmul(k, k_T), R = v - matmul(k, S);
  Variable E = rows(R, 0, 1);  // (I + L) E = R by forward substitution, with L below its diagonal
  for (int64_t i = 1; i < k.size(0); ++i)
    E = concat({E, rows(R, i, i + 1) - matmul(slice(rows(L, i, i + 1), 1, 0, i), E)}, 0);
  const Tensor seen = definitions::visible(k.size(0), k.size(0), {.causal = true});
  const Variable M = where(seen.reshape(L.shape()), matmul(q, k_T), 0.0),
                 out = matmul(q, S) + matmul(M, E);
  S = S + matmul(k_T, E);
  return out;
}

int main() {
  std::puts("writes per key  linear attention  with decay 0.95  delta rule");
  for (const int n : {1, 2, 4, 8, 16, 32})
    std::printf("%-14d  %16.2f  %15.2f  %10.2f\n", n, recalled(8 * n, 1, false),
                recalled(8 * n, 0.95, false), recalled(8 * n, 1, true));

  std::puts("\nones read  beta 0.5  beta 1.0  beta 1.5  beta 1.9  beta 2.0");
  for (const int ones : {0, 1, 2, 3, 4, 5, 20, 21}) {
    std::printf("%-9d", ones);
    for (const double beta : {0.5, 1.0, 1.5, 1.9, 2.0}) {
      Variable S = identity(1);
      for (int i = 0; i < ones; ++i) S = delta_rule(S, identity(1), zeros({1, 1}), beta);
      std::printf("  %8.3f", S.value().item());
    }
    std::puts("");
  }

  const int64_t N = 256, D = 16;
  const Variable q = normal({N, D}, "q"), k = unit(normal({N, D}, "k")), v = normal({N, D}, "v");
  const auto batch = [](const Variable& x) { return reshape(x, {1, N, 1, D}); };
  const Variable exact = reshape(attention::delta_scan({batch(q), batch(k), batch(v)}).out, {N, D});
  std::puts("\ntokens of a chunk  agrees with the library");
  for (const int64_t C : {1, 16, 256}) {
    Variables out;
    Variable S = zeros({D, D});
    for (int64_t t = 0; t < N; t += C)
      out.push_back(chunk(S, rows(q, t, t + C), rows(k, t, t + C), rows(v, t, t + C)));
    const double error = sum(square(concat(out, 0) - exact)).value().item();
    std::printf("%-17d  %s\n", static_cast<int>(C), error < 1e-20 ? "yes" : "no");
  }
}
