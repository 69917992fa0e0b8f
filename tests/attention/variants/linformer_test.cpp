#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/model/transformer.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options linformer(int64_t k, const Settings& settings = {}) {
  Options options = options_of(settings);
  options.set("k", k);
  return options;
}
Options linformer(int64_t k, const std::string& sharing) {
  return linformer(k, Settings{{"sharing", sharing}});
}

Tensor identity(int64_t n) {
  Tensor t = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) t.data<double>()[i * n + i] = 1;
  return t;
}

// Returns softmax(q_i · keys_c / sqrt(D)) values over the slots c of one head; keys and values are
// lists of rows.
Row attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values) {
  Row out(q.size(), 0.0);
  double total = 0;
  for (size_t c = 0; c < keys.size(); ++c) {
    const double w = softmax_kernel(q, keys[c]);
    total += w;
    for (size_t d = 0; d < out.size(); ++d) out[d] += w * values[c][d];
  }
  for (double& x : out) x /= total;
  return out;
}

// Returns one slot of the real tokens of a block; `taps` are the weights of a convolution.
Row slot(const std::string& kind, const std::vector<Row>& block, const Row& taps) {
  Row out(block[0].size(), kind == "max_pool" ? -1e300 : 0.0);
  for (size_t j = 0; j < block.size(); ++j)
    for (size_t d = 0; d < out.size(); ++d) {
      if (kind == "max_pool") out[d] = std::max(out[d], block[j][d]);
      if (kind == "mean_pool") out[d] += block[j][d] / static_cast<double>(block.size());
      if (kind == "conv") out[d] += taps[j] * block[j][d];
    }
  return out;
}

}  // namespace

TEST_CASE("linformer with k = N and E = F = I is softmax") {
  const std::string sharing = GENERATE(as<std::string>(), "none", "headwise", "kv", "layerwise");
  const int64_t N = 11;
  const auto variant = make_variant("linformer", {.max_length = N}, linformer(N, sharing));
  const Tensor eye = identity(N);
  for (auto& [name, tensor] : variant->state_dict()) copy_into(tensor, eye.expand(tensor.shape()));
  const auto softmax = make_variant("softmax", {.max_length = N});
  const Operands x({2, N, 2, 4});
  check_near(run_variant(*variant, x), run_variant(*softmax, x), 1e-14);
}

TEST_CASE("linformer: sharing determines the parameters") {
  const int64_t H = 2, k = 5, L = 16;
  const auto shapes = [&](const std::string& sharing) {
    std::map<std::string, Shape> out;
    const auto variant = make_variant("linformer", {}, linformer(k, sharing));
    for (const auto& [name, p] : variant->named_parameters()) out[name] = p.shape();
    return out;
  };
  CHECK(shapes("none") ==
        std::map<std::string, Shape>{{"projection_k", {H, k, L}}, {"projection_v", {H, k, L}}});
  CHECK(shapes("headwise") ==
        std::map<std::string, Shape>{{"projection_k", {k, L}}, {"projection_v", {k, L}}});
  CHECK(shapes("kv") == std::map<std::string, Shape>{{"projection_k", {k, L}}});
  CHECK(shapes("layerwise") == shapes("kv"));
}

TEST_CASE("linformer: equal E for every head is the same as one shared E, with gradients summed") {
  const auto each = make_variant("linformer", {}, linformer(5, "none"));
  const auto shared = make_variant("linformer", {}, linformer(5, "headwise"));
  auto from = shared->state_dict();
  for (auto& [name, tensor] : each->state_dict())
    copy_into(tensor, from.at(name).expand(tensor.shape()));
  const Operands x({2, 9, 2, 4});
  const Mask mask = lengths({9, 5});
  const Outcome a = run_variant(*each, x, mask), b = run_variant(*shared, x, mask);
  CHECK(near(a.out, b.out, 1e-14));
  for (const auto& [name, gradient] : b.parameters) {
    const Tensor summed = sum(Variable(a.parameters.at(name)), {0}).value();
    CHECK(near(summed, gradient, 1e-13));
    // Columns beyond the sequence get no gradient.
    CHECK(all_zero(gradient.slice(1, 9, 16)));
    CHECK_FALSE(all_zero(gradient.slice(1, 8, 9)));
  }
}

