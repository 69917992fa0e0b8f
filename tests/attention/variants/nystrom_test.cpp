#include <algorithm>
#include <numeric>

#include "longhand/core/linalg.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options nystrom(int64_t landmarks, int64_t iterations = 6, int64_t conv = 0) {
  Options options("attention");
  options.set("landmarks", landmarks);
  options.set("pinv_iterations", iterations);
  options.set("conv_kernel", conv);
  return options;
}

// Returns x with every token repeated.
Tensor doubled(const Tensor& x) {
  const Shape& s = x.shape();
  return x.unsqueeze(2)
      .expand({s[0], s[1], 2, s[2], s[3]})
      .contiguous()
      .reshape({s[0], 2 * s[1], s[2], s[3]});
}

}  // namespace

TEST_CASE("nystrom of at most m tokens is softmax") {
  const int64_t N = GENERATE(1, 5, 8);
  const auto variant = make_variant("nystrom", {}, nystrom(8));
  const auto softmax = make_variant("softmax");
  const Operands x({2, N, 2, 4});
  check_near(run_variant(*variant, x), run_variant(*softmax, x), 1e-14);
}

TEST_CASE("nystrom: samples of at most m tokens are exact, others in the batch are not") {
  const auto variant = make_variant("nystrom", {}, nystrom(4));
  const auto softmax = make_variant("softmax");
  const Tensor q = normal({4, 13, 2, 4}, 1, DType::f64, 2),
               k = normal({4, 13, 2, 4}, 2, DType::f64, 2), v = normal({4, 13, 2, 4}, 3);
  const Mask mask = lengths({13, 4, 5, 2});
  const Tensor a = forward(*variant, q, k, v, mask), b = forward(*softmax, q, k, v, mask);
  CHECK_FALSE(near(one(a, 0, 13), one(b, 0, 13), 1e-3));
  CHECK(near(one(a, 1, 4), one(b, 1, 4), 1e-13));
  CHECK_FALSE(near(one(a, 2, 5), one(b, 2, 5), 1e-4));
  CHECK(near(one(a, 3, 2), one(b, 3, 2), 1e-13));
}

// With each token twice, segments of two are the tokens themselves: F, A and G are then blocks of
// the same matrix, and F A⁺ G is exact attention.
TEST_CASE("nystrom: with tokens for landmarks, iterations converge to softmax") {
  const int64_t m = 6;
  const Tensor q = doubled(normal({2, m, 2, 4}, 1)), k = doubled(normal({2, m, 2, 4}, 2)),
               v = doubled(normal({2, m, 2, 4}, 3));
  const Tensor exact = forward(*make_variant("softmax"), q, k, v);
  const auto error = [&](int64_t iterations) {
    const Tensor out = forward(*make_variant("nystrom", {}, nystrom(m, iterations)), q, k, v);
    double worst = 0;
    for (int64_t i = 0; i < out.numel(); ++i)
      worst = std::max(worst, std::abs(out.data<double>()[i] - exact.data<double>()[i]));
    return worst;
  };
  INFO(error(2) << ", " << error(6) << ", " << error(40));
  CHECK(error(40) <= 1e-8);
  CHECK(error(6) <= error(2));
  CHECK(error(2) >= 1e-6);
}

TEST_CASE("nystrom with one landmark is an average weighted by the mean query") {
  const int64_t N = 9;
  const auto variant = make_variant("nystrom", {}, nystrom(1));
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  // F and A are 1, and so is A's inverse.
  const Tensor mean_query = broadcast_to(mean(Variable(q), {1}, true), {2, N, 2, 4}).value();
  CHECK(near(forward(*variant, q, k, v), naive_kernel_attention(mean_query, k, v, softmax_kernel),
             1e-13));
}

