// Exercise 2: two processes have half of the keys each. (m, l, o) of both are joined into that of all keys.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/core/random.h"

struct Seen {
  double m = -INFINITY, l = 0, o = 0;
};
Seen combine(const Seen& a, const Seen& b) {
  const double m = std::max(a.m, b.m);
  if (m == -INFINITY) return a;  // neither has seen a key: e^(-inf + inf) would be NaN
  const double of_a = std::exp(a.m - m), of_b = std::exp(b.m - m);
  return {m, a.l * of_a + b.l * of_b, a.o * of_a + b.o * of_b};
}
Seen of_one(double s, double v) { return {s, 1, v}; }

int main() {
  const longhand::Generator scores(1), values(2);
  Seen all, left, right;
  for (uint64_t j = 0; j < 64; ++j) {
    const Seen key = of_one(10 * scores.normal(j), values.normal(j));
    all = combine(all, key);
    (j < 20 ? left : right) = combine(j < 20 ? left : right, key);
  }
  const Seen joined = combine(left, right);
  const bool same = joined.m == all.m && std::abs(joined.o / joined.l - all.o / all.l) < 1e-14 &&
                    combine(Seen(), all).l == all.l;
  std::printf("the joined halves %s the whole\n", same ? "give" : "do not give");
  return same ? 0 : 1;
}