TEST_CASE("linformer: keys and values may share one E, whose gradients are summed") {
  const auto tied = make_variant("linformer", {}, linformer(5, "kv"));
  const auto two = make_variant("linformer", {}, linformer(5, "headwise"));
  const Tensor E = tied->state_dict().at("projection_k");
  for (auto& [name, tensor] : two->state_dict()) copy_into(tensor, E);
  const Operands x({2, 9, 2, 4});
  const Outcome a = run_variant(*tied, x), b = run_variant(*two, x);
  CHECK(near(a.out, b.out, 1e-14));
  const Variable both =
      Variable(b.parameters.at("projection_k")) + Variable(b.parameters.at("projection_v"));
  CHECK(near(a.parameters.at("projection_k"), both.value(), 1e-13));
}

TEST_CASE("linformer: sequences longer than max_length are refused") {
  const auto variant = make_variant("linformer", {.max_length = 8});
  const Variable x(normal({1, 9, 2, 4}, 1));
  CHECK_THROWS_WITH(variant->forward(x, x, x, {}, {}),
                    Catch::Contains("9") && Catch::Contains("8"));
}

TEST_CASE("linformer: k is at most the default of 256 and the length") {
  const auto k_of = [](int64_t length) {
    const auto variant = make_variant("linformer", {.max_length = length}, Options("attention"));
    return variant->named_parameters()[0].second.size(0);
  };
  CHECK(k_of(16) == 16);
  CHECK(k_of(300) == 256);
}

namespace {

attention::TransformerConfig small_model(const Options& options) {
  attention::TransformerConfig c;
  c.vocabulary = 11;
  c.classes = 5;
  c.max_length = 12;
  c.d_model = 8;
  c.heads = 2;
  c.layers = 3;
  c.d_mlp = 0;
  c.attention = "linformer";
  c.attention_options = options;
  return c;
}

}  // namespace

TEST_CASE("linformer: projections of a model of 3 layers and 2 heads, by sharing") {
  const auto matrices = [](const std::string& sharing) {
    const attention::Transformer model(nn::root(), small_model(linformer(4, sharing)));
    int64_t numbers = 0;
    for (const auto& [name, p] : model.named_parameters())
      if (name.find("projection") != std::string::npos) numbers += p.value().numel();
    return numbers / (4 * 12);
  };
  CHECK(matrices("none") == 2 * 2 * 3);
  CHECK(matrices("headwise") == 2 * 3);
  CHECK(matrices("kv") == 3);
  CHECK(matrices("layerwise") == 1);
}

TEST_CASE("linformer: one E for all layers has the gradients of all of them") {
  const std::string kind = GENERATE("linear", "conv");
  attention::Transformer one(
      nn::root(DType::f64, 1),
      small_model(linformer(4, {{"sharing", "layerwise"}, {"projection", kind}}))),
      each(nn::root(DType::f64, 1),
           small_model(linformer(4, {{"sharing", "kv"}, {"projection", kind}})));
  const std::string first = "blocks.0.attention.kernel.projection_k";
  nn::StateDict from = one.state_dict();
  REQUIRE(from.count(first) == 1);
  CHECK(from.count("blocks.1.attention.kernel.projection_k") == 0);
  for (auto& [name, tensor] : each.state_dict())
    copy_into(tensor, from.at(name.find("projection_k") == std::string::npos ? name : first));
  const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 5});
  const Tensor n = Tensor::from<int32_t>({5, 3}, {2});
  const Variable a = one.forward(tokens, n, {}), b = each.forward(tokens, n, {});
  CHECK(near(a.value(), b.value(), 1e-14));
  const Tensor cotangent = normal(a.shape(), 5);
  backward(a, cotangent);
  backward(b, cotangent);
  Tensor sum;
  for (const auto& [name, p] : each.named_parameters()) {
    if (name.find("projection_k") == std::string::npos) continue;
    CHECK_FALSE(all_zero(p.grad()));
    sum = sum ? add(Variable(sum), Variable(p.grad())).value() : p.grad();
  }
  for (const auto& [name, p] : one.named_parameters())
    if (name == first) CHECK(near(p.grad(), sum, 1e-13));
}

