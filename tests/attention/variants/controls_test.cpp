// none, mean, random and window against plain loops.
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/model/transformer.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// Returns sum_j weight(b, h, i, j) v_j / sum_j weight(b, h, i, j), over j < length.
using Weight = std::function<double(int64_t b, int64_t h, int64_t i, int64_t j)>;
Tensor average(const Tensor& v, const std::vector<int32_t>& n, const Weight& weight) {
  const int64_t B = v.size(0), N = v.size(1), H = v.size(2), D = v.size(3);
  Tensor out = Tensor::zeros({B, N, H, D}, DType::f64);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t i = 0; i < n[b]; ++i)
      for (int64_t h = 0; h < H; ++h) {
        double total = 0;
        double* const o = out.data<double>() + ((b * N + i) * H + h) * D;
        for (int64_t j = 0; j < n[b]; ++j) {
          const double w = weight(b, h, i, j);
          total += w;
          for (int64_t d = 0; d < D; ++d) o[d] += w * v.at({b, j, h, d});
        }
        for (int64_t d = 0; d < D; ++d) o[d] /= total;
      }
  return out;
}

// Checks that the decoder gives the rows of the causal forward pass.
void check_decoder(attention::Variant& variant, int64_t N, DType dtype, double tolerance) {
  const Tensor q = normal({2, N, 2, 4}, 1, dtype), k = normal({2, N, 2, 4}, 2, dtype),
               v = normal({2, N, 2, 4}, 3, dtype);
  const Tensor all = forward(variant, q, k, v);
  const auto decoder = variant.decoder(2);
  int64_t bytes = 0;
  for (int64_t i = 0; i < N; ++i) {
    const Tensor row = decoder->step(q.select(1, i), k.select(1, i), v.select(1, i));
    INFO("token " << i);
    REQUIRE(row.shape() == Shape{2, 2, 4});
    CHECK(near(row, all.select(1, i), tolerance));
    if (i == 0) bytes = decoder->bytes();
  }
  CHECK(decoder->bytes() == bytes);  // of constant size
}

const std::vector<int32_t> some_lengths{13, 6, 1, 0, 4};

}  // namespace

TEST_CASE("none is the value itself") {
  const bool causal = GENERATE(false, true);
  const auto variant = make_variant("none", {.causal = causal});
  const Tensor q = normal({2, 5, 2, 4}, 1), v = normal({2, 5, 2, 4}, 3),
               c = normal({2, 5, 2, 4}, 4);
  const Outcome o = run_variant(*variant, q, q, v, {}, c);
  CHECK(identical(o.out, v));
  CHECK(identical(o.dv.contiguous(), c));
  CHECK(all_zero(o.dq));
  CHECK(all_zero(o.dk));
  CHECK(variant->parameter_count() == 0);
  const Tensor padded = forward(*variant, q, q, v, lengths({5, 2}));
  CHECK(identical(one(padded, 1, 2).contiguous(), one(v, 1, 2).contiguous()));
  CHECK(all_zero(padded.slice(0, 1, 2).slice(1, 2, 5)));
  check_decoder(*make_variant("none", {.causal = true}), 5, DType::f64, 0);
  const auto grouped = make_variant("none", {.heads = 4, .kv_heads = 2, .causal = true});
  const Tensor row = normal({1, 2, 4}, 1);
  CHECK(identical(grouped->decoder(1)->step(normal({1, 4, 4}, 2), row, row).select(1, 1),
                  row.select(1, 0)));
}

TEST_CASE("mean is the mean of the real tokens, or of those so far if causal") {
  const bool causal = GENERATE(false, true);
  const auto variant = make_variant("mean", {.causal = causal});
  const Tensor q = normal({5, 13, 2, 4}, 1), v = normal({5, 13, 2, 4}, 3);
  const Tensor expected = average(v, some_lengths, [&](int64_t, int64_t, int64_t i, int64_t j) {
    return causal && j > i ? 0.0 : 1.0;
  });
  CHECK(near(forward(*variant, q, q, v, lengths(some_lengths)), expected, 1e-14));
  check_decoder(*make_variant("mean", {.causal = true}), 40, DType::f64, 1e-15);
  check_decoder(*make_variant("mean", {.causal = true, .dtype = DType::f32}), 40, DType::f32, 1e-7);
}

