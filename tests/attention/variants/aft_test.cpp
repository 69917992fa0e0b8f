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
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t i = 0; i < n[b]; ++i)
      for (int64_t h = 0; h < q.size(2); ++h)
        for (int64_t d = 0; d < q.size(3); ++d) {
          const int64_t end = causal ? i + 1 : n[b];
          double most = -1e300, sum = 0, total = 0;
          const auto term = [&](int64_t j) {
            return k.at({b, j, h, d}) + bias(kind, biases, window, i, j);
          };
          for (int64_t j = 0; j < end; ++j) most = std::max(most, term(j));
          for (int64_t j = 0; j < end; ++j) {
            const double e = std::exp(term(j) - most);
            sum += e * v.at({b, j, h, d});
            total += e;
          }
          out.select(0, b)
              .select(0, i)
              .select(0, h)
              .slice(0, d, d + 1)
              .fill(sum / total / (1 + std::exp(-q.at({b, i, h, d}))));
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
  CHECK(bytes("full", 16) > bytes("full", 15));
}