TEST_CASE("linformer: k may differ from layer to layer") {
  const auto slots = [](const Options& options) {
    const attention::Transformer model(nn::root(), small_model(options));
    std::vector<int64_t> out;
    for (const auto& [name, p] : model.named_parameters())
      if (name.find("projection_k") != std::string::npos) out.push_back(p.size(0));
    return out;
  };
  const auto list = [](std::vector<int64_t> k, const std::string& sharing = "headwise") {
    Options options = linformer(1, sharing);
    options.set("k", std::move(k));
    return options;
  };
  CHECK(slots(list({6, 4, 2})) == std::vector<int64_t>{6, 4, 2});
  CHECK(slots(list({5})) == std::vector<int64_t>{5, 5, 5});
  CHECK(slots(list({5, 5, 5}, "layerwise")) == std::vector<int64_t>{5});
  CHECK_THROWS_WITH(slots(list({6, 4})), Catch::Contains("layer"));
  CHECK_THROWS_WITH(slots(list({6, 4, 2, 1})), Catch::Contains("layer"));
  CHECK_THROWS_AS(slots(list({6, 0, 2})), ConfigError);
  CHECK_THROWS_WITH(slots(list({6, 4, 2}, "layerwise")), Catch::Contains("share one k"));
}

TEST_CASE("linformer: slots of blocks are computed from their real tokens, against plain loops") {
  const std::string kind = GENERATE("mean_pool", "max_pool", "conv");
  const std::vector<int32_t> n =
      GENERATE(std::vector<int32_t>{13, 6, 1, 0, 4}, std::vector<int32_t>{13, 13, 13, 13, 13});
  const bool local = GENERATE(false, true), causal = GENERATE(false, true);
  if (causal && !local) return;
  const int64_t B = 5, N = 13, H = 2, s = 4;  // max_length 16, k 5: blocks of 4
  const auto variant = make_variant("linformer", {.causal = causal},
                                    linformer(5, {{"projection", kind}, {"local", local}}));
  const Tensor q = normal({B, N, H, 4}, 1), k = normal({B, N, H, 4}, 2),
               v = normal({B, N, H, 4}, 3);
  Row taps_k, taps_v;
  if (kind == "conv") {
    REQUIRE(variant->state_dict().at("projection_k").shape() == Shape{1, s});
    taps_k = variant->state_dict().at("projection_k").to_vector<double>();
    taps_v = variant->state_dict().at("projection_v").to_vector<double>();
  } else {
    CHECK(variant->state_dict().empty());
  }
  const Tensor out =
      variant->forward(Variable(q), Variable(k), Variable(v), lengths(n), {}).value();
  const auto qs = rows_of(q), ks = rows_of(k), vs = rows_of(v), os = rows_of(out);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t i = 0; i < n[b]; ++i) {
        std::vector<Row> keys, values;
        for (int64_t begin = 0; begin < n[b]; begin += s) {
          const bool own = local && begin == i / s * s;
          if (causal && begin > i) break;
          std::vector<Row> block_k, block_v;
          for (int64_t j = begin; j < std::min<int64_t>(begin + s, n[b]); ++j) {
            if (own && causal && j > i) break;
            block_k.push_back(ks[(b * N + j) * H + h]);
            block_v.push_back(vs[(b * N + j) * H + h]);
          }
          if (!own) {
            block_k = {slot(kind, block_k, taps_k)};
            block_v = {slot(kind, block_v, taps_v)};
          }
          keys.insert(keys.end(), block_k.begin(), block_k.end());
          values.insert(values.end(), block_v.begin(), block_v.end());
        }
        const Row expected = attend(qs[(b * N + i) * H + h], keys, values);
        for (size_t d = 0; d < 4; ++d)
          CHECK(os[(b * N + i) * H + h][d] == Approx(expected[d]).epsilon(1e-11).margin(1e-13));
      }
    }
}

