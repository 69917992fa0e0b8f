// The recurrence that a scan computes, as plain loops, and its kinds of decay.
#pragma once

#include <cmath>
#include <vector>

#include "longhand/attention/ops/scan.h"
#include "tests/attention/attention_check.h"

namespace longhand::test {

enum class Decay { none, head, channel };
inline const std::vector<Decay> all_decays{Decay::none, Decay::head, Decay::channel};

inline Tensor uniform(const Shape& shape, uint64_t seed, double low, double high,
                      DType dtype = DType::f64) {
  Tensor t = Tensor::empty(shape, DType::f64);
  fill_uniform(t, Generator(seed), low, high);
  return t.to(dtype);
}

/// The result of recurrent(): out, and the last state.
struct Recurrent {
  Tensor out, S, z;
};
/// The recurrence of a scan, token by token in f64: S_i = e^{g_i} S_(i-1) + k_i v_iᵀ, out_i = S_iᵀ q_i,
/// and z alike, from the state `initial` (null: zeros). g is (B, N, H), (B, N, H, m) or undefined.
inline Recurrent recurrent(const Tensor& q_, const Tensor& k_, const Tensor& v_, const Tensor& g,
                           const attention::ScanState* initial, bool normalizer) {
  const Tensor q = q_.to(DType::f64), k = k_.to(DType::f64), v = v_.to(DType::f64);
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), m = q.size(3), E = v.size(3);
  Tensor S =
      initial ? initial->S.value().contiguous().clone() : Tensor::zeros({B, H, m, E}, DType::f64);
  Tensor z = initial && normalizer ? initial->z.value().contiguous().clone()
                                   : Tensor::zeros({B, H, m}, DType::f64);
  Tensor out = Tensor::zeros({B, N, H, normalizer ? E + 1 : E}, DType::f64);
  const std::vector<Row> qs = rows_of(q), ks = rows_of(k), vs = rows_of(v);
  const std::vector<double> gs = g.defined() ? g.to_vector<double>() : std::vector<double>();
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < N; ++i) {
        const int64_t token = (b * N + i) * H + h;
        double* const to = out.data<double>() + token * out.size(3);
        for (int64_t l = 0; l < m; ++l) {
          const double a = gs.empty() ? 1 : std::exp(gs[g.rank() == 3 ? token : token * m + l]);
          double* const row = S.data<double>() + ((b * H + h) * m + l) * E;
          double& sum = z.data<double>()[(b * H + h) * m + l];
          for (int64_t e = 0; e < E; ++e) {
            row[e] = a * row[e] + ks[token][l] * vs[token][e];
            to[e] += qs[token][l] * row[e];
          }
          sum = a * sum + ks[token][l];
          if (normalizer) to[E] += qs[token][l] * sum;
        }
      }
  return {out, S, z};
}

}  // namespace longhand::test
