// Chapter 4: softmax attention without the N x N matrix, forward and backward.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/ops.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;
constexpr int64_t D = 8, tile = 16;
const double scale = 1 / std::sqrt(static_cast<double>(D));

// What a query has seen so far: the largest score m, l = Σ_j e^(s_j - m) and o = Σ_j e^(s_j - m) v_j.
struct Seen {
  double m = -INFINITY, l = 0;
  std::vector<double> o;
  void add(std::span<const double> s, const double* v) {
    const double larger = std::max(m, *std::ranges::max_element(s)), old = std::exp(m - larger);
    l *= old;
    for (double& x : o) x *= old;
    for (size_t j = 0; j < s.size(); ++j) {
      const double w = std::exp(s[j] - larger);
      l += w;
      for (size_t d = 0; d < o.size(); ++d) o[d] += w * v[j * o.size() + d];
    }
    m = larger;
  }
};
double dot(const double* a, const double* b) { return std::inner_product(a, a + D, b, 0.0); }
void add(double* to, double factor, const double* x) {
  for (int64_t d = 0; d < D; ++d) to[d] += factor * x[d];
}

// Tile by tile. L_i = m_i + log l_i is all that the gradients need besides the result.
void attend(int64_t N, const double* q, const double* k, const double* v, double* out, double* L) {
  for (int64_t first = 0; first < N; first += tile) {
    std::vector<Seen> seen(tile, Seen{.o = std::vector<double>(D)});
    for (int64_t at = 0; at < N; at += tile)
      for (int64_t r = 0; r < tile; ++r) {
        double s[tile];
        for (int64_t c = 0; c < tile; ++c)
          s[c] = scale * dot(q + (first + r) * D, k + (at + c) * D);
        seen[r].add(s, v + at * D);
      }
    for (int64_t r = 0; r < tile; ++r) {
      L[first + r] = seen[r].m + std::log(seen[r].l);
      add(out + (first + r) * D, 1 / seen[r].l, seen[r].o.data());
    }
  }
}

void gradients(int64_t N, const double* q, const double* k, const double* v, const double* out,
               const double* L, const double* dout, double* dq, double* dk, double* dv) {
  for (int64_t i = 0; i < N; ++i) {
    const double delta = dot(dout + i * D, out + i * D);
    for (int64_t j = 0; j < N; ++j) {
      const double p = std::exp(scale * dot(q + i * D, k + j * D) - L[i]);  // computed once more
      const double ds = p * (dot(dout + i * D, v + j * D) - delta);
      add(dv + j * D, p, dout + i * D);
      add(dq + i * D, scale * ds, k + j * D);
      add(dk + j * D, scale * ds, q + i * D);
    }
  }
}

int main() {
  const Generator random(4);
  std::puts("keys seen  score  maximum m  m + log l  result");
  Seen seen{.o = {0}};
  for (int j = 0; j < 16; ++j) {
    const double s = random.fork("scores").normal(j), v = random.fork("values").normal(j);
    seen.add({&s, 1}, &v);
    const double L = seen.m + std::log(seen.l), o = seen.o[0] / seen.l;
    std::printf("%-9d  %5.2f  %9.2f  %9.2f  %6.2f\n", j + 1, s, seen.m, L, o);
  }
  std::puts("\nN     weights p_ij  numbers L_i  results and gradients agree");
  for (const int64_t N : {64, 256, 1024}) {
    Tensor x[4];  // q, k, v and the gradient of the result
    for (uint64_t a = 0; a < 4; ++a)
      fill_normal(x[a] = Tensor::empty({1, N, 1, D}, DType::f64), random.fork(a));
    const Variable Q(x[0], true), K(x[1], true), V(x[2], true);
    const Tensor all = definitions::visible(N, N, {});
    const Variable O = definitions::apply(definitions::softmax(Q, K, all), V);
    backward(O, x[3]);
    std::vector<double> out(N * D), L(N), dq(N * D), dk(N * D), dv(N * D);
    const double *q = x[0].data<double>(), *k = x[1].data<double>(), *v = x[2].data<double>(),
                 *dout = x[3].data<double>();
    attend(N, q, k, v, out.data(), L.data());
    gradients(N, q, k, v, out.data(), L.data(), dout, dq.data(), dk.data(), dv.data());
    const auto near = [](double s, double t) { return std::abs(s - t) < 1e-12; };
    const auto agree = [&](const std::vector<double>& a, const Tensor& b) {
      return std::ranges::equal(a, b.to_vector<double>(), near);
    };
    const bool right =
        agree(out, O.value()) && agree(dq, Q.grad()) && agree(dk, K.grad()) && agree(dv, V.grad());
    std::printf("%-4d  %12d  %11d  %s\n", int(N), int(N * N), int(N), right ? "yes" : "no");
  }
}