TEST_CASE("linformer: gradients of every kind of projection and sharing, and padding") {
  const std::string kind = GENERATE("mean_pool", "max_pool", "conv", "linear");
  const std::string sharing = GENERATE("none", "headwise", "kv");
  const bool learned = kind == "linear" || kind == "conv";
  if (!learned && sharing != "none") return;
  Settings settings{{"projection", kind}};
  if (learned) settings["sharing"] = sharing;
  const auto variant = make_variant("linformer", {.dim = 3}, linformer(6, settings));
  const Mask mask = lengths({10, 5, 1, 0});
  const Operands x({4, 10, 2, 3});
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {x.q, x.k, x.v});
  INFO(kind << " " << sharing << " " << report);
  CHECK(report.ok);
  check_parameters(*variant, [&] {
    return variant->forward(Variable(x.q), Variable(x.k), Variable(x.v), mask, {});
  });
  check_samples(*variant, x, {10, 5, 1, 0}, 1e-13, 1e-13);
}

TEST_CASE("linformer: kinds of projections that are equivalent") {
  const Operands x({2, 16, 2, 4});
  const auto mean = make_variant("linformer", {}, linformer(4, {{"projection", "mean_pool"}}));
  const Outcome expected = run_variant(*mean, x);
  SECTION("E that averages blocks is mean_pool") {
    const auto linear = make_variant("linformer", {}, linformer(4));
    Tensor E = Tensor::zeros({4, 16}, DType::f64);
    for (int64_t j = 0; j < 16; ++j) E.data<double>()[j / 4 * 16 + j] = 0.25;
    for (auto& [name, tensor] : linear->state_dict()) copy_into(tensor, E);
    check_near(run_variant(*linear, x), expected, 1e-14);
  }
  SECTION("a convolution of weights 1 / stride is mean_pool") {
    const auto conv = make_variant("linformer", {}, linformer(4, {{"projection", "conv"}}));
    for (auto& [name, tensor] : conv->state_dict()) tensor.fill(0.25);
    check_near(run_variant(*conv, x), expected, 1e-14);
  }
  SECTION("blocks of one token are softmax") {
    const Outcome softmax = run_variant(*make_variant("softmax"), x);
    for (const char* kind : {"mean_pool", "max_pool"}) {
      const auto variant = make_variant("linformer", {}, linformer(16, {{"projection", kind}}));
      check_near(run_variant(*variant, x), softmax, 1e-14);
    }
  }
  SECTION("means and maxima of ones are ones") {
    const Variable ones(Tensor::full({2, 16, 2, 4}, 1, DType::f64));
    for (const char* kind : {"mean_pool", "max_pool"}) {
      const auto variant = make_variant("linformer", {}, linformer(5, {{"projection", kind}}));
      CHECK(variant->capabilities().averages);
      CHECK(variant->capabilities().linear == (kind == std::string("mean_pool")));
      const Variable out =
          variant->forward(Variable(x.q), Variable(x.k), ones, lengths({16, 3}), {});
      CHECK(near(one(out.value(), 1, 3), one(ones.value(), 1, 3), 1e-14));
    }
    CHECK_FALSE(make_variant("linformer")->capabilities().averages);
  }
}

TEST_CASE("linformer: a frozen projection is kept, not trained") {
  const auto frozen = make_variant("linformer", {}, linformer(5, {{"freeze", true}}));
  const auto trained = make_variant("linformer", {}, linformer(5));
  CHECK(frozen->named_parameters().empty());
  const nn::StateDict a = frozen->state_dict(), b = trained->state_dict();
  REQUIRE(a.size() == 2);
  for (const auto& [name, tensor] : b) CHECK(identical(a.at(name), tensor));
  const Tensor x = normal({2, 9, 2, 4}, 1), c = normal({2, 9, 2, 4}, 2);
  const Outcome fixed = run_variant(*frozen, x, x, x, {}, c),
                free = run_variant(*trained, x, x, x, {}, c);
  CHECK(identical(fixed.out, free.out));
  CHECK(identical(fixed.dk, free.dk));
  CHECK(fixed.parameters.empty());
}

