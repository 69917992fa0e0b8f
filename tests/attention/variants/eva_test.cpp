#include "longhand/attention/bases/masked_softmax.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

Options eva(int64_t window, int64_t chunk, const std::string& weight = "tokens") {
  return options_of({{"window", window}, {"chunk", chunk}, {"chunk_weight", weight}});
}

// The formula, with a matrix of the scores of all tokens and chunks.
Variable composed(const Variable& q, const Variable& k, const Variable& v,
                  const std::vector<int32_t>& lengths, bool causal, int64_t w, int64_t c) {
  const int64_t B = q.size(0), N = q.size(1), chunks = (N + c - 1) / c;
  Tensor share = Tensor::zeros({B, 1, chunks, N}, DType::f64),
         weight = Tensor::zeros({B, 1, 1, chunks}, DType::f64);
  Tensor in_chunk = Tensor::zeros({B, 1, chunks, N}, DType::u8),
         sees_token = Tensor::zeros({B, 1, N, N}, DType::u8),
         sees_chunk = Tensor::zeros({B, 1, N, chunks}, DType::u8);
  const auto set = [](Tensor& t, int64_t b, int64_t i, int64_t j, auto x) {
    t.data<decltype(x)>()[(b * t.size(2) + i) * t.size(3) + j] = x;
  };
  for (int64_t b = 0; b < B; ++b) {
    const int64_t n = lengths[b];
    for (int64_t j = 0; j < n; ++j) {
      const int64_t chunk = j / c;
      const auto size = static_cast<double>(std::min(n, (chunk + 1) * c) - chunk * c);
      set(share, b, chunk, j, 1 / size);
      set(weight, b, 0, chunk, std::log(size));
      set(in_chunk, b, chunk, j, uint8_t{1});
      for (int64_t i = 0; i < n; ++i) {
        const bool same = i / w == j / w;
        if (same && !(causal && j > i)) set(sees_token, b, i, j, uint8_t{1});
        if (!same && !(causal && j > i)) set(sees_chunk, b, i, chunk, uint8_t{1});
      }
    }
  }
  const Variable Q = transpose(q, 1, 2), K = transpose(k, 1, 2), V = transpose(v, 1, 2);
  const double tau = 1 / std::sqrt(static_cast<double>(q.size(3))), scale = std::sqrt(tau);
  const Variable q_mean = matmul(Variable(share), Q), k_mean = matmul(Variable(share), K);
  const Variable half = affine(sum(square(K), {3}, true), tau / 2);
  const Variable logits =
      matmul(q_mean + k_mean, transpose(K, 2, 3), scale * scale) - transpose(half, 2, 3);
  const Variable beta = matmul(softmax(masked_scores(in_chunk, logits)), V);
  const Variable p = softmax(concat(
      {masked_scores(sees_token, matmul(Q, transpose(K, 2, 3), tau)),
       masked_scores(sees_chunk, matmul(Q, transpose(k_mean, 2, 3), tau) + Variable(weight))},
      3));
  return transpose(matmul(p, concat({V, beta}, 2)), 1, 2);
}

}  // namespace

TEST_CASE("eva: the joined tiles equal the formula, with gradients") {
  const bool causal = GENERATE(false, true);
  const auto [w, c] =
      GENERATE(std::pair<int64_t, int64_t>{4, 2}, std::pair<int64_t, int64_t>{9, 3},
               std::pair<int64_t, int64_t>{5, 1}, std::pair<int64_t, int64_t>{64, 16});
  const int64_t N = GENERATE(7, 64, 150);
  const auto n = static_cast<int32_t>(N);
  const std::vector<int32_t> ends =
      GENERATE_COPY(std::vector<int32_t>{n, n}, std::vector<int32_t>{n / 2 + 1, 1});
  INFO(N << " tokens, window " << w << ", chunk " << c << ", causal " << causal);
  const auto variant = make_variant("eva", {.causal = causal}, eva(w, c));
  const Mask mask = ends[1] < n ? lengths(ends) : Mask{};
  const Operands x({2, N, 2, 4});
  const Tensor cotangent = with_padding(x.cotangent, lengths(ends), 0);
  const Outcome tiled = run_variant(*variant, x.q, x.k, x.v, mask, cotangent);
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out = composed(q, k, v, ends, causal, w, c);
  backward(out, cotangent);
  check_near(tiled, {with_padding(out.value(), lengths(ends), 0), q.grad(), k.grad(), v.grad(), {}},
             1e-12);
}

TEST_CASE("eva: a chunk has the weight of its tokens, or of one key") {
  // Scores of 0: the 3 tokens of the block count as 3, and each chunk of 3 as 3 or 1.
  const int64_t N = 9;
  const Tensor zero = Tensor::zeros({1, N, 1, 4}, DType::f64);
  Tensor v = Tensor::zeros({1, N, 1, 4}, DType::f64);
  v.slice(1, 0, 3).fill(1);
  const Tensor tokens = forward(*make_variant("eva", {.heads = 1}, eva(3, 3)), zero, zero, v);
  const Tensor one = forward(*make_variant("eva", {.heads = 1}, eva(3, 3, "one")), zero, zero, v);
  CHECK(tokens.at({0, 0, 0, 0}) == Approx(3.0 / 9));
  CHECK(tokens.at({0, 8, 0, 0}) == Approx(3.0 / 9));
  CHECK(one.at({0, 0, 0, 0}) == Approx(3.0 / 5));
  CHECK(one.at({0, 8, 0, 0}) == Approx(1.0 / 5));
}

TEST_CASE("eva: no key counts both in the block of a query and in a chunk") {
  // Tokens of the block with a value of 1 and all others with 0: the weight of the block is that of
  // softmax attention, with keys that are equal.
  const int64_t N = 16;
  const Tensor q = normal({1, N, 1, 4}, 1), k = Tensor::full({1, N, 1, 4}, 0.3, DType::f64);
  Tensor v = Tensor::zeros({1, N, 1, 4}, DType::f64);
  v.slice(1, 8, 12).fill(1);
  const Tensor out = forward(*make_variant("eva", {.heads = 1}, eva(4, 2)), q, k, v);
  for (int64_t i = 8; i < 12; ++i) CHECK(out.at({0, i, 0, 0}) == Approx(0.25));
}

TEST_CASE("eva: training passes draw, others do not, and sampled = false never does") {
  const Operands x({2, 24, 2, 4});
  const auto training = [](uint64_t seed) {
    return nn::Pass{.training = true, .random = Generator(seed)};
  };
  const auto drawn = make_variant("eva", {}, eva(4, 2));
  const Tensor mean = forward(*drawn, x.q, x.k, x.v);
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)), mean, 1e-3));
  CHECK_FALSE(near(forward(*drawn, x.q, x.k, x.v, {}, training(1)),
                   forward(*drawn, x.q, x.k, x.v, {}, training(2)), 1e-3));
  const auto fixed = make_variant(
      "eva", {}, options_of({{"window", int64_t{4}}, {"chunk", int64_t{2}}, {"sampled", false}}));
  CHECK(identical(forward(*fixed, x.q, x.k, x.v, {}, training(1)), mean));
}

TEST_CASE("eva: a window that chunks do not divide is refused") {
  CHECK_THROWS_WITH(make_variant("eva", {}, eva(10, 4)),
                    Catch::Contains("window") && Catch::Contains("multiple of chunk = 4"));
}
