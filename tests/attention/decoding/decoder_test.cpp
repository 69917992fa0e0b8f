// Decoding token by token gives the rows of the whole sequence.
#include "longhand/attention/decoding/kv_cache.h"

#include "longhand/core/storage.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

struct Decoded {
  std::string name;
  std::vector<std::pair<std::string, OptionValue>> options{};
  bool grows = false;  // its state grows with the tokens
};

const std::vector<Decoded> decoded_cases{
    {"softmax", {}, true},
    {"gaussian", {{"sigma", 0.6}}, true},
    {"gaussian", {{"normalized", false}}, true},
    {"softmax", {{"sink", std::string("learned")}}, true},
    {"sigmoid", {{"learned", true}}, true},
    {"differential", {}, true},
    {"moba", {{"block", int64_t{8}}, {"blocks", int64_t{3}}}, true},
    {"softmax", {{"window", int64_t{7}}, {"bias", std::string("alibi")}, {"scale", 0.3}}, true},
    {"performer", {}},
    {"performer", {{"kernel", std::string("hyperbolic")}, {"heads", std::string("per_head")}}},
    {"performer", {{"kernel", std::string("trigonometric")}, {"features", int64_t{200}}}},
    {"performer", {{"kernel", std::string("trigonometric_bias")}, {"features", int64_t{200}}}},
    {"performer", {{"kernel", std::string("relu")}}},
    {"performer", {{"kernel", std::string("exp")}, {"eps", 0.01}}},
    {"efficient", {}},
    {"rff", {{"features", int64_t{200}}}},
    {"rff", {{"kernel", std::string("gaussian")}, {"guard", std::string("clamp")}}},
    {"rff",
     {{"kernel", std::string("rfa")},
      {"waves", std::string("cos_bias")},
      {"features", int64_t{200}}}},
    {"linear", {}},
    {"linear", {{"feature_map", std::string("exp")}}},
    {"linear", {{"feature_map", std::string("relu")}}},
    {"linear", {{"feature_map", std::string("taylor2")}}},
    {"linear", {{"feature_map", std::string("cosformer")}}},
    {"linear", {{"feature_map", std::string("hedgehog")}}},
    {"linear", {{"feature_map", std::string("dpfp")}, {"nu", int64_t{2}}}},
    {"linear", {{"feature_map", std::string("rebased")}}},
    {"linear", {{"feature_map", std::string("t2r")}}},
    {"window", {{"window", int64_t{5}}, {"global_tokens", int64_t{0}}}},
    {"window", {}},
    {"lowrank", {}},
    {"mean", {}},
    {"synthesizer", {{"kind", std::string("random")}}, true},
    {"aft", {{"kind", std::string("full")}}, true},
    {"aft", {{"window", int64_t{3}}}},
    {"aft", {{"kind", std::string("simple")}}},
    {"linformer", {{"projection", std::string("conv")}, {"local", true}}, true},
};

Options decoded_options(const Decoded& c) {
  Options options = small_options(c.name);
  for (const auto& [key, value] : c.options) options.set(key, value);
  return options;
}

std::string text_of(const Decoded& c) {
  std::string text = c.name;
  for (const auto& [key, value] : c.options) text += " " + key + "=" + to_string(value);
  return text;
}

}  // namespace