TEST_CASE("random: a fixed row-stochastic matrix of positions, drawn from its state") {
  const bool causal = GENERATE(false, true);
  const double spread = GENERATE(1.0, 0.25);
  const auto variant = make_variant("random", {.causal = causal}, options_of({{"spread", spread}}));
  const Tensor state = variant->state_dict().at("random_state");
  const auto word = [&](int64_t i) { return static_cast<uint64_t>(state.data<int64_t>()[i]); };
  const Generator generator = Generator::from_state({word(0), word(1)});
  const Tensor q = normal({5, 13, 2, 4}, 1), v = normal({5, 13, 2, 4}, 3);
  const auto weight = [&](int64_t, int64_t h, int64_t i, int64_t j) {
    const auto at = [](int64_t n) { return static_cast<uint64_t>(n); };
    return causal && j > i ? 0.0
                           : std::exp(spread * generator.fork(at(h)).fork(at(i)).normal(at(j)));
  };
  // Shared weights for sequences without padding, and a softmax of each sample with it, in turns.
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(near(forward(*variant, q, q, v), average(v, std::vector<int32_t>(5, 13), weight), 1e-13));
    CHECK(near(forward(*variant, q, q, v, lengths(some_lengths)), average(v, some_lengths, weight),
               1e-13));
  }
  // The result depends on the state, not on queries and keys.
  CHECK(identical(forward(*variant, v, normal({5, 13, 2, 4}, 9), v, lengths(some_lengths)),
                  forward(*variant, q, q, v, lengths(some_lengths))));
  const auto other =
      make_variant("random", {.causal = causal, .seed = 8}, options_of({{"spread", spread}}));
  const Tensor before = forward(*other, q, q, v), here = forward(*variant, q, q, v);
  CHECK_FALSE(near(before, here, 1e-2));
  other->load_state_dict(variant->state_dict());
  CHECK(identical(forward(*other, q, q, v), here));
}

TEST_CASE("random: without spread it is the mean, and R of a short sequence is a corner of R") {
  const Tensor v = normal({2, 9, 2, 4}, 3);
  const auto flat = make_variant("random", {}, options_of({{"spread", 0.0}}));
  CHECK(near(forward(*flat, v, v, v), forward(*make_variant("mean"), v, v, v), 1e-14));
  // The long sequence first and then the short one, and in reverse order.
  const bool causal = GENERATE(false, true);
  const auto a = make_variant("random", {.causal = causal}),
             b = make_variant("random", {.max_length = 500, .causal = causal});
  const Tensor shorter = v.slice(1, 0, 4);
  const Tensor first = forward(*a, shorter, shorter, shorter);
  CHECK(identical(forward(*b, v, v, v), forward(*a, v, v, v)));
  CHECK(identical(forward(*b, shorter, shorter, shorter), first));
}

namespace {

bool sees(int64_t i, int64_t j, int64_t w, int64_t g, bool causal) {
  return (std::abs(i - j) <= w || i < g || j < g) && (!causal || j <= i);
}

}  // namespace

TEST_CASE("window: softmax over neighbours and global tokens, against plain loops") {
  const bool causal = GENERATE(false, true);
  const auto [w, g, N] = GENERATE(table<int64_t, int64_t, int64_t>({{0, 0, 9},
                                                                    {2, 0, 13},
                                                                    {2, 3, 13},
                                                                    {0, 1, 5},
                                                                    {3, 20, 13},
                                                                    {5, 0, 150},
                                                                    {5, 7, 150},
                                                                    {64, 2, 150},
                                                                    {70, 0, 150},
                                                                    {3, 70, 150},
                                                                    {2, 1, 128},
                                                                    {3, 0, 64},
                                                                    {3, 0, 65}}));
  INFO("w " << w << " g " << g << " N " << N << " causal " << causal);
  const auto variant = make_variant("window", {.max_length = N, .causal = causal},
                                    options_of({{"window", w}, {"global_tokens", g}}));
  const Tensor q = normal({4, N, 2, 4}, 1), k = normal({4, N, 2, 4}, 2),
               v = normal({4, N, 2, 4}, 3);
  const auto full = static_cast<int32_t>(N);
  for (const std::vector<int32_t>& n :
       {std::vector<int32_t>{full, full, full, full}, {full, full / 2, 1, 0}}) {
    const auto qs = rows_of(q), ks = rows_of(k);
    const Tensor expected = average(v, n, [&](int64_t b, int64_t h, int64_t i, int64_t j) {
      return sees(i, j, w, g, causal)
                 ? softmax_kernel(qs[(b * N + i) * 2 + h], ks[(b * N + j) * 2 + h])
                 : 0.0;
    });
    CHECK(near(forward(*variant, q, k, v, lengths(n)), expected, 1e-13));
  }
  if (causal) check_decoder(*variant, N, DType::f64, 1e-13);
}

TEST_CASE("window: with a dilation keys are that far apart, in both passes and in decoding") {
  const bool causal = GENERATE(false, true);
  const auto [w, d, g, N] = GENERATE(table<int64_t, int64_t, int64_t, int64_t>({{2, 3, 0, 20},
                                                                                {1, 7, 4, 20},
                                                                                {3, 40, 0, 13},
                                                                                {0, 2, 1, 9},
                                                                                {70, 2, 3, 301},
                                                                                {5, 2, 0, 150}}));
  const auto variant =
      make_variant("window", {.max_length = N, .causal = causal},
                   options_of({{"window", w}, {"dilation", d}, {"global_tokens", g}}));
  const Operands x({2, N, 2, 4});
  const auto n = static_cast<int32_t>(N);
  for (const Mask& mask : {Mask{}, lengths({n, n / 2 + 1})}) {
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    const Tensor seen = attention::definitions::visible(
        N, N,
        {.causal = causal, .lengths = mask.lengths, .window = w, .globals = g, .dilation = d});
    const Variable out =
        attention::definitions::apply(attention::definitions::softmax(q, k, seen), v);
    const Outcome found = run_variant(*variant, x, mask);
    backward(out, mask.lengths.defined() ? with_padding(x.cotangent, mask, 0) : x.cotangent);
    check_near(found, {out.value(), q.grad(), k.grad(), v.grad(), {}}, 1e-12);
  }
  if (causal) check_decoder(*variant, N, DType::f64, 1e-13);
  CHECK(variant->algorithm(N).empty());
}

