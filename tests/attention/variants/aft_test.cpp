#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options aft(const std::string& kind, int64_t window = 5) {
  Options options = options_of({{"kind", kind}});
  if (kind == "local") options.set("window", window);
  return options;
}

// The bias of query i and key j.
double bias(const std::string& kind, const Tensor& biases, int64_t window, int64_t i, int64_t j) {
  if (kind == "full") return biases.at({i, j});
  if (kind == "simple" || std::abs(i - j) >= window) return 0;
  return biases.at({i, window - 1 + j - i});
}

// The formula as it is written, in f64, relative to the largest term of each sum.
Tensor naive(const std::string& kind, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& biases, int64_t window, bool causal, const std::vector<int32_t>& n) {
  Tensor out = Tensor::zeros(q.shape(), DType::f64);
  const int64_t N = q.size(1), channels = q.size(2) * q.size(3);
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t i = 0; i < n[b]; ++i) {
      Row terms;
      for (int64_t j = 0; j < (causal ? i + 1 : n[b]); ++j)
        terms.push_back(bias(kind, biases, window, i, j));
      for (int64_t c = 0; c < channels; ++c) {
        const double* const keys = k.data<double>() + b * N * channels + c;
        const double* const values = v.data<double>() + b * N * channels + c;
        double most = -1e300, sum = 0, total = 0;
        int64_t j = 0;
        for (const double term : terms) most = std::max(most, keys[j++ * channels] + term);
        j = 0;
        for (const double term : terms) {
          const double e = std::exp(keys[j * channels] + term - most);
          sum += e * values[j++ * channels];
          total += e;
        }
        const int64_t at = (b * N + i) * channels + c;
        out.data<double>()[at] = sum / total / (1 + std::exp(-q.data<double>()[at]));
      }
    }
  return out;
}

}  // namespace

TEST_CASE("aft equals its formula, also for keys of any size") {
  const std::string kind = GENERATE(as<std::string>(), "full", "local", "simple");
  const bool causal = GENERATE(false, true);
  const double std = GENERATE(1.0, 300.0);
  const int64_t N = GENERATE(1, 4, 37), window = GENERATE(1, 5, 60);
  if (kind != "local" && window > 1) return;
  INFO(kind << " causal " << causal << " std " << std << " N " << N << " window " << window);
  const auto n = static_cast<int32_t>(N);
  const std::vector<int32_t> lengths_of_both{n, (n + 1) / 2};
  const auto variant =
      make_variant("aft", {.dim = 17, .max_length = 40, .causal = causal}, aft(kind, window));
  Tensor biases;
  if (kind != "simple") {
    biases = variant->state_dict().at("biases");
    copy_into(biases, normal(biases.shape(), 9, DType::f64, std));
  }
  const Shape shape{2, N, 2, 17};  // more channels than a task takes
  const Tensor q = normal(shape, 1), k = normal(shape, 2, DType::f64, std), v = normal(shape, 3);
  CHECK(near(forward(*variant, q, k, v, lengths(lengths_of_both)),
             naive(kind, q, k, v, biases, window, causal, lengths_of_both), 1e-12));
}

