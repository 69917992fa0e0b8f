#include "longhand/attention/ops/bucket_attention.h"

#include <numeric>

#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

struct Case {
  int64_t B, N, H, rounds, buckets, window;
  bool causal = false;
  std::vector<int32_t> tokens{};  // of each sample; empty: N
};

// Random buckets, some of which hold a single token.
attention::Buckets random_buckets(const Case& c) {
  const Shape shape{c.B, c.H, c.rounds, c.N};
  attention::Buckets out{.bucket = Tensor::zeros(shape, DType::i32),
                         .sorted = Tensor::zeros(shape, DType::i32),
                         .place = Tensor::zeros(shape, DType::i32),
                         .begin = Tensor::zeros({c.B, c.H, c.rounds, c.buckets + 1}, DType::i32),
                         .window = c.window,
                         .causal = c.causal};
  const auto random = normal(shape, 9).to_vector<double>();
  for (int64_t at = 0; at < c.B * c.H * c.rounds; ++at) {
    const int64_t n = c.tokens.empty() ? c.N : c.tokens[static_cast<size_t>(at / c.rounds / c.H)];
    int32_t* const bucket = out.bucket.data<int32_t>() + at * c.N;
    int32_t* const sorted = out.sorted.data<int32_t>() + at * c.N;
    int32_t* const begin = out.begin.data<int32_t>() + at * (c.buckets + 1);
    for (int64_t i = 0; i < n; ++i) {
      const double x = std::abs(random[static_cast<size_t>(at * c.N + i)]) / 3;
      // Bucket 0 is of token 0 alone in every round.
      bucket[i] =
          i == 0 || c.buckets == 1
              ? 0
              : 1 + static_cast<int32_t>(std::min(x, 0.999) * static_cast<double>(c.buckets - 1));
      ++begin[bucket[i] + 1];
    }
    std::partial_sum(begin, begin + c.buckets + 1, begin);
    std::iota(sorted, sorted + n, 0);
    std::stable_sort(sorted, sorted + n,
                     [&](int32_t a, int32_t b) { return bucket[a] < bucket[b]; });
    for (int64_t s = 0; s < n; ++s)
      out.place.data<int32_t>()[at * c.N + sorted[s]] = static_cast<int32_t>(s);
  }
  return out;
}

// (B, H, N, N): which tokens attend to which.
Tensor near_tokens(const Case& c, const attention::Buckets& x) {
  Tensor keep = Tensor::zeros({c.B, c.H, c.N, c.N}, DType::u8);
  for (int64_t head = 0; head < c.B * c.H; ++head) {
    const int64_t n = c.tokens.empty() ? c.N : c.tokens[static_cast<size_t>(head / c.H)];
    for (int64_t i = 0; i < n; ++i) {
      uint8_t* const row = keep.data<uint8_t>() + (head * c.N + i) * c.N;
      for (int64_t r = 0; r < c.rounds; ++r) {
        const int32_t* const bucket = x.bucket.data<int32_t>() + (head * c.rounds + r) * c.N;
        const int32_t* const place = x.place.data<int32_t>() + (head * c.rounds + r) * c.N;
        for (int64_t j = 0; j < (c.causal ? i : n); ++j)
          if (j != i && bucket[i] == bucket[j] && std::abs(place[i] - place[j]) <= c.window)
            row[j] = 1;
      }
      if (std::count(row, row + c.N, 1) == 0) row[i] = 1;
    }
  }
  return keep;
}

Outcome run(const Variables& x, const Variable& y) {
  backward(y, normal(y.shape(), 4, y.dtype()));
  return {y.value(), x[0].grad(), x[1].grad(), x[2].grad(), {}};
}
Variables operands(const Shape& shape, DType dtype = DType::f64) {
  Variables x;
  for (const uint64_t seed : {1, 2, 3}) x.emplace_back(normal(shape, seed, dtype), true);
  return x;
}

}  // namespace

TEST_CASE("bucket_attention is softmax attention to the union of the near tokens of all rounds") {
  Case c = GENERATE(Case{1, 1, 1, 1, 1, 1}, Case{2, 9, 2, 3, 4, 2}, Case{1, 900, 2, 2, 4, 20},
                    Case{2, 500, 1, 3, 2, 230}, Case{1, 130, 1, 2, 1, 1000});
  c.causal = GENERATE(false, true);
  if (GENERATE(false, true))
    for (int64_t b = 0; b < c.B; ++b) c.tokens.push_back(static_cast<int32_t>(b ? c.N : c.N / 2));
  const attention::Buckets buckets = random_buckets(c);
  const Variables a = operands({c.B, c.N, c.H, 5}), b = operands({c.B, c.N, c.H, 5});
  const Variable s = matmul(transpose(b[0], 1, 2), permute(b[1], {0, 2, 3, 1}), 0.7);
  const Variable p = softmax(where(near_tokens(c, buckets), s, -INFINITY));
  check_near(run(a, attention::bucket_attention(a[0], a[1], a[2], 0.7, buckets)),
             run(b, transpose(matmul(p, transpose(b[2], 1, 2)), 1, 2)), 1e-12);
}

TEST_CASE("bucket_attention: the same bits for any number of threads") {
  // Keys of neighbouring spans overlap.
  const Case c{1, 4000, 1, 3, 6, 100};
  const attention::Buckets buckets = random_buckets(c);
  const auto outcome = [&](int n) {
    set_threads(n);
    const Variables x = operands({1, c.N, 1, 8}, DType::f32);
    return run(x, attention::bucket_attention(x[0], x[1], x[2], 0.7, buckets));
  };
  const int before = threads();
  const Outcome one = outcome(1);
  for (int repeat = 0; repeat < 10; ++repeat) {  // the order in which tasks end varies
    const Outcome four = outcome(4);
    CHECK(identical(four.out, one.out));
    CHECK(identical(four.dq, one.dq));
    CHECK(identical(four.dk, one.dk));
    CHECK(identical(four.dv, one.dv));
  }
  set_threads(before);
}

TEST_CASE("bucket_attention: scores of any magnitude, in f32") {
  // One bucket, of which each token attends to all others.
  const Case c{1, 3000, 1, 1, 1, 3000};
  const Variable q(Tensor::full({1, c.N, 1, 4}, 1e6)), k(Tensor::full({1, c.N, 1, 4}, 30), true),
      v(Tensor::full({1, c.N, 1, 4}, 0.7));
  const Variable out = attention::bucket_attention(q, k, v, 1, random_buckets(c));
  CHECK(near(out.value(), Tensor::full(out.shape(), 0.7), 1e-6));
  backward(out, Tensor::full(out.shape(), 1));
  CHECK(all_finite(k.grad()));
}
