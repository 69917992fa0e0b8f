// Exercise 1: presented again and again, the same pairs are learned exactly by the delta rule, and never by adding.
#include <cmath>
#include <cstdio>

#include "longhand/autograd/ops.h"

using namespace longhand;

int main() {
  const int64_t pairs = 12, D = 16;
  Tensor keys = Tensor::empty({pairs, D}, DType::f64), values = keys.clone();
  fill_normal(keys, Generator(7).fork("keys"));
  fill_normal(values, Generator(7).fork("values"));
  const Variable V(values), K = Variable(keys) / sqrt(sum(square(Variable(keys)), {1}, true));
  // |K S - V| / |V|
  const auto error = [&](const Variable& S) {
    return std::sqrt(sum(square(matmul(K, S) - V)).value().item() / sum(square(V)).value().item());
  };
  // After any number of passes the added state is a multiple of Kᵀ V. The best multiple c minimises |c K Kᵀ V - V|.
  const Variable added = matmul(transpose(K, 0, 1), V), read = matmul(K, added);
  const double c = sum(read * V).value().item() / sum(square(read)).value().item();
  const double by_adding = error(c * added);

  Variable S(Tensor::zeros({D, D}, DType::f64));
  double first = 0;
  int passes = 0;
  for (; passes < 1000 && error(S) > 1e-6; ++passes) {
    for (int64_t i = 0; i < pairs; ++i) {
      const Variable k = slice(K, 0, i, i + 1);
      S = S + matmul(transpose(k, 0, 1), slice(V, 0, i, i + 1) - matmul(k, S));
    }
    if (passes == 0) first = error(S);
  }
  std::printf("adding errs by %.2f; the delta rule by %.2f after one pass, and by 1e-6 after %d\n",
              by_adding, first, passes);
  return passes < 1000 && by_adding > 0.1 ? 0 : 1;
}