TEST_CASE("decoders: token by token is the same as all at once") {
  const Decoded c = GENERATE(from_range(decoded_cases));
  const DType dtype = GENERATE(DType::f64, DType::f32);
  const int64_t B = 2, N = 140, H = 4, G = 2, D = 4;
  INFO(text_of(c) << " " << dtype);
  const auto variant = make_variant(
      c.name, {.heads = H, .max_length = N, .kv_heads = G, .causal = true, .dtype = dtype},
      decoded_options(c));
  REQUIRE(variant->capabilities().decodes);
  const Tensor q = normal({B, N, H, D}, 1, dtype, 0.4), k = normal({B, N, G, D}, 2, dtype, 0.4),
               v = normal({B, N, G, D}, 3, dtype);
  const Tensor expected = variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value();
  const auto decoder = variant->decoder(B);
  Tensor out = Tensor::empty(q.shape(), dtype);
  int64_t after_two = 0;
  for (int64_t t = 0; t < N; ++t) {
    copy_into(out.select(1, t), decoder->step(q.select(1, t), k.select(1, t), v.select(1, t)));
    if (t == 1) after_two = decoder->bytes();
  }
  CHECK(near(out, expected, dtype == DType::f64 ? 1e-11 : 1e-4));
  CHECK(after_two > 0);
  CHECK((decoder->bytes() > after_two) == c.grows);
}

TEST_CASE("decoders: more keys than one block of scores") {
  const Decoded c = GENERATE(values<Decoded>({{"softmax"},
                                              {"softmax", {{"window", int64_t{1500}}}},
                                              {"gaussian", {{"normalized", false}}},
                                              {"sigmoid"},
                                              {"topk", {{"k", int64_t{40}}}},
                                              {"bigbird", {{"block", int64_t{32}}}},
                                              {"reformer", {{"window", int64_t{300}}}},
                                              {"aft", {{"window", int64_t{200}}}}}));
  // The second cache, of 27 MiB, is prefetched.
  const int64_t N = 2100, H = GENERATE(2, 13), D = H == 2 ? 4 : 64;
  INFO(text_of(c) << " " << H);
  const auto variant = make_variant(
      c.name, {.heads = H, .dim = D, .max_length = N, .causal = true, .dtype = DType::f64},
      decoded_options(c));
  const Tensor q = normal({1, N, H, D}, 1), k = normal({1, N, H, D}, 2),
               v = normal({1, N, H, D}, 3);
  const Tensor expected = variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value();
  const auto decoder = variant->decoder(1);
  for (int64_t t = 0; t + 1 < N; ++t)
    decoder->append({q.select(1, t), k.select(1, t), v.select(1, t)});
  const Tensor last = decoder->step(q.select(1, N - 1), k.select(1, N - 1), v.select(1, N - 1));
  CHECK(near(last, expected.select(1, N - 1), 1e-11));
}

TEST_CASE("decoders: the bytes reported are those allocated") {
  const Decoded c = GENERATE(from_range(decoded_cases));
  const int64_t B = 3, N = 40, H = 4, G = 2, D = 24;
  INFO(text_of(c));
  const auto variant = make_variant(
      c.name,
      {.heads = H, .dim = D, .max_length = N, .kv_heads = G, .causal = true, .dtype = DType::f32},
      decoded_options(c));
  const Tensor q = normal({B, H, D}, 1, DType::f32), k = normal({B, G, D}, 2, DType::f32),
               v = normal({B, G, D}, 3, DType::f32);
  variant->decoder(B)->step(q, k, v);  // what the variant itself keeps from its first use
  const auto in_use = [] { return static_cast<int64_t>(memory_stats().in_use); };
  const int64_t before = in_use();
  const auto decoder = variant->decoder(B);
  for (int64_t t = 1; t <= N; ++t) {
    decoder->step(q, k, v);
    const int64_t allocated = in_use() - before;
    CAPTURE(t, allocated);
    CHECK(decoder->bytes() == B * variant->state_bytes(t));
    // At most four tensors, in multiples of 64 bytes.
    CHECK(allocated >= decoder->bytes());
    CHECK(allocated < decoder->bytes() + 4 * 64);
  }
}