TEST_CASE("nystrom: the convolution runs along the tokens of each head, padded with zeros") {
  const int64_t B = 2, N = 7, H = 2, D = 4;
  const auto with = make_variant("nystrom", {}, nystrom(4, 6, 3));
  const auto without = make_variant("nystrom", {}, nystrom(4, 6, 0));
  const Tensor q = normal({B, N, H, D}, 1), k = normal({B, N, H, D}, 2),
               v = normal({B, N, H, D}, 3);
  const Mask mask = lengths({7, 3});
  const Tensor a = forward(*with, q, k, v, mask), b = forward(*without, q, k, v, mask);
  const Tensor w = with->state_dict().at("conv");
  REQUIRE(w.shape() == Shape{H, 3});
  const int64_t n[] = {7, 3};
  for (int64_t s = 0; s < B; ++s)
    for (int64_t t = 0; t < n[s]; ++t)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t d = 0; d < D; ++d) {
          double sum = b.at({s, t, h, d});
          for (int64_t j = 0; j < 3; ++j)
            if (t + j - 1 >= 0 && t + j - 1 < n[s])
              sum += w.at({h, j}) * v.at({s, t + j - 1, h, d});
          CHECK(a.at({s, t, h, d}) == Approx(sum).margin(1e-12));
        }
}

TEST_CASE("nystrom: large scores stay finite") {
  const auto variant = make_variant("nystrom", {.dtype = DType::f32});
  const Shape shape{2, 13, 2, 4};
  const Outcome o =
      run_variant(*variant, normal(shape, 1, DType::f32, 50), normal(shape, 2, DType::f32, 50),
                  normal(shape, 3, DType::f32), {}, normal(shape, 4, DType::f32));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dq));
  CHECK(all_finite(o.dk));
}

namespace {

// Scores and sums of N tokens: 2 heads of width 4.
double softmax_flops(double N) { return 2 * 4 * N * N * 4; }

using Rows = std::vector<Row>;

// Without exact attention, unless the settings say otherwise.
Options with(int64_t landmarks, Settings settings) {
  settings.emplace("landmarks", landmarks);
  settings.emplace("exact_below", int64_t{0});
  return options_of(settings);
}

Row mean_of(const Rows& rows) {
  Row out(rows[0].size(), 0.0);
  for (const Row& row : rows)
    for (size_t d = 0; d < out.size(); ++d) out[d] += row[d] / static_cast<double>(rows.size());
  return out;
}

// Returns the tokens of each of `count` segments, the shorter ones first.
std::vector<Rows> cut(const Rows& x, size_t count) {
  std::vector<Rows> out;
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t n = x.size() / count + (i >= count - x.size() % count);
    out.emplace_back(x.begin() + begin, x.begin() + begin + n);
    begin += n;
  }
  return out;
}

double distance(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

// Returns the landmarks of the real tokens x of one head. `order`: tokens in the order in which
// they are drawn.
Rows landmarks(const std::string& kind, const Rows& x, size_t m, const std::vector<size_t>& order) {
  const size_t count = std::min(m, x.size());
  const std::vector<Rows> parts = cut(x, count);
  Rows out;
  if (kind == "random") {
    std::vector<size_t> drawn;
    for (const size_t j : order)
      if (j < x.size() && drawn.size() < count) drawn.push_back(j);
    std::sort(drawn.begin(), drawn.end());
    for (const size_t j : drawn) out.push_back(x[j]);
    return out;
  }
  for (const Rows& part : parts) out.push_back(kind == "stride" ? part[0] : mean_of(part));
  if (kind == "kmeans")
    for (int step = 0; step < 3; ++step) {
      std::vector<Rows> clusters(count);
      for (const Row& row : x) {
        size_t best = 0;
        for (size_t c = 1; c < count; ++c)
          if (distance(row, out[c]) < distance(row, out[best])) best = c;
        clusters[best].push_back(row);
      }
      for (size_t c = 0; c < count; ++c)
        if (!clusters[c].empty()) out[c] = mean_of(clusters[c]);
    }
  return out;
}

// Returns softmax(q k^T / sqrt(D)), row by row.
Tensor weights(const Rows& q, const Rows& k) {
  Tensor out =
      Tensor::empty({static_cast<int64_t>(q.size()), static_cast<int64_t>(k.size())}, DType::f64);
  double* w = out.data<double>();
  for (const Row& row : q) {
    double total = 0;
    for (const Row& key : k) total += softmax_kernel(row, key);
    for (const Row& key : k) *w++ = softmax_kernel(row, key) / total;
  }
  return out;
}

Tensor matrix_product(const Tensor& a, const Tensor& b) {
  return matmul(Variable(a), Variable(b)).value();
}

// Returns the order in which a variant draws tokens: by the random numbers of their positions.
std::vector<size_t> order_of(attention::Variant& variant, size_t tokens) {
  std::vector<size_t> order(tokens);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto state = variant.state_dict();
  if (!state.count("random_state")) return order;
  const auto words = state.at("random_state").to_vector<int64_t>();
  const Generator g =
      Generator::from_state({static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1])});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return g.bits(a) < g.bits(b); });
  return order;
}

}  // namespace

