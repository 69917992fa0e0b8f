#include <set>

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Settings reformer(int64_t buckets, int64_t rounds, int64_t window) {
  return {{"buckets", buckets}, {"rounds", rounds}, {"window", window}};
}

// The bucket of x (D) by rotations R (buckets / 2, D): the largest of [R x; -R x].
int64_t bucket_of(const Row& x, const Tensor& R) {
  Row y;
  for (const double sign : {1.0, -1.0})
    for (int64_t l = 0; l < R.size(0); ++l) {
      double sum = 0;
      for (int64_t d = 0; d < R.size(1); ++d) sum += R.at({l, d}) * x[static_cast<size_t>(d)];
      y.push_back(sign * sum);
    }
  return std::max_element(y.begin(), y.end()) - y.begin();
}

// Attention to sets of keys, by plain loops.
Tensor naive(const Tensor& q, const Tensor& v, const Tensor& rotations, int64_t window, bool causal,
             const std::vector<int32_t>& tokens) {
  const int64_t N = q.size(1), H = q.size(2), D = q.size(3);
  const std::vector<Row> qs = rows_of(q), vs = rows_of(v);
  Tensor out = Tensor::zeros(q.shape(), DType::f64);
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t h = 0; h < H; ++h) {
      const auto row = [&](int64_t i) { return static_cast<size_t>((b * N + i) * H + h); };
      const int64_t n = tokens[static_cast<size_t>(b)];
      std::vector<std::set<int64_t>> keys(static_cast<size_t>(n));
      for (int64_t r = 0; r < rotations.size(1); ++r) {
        std::map<int64_t, std::vector<int64_t>> buckets;
        for (int64_t i = 0; i < n; ++i)
          buckets[bucket_of(qs[row(i)], rotations.select(0, h).select(0, r))].push_back(i);
        for (const auto& [code, members] : buckets)
          for (size_t s = 0; s < members.size(); ++s)
            for (size_t t = 0; t < members.size(); ++t)
              if (const auto apart = static_cast<int64_t>(s > t ? s - t : t - s);
                  s != t && apart <= window && (!causal || t < s))
                keys[static_cast<size_t>(members[s])].insert(members[t]);
      }
      for (int64_t i = 0; i < n; ++i) {
        std::set<int64_t>& own = keys[static_cast<size_t>(i)];
        if (own.empty()) own.insert(i);
        double total = 0;
        for (const int64_t j : own) {
          const double norm =
              std::sqrt(dot(qs[row(j)], qs[row(j)]) + 1e-6 * static_cast<double>(D));
          const double p = std::exp(dot(qs[row(i)], qs[row(j)]) / norm);
          total += p;
          for (int64_t d = 0; d < D; ++d)
            out.data<double>()[static_cast<int64_t>(row(i)) * D + d] +=
                p * vs[row(j)][static_cast<size_t>(d)];
        }
        for (int64_t d = 0; d < D; ++d)
          out.data<double>()[static_cast<int64_t>(row(i)) * D + d] /= total;
      }
    }
  return out;
}

}  // namespace

TEST_CASE("reformer attends to the nearest tokens of its buckets, each counted once") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 9, 70), rounds = GENERATE(1, 4);
  const auto n = static_cast<int32_t>(N);
  const std::vector<int32_t> tokens{n, (n + 1) / 2};
  const auto variant = make_variant("reformer", {.max_length = N, .causal = causal},
                                    options_of(reformer(4, rounds, 6)));
  const Tensor q = normal({2, N, 2, 4}, 1), v = normal({2, N, 2, 4}, 2);
  const Tensor R = variant->state_dict().at("rotations");
  CHECK(
      near(forward(*variant, q, q, v, lengths(tokens)), naive(q, v, R, 6, causal, tokens), 1e-12));
}

TEST_CASE("reformer: a token attends to itself only if its buckets have no other") {
  // Opposite vectors are in different buckets, equal ones in the same.
  const Tensor q = Tensor::from<double>({1, 2, -1, -2, 1, 2}, {1, 3, 1, 2});
  const Tensor v = Tensor::from<double>({1, 0, 5, 0, 3, 0}, {1, 3, 1, 2});
  const auto variant =
      make_variant("reformer", {.heads = 1, .dim = 2}, options_of(reformer(2, 1, 8)));
  const Tensor out = forward(*variant, q, q, v);
  CHECK(out.at({0, 0, 0, 0}) == 3);
  CHECK(out.at({0, 1, 0, 0}) == 5);
  CHECK(out.at({0, 2, 0, 0}) == 1);
}

TEST_CASE("reformer: rotations are redrawn at the right optimizer steps, and only there") {
  Settings settings = reformer(4, 1, 6);
  settings["redraw_interval"] = int64_t{3};
  const auto variant = make_variant("reformer", {}, options_of(settings));
  const auto rotations = [&] { return variant->state_dict().at("rotations").clone(); };
  Tensor before = rotations();
  for (int step = 1; step <= 6; ++step) {
    variant->after_step();
    CHECK(identical(rotations(), before) == (step % 3 != 0));
    before = rotations();
  }
}

TEST_CASE("reformer: an odd number of buckets is refused") {
  CHECK_THROWS_WITH(make_variant("reformer", {}, options_of(reformer(5, 1, 8))),
                    Catch::Contains("buckets") && Catch::Contains("even"));
}
