#include <algorithm>

#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("topk equals its definition") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 70), k = GENERATE(1, 3, 20, 100);
  const auto n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  const Tensor q = normal({2, N, 2, 4}, 1), keys = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const auto variant =
      make_variant("topk", {.max_length = N, .causal = causal}, options_of({{"k", k}}));
  const Tensor seen =
      attention::definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths});
  const Tensor expected =
      attention::definitions::apply(
          attention::definitions::topk(Variable(q), Variable(keys), k, seen), Variable(v))
          .value();
  CHECK(near(forward(*variant, q, keys, v, mask), expected, 1e-12));
}

TEST_CASE("topk: of equal scores the earlier keys are selected, and exactly k") {
  // All keys are equal, so all scores of a query are.
  const Tensor q = normal({1, 6, 1, 4}, 1), keys = Tensor::full({1, 6, 1, 4}, 0.5, DType::f64);
  Tensor v = Tensor::zeros({1, 6, 1, 4}, DType::f64);
  for (int64_t j = 0; j < 6; ++j) v.slice(1, j, j + 1).fill(static_cast<double>(j));
  const auto variant = make_variant("topk", {.heads = 1}, options_of({{"k", int64_t{3}}}));
  const Tensor out = forward(*variant, q, keys, v);
  for (int64_t i = 0; i < 6; ++i) CHECK(out.at({0, i, 0, 0}) == Approx(1));  // of 0, 1 and 2
}

TEST_CASE("topk: biases and masks of pairs, with gradients") {
  const bool causal = GENERATE(false, true);
  const int64_t N = 530, k = GENERATE(7, 600);  // more than a block of keys
  const Operands x({1, N, 2, 4});
  Tensor keep = Tensor::full({1, 1, N, N}, 1, DType::u8);
  for (int64_t at = 0; at < N * N; at += 3) keep.data<uint8_t>()[at] = 0;
  keep.slice(2, 5, 6).fill(0);  // a query without keys
  const auto variant =
      make_variant("topk", {.max_length = N, .causal = causal}, options_of({{"k", k}}));
  const Tensor seen = attention::definitions::visible(N, N, {.causal = causal});

  Variables of_variant, of_definition;
  for (Variables* const leaves : {&of_variant, &of_definition})
    for (const Tensor& t : {x.q, x.k, x.v, normal({1, 2, 1, N}, 5)}) leaves->emplace_back(t, true);
  const auto& in = of_variant;
  backward(variant->forward(in[0], in[1], in[2], {.keep = keep, .bias = in[3]}, {}), x.cotangent);

  const auto& d = of_definition;
  const Variable s =
      where(seen,
            where(keep, matmul(transpose(d[0], 1, 2), permute(d[1], {0, 2, 3, 1}), 0.5) + d[3],
                  -INFINITY),
            -INFINITY);
  const Tensor all = s.value().contiguous();
  Tensor selected = Tensor::zeros(s.shape(), DType::u8);
  for (int64_t row = 0; row < 2 * N; ++row) {
    const double* const scores = all.data<double>() + row * N;
    Row sorted(scores, scores + N);
    std::ranges::sort(sorted, std::greater());
    for (int64_t j = 0; j < N; ++j)
      selected.data<uint8_t>()[row * N + j] = scores[j] >= sorted[std::min(k, N) - 1];
  }
  const Variable out =
      transpose(matmul(softmax(where(selected, s, -INFINITY)), transpose(d[2], 1, 2)), 1, 2);
  backward(out, x.cotangent);
  CHECK(near(forward(*variant, x.q, x.k, x.v, {.keep = keep, .bias = in[3]}), out.value(), 1e-12));
  for (size_t i = 0; i < 4; ++i) CHECK(near(in[i].grad(), d[i].grad(), 1e-11));
}

TEST_CASE("topk: dropout is that of softmax attention") {
  const Operands x({2, 70, 2, 4});
  const Settings dropout{{"dropout", 0.4}};
  const auto topk = make_variant("topk", {}, options_of({{"k", int64_t{100}}, {"dropout", 0.4}})),
             softmax = make_variant("softmax", {}, options_of(dropout));
  const nn::Pass pass = nn::Pass::train(Generator(3));
  const auto run = [&](attention::Variant& variant) {
    return run_variant(variant, x.q, x.k, x.v, lengths({70, 31}), x.cotangent, pass);
  };
  check_near(run(*topk), run(*softmax), 1e-12);
}