TEST_CASE("nystrom: every kind of landmarks and of inverse, against plain loops") {
  const std::string kind = GENERATE("mean", "stride", "random", "kmeans");
  const std::string inverse = GENERATE("svd", "ridge");
  const std::vector<int32_t> n{23, 9, 4, 3, 1, 0};
  const int64_t B = 6, N = 23, H = 2, D = 4;
  const auto variant = make_variant("nystrom", {.max_length = N},
                                    with(4, {{"landmark_kind", kind}, {"pinv", inverse}}));
  CHECK(variant->capabilities().random == (kind == "random"));
  const Tensor q = normal({B, N, H, D}, 1, DType::f64, 2),
               k = normal({B, N, H, D}, 2, DType::f64, 2), v = normal({B, N, H, D}, 3);
  const Tensor out = forward(*variant, q, k, v, lengths(n));
  const auto qs = rows_of(q), ks = rows_of(k), vs = rows_of(v);
  const std::vector<size_t> order = order_of(*variant, 23);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H && n[b] > 0; ++h) {
      INFO(kind << " " << inverse << ", sample " << b << " head " << h);
      Rows Q, K, V;
      for (int64_t j = 0; j < n[b]; ++j) {
        Q.push_back(qs[(b * N + j) * H + h]);
        K.push_back(ks[(b * N + j) * H + h]);
        V.push_back(vs[(b * N + j) * H + h]);
      }
      const Rows Qm = landmarks(kind, Q, 4, order), Km = landmarks(kind, K, 4, order);
      const Tensor A = weights(Qm, Km);
      Tensor Z = pseudo_inverse(A);
      if (inverse == "ridge") {
        const Tensor At = A.transpose(0, 1);
        Tensor square = matrix_product(At, A).clone();
        for (int64_t i = 0; i < A.size(0); ++i) square.data<double>()[i * A.size(0) + i] += 1e-3;
        Z = matrix_product(pseudo_inverse(square), At);
      }
      Tensor values = Tensor::empty({n[b], D}, DType::f64);
      for (int64_t j = 0; j < n[b]; ++j)
        std::copy(V[j].begin(), V[j].end(), values.data<double>() + j * D);
      const Tensor expected =
          matrix_product(matrix_product(weights(Q, Km), Z), matrix_product(weights(Qm, K), values));
      CHECK(near(one(out, b, n[b]).select(2, h).squeeze(0), expected, 1e-10));
    }
}

TEST_CASE("nystrom: with all tokens as landmarks and an exact inverse it is softmax") {
  const std::string kind = GENERATE("mean", "stride", "random", "kmeans");
  const int64_t N = 16;
  const Made made{.dim = 16, .max_length = N};
  const auto softmax = make_variant("softmax", made);
  const Shape shape{4, N, 2, 16};
  const Tensor q = normal(shape, 1, DType::f64, 1), k = normal(shape, 2, DType::f64, 1),
               v = normal(shape, 3), c = normal(shape, 4);
  const Mask mask = lengths({16, 7, 1, 0});
  const Outcome expected = run_variant(*softmax, q, k, v, mask, c);
  const auto run = [&](Settings settings) {
    settings["landmark_kind"] = kind;
    const auto variant = make_variant("nystrom", made, with(N, settings));
    CHECK(variant->algorithm(N).empty());
    return run_variant(*variant, q, k, v, mask, c);
  };
  const Outcome exact = run({{"pinv", "svd"}});
  CHECK(near(exact.out, expected.out, 1e-12));
  CHECK(near(exact.dq, expected.dq, 1e-10));
  CHECK(near(exact.dk, expected.dk, 1e-10));
  CHECK(near(exact.dv, expected.dv, 1e-12));
  CHECK(near(run({{"pinv_iterations", int64_t{20}}}).out, expected.out, 1e-6));
  CHECK_FALSE(near(run({{"pinv_iterations", int64_t{4}}}).out, expected.out, 1e-6));
  CHECK(near(run({{"pinv", "ridge"}, {"ridge", 1e-12}}).out, expected.out, 1e-6));
}