TEST_CASE("aft: gradients, of more than one task and run") {
  const std::string kind = GENERATE(as<std::string>(), "full", "local", "simple");
  const bool causal = GENERATE(false, true);
  const int64_t window = GENERATE(5, 67);
  if (kind != "local" && window > 5) return;
  INFO(kind << " causal " << causal << " window " << window);
  const auto variant = make_variant(
      "aft", {.heads = 1, .dim = 34, .max_length = 70, .causal = causal}, aft(kind, window));
  const Shape shape{2, 70, 1, 34};
  const Mask mask = lengths({70, 66});
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {normal(shape, 1), normal(shape, 2, DType::f64, 2), normal(shape, 3)}, {.max_elements = 30});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("aft: sums that the maxima of a tile bound loosely, all or in part") {
  // Keys and biases of this size: all of them, those of one kind, or some rows of both.
  const double size = GENERATE(100.0, 1e4);
  const std::string some = GENERATE(as<std::string>(), "all", "keys", "few");
  const std::string kind = GENERATE(as<std::string>(), "full", "local");
  const bool causal = GENERATE(false, true);
  INFO(kind << " causal " << causal << " " << some << " of " << size);
  const int64_t N = 135, D = 34, window = 40;
  const std::vector<int32_t> tokens{135, 18};
  // Integers, which f32 adds exactly.
  const auto large = [size](Tensor t, bool everywhere) {
    double* const x = t.data<double>();
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double sign = x[i] > 0.5 ? 1 : x[i] < -0.5 ? -1 : 0;
      x[i] = everywhere || i / t.size(-1) % 7 == 3 ? sign * size : std::round(x[i]);
    }
    return t;
  };
  const Shape shape{2, N, 1, D};
  const Tensor k = large(normal(shape, 2), some != "few"),
               biases = large(normal({N, kind == "full" ? N : 2 * window - 1}, 9), some == "all");
  const auto rounded = [](const Tensor& t) { return t.to(DType::f32).to(DType::f64); };
  const Tensor q = rounded(normal(shape, 1)), v = rounded(normal(shape, 3)),
               cotangent = rounded(normal(shape, 4));
  Outcome results[2];
  Tensor of_biases[2];
  for (const DType dtype : {DType::f64, DType::f32}) {
    const auto variant = make_variant(
        "aft", {.heads = 1, .dim = D, .max_length = N, .causal = causal, .dtype = dtype},
        aft(kind, window));
    Tensor own = variant->state_dict().at("biases");
    copy_into(own, biases);
    const int at = dtype == DType::f32;
    results[at] = run_variant(*variant, q.to(dtype), k.to(dtype), v.to(dtype), lengths(tokens),
                              cotangent.to(dtype));
    of_biases[at] = variant->named_parameters().front().second.grad();
  }
  const auto& [exact, narrow] = results;
  CHECK(near(exact.out, naive(kind, q, k, v, biases, window, causal, tokens), 1e-12));
  CHECK(near(narrow.out.to(DType::f64), exact.out, 2e-6));
  // f32 keeps the logarithms of the sums to 2e-3 at 2e4.
  const double tolerance = size * 2e-6 + 1e-5;
  CHECK(near(narrow.dk.to(DType::f64), exact.dk, tolerance));
  CHECK(near(narrow.dv.to(DType::f64), exact.dv, tolerance));
  CHECK(near(of_biases[1].to(DType::f64), of_biases[0], tolerance));
}

TEST_CASE("aft: gradients of biases and keys of which a part is large") {
  const std::string kind = GENERATE(as<std::string>(), "full", "local");
  const bool causal = GENERATE(false, true);
  INFO(kind << " causal " << causal);
  const auto variant =
      make_variant("aft", {.heads = 1, .dim = 3, .max_length = 20, .causal = causal}, aft(kind, 6));
  const Shape shape{2, 20, 1, 3};
  const Mask mask = lengths({20, 17});
  // Pairs of keys that are large and biases that are not, and the other way round: both decide.
  Tensor k = normal(shape, 2);
  k.slice(1, 3, 9).fill(100);
  Tensor biases = variant->state_dict().at("biases");
  copy_into(biases, normal(biases.shape(), 9));
  double* const w = biases.data<double>();
  for (int64_t i = 0; i < biases.numel(); i += 3) w[i] += 99;
  const Variable q(normal(shape, 1)), keys(k), v(normal(shape, 3));
  check_parameters(*variant, [&] { return variant->forward(q, keys, v, mask, {}); });
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {normal(shape, 1), k, normal(shape, 3)});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("aft: causal results do not depend on later keys that are not finite") {
  const std::string kind = GENERATE(as<std::string>(), "full", "local", "simple");
  const double value = GENERATE(1e30, INFINITY, NAN);
  const auto variant = make_variant("aft", {.max_length = 40, .causal = true}, aft(kind));
  const Shape shape{1, 40, 2, 4};
  Tensor q = normal(shape, 1), k = normal(shape, 2), v = normal(shape, 3);
  const Tensor before = forward(*variant, q, k, v).slice(1, 0, 11);
  k.slice(1, 11, 12).fill(value);
  v.slice(1, 12, 13).fill(value);
  CHECK(identical(forward(*variant, q, k, v).slice(1, 0, 11), before));
}

TEST_CASE("aft: factors of the biases are those of their product") {
  const auto factors =
      make_variant("aft", {}, options_of({{"kind", "full"}, {"rank", int64_t{3}}}));
  const auto full = make_variant("aft", {}, aft("full"));
  const nn::StateDict state = factors->state_dict();
  copy_into(full->state_dict().at("biases"),
            matmul(Variable(state.at("u")), transpose(Variable(state.at("v")), 0, 1)).value());
  const Operands x({2, 13, 2, 4});
  check_near(run_variant(*factors, x), run_variant(*full, x), 1e-13);
  CHECK_THROWS_WITH(make_variant("aft", {}, options_of({{"kind", "simple"}, {"rank", int64_t{3}}})),
                    Catch::Contains("full"));
}

TEST_CASE("aft: local and simple keep a state of constant size") {
  const auto bytes = [](const std::string& kind, int64_t tokens) {
    return make_variant("aft", {.causal = true}, aft(kind))->state_bytes(tokens);
  };
  CHECK(bytes("simple", 10) == bytes("simple", 1));
  CHECK(bytes("local", 16) == bytes("local", 4));
  CHECK(bytes("full", 17) > bytes("full", 16));  // room for twice as many
}
