#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/ops.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// (1, H, N, N) u8: where the weights of a variant are not 0, from equal scores and values that are
// unit vectors.
Tensor seen_by(attention::Variant& variant, int64_t N, int64_t heads) {
  Tensor out = Tensor::empty({1, heads, N, N}, DType::u8);
  const Tensor zero = Tensor::zeros({1, N, heads, 4}, DType::f64);
  for (int64_t j = 0; j < N; j += 4) {
    Tensor v = zero.clone();
    for (int64_t d = 0; d < 4 && j + d < N; ++d) v.select(1, j + d).select(2, d).fill(1);
    const Tensor w = forward(variant, zero, zero, v);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < N; ++i)
        for (int64_t d = 0; d < 4 && j + d < N; ++d)
          out.data<uint8_t>()[(h * N + i) * N + j + d] = w.at({0, i, h, d}) > 0;
  }
  return out;
}

Settings three_kinds(bool causal) {
  return {{"block", int64_t{4}},
          {"window", int64_t{1}},
          {"random_blocks", int64_t{2}},
          {"last_blocks", int64_t{causal ? 0 : 1}}};
}

}  // namespace

TEST_CASE("bigbird: neighbours and global blocks, and as many others as asked for, in each head") {
  const bool causal = GENERATE(false, true);
  const int64_t N = 58, block = 4, n = 15;
  const auto variant =
      make_variant("bigbird", {.max_length = N, .causal = causal}, options_of(three_kinds(causal)));
  const Tensor seen = seen_by(*variant, N, 2);
  bool heads_differ = false;
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < N; ++i) {
      const int64_t a = i / block;
      int64_t others = 0, drawn = 0;
      for (int64_t j = 0; j < N; ++j) {
        const int64_t b = j / block;
        const bool now = seen.at({0, h, i, j}) != 0;
        INFO("query " << i << " key " << j);
        heads_differ = heads_differ || now != (seen.at({0, 0, i, j}) != 0);
        if (causal && j > i) {
          CHECK_FALSE(now);
          continue;
        }
        const bool global = a == 0 || b == 0 || (!causal && (a == n - 1 || b == n - 1));
        if (global || std::abs(a - b) <= 1) {
          CHECK(now);
        } else {
          ++others, drawn += now;
          CHECK(now == (seen.at({0, h, i, b * block}) != 0));  // whole blocks
        }
      }
      CHECK(drawn == std::min<int64_t>(others, 2 * block));
    }
  CHECK(heads_differ);
}

TEST_CASE("bigbird equals softmax attention with its pattern for a mask, with gradients") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 58, 203);
  const auto variant =
      make_variant("bigbird", {.max_length = N, .causal = causal}, options_of(three_kinds(causal)));
  const Operands x({2, N, 2, 4});
  const Tensor seen = seen_by(*variant, N, 2);
  const Outcome found = run_variant(*variant, x);
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out =
      attention::definitions::apply(attention::definitions::softmax(q, k, seen), v);
  backward(out, x.cotangent);
  check_near(found, {out.value(), q.grad(), k.grad(), v.grad(), {}}, 1e-12);
}

TEST_CASE("bigbird: samples have the patterns of their own lengths") {
  const bool causal = GENERATE(false, true);
  const auto variant = make_variant("bigbird", {.max_length = 58, .causal = causal},
                                    options_of(three_kinds(causal)));
  check_samples(*variant, Operands({4, 58, 2, 4}), {58, 33, 0, 21}, 1e-14, 1e-14);
}

TEST_CASE("bigbird: the pattern is that of the state, and starts alike for all causal lengths") {
  const auto made = [](uint64_t seed, bool causal) {
    return make_variant("bigbird", {.max_length = 80, .causal = causal, .seed = seed},
                        options_of(three_kinds(causal)));
  };
  const auto one = made(1, false), other = made(2, false), causal = made(1, true);
  const Tensor first = seen_by(*one, 80, 2);
  CHECK_FALSE(identical(first, seen_by(*other, 80, 2)));
  other->load_state_dict(one->state_dict());
  CHECK(identical(first, seen_by(*other, 80, 2)));
  CHECK(identical(first, seen_by(*made(1, false), 80, 2)));
  const Tensor longer = seen_by(*causal, 80, 2);
  CHECK(identical(longer.slice(2, 0, 53).slice(3, 0, 53).contiguous(), seen_by(*causal, 53, 2)));
}

TEST_CASE("bigbird: reports when all blocks attend to each other") {
  const auto variant = make_variant("bigbird", {.max_length = 80}, options_of(three_kinds(false)));
  CHECK(variant->algorithm(24) == "softmax: the 6 blocks of 24 tokens all attend to each other");
  CHECK(variant->algorithm(40).empty());
  CHECK(variant->advice(24).find("reduce it") != std::string::npos);
  CHECK(variant->advice(40).empty());
  CHECK_THROWS_AS(make_variant("bigbird", {}, options_of({{"block", int64_t{5}}})), ConfigError);
  CHECK_THROWS_AS(
      make_variant("bigbird", {.causal = true}, options_of({{"last_blocks", int64_t{1}}})),
      ConfigError);
}