TEST_CASE("nystrom: gradients of every kind of landmarks and inverse") {
  const std::string kind = GENERATE("mean", "stride", "random", "kmeans");
  const std::string inverse = GENERATE("iterative", "svd", "ridge");
  const auto variant = make_variant(
      "nystrom", {.dim = 3},
      with(3, {{"landmark_kind", kind}, {"pinv", inverse}, {"conv_kernel", int64_t{3}}}));
  // Scores that are far apart keep A far from singular.
  const Operands x({4, 10, 2, 3}, 2);
  for (const Mask& mask : {Mask{}, lengths({10, 5, 2, 0})}) {
    const GradcheckReport report = gradcheck(
        [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
        {x.q, x.k, x.v}, {.absolute = 2e-6, .max_elements = 60});
    INFO(kind << " " << inverse << " " << report);
    CHECK(report.ok);
  }
  check_parameters(*variant, [&] {
    return variant->forward(Variable(x.q), Variable(x.k), Variable(x.v), lengths({10, 5, 2, 0}),
                            {});
  });
  check_samples(*variant, x, {10, 5, 2, 0}, 1e-11, 1e-10);
}

TEST_CASE("nystrom: zero steps of k-means give segment means") {
  const auto a = make_variant("nystrom", {},
                              with(4, {{"landmark_kind", "kmeans"}, {"kmeans_steps", int64_t{0}}}));
  const auto b = make_variant("nystrom", {}, with(4, {}));
  const auto c = make_variant("nystrom", {}, with(4, {{"landmark_kind", "kmeans"}}));
  const Tensor q = normal({2, 13, 2, 4}, 1), k = normal({2, 13, 2, 4}, 2),
               v = normal({2, 13, 2, 4}, 3);
  CHECK(near(forward(*a, q, k, v), forward(*b, q, k, v), 1e-13));
  CHECK_FALSE(near(forward(*c, q, k, v), forward(*b, q, k, v), 1e-3));
}

TEST_CASE("nystrom: random landmarks are part of the state") {
  const auto make = [](uint64_t seed) {
    return make_variant("nystrom", {.seed = seed}, with(4, {{"landmark_kind", "random"}}));
  };
  const auto a = make(1), b = make(2);
  const Tensor x = normal({2, 13, 2, 4}, 1);
  const Tensor out = forward(*a, x, x, x);
  CHECK(identical(forward(*a, x, x, x), out));
  CHECK_FALSE(near(forward(*b, x, x, x), out, 1e-6));
  b->load_state_dict(a->state_dict());
  CHECK(identical(forward(*b, x, x, x), out));
}

TEST_CASE("nystrom: algorithm() reports when it is exact") {
  const auto usual = make_variant("nystrom", {}, nystrom(4));
  CHECK(usual->algorithm(4) == "softmax: 4 tokens are at most 4 landmarks");
  CHECK(usual->algorithm(5).empty());
  const auto longer = make_variant("nystrom", {}, with(4, {{"exact_below", int64_t{10}}}));
  CHECK(longer->algorithm(10).find("softmax") == 0);
  CHECK(longer->algorithm(11).empty());
  const auto softmax = make_variant("softmax");
  const Tensor x = normal({2, 13, 2, 4}, 1, DType::f64, 2);
  const Mask mask = lengths({13, 10});
  const Tensor a = forward(*longer, x, x, x, mask), b = forward(*softmax, x, x, x, mask);
  CHECK(near(one(a, 1, 10), one(b, 1, 10), 1e-13));
  CHECK_FALSE(near(one(a, 0, 13), one(b, 0, 13), 1e-3));
  CHECK(longer->work(10, 10).forward.flops == softmax_flops(10));
  CHECK(usual->work(2048, 2048).forward.flops < 2.1 * usual->work(1024, 1024).forward.flops);
}

TEST_CASE("nystrom: the residual of the inverse decreases with iterations") {
  const Tensor q = normal({2, 13, 2, 4}, 1, DType::f64, 2),
               k = normal({2, 13, 2, 4}, 2, DType::f64, 2);
  const auto residual = [&](const Settings& settings) {
    const auto variant = make_variant("nystrom", {}, with(4, settings));
    CHECK(variant->metrics().empty());
    forward(*variant, q, k, q);
    return variant->metrics().at("pinv_residual");
  };
  CHECK(residual({{"pinv", "svd"}}) <= 1e-13);
  const double none = residual({{"pinv_iterations", int64_t{0}}}), six = residual({}),
               twenty = residual({{"pinv_iterations", int64_t{20}}});
  INFO(none << " " << six << " " << twenty);
  CHECK(none >= 0.1);
  CHECK(six <= 0.5 * none);
  CHECK(twenty <= 1e-3 * six);
}

TEST_CASE("nystrom: learned landmarks are parameters, also for few tokens") {
  const auto variant = make_variant(
      "nystrom", {}, options_of({{"landmarks", int64_t{5}}, {"landmark_kind", "learned"}}));
  const Operands x({2, 3, 2, 4});
  const Outcome o = run_variant(*variant, x, lengths({3, 2}));
  for (const char* name : {"query_landmarks", "key_landmarks"}) {
    REQUIRE(o.parameters.at(name).shape() == Shape{2, 5, 4});
    CHECK_FALSE(all_zero(o.parameters.at(name)));
  }
  CHECK(variant->algorithm(3).empty());
  // A query's result does not depend on other queries, as it does with means.
  Tensor q = x.q.clone();
  q.select(1, 0).fill(3);
  const Tensor before = forward(*variant, x.q, x.k, x.v), after = forward(*variant, q, x.k, x.v);
  CHECK(identical(after.slice(1, 1, 3).contiguous(), before.slice(1, 1, 3).contiguous()));
}

TEST_CASE("nystrom: options of choices not made are refused") {
  const auto refused = [](const Settings& settings, const std::string& condition) {
    CHECK_THROWS_WITH(make_variant("nystrom", {}, with(4, settings)),
                      Catch::Contains("applies only with " + condition));
  };
  refused({{"ridge", 1e-3}}, "pinv = \"ridge\"");
  refused({{"pinv", "svd"}, {"pinv_iterations", int64_t{6}}}, "pinv = \"iterative\"");
  refused({{"kmeans_steps", int64_t{3}}}, "landmark_kind = \"kmeans\"");
  CHECK_THROWS_AS(make_variant("nystrom", {}, with(4, {{"pinv", "ridge"}, {"ridge", 0.0}})),
                  ConfigError);
}

// The errors that nystrom.md quotes.
TEST_CASE("nystrom: an exact inverse is worse than one stopped early, and clusters beat segments") {
  const int64_t N = 256, D = 16;
  const Made made{.heads = 4, .dim = D, .max_length = N};
  const auto error = [&](const Tensor& q, const Tensor& k, const Settings& settings) {
    const Tensor v = normal({1, N, 4, D}, 3, DType::f64, 1);
    const Tensor exact = forward(*make_variant("softmax", made), q, k, v);
    const Variable difference =
        Variable(forward(*make_variant("nystrom", made, with(16, settings)), q, k, v)) -
        Variable(exact);
    return std::sqrt(sum(square(difference)).value().item() /
                     sum(square(Variable(exact))).value().item());
  };
  const Tensor q = normal({1, N, 4, D}, 1, DType::f64, 1),
               k = normal({1, N, 4, D}, 2, DType::f64, 1);
  const double svd = error(q, k, {{"pinv", "svd"}}), iterative = error(q, k, {}),
               ridge = error(q, k, {{"pinv", "ridge"}, {"ridge", 0.1}});
  INFO("independent tokens: svd " << svd << ", 6 iterations " << iterative << ", ridge 0.1 "
                                  << ridge);
  CHECK(svd >= 3 * iterative);
  CHECK(ridge <= 1.2 * iterative);

  // 16 kinds of tokens in random order: no segment mean is close to a token.
  const Tensor kinds = normal({1, 16, 4, D}, 4, DType::f64, 1);
  Tensor mixed = Tensor::empty({1, N, 4, D}, DType::f64);
  for (int64_t j = 0; j < N; ++j)
    copy_into(mixed.select(1, j), kinds.select(1, static_cast<int64_t>(Generator(5).bits(j) % 16)));
  copy_into(mixed, (Variable(mixed) + Variable(normal({1, N, 4, D}, 6, DType::f64, 0.1))).value());
  const double segments = error(mixed, mixed, {}),
               clusters = error(mixed, mixed, {{"landmark_kind", "kmeans"}}),
               tokens = error(mixed, mixed, {{"landmark_kind", "random"}});
  INFO("16 kinds of tokens: mean " << segments << ", kmeans " << clusters << ", random " << tokens);
  CHECK(clusters <= 0.6 * segments);
  CHECK(tokens <= segments);
}