TEST_CASE("window: gradients") {
  const bool causal = GENERATE(false, true);
  const auto [w, g, d] =
      GENERATE(table<int64_t, int64_t, int64_t>({{0, 0, 1}, {2, 0, 1}, {1, 2, 1}, {1, 2, 3}}));
  const auto variant =
      make_variant("window", {.dim = 2, .max_length = 70, .causal = causal},
                   options_of({{"window", w}, {"global_tokens", g}, {"dilation", d}}));
  const Mask mask = lengths({67, 3});  // two blocks
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {normal({2, 67, 2, 2}, 1), normal({2, 67, 2, 2}, 2), normal({2, 67, 2, 2}, 3)},
      {.max_elements = 40});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("window: as wide as the sequence it is softmax, and reports it") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 13, 100);
  const auto settings =
      GENERATE_COPY(Settings{{"window", N - 1}}, Settings{{"window", int64_t{1} << 60}},
                    Settings{{"window", int64_t{0}}, {"global_tokens", N}});
  const auto variant =
      make_variant("window", {.max_length = N, .causal = causal}, options_of(settings));
  const auto softmax = make_variant("softmax", {.max_length = N, .causal = causal});
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3), c = normal({2, N, 2, 4}, 4);
  const Mask mask = lengths({static_cast<int32_t>(N), static_cast<int32_t>(N / 2)});
  const Outcome a = run_variant(*variant, q, k, v, mask, c),
                b = run_variant(*softmax, q, k, v, mask, c);
  CHECK(near(a.out, b.out, 1e-14));
  CHECK(near(a.dq, b.dq, 1e-14));
  CHECK(near(a.dk, b.dk, 1e-14));
  CHECK(near(a.dv, b.dv, 1e-14));
  CHECK(variant->algorithm(N).find("softmax") == 0);
  const auto narrow = make_variant("window", {}, options_of({{"window", int64_t{3}}}));
  CHECK(narrow->algorithm(4).find("softmax") == 0);
  CHECK(narrow->algorithm(5).empty());
}

TEST_CASE("window: a token further away than w does not matter, unless it is global") {
  const int64_t N = 150, w = 5;
  const auto local = make_variant("window", {.max_length = N}, options_of({{"window", w}}));
  const auto global = make_variant("window", {.max_length = N},
                                   options_of({{"window", w}, {"global_tokens", int64_t{1}}}));
  const Tensor q = normal({1, N, 2, 4}, 1), k = normal({1, N, 2, 4}, 2),
               v = normal({1, N, 2, 4}, 3);
  Tensor k2 = k.clone(), v2 = v.clone();
  k2.select(1, 0).fill(3);
  v2.select(1, 0).fill(3);
  const Tensor a = forward(*local, q, k, v), b = forward(*local, q, k2, v2);
  CHECK(identical(a.slice(1, w + 1, N).contiguous(), b.slice(1, w + 1, N).contiguous()));
  CHECK_FALSE(near(a.select(1, w), b.select(1, w), 1e-6));
  CHECK_FALSE(near(forward(*global, q, k, v).select(1, N - 1),
                   forward(*global, q, k2, v2).select(1, N - 1), 1e-6));
}

TEST_CASE("window: memory is linear in the tokens") {
  const auto variant = make_variant(
      "window", {}, options_of({{"window", int64_t{64}}, {"global_tokens", int64_t{2}}}));
  const attention::Work one = variant->work(1024, 1024), two = variant->work(2048, 2048);
  CHECK(two.bytes == 2 * one.bytes);
  // 129 keys in the window and 2 global ones, and the 2 global queries.
  CHECK(one.forward.exponentials <= 2 * 1024 * (129 + 2 + 2));
  CHECK(one.forward.exponentials >= 2 * (1024 - 128) * (129 + 2));
  CHECK(two.forward.flops > 1.9 * one.forward.flops);
  CHECK(two.forward.flops < 2.1 * one.forward.flops);
}

TEST_CASE("controls: a model whose attention ignores content trains the parameters it uses") {
  for (const char* name : {"none", "mean", "random", "lowrank"}) {
    attention::TransformerConfig config{.vocabulary = 5, .classes = 3, .max_length = 8};
    config.attention = name;
    attention::Transformer model(nn::root(DType::f64, 1), config);
    const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 0, 1}, {2, 3});
    const Variable out = model.forward(tokens, {}, {});
    backward(out, normal(out.shape(), 1));
    for (const auto& [parameter, p] : model.named_parameters()) {
      INFO(name << " " << parameter);
      const bool unused = parameter.find("query") != std::string::npos ||
                          parameter.find("key") != std::string::npos;
      CHECK(p.grad().defined() == !unused);
    }
  }
}