TEST_CASE("linformer: initialisations") {
  const int64_t k = 40, L = 200;
  const auto spread = [&](const std::string& init) {
    const auto variant =
        make_variant("linformer", {.max_length = L}, linformer(k, {{"init", init}}));
    double largest = 0, square = 0;
    const auto x = variant->state_dict().at("projection_k").to_vector<double>();
    for (const double value : x) {
      largest = std::max(largest, std::abs(value));
      square += value * value / static_cast<double>(x.size());
    }
    return std::pair(largest, std::sqrt(square));
  };
  const auto uniform = [&](const std::string& init, double bound) {
    const auto [largest, deviation] = spread(init);
    INFO(init << " " << largest << " " << deviation);
    CHECK((largest <= bound && largest >= 0.99 * bound));
    CHECK(deviation == Approx(bound / std::sqrt(3.0)).epsilon(0.03));
  };
  uniform("xavier", std::sqrt(6.0 / (k + L)));
  uniform("xavier_half", std::sqrt(3.0 / (k + L)));
  uniform("uniform", 1 / std::sqrt(40.0));
  CHECK(spread("normal").second == Approx(0.02).epsilon(0.03));
  CHECK_THROWS_AS(spread("he"), ConfigError);
}

namespace {

attention::Config of_inputs(const Settings& more) {
  attention::Config config{.heads = 2, .head_dim = 3, .max_length = 12};
  Settings settings{{"order", "inputs"}};
  settings.insert(more.begin(), more.end());
  config.options = linformer(4, settings);
  return config;
}

}  // namespace

