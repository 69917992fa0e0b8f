#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options clustered(int64_t clusters, int64_t topk) {
  return options_of({{"clusters", clusters}, {"topk", topk}});
}

}  // namespace

TEST_CASE("clustered: equal queries are one cluster, whose attention is exact") {
  // Two kinds of queries, in turns: their means are themselves.
  const int64_t N = 20;
  Tensor q = normal({2, N, 2, 4}, 1, DType::f64, 2);
  for (int64_t i = 2; i < N; ++i)
    copy_into(q.slice(1, i, i + 1), q.slice(1, i % 2, i % 2 + 1).contiguous());
  const Tensor k = normal({2, N, 2, 4}, 2), v = normal({2, N, 2, 4}, 3);
  const Tensor exact = forward(*make_variant("softmax", {.max_length = N}), q, k, v);
  // From segments of equal means, Lloyd's algorithm cannot tell the kinds apart; from three segments
  // of 6, 7 and 7 tokens it can.
  for (const int64_t topk : {0, 3}) {
    const Tensor out = forward(*make_variant("clustered", {}, clustered(3, topk)), q, k, v);
    CHECK(near(out, exact, 1e-12));
  }
}

TEST_CASE("clustered: with topk, the weights of the best keys add up to those of the centroid") {
  const int64_t N = 17;
  const Tensor q = normal({1, N, 1, 4}, 1), k = normal({1, N, 1, 4}, 2);
  const auto plain = make_variant("clustered", {.heads = 1}, clustered(3, 0)),
             best = make_variant("clustered", {.heads = 1}, clustered(3, 5));
  const Tensor of_centroid = attention::conformance::weights(*plain, q, k),
               of_query = attention::conformance::weights(*best, q, k);
  for (int64_t i = 0; i < N; ++i) {
    std::vector<double> sorted;
    for (int64_t j = 0; j < N; ++j) sorted.push_back(of_centroid.at({i, j}));
    std::sort(sorted.rbegin(), sorted.rend());
    double same = 0, moved = 0, kept = 0;
    for (int64_t j = 0; j < N; ++j) {
      const double a = of_centroid.at({i, j}), b = of_query.at({i, j});
      if (a >= sorted[4]) {
        same += a, moved += b;
      } else {
        kept = std::max(kept, std::abs(a - b));
      }
    }
    CHECK(same == Approx(moved));
    CHECK(kept <= 1e-14);
  }
}
