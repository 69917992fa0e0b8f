// Chapter 6: causal linear attention with decay, as a matrix, as a recurrence and in chunks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/core/random.h"

using namespace longhand;
constexpr int64_t N = 256, D = 16;
using Vector = std::vector<double>;

int64_t multiplications = 0;
double dot(const double* a, const double* b) {
  double sum = 0;
  for (int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
  multiplications += D;
  return sum;
}
void add(double* to, double factor, const double* x) {
  for (int64_t d = 0; d < D; ++d) to[d] += factor * x[d];
  multiplications += D;
}

// S_i = e^(g_i) S_(i-1) + k_i v_iᵀ and o_i = S_iᵀ q_i for the tokens of a chunk, given S before it.
void recurrence(int64_t begin, int64_t end, const Vector& q, const Vector& k, const Vector& v,
                const Vector& g, Vector& S, Vector& out) {
  for (int64_t i = begin; i < end; ++i) {
    for (double& s : S) s *= std::exp(g[i]);
    multiplications += D * D;
    for (int64_t a = 0; a < D; ++a) {
      add(&S[a * D], k[i * D + a], &v[i * D]);
      add(&out[i * D], q[i * D + a], &S[a * D]);
    }
  }
}

// The same by pairs within the chunk, and one read and one update of S. G_i = g_begin + … + g_i.
void chunk(int64_t begin, int64_t end, const Vector& q, const Vector& k, const Vector& v,
           const Vector& g, Vector& S, Vector& out) {
  Vector G(N);
  for (int64_t i = begin; i < end; ++i) G[i] = (i > begin ? G[i - 1] : 0) + g[i];
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t a = 0; a < D; ++a) add(&out[i * D], std::exp(G[i]) * q[i * D + a], &S[a * D]);
    for (int64_t j = begin; j <= i; ++j)
      add(&out[i * D], std::exp(G[i] - G[j]) * dot(&q[i * D], &k[j * D]), &v[j * D]);
  }
  for (double& s : S) s *= std::exp(G[end - 1]);
  multiplications += D * D;
  for (int64_t j = begin; j < end; ++j)
    for (int64_t a = 0; a < D; ++a)
      add(&S[a * D], std::exp(G[end - 1] - G[j]) * k[j * D + a], &v[j * D]);
}

// The factors e^(g_(j+1) + … + g_i) of the weights: those of retention() with q = k = 1.
void decays(const char* name, const Vector& g) {
  const auto n = static_cast<int64_t>(g.size());
  const Variable one(Tensor::full({1, n, 1, 1}, 1, DType::f64)),
      log_decay(Tensor::from(g, {1, n, 1}));
  const Tensor W = attention::definitions::retention(one, one, log_decay).value();
  std::printf("\n%s\n", name);
  for (int64_t i = 0; i < n; ++i, std::puts(""))
    for (int64_t j = 0; j < n; ++j) std::printf(j ? "  %.2f" : "%.2f", W.at({0, 0, i, j}));
}

int main() {
  Tensor x[3];
  for (uint64_t a = 0; a < 3; ++a)
    fill_normal(x[a] = Tensor::empty({1, N, 1, D}, DType::f64), Generator(6).fork(a));
  Vector g(N);  // gates between 0.8 and 1
  for (int64_t i = 0; i < N; ++i) g[i] = std::log(1 - 0.2 * Generator(7).uniform(i));
  const Vector q = x[0].to_vector<double>(), k = x[1].to_vector<double>(),
               v = x[2].to_vector<double>();
  const Variable weights = attention::definitions::retention(Variable(x[0]), Variable(x[1]),
                                                             Variable(Tensor::from(g, {1, N, 1})));
  const Vector exact =
      attention::definitions::apply(weights, Variable(x[2])).value().to_vector<double>();

  std::puts("tokens of a chunk  steps in sequence  multiplications per token  agrees");
  for (const int64_t size : {0, 1, 4, 16, 64, 256}) {
    Vector S(D * D), out(N * D);
    multiplications = 0;
    if (size == 0) recurrence(0, N, q, k, v, g, S, out);
    for (int64_t begin = 0; size && begin < N; begin += size)
      chunk(begin, begin + size, q, k, v, g, S, out);
    const bool agrees =
        std::ranges::equal(out, exact, [](double a, double b) { return std::abs(a - b) < 1e-11; });
    std::printf("%-17s  %17d  %25d  %s\n", size ? std::to_string(size).c_str() : "recurrence",
                int(size ? N / size : N), int(multiplications / N), agrees ? "yes" : "no");
  }
  decays("constant decay", Vector(8, std::log(0.8)));
  Vector gates(8, std::log(0.95));
  gates[4] = std::log(0.05);
  decays("gates that forget at token 5", gates);
}
