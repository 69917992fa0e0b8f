#include "longhand/attention/ops/listed_attention.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// Every third key from i on, and none for query 2.
void some_keys(int64_t, int64_t h, int64_t i, std::vector<int32_t>& keys, int64_t M) {
  if (i == 2) return;
  for (int64_t j = (i + h) % 3; j < M; j += 3) keys.push_back(static_cast<int32_t>(j));
}

}  // namespace

TEST_CASE("listed_attention is softmax attention to the listed keys") {
  const int64_t N = 7, M = 160;
  const Tensor q = normal({2, N, 2, 5}, 1), k = normal({2, M, 2, 5}, 2),
               v = normal({2, M, 2, 5}, 3);
  const auto listed = [&](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
    some_keys(b, h, i, keys, M);
  };
  Tensor keep = Tensor::zeros({1, 2, N, M}, DType::u8);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < N; ++i) {
      std::vector<int32_t> keys;
      listed(0, h, i, keys);
      for (const int32_t j : keys) keep.data<uint8_t>()[(h * N + i) * M + j] = 1;
    }
  const auto naive = [&](const Variables& x) {
    const Variable s = matmul(transpose(x[0], 1, 2), permute(x[1], {0, 2, 3, 1}), 0.7);
    return transpose(matmul(softmax(where(keep, s, -INFINITY)), transpose(x[2], 1, 2)), 1, 2);
  };
  const auto run = [&](auto f) {
    Variables x;
    for (const Tensor& t : {q, k, v}) x.emplace_back(t, true);
    const Variable y = f(x);
    backward(y, normal(y.shape(), 4));
    return Outcome{y.value(), x[0].grad(), x[1].grad(), x[2].grad(), {}};
  };
  const Outcome a = run([&](const Variables& x) {
    return attention::listed_attention(x[0], x[1], x[2], {.scale = 0.7}, listed);
  });
  check_near(a, run(naive), 1e-13);
  CHECK(all_zero(a.out.slice(1, 2, 3)));
}

TEST_CASE("listed_attention: added scores and factors of probabilities, with gradients") {
  const int64_t N = 7, M = 40, most = 14;  // some lists are shorter
  Tensor lists = Tensor::zeros({2, 2, N, most}, DType::i32),
         keep = Tensor::zeros({2, 2, N, M}, DType::u8);
  const auto listed = [&](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
    some_keys(b, h, i, keys, M);
  };
  for (int64_t row = 0; row < 4 * N; ++row) {
    std::vector<int32_t> keys;
    listed(row / N / 2, row / N % 2, row % N, keys);
    std::copy(keys.begin(), keys.end(), lists.data<int32_t>() + row * most);
    for (const int32_t j : keys) keep.data<uint8_t>()[row * M + j] = 1;
  }
  const Tensor factors = normal({2, 2, N, M}, 5);
  const auto run = [&](auto f) {
    Variables x;
    for (const Tensor& t : {normal({2, N, 2, 5}, 1), normal({2, M, 2, 5}, 2),
                            normal({2, M, 2, 5}, 3), normal({2, 2, N, M}, 6)})
      x.emplace_back(t, true);
    const Variable y = f(x);
    backward(y, normal(y.shape(), 4));
    CHECK(all_finite(x[3].grad()));
    return std::pair{Outcome{y.value(), x[0].grad(), x[1].grad(), x[2].grad(), {}}, x[3].grad()};
  };
  const auto [a, dadded] = run([&](const Variables& x) {
    return attention::listed_attention(x[0], x[1], x[2],
                                       {.scale = 0.7,
                                        .added = gather(x[3], 3, lists),
                                        .factors = gather(Variable(factors), 3, lists).value()},
                                       listed);
  });
  const auto [b, expected] = run([&](const Variables& x) {
    const Variable s = matmul(transpose(x[0], 1, 2), permute(x[1], {0, 2, 3, 1}), 0.7) + x[3];
    const Variable p = softmax(where(keep, s, -INFINITY)) * Variable(factors);
    return transpose(matmul(p, transpose(x[2], 1, 2)), 1, 2);
  });
  check_near(a, b, 1e-13);
  CHECK(near(dadded, expected, 1e-13));
}

TEST_CASE("listed_attention_with_sums: logarithms of normalisers, with gradients") {
  const int64_t N = 7, M = 40;
  const auto listed = [&](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
    some_keys(b, h, i, keys, M);
  };
  Tensor keep = Tensor::zeros({1, 2, N, M}, DType::u8);
  for (int64_t row = 0; row < 2 * N; ++row) {
    std::vector<int32_t> keys;
    listed(0, row / N, row % N, keys);
    for (const int32_t j : keys) keep.data<uint8_t>()[row * M + j] = 1;
  }
  Tensor counted = Tensor::full({2, 2, N}, 1, DType::u8);
  for (int64_t row = 0; row < 4; ++row) counted.data<uint8_t>()[row * N + 2] = 0;  // no keys
  const Tensor dsums = normal({2, 2, N}, 5);
  const auto run = [&](auto f) {
    Variables x;
    for (const Tensor& t :
         {normal({2, N, 2, 5}, 1), normal({2, M, 2, 5}, 2), normal({2, M, 2, 5}, 3)})
      x.emplace_back(t, true);
    const auto [out, sums] = f(x);
    const Variable finite = where(counted, sums, 0);
    backward(sum(out * Variable(normal(out.shape(), 4))) + sum(finite * Variable(dsums)));
    return std::pair{Outcome{out.value(), x[0].grad(), x[1].grad(), x[2].grad(), {}}, sums.value()};
  };
  const auto [a, sums] = run([&](const Variables& x) {
    const auto r = attention::listed_attention_with_sums(x[0], x[1], x[2], {.scale = 0.7}, listed);
    return std::pair{r.out, r.log_sums};
  });
  const auto [b, expected] = run([&](const Variables& x) {
    const Variable s = matmul(transpose(x[0], 1, 2), permute(x[1], {0, 2, 3, 1}), 0.7);
    const Variable e = exp(where(keep, s, -700));  // not 0, whose logarithm has no gradient
    const Variable total = sum(e, {3}, true);
    const Variable P = where(keep, e / total, 0);
    return std::pair{transpose(matmul(P, transpose(x[2], 1, 2)), 1, 2), squeeze(log(total), 3)};
  });
  check_near(a, b, 1e-12);
  const auto values = sums.to_vector<double>(), of_naive = expected.to_vector<double>();
  for (size_t row = 0; row < values.size(); ++row) {
    if (row % N == 2)
      CHECK(values[row] == -INFINITY);
    else
      CHECK(std::abs(values[row] - of_naive[row]) <= 1e-12);
  }
}

TEST_CASE("listed_attention: scores of any magnitude and long lists, in f32") {
  const int64_t M = 20000;
  const auto all = [=](int64_t, int64_t, int64_t, std::vector<int32_t>& keys) {
    for (int32_t j = 0; j < M; ++j) keys.push_back(j);
  };
  const Variable q(Tensor::full({1, 1, 1, 4}, 1e6)), k(Tensor::full({1, M, 1, 4}, 30), true),
      v(Tensor::full({1, M, 1, 4}, 0.7));
  const Variable out = attention::listed_attention(q, k, v, {}, all);
  CHECK(std::abs(out.value().at({0, 0, 0, 0}) - 0.7) <= 1e-6);
  backward(out, Tensor::full({1, 1, 1, 4}, 1));
  CHECK(all_finite(k.grad()));
}
