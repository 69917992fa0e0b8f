// Exercise 1: causal attention skips the tiles above the diagonal, and masks within those on it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/ops.h"

using namespace longhand;
namespace definitions = longhand::attention::definitions;
constexpr int64_t N = 96, D = 8, tile = 16;

int main() {
  Tensor x[3];
  for (uint64_t a = 0; a < 3; ++a)
    fill_normal(x[a] = Tensor::empty({1, N, 1, D}, DType::f64), Generator(4).fork(a));
  const double *q = x[0].data<double>(), *k = x[1].data<double>(), *v = x[2].data<double>();
  std::vector<double> out(N * D), m(N, -INFINITY), l(N);
  int tiles = 0;
  for (int64_t first = 0; first < N; first += tile)
    for (int64_t begin = 0; begin <= first; begin += tile, ++tiles)  // no key after the last query
      for (int64_t i = first; i < first + tile; ++i)
        for (int64_t j = begin; j < std::min(begin + tile, i + 1); ++j) {
          double s = 0;
          for (int64_t d = 0; d < D; ++d) s += q[i * D + d] * k[j * D + d];
          s /= std::sqrt(static_cast<double>(D));
          const double larger = std::max(m[i], s), old = std::exp(m[i] - larger);
          const double w = std::exp(s - larger);
          l[i] = l[i] * old + w;
          for (int64_t d = 0; d < D; ++d) out[i * D + d] = out[i * D + d] * old + w * v[j * D + d];
          m[i] = larger;
        }
  const Tensor past = definitions::visible(N, N, {.causal = true});
  const auto exact =
      definitions::apply(definitions::softmax(Variable(x[0]), Variable(x[1]), past), Variable(x[2]))
          .value()
          .to_vector<double>();
  bool right = tiles == 21;  // n (n + 1) / 2 of n² tiles, n = 6
  for (int64_t at = 0; at < N * D; ++at)
    right = right && std::abs(out[at] / l[at / D] - exact[at]) < 1e-12;
  std::printf("%d of 36 tiles were computed; the result is %s\n", tiles, right ? "right" : "wrong");
  return right ? 0 : 1;
}