// keys = (E X) W^T + b and values = (F X) W^T + b: biases are added once, not once per token.
TEST_CASE("linformer: compressing inputs, before keys and values are projected") {
  const std::string sharing = GENERATE("headwise", "kv");
  const int64_t B = 3, N = 10, d = 6, k = 4;
  attention::MultiHeadAttention layer(nn::root(DType::f64, 3), "linformer",
                                      of_inputs({{"sharing", sharing}}), false);
  nn::StateDict state = layer.state_dict();
  for (auto& [name, tensor] : state)
    if (name.find("bias") != std::string::npos) fill_normal(tensor, Generator(5).fork(name));
  const Tensor x = normal({B, N, d}, 1);
  const std::vector<int32_t> n{10, 4, 1};
  const Tensor out = layer.forward(Variable(x), lengths(n), {}).value();
  const auto project = [&](const std::string& name, const Row& in) {
    const auto w = state.at(name + ".weight").to_vector<double>(),
               b = state.at(name + ".bias").to_vector<double>();
    Row y = b;
    for (int64_t i = 0; i < d; ++i)
      for (int64_t j = 0; j < d; ++j) y[i] += w[i * d + j] * in[j];
    return y;
  };
  const auto token = [&](int64_t b, int64_t i) {
    Row row;
    for (int64_t j = 0; j < d; ++j) row.push_back(x.at({b, i, j}));
    return row;
  };
  const auto slots = [&](int64_t b, const Tensor& E, const std::string& name) {
    std::vector<Row> rows;
    for (int64_t c = 0; c < k; ++c) {
      Row sum(d, 0.0);
      for (int64_t i = 0; i < n[b]; ++i)
        for (int64_t j = 0; j < d; ++j) sum[j] += E.at({c, i}) * token(b, i)[j];
      rows.push_back(project(name, sum));
    }
    return rows;
  };
  const auto head = [](const std::vector<Row>& rows, int64_t h) {
    std::vector<Row> part;
    for (const Row& row : rows) part.emplace_back(row.begin() + 3 * h, row.begin() + 3 * h + 3);
    return part;
  };
  const Tensor E = state.at("kernel.projection_k"),
               F = sharing == "kv" ? E : state.at("kernel.projection_v");
  for (int64_t b = 0; b < B; ++b) {
    const auto keys = slots(b, E, "key"), values = slots(b, F, "value");
    for (int64_t i = 0; i < n[b]; ++i) {
      const Row q = project("query", token(b, i));
      Row joined;
      for (int64_t h = 0; h < 2; ++h) {
        const Row part =
            attend(Row(q.begin() + 3 * h, q.begin() + 3 * h + 3), head(keys, h), head(values, h));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      const Row expected = project("output", joined);
      for (int64_t j = 0; j < d; ++j)
        CHECK(out.at({b, i, j}) == Approx(expected[j]).epsilon(1e-10).margin(1e-12));
    }
  }
  // Without biases the order makes no difference.
  for (auto& [name, tensor] : state)
    if (name.find("bias") != std::string::npos) tensor.fill(0);
  attention::Config paper = of_inputs({});
  paper.options = linformer(4, sharing);
  attention::MultiHeadAttention other(nn::root(DType::f64, 4), "linformer", paper, false);
  other.load_state_dict(state);
  CHECK(near(layer.forward(Variable(x), lengths(n), {}).value(),
             other.forward(Variable(x), lengths(n), {}).value(), 1e-12));
}

TEST_CASE("linformer: compressed inputs, gradients and padding") {
  const std::string kind = GENERATE("linear", "mean_pool", "max_pool", "conv");
  attention::MultiHeadAttention layer(nn::root(DType::f64, 3), "linformer",
                                      of_inputs({{"projection", kind}}), false);
  const Mask mask = lengths({10, 4, 1});
  Tensor x = normal({3, 10, 6}, 1);
  const Tensor out = layer.forward(Variable(x), mask, {}).value();
  const GradcheckReport report =
      gradcheck([&](const Variables& in) { return layer.forward(in[0], mask, {}); }, {x});
  INFO(kind << " " << report);
  CHECK(report.ok);
  check_parameters(layer, [&] { return layer.forward(Variable(x), mask, {}); });
  for (const auto& [b, n] : std::map<int64_t, int64_t>{{0, 10}, {1, 4}, {2, 1}})
    CHECK(near(layer.forward(Variable(one(x, b, n)), {}, {}).value(), one(out, b, n), 1e-13));
  x = with_padding(x, mask, 1e9);
  const Tensor filled = layer.forward(Variable(x), mask, {}).value();
  for (int64_t b = 0; b < 3; ++b) {
    const int64_t n = mask.lengths.data<int32_t>()[b];
    CHECK(identical(one(filled, b, n).contiguous(), one(out, b, n).contiguous()));
  }
}

TEST_CASE("linformer: incompatible options are refused") {
  const auto with = [](const Settings& settings) {
    const Options options = linformer(4, settings);
    make_variant("linformer", {}, options);
  };
  CHECK_NOTHROW(with({{"order", "inputs"}, {"sharing", "layerwise"}, {"freeze", true}}));
  CHECK_THROWS_WITH(with({{"order", "inputs"}, {"sharing", "none"}}), Catch::Contains("inputs"));
  // Slots of all tokens, and of tokens before projection, have no blocks to attend to.
  CHECK_THROWS_WITH(with({{"local", true}}), Catch::Contains("local"));
  CHECK_THROWS_WITH(with({{"projection", "conv"}, {"order", "inputs"}, {"local", true}}),
                    Catch::Contains("local"));
  // Without a learned projection, nothing can be shared, frozen or initialised.
  for (const char* key : {"sharing", "init", "freeze"})
    CHECK_THROWS_AS(with({{"projection", "mean_pool"}, {key, "x"}}), ConfigError);
  CHECK_THROWS_WITH(
      attention::MultiHeadAttention(
          nn::root(), "linformer",
          {.heads = 2, .head_dim = 4, .options = linformer(1, {{"order", "inputs"}})}, true),
      Catch::Contains("rotary"));
  const auto softmax = make_variant("softmax");
  attention::Config later{.heads = 2, .head_dim = 4, .layer = 1, .first = softmax.get()};
  later.options = linformer(1, "layerwise");
  CHECK_THROWS_WITH(attention::make("linformer", nn::root(), later), Catch::Contains("layer 0"));
}

TEST_CASE("linformer: work is linear in the tokens") {
  for (const char* kind : {"linear", "conv", "mean_pool"}) {
    const auto variant =
        make_variant("linformer", {.max_length = 64}, linformer(8, {{"projection", kind}}));
    const attention::Work one = variant->work(32, 64), two = variant->work(64, 64);
    CHECK(one.forward.flops > 0);
    // Scores and sums of 32 more queries: 8 slots, 2 heads of 4.
    CHECK(two.forward.flops - one.forward.flops == 4 * 32 * 8 * 8);
    CHECK(two.bytes > one.bytes);
  }
}

TEST_CASE("linformer: one block is reported as softmax attention") {
  const auto variant =
      make_variant("linformer", {}, linformer(4, {{"projection", "mean_pool"}, {"local", true}}));
  CHECK(variant->algorithm(4).find("softmax") == 0);
  CHECK(variant->algorithm(5).empty());
  CHECK(variant->advice(6).find("attention.k") == 0);  // 4 tokens and 2 slots
  CHECK(variant->advice(8).empty());
}
