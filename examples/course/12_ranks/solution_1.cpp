// Exercise 1: a sum that is passed around the ranks. It sends less than gathering, and has other bits than the tree.
#include <cmath>
#include <cstdio>

#include "longhand/core/random.h"
#include "threads.h"

using namespace longhand;

// Replaces x (P, n) by its sum over all ranks: each of P segments travels round and grows, and then travels
// round once more to be copied.
void ring_sum(Communicator& ranks, Tensor& x) {
  const int P = ranks.size(), rank = ranks.rank();
  const auto segment = [&](int i) { return x.select(0, (i + 2 * P) % P); };
  for (int step = 0; step < P - 1; ++step) {
    const Tensor arrived = ranks.shift(segment(rank - step), 1), own = segment(rank - step - 1);
    for (int64_t i = 0; i < own.numel(); ++i)
      const_cast<double*>(own.data<double>())[i] += arrived.at({i});
  }
  for (int step = 0; step < P - 1; ++step)
    copy_into(segment(rank - step), ranks.shift(segment(rank - step + 1), 1));
}

int main() {
  const int P = 4;
  const int64_t n = 250;
  bool right = true;
  run_ranks(P, [&](Communicator& ranks) {
    Tensor x = Tensor::empty({P, n}, DType::f64);
    fill_uniform(x, Generator(uint64_t(ranks.rank())), -1, 1);
    Tensor tree = x.clone();
    ranks.sum(tree);
    const int64_t before = ranks.traffic().bytes;
    ring_sum(ranks, x);
    const int64_t sent = ranks.traffic().bytes - before;
    int differ = 0;
    double error = 0;
    for (int64_t i = 0; i < P * n; ++i) {
      const double a = x.at({i / n, i % n}), b = tree.at({i / n, i % n});
      differ += a != b;
      error = std::max(error, std::abs(a - b));
    }
    const Tensor all = ranks.all_gather(x);
    bool equal = true;
    for (int r = 0; r < P; ++r) equal = equal && identical(all.select(0, r), x);
    if (ranks.rank() > 0) return;
    std::printf("sent %d bytes, by gathering %d\n", int(sent), int(before));
    std::printf("all ranks have the same bits: %s; %d of %d are not those of the tree\n",
                equal ? "yes" : "no", differ, int(P * n));
    right = equal && differ > 0 && error < 1e-14 && sent == 2 * (P - 1) * n * 8;
  });
  return right ? 0 : 1;
}