TEST_CASE("decoders: a batch is its sequences one by one, and appended tokens count") {
  const Decoded c = GENERATE(from_range(decoded_cases));
  const int64_t B = 32, N = 40, H = 4, G = 2, D = 4;
  INFO(text_of(c));
  const auto variant = make_variant(
      c.name, {.heads = H, .max_length = N, .kv_heads = G, .causal = true}, decoded_options(c));
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, G, D}, 2),
               v = normal({B, N, G, D}, 3);
  const auto token = [&](int64_t b, int64_t sequences, int64_t t) {
    const auto of = [&](const Tensor& x) { return x.slice(0, b, b + sequences).select(1, t); };
    return Token{of(q), of(k), of(v)};
  };
  const auto all = variant->decoder(B), appended = variant->decoder(B);
  Tensor expected;
  for (int64_t t = 0; t < N; ++t) expected = all->step(token(0, B, t));
  for (int64_t t = 0; t < N - 1; ++t) appended->append(token(0, B, t));
  CHECK(identical(appended->step(token(0, B, N - 1)), expected));
  CHECK(appended->bytes() == all->bytes());
  const Decoder::Traffic traffic = all->traffic();
  CHECK(traffic.read + traffic.updated > 0);
  CHECK(traffic.read + traffic.updated <= all->bytes());
  for (const int64_t b : {0, 17, 31}) {
    const auto one = variant->decoder(1);
    Tensor out;
    for (int64_t t = 0; t < N; ++t) out = one->step(token(b, 1, t));
    CHECK(near(out, expected.slice(0, b, b + 1), 1e-13));
  }
}

TEST_CASE("decoders: a step copies no state, and keeps no memory") {
  const Decoded c = GENERATE(from_range(decoded_cases));
  const int64_t B = 3, N = 199, H = 4, D = 24;  // not at the end of a block
  INFO(text_of(c));
  const auto variant = make_variant(
      c.name, {.heads = H, .dim = D, .max_length = N, .causal = true, .dtype = DType::f32},
      decoded_options(c));
  const Tensor x = normal({B, H, D}, 1, DType::f32);
  const auto decoder = variant->decoder(B);
  for (int64_t t = 1; t < N; ++t) decoder->append({x, x, x});
  const MemoryStats before = memory_stats();
  reset_memory_peak();
  decoder->step(x, x, x);
  // Some vectors of the size of a token, and of its features or scores.
  const auto most = static_cast<size_t>(8 * 8 * x.numel() + decoder->bytes() / 4);
  CHECK(memory_stats().peak - before.in_use <= most);
  CHECK(memory_stats().in_use == before.in_use);
}

TEST_CASE("decoders: norms of any size, and keys far above all before") {
  for (const Decoded& c : std::vector<Decoded>{{"performer", {}},
                                               {"efficient", {}},
                                               {"linear", {{"feature_map", std::string("exp")}}},
                                               {"rff", {}},
                                               {"softmax", {}}}) {
    INFO(text_of(c));
    const int64_t N = 40;
    const auto variant =
        make_variant(c.name, {.heads = 1, .max_length = N, .causal = true, .dtype = DType::f32},
                     decoded_options(c));
    const Tensor q = normal({1, N, 1, 4}, 1, DType::f32, 3),
                 v = normal({1, N, 1, 4}, 3, DType::f32);
    Tensor k = normal({1, N, 1, 4}, 2, DType::f32, 3);
    k.slice(1, 20, 21).fill(60);
    const auto decoder = variant->decoder(1);
    for (int64_t t = 0; t < N; ++t)
      CHECK(all_finite(decoder->step(q.select(1, t), k.select(1, t), v.select(1, t))));
  }
}

