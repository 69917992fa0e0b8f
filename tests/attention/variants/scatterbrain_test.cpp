#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// The formula: e^s within the window, φ·φ outside of it, as weights. W is (m, D) or (H, m, D).
Variable by_formula(const Variable& q, const Variable& k, const Variable& v, const Tensor& W,
                    int64_t window, bool causal, const Tensor& lengths) {
  namespace def = attention::definitions;
  const int64_t N = q.size(1);
  const double D = static_cast<double>(q.size(3)), m = static_cast<double>(W.size(-2));
  const auto by_head = [](const Variable& x) { return transpose(x, 1, 2); };
  const Variable s = matmul(by_head(q), transpose(by_head(k), 2, 3)) / std::sqrt(D);
  const auto features = [&](const Variable& x) {
    return exp(matmul(by_head(x), transpose(Variable(W), -2, -1), std::pow(D, -0.25)) -
               sum(square(by_head(x)), {3}, true) / (2 * std::sqrt(D)));
  };
  const Tensor near =
      window > 0 ? def::visible(N, N, {.causal = causal, .lengths = lengths, .window = window - 1})
                 : Tensor::zeros({1, 1, N, N}, DType::u8);
  const Tensor all = def::visible(N, N, {.causal = causal, .lengths = lengths});
  const Variable estimates = matmul(features(q), transpose(features(k), 2, 3)) / m;
  const Variable a = where(near, exp(s), where(all, estimates, 0.0));
  const Variable sums = sum(a, {3}, true);
  Tensor some = Tensor::empty(sums.shape(), DType::u8);
  const auto values = sums.value().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) some.data<uint8_t>()[i] = values[i] > 0;
  return def::apply(a / where(some, sums, 1.0), v);
}

}  // namespace

TEST_CASE("scatterbrain equals its formula, with gradients") {
  const bool causal = GENERATE(false, true);
  const auto [N, w] = GENERATE(table<int64_t, int64_t>(
      {{1, 1}, {1, 0}, {9, 0}, {9, 1}, {9, 8}, {9, 9}, {70, 5}, {203, 60}}));
  const bool per_head = GENERATE(false, true);
  INFO("N " << N << " w " << w << " causal " << causal);
  const auto variant =
      make_variant("scatterbrain", {.max_length = N, .causal = causal},
                   options_of({{"window", w},
                               {"features", int64_t{12}},
                               {"heads", std::string(per_head ? "per_head" : "shared")}}));
  const Tensor W = variant->state_dict().at("features");
  const Operands x({2, N, 2, 4});
  const auto n = static_cast<int32_t>(N);
  for (const Mask& mask : {Mask{}, lengths({n, n / 2})}) {
    const Outcome found = run_variant(*variant, x, mask);
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    const Variable out = by_formula(q, k, v, W, w, causal, mask.lengths);
    backward(out, mask.lengths.defined() ? with_padding(x.cotangent, mask, 0) : x.cotangent);
    check_near(found, {out.value(), q.grad(), k.grad(), v.grad(), {}}, 1e-11);
  }
}

TEST_CASE("scatterbrain: samples of several lengths, and their padding") {
  const bool causal = GENERATE(false, true);
  const auto variant =
      make_variant("scatterbrain", {.max_length = 40, .causal = causal},
                   options_of({{"window", int64_t{6}}, {"features", int64_t{12}}}));
  check_samples(*variant, Operands({4, 40, 2, 4}), {40, 13, 0, 5}, 1e-13, 1e-12);
}

// Where φ·φ of near pairs and e^s differ by orders of magnitude, a difference of the two has no digits
// left; and scales of the parts differ by more than f32 can hold.
TEST_CASE("scatterbrain: f32 agrees with f64 at large norms") {
  const bool causal = GENERATE(false, true);
  const double std = GENERATE(0.5, 2.0, 4.0, 12.0);
  const int64_t N = 150;
  const Settings settings{{"window", int64_t{9}}, {"features", int64_t{32}}};
  const Made made{.dim = 16, .max_length = N, .causal = causal};
  Made narrow = made;
  narrow.dtype = DType::f32;
  const auto one = make_variant("scatterbrain", made, options_of(settings)),
             two = make_variant("scatterbrain", narrow, options_of(settings));
  const Operands x({1, N, 2, 16}, std);
  const auto down = [](const Tensor& t) { return t.to(DType::f32); };
  const auto up = [](const Tensor& t) { return t.to(DType::f32).to(DType::f64); };
  one->load_state_dict([&] {
    auto state = one->state_dict();
    state["features"] = up(state.at("features"));
    return state;
  }());
  const Outcome wide = run_variant(*one, up(x.q), up(x.k), up(x.v), {}, up(x.cotangent)),
                thin = run_variant(*two, down(x.q), down(x.k), down(x.v), {}, down(x.cotangent));
  INFO("std " << std << " causal " << causal);
  const double tolerance = std > 3 ? 5e-4 : 1e-5;
  CHECK(near(up(thin.out), wide.out, tolerance));
  CHECK(near(up(thin.dq), wide.dq, tolerance));
  CHECK(near(up(thin.dk), wide.dk, tolerance));
  CHECK(near(up(thin.dv), wide.dv, tolerance));
}

TEST_CASE("scatterbrain: decoding keeps a ring of keys and the sums of the others") {
  const int64_t N = 30, w = GENERATE(0, 1, 7, 64);
  const auto variant = make_variant("scatterbrain", {.max_length = N, .causal = true},
                                    options_of({{"window", w}, {"features", int64_t{12}}}));
  const Operands x({2, N, 2, 4});
  const Tensor all = forward(*variant, x.q, x.k, x.v);
  const auto decoder = variant->decoder(2);
  for (int64_t i = 0; i < N; ++i) {
    INFO("token " << i);
    CHECK(near(decoder->step(x.q.select(1, i), x.k.select(1, i), x.v.select(1, i)),
               all.select(1, i), 1e-12));
  }
  CHECK(decoder->bytes() == 2 * variant->state_bytes(N));
}