TEST_CASE("decoders: a cache knows windows and slopes") {
  const int64_t N = 30, H = 2, D = 4;
  attention::Config config;
  config.heads = H;
  config.head_dim = D;
  config.causal = true;
  const Tensor q = normal({1, N, H, D}, 1), k = normal({1, N, H, D}, 2),
               v = normal({1, N, H, D}, 3);
  const auto decoder =
      make_cache_decoder(1, config, {.scale = 0.5, .window = 7, .slopes = {0.25, 2}});
  const auto qs = rows_of(q), ks = rows_of(k), vs = rows_of(v);
  for (int64_t t = 0; t < N; ++t) {
    const Tensor out = decoder->step(q.select(1, t), k.select(1, t), v.select(1, t));
    for (int64_t h = 0; h < H; ++h) {
      Row sum(D, 0);
      double den = 0;
      for (int64_t j = std::max<int64_t>(0, t - 6); j <= t; ++j) {
        const double w = std::exp(0.5 * dot(qs[t * H + h], ks[j * H + h]) -
                                  (h ? 2 : 0.25) * static_cast<double>(t - j));
        den += w;
        for (int64_t d = 0; d < D; ++d) sum[d] += w * vs[j * H + h][d];
      }
      for (int64_t d = 0; d < D; ++d)
        CHECK(out.at({0, h, d}) == Approx(sum[d] / den).margin(1e-12));
    }
  }
}

TEST_CASE("decoders: wrong shapes, and variants that are not causal, are refused") {
  for (const std::string name : {"softmax", "performer", "linear"}) {
    INFO(name);
    CHECK_THROWS_AS(make_variant(name)->decoder(1), ConfigError);
    const auto decoder = make_variant(name, {.causal = true})->decoder(2);
    const Tensor x = Tensor::zeros({3, 2, 4}, DType::f64);
    CHECK_THROWS_AS(decoder->step(x, x, x), ShapeError);
  }
}

TEST_CASE("decoders: what says that it decodes does") {
  for (const std::string& name : library) {
    INFO(name);
    if (!capabilities(name).causal) {
      CHECK_FALSE(capabilities(name).decodes);
      continue;
    }
    const auto variant = make_variant(name, {.causal = true});
    if (variant->capabilities().decodes)
      CHECK_NOTHROW(variant->decoder(1));
    else
      CHECK_THROWS_AS(variant->decoder(1), ConfigError);
  }
}

namespace {

// Compares f32 with f64 after N equal keys and one other, whose value alone is not 0 in the
// first column.
void check_long_decoding(int64_t N, const std::function<std::unique_ptr<Decoder>(DType)>& make) {
  const int64_t D = 2;
  const auto last = [&](DType dtype) {
    const auto decoder = make(dtype);
    const auto row = [&](float x) { return Tensor::full({1, 1, D}, x, dtype); };
    Tensor out;
    for (int64_t j = 0; j < N; ++j) {
      const bool other = j == N / 3;
      Tensor v = row(other ? 0.9f : 0.7f);
      v.select(2, 0).fill(other ? 1 : 0);
      out = decoder->step(row(0.3f), row(other ? 0.8f : 0.2f), v);
    }
    return out.to_vector<double>();
  };
  const auto found = last(DType::f32), expected = last(DType::f64);
  for (int64_t d = 0; d < D; ++d) {
    INFO(d << ": " << found[d] / expected[d] - 1);
    CHECK(std::abs(found[d] / expected[d] - 1) <= 5e-6);
  }
}

}  // namespace

TEST_CASE("decoding: a cache of 4,096 equal keys and one other is as precise as f64") {
  Config config;
  config.heads = 1;
  config.head_dim = 2;
  config.causal = true;
  config.max_length = 4096;
  check_long_decoding(
      4096, [&](DType) { return make_cache_decoder(1, config, {.scale = 1, .slopes = {}}); });
}

TEST_CASE("decoding: a state of 16,384 equal keys and one other is as precise as f64") {
  const std::string name = GENERATE("linear", "performer", "efficient");
  INFO(name);
  std::vector<std::unique_ptr<attention::Variant>> made;
  check_long_decoding(16384, [&](DType dtype) {
    made.push_back(make_variant(
        name, {.heads = 1, .dim = 2, .max_length = 16384, .causal = true, .dtype = dtype}));
    if (made.size() == 2) made[1]->load_state_dict(made[0]->state_dict());
    return made.back()->decoder(1);
  });
}
