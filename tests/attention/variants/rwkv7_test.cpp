// rwkv7; the suite of conformance/ tests what holds for every variant.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/delta_scan.h"
#include "longhand/core/linalg.h"
#include "tests/attention/attention_check.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

using Parameters = std::map<std::string, Variable>;

// The formula at the top of the variant's file, token by token, without padding.
Variable recurrence(Parameters p, const Variable& q, const Variable& k, const Variable& v) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
  const Variable x = reshape(q, {B, N, H * D});
  const auto map = [&](const std::string& name, const auto& f) {
    return reshape(linear(f(linear(x, p[name + "_down.weight"])), p[name + "_up.weight"]),
                   {B, N, H, D});
  };
  const auto itself = [](const Variable& y) { return y; };
  const Variable w = exp(-std::exp(-0.5) *
                         sigmoid(map("decay", [](auto y) { return tanh(y); }) + p["decay_bias"]));
  const Variable a = sigmoid(map("rate", itself) + p["rate_bias"]);
  const Variable scaled = k * p["removal"];
  const Variable kappa = scaled / sqrt(sum(square(scaled), {3}, true) + 1e-6);
  const Variable written = k * (1 + (a - 1) * p["replacement"]);
  const auto row = [&](const Variable& y, int64_t i) {
    return reshape(slice(y, 1, i, i + 1), {B, H, D, 1});
  };
  Variable S(Tensor::zeros({B, H, D, D}, DType::f64));
  Variables reads;
  for (int64_t i = 0; i < N; ++i) {
    const Variable held = matmul(transpose(S, 2, 3), row(kappa, i));  // (B, H, D, 1)
    S = row(w, i) * S - matmul(row(a * kappa, i), transpose(held, 2, 3)) +
        matmul(row(written, i), transpose(row(v, i), 2, 3));
    reads.push_back(reshape(
        matmul(transpose(S, 2, 3), row(q, i)) / std::sqrt(static_cast<double>(D)), {B, 1, H, D}));
  }
  Variable y = concat(reads, 1);
  if (p.count("norm_weight")) {
    const Variable centred = y - mean(y, {3}, true);
    y = centred / sqrt(mean(square(centred), {3}, true) + 1e-5) * p["norm_weight"] + p["norm_bias"];
  }
  if (p.count("bonus")) y = y + sum(q * written * p["bonus"], {3}, true) * v;
  if (p.count("gate_up.weight")) y = y * map("gate", [](auto z) { return sigmoid(z); });
  return y;
}

// Parameters that start with zeros or ones get values that show what they do.
void disturb(attention::Variant& variant) {
  nn::StateDict state = variant.state_dict();
  uint64_t seed = 20;
  for (auto& [name, tensor] : state) {
    const Tensor noise = normal(tensor.shape(), seed++, DType::f64, 0.5);
    tensor = (Variable(tensor) + Variable(noise)).value();
  }
  variant.load_state_dict(state);
}

}  // namespace

TEST_CASE("rwkv7 equals its recurrence, with its gradients") {
  const bool plain = GENERATE(false, true);
  INFO("plain " << plain);
  Settings settings{{"rank", int64_t{3}}};
  if (plain) settings = {{"norm", false}, {"bonus", false}, {"gate", false}};
  const int64_t N = 53;
  const auto variant =
      make_variant("rwkv7", {.max_length = N, .causal = true}, options_of(settings));
  disturb(*variant);
  Parameters parameters;
  for (const auto& [key, value] : variant->named_parameters()) parameters[key] = value;
  const Operands x({2, N, 2, 4});
  const Outcome got = run_variant(*variant, x);
  variant->zero_grad();
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable y = recurrence(parameters, q, k, v);
  CHECK(near(got.out, y.value(), 1e-11));
  backward(y, x.cotangent);
  CHECK(near(got.dq, q.grad(), 1e-10));
  CHECK(near(got.dk, k.grad(), 1e-10));
  CHECK(near(got.dv, v.grad(), 1e-10));
  for (const auto& [key, value] : variant->named_parameters()) {
    INFO(key);
    CHECK(near(got.parameters.at(key), value.grad(), 1e-10));
  }
}

TEST_CASE("rwkv7: the weights of its definition are those of the rule") {
  const Shape shape{2, 53, 2, 4};
  const auto operand = [&](uint64_t seed) {
    return Variable(normal(shape, seed, DType::f64, 0.5));
  };
  const Variable q = operand(1), read = operand(2), removed = operand(3), written = operand(4),
                 v = operand(5), g = -square(operand(6));
  const Variable weights =
      attention::definitions::rwkv7(q, read, removed, written, g);  // (B, H, N, N)
  const auto rule = attention::delta_scan(
      {.q = q, .k = removed, .v = v, .log_decay = g, .read = read, .write = written});
  CHECK(near(attention::definitions::apply(weights, v).value(), rule.out.value(), 1e-11));
}

TEST_CASE("rwkv7: a sample of a batch gives what it gives alone") {
  const auto variant = make_variant("rwkv7", {.max_length = 60, .causal = true});
  disturb(*variant);
  check_samples(*variant, Operands({3, 60, 2, 4}), {60, 17, 1}, 1e-12, 1e-11);
}

TEST_CASE("rwkv7: a decoder keeps D x D numbers per head") {
  const auto variant =
      make_variant("rwkv7", {.heads = 3, .dim = 8, .max_length = 100, .causal = true});
  CHECK(variant->state_bytes(1) == 3 * 8 * 8 * 8);
  CHECK(variant->state_bytes(100000) == variant->state_bytes(1));
}

TEST_CASE("rwkv7: channels start to forget from slowly to fast, as in the authors' code") {
  const auto variant = make_variant("rwkv7", {.heads = 2, .dim = 4, .causal = true});
  const auto bias = variant->state_dict().at("decay_bias").to_vector<double>();
  CHECK(bias.front() == Approx(-6.5));
  CHECK(bias.back() == Approx(-1.5));
  CHECK(bias[1] == Approx(-6.5 + 5 * std::pow(1.0 / 7, 0.85)));
}

TEST_CASE("rwkv7: f32 over 65,536 tokens is near f64, for slow and fast decays") {
  const double bias = GENERATE(-14.0, 0.0, 30.0);
  const auto of = [&](DType dtype) {
    return make_variant("rwkv7", {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        options_of({{"norm", false}, {"gate", false}, {"rank", int64_t{2}}}));
  };
  const auto narrow = of(DType::f32), wide = of(DType::f64);
  for (const auto& variant : {std::cref(*narrow), std::cref(*wide)})
    variant.get().state_dict().at("decay_bias").fill(bias);
  const LongErrors e = long_errors(*narrow, *wide, 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 2e-5);
  CHECK(e.gradients < 1e-4);
}

TEST_CASE("rwkv7: a transition has one negative eigenvalue exactly if c Σ a κ² e^-g > 1") {
  const bool negative = GENERATE(false, true);
  const double rate = GENERATE(-1.0, 0.5, 3.0), u = std::exp(-std::exp(-0.5)),
               c = negative ? 1 + u : 1;
  const int64_t N = 20, H = 2, D = 4;
  const auto variant = make_variant("rwkv7", {.max_length = N, .causal = true},
                                    options_of({{"negative", negative}, {"rank", int64_t{2}}}));
  auto state = variant->state_dict();
  copy_into(state.at("decay_bias"), normal({H, D}, 1, DType::f64, 2));
  state.at("rate_bias").fill(rate);
  const Variable q(normal({1, N, H, D}, 2)), x(normal({1, N, H * D}, 3));
  const attention::DeltaInputs of =
      dynamic_cast<const attention::DeltaAttention&>(*variant).operands({q, q, q, x});
  const Tensor decays = exp(of.log_decay).value(), removed = (of.read * exp(of.log_decay)).value();
  int64_t with = 0, without = 0;
  double least = 1;
  for (int64_t i = 0; i < N; ++i)
    for (int64_t h = 0; h < H; ++h) {
      // Of the symmetric matrix diag(e^g) - c y yᵀ, y = sqrt(a) κ, which is similar to the transition.
      Tensor M = Tensor::empty({D, D}, DType::f64);
      double sum = 0, y[D];
      for (int64_t l = 0; l < D; ++l) {
        const double kappa = removed.at({0, i, h, l}),
                     square = kappa * of.k.value().at({0, i, h, l});
        sum += c * square / decays.at({0, i, h, l});
        y[l] = std::copysign(std::sqrt(square), kappa);
      }
      for (int64_t l = 0; l < D; ++l)
        for (int64_t m = 0; m < D; ++m)
          M.data<double>()[l * D + m] = (l == m ? decays.at({0, i, h, l}) : 0) - c * y[l] * y[m];
      const auto values = symmetric_eigenvalues(M).to_vector<double>();
      const auto below =
          std::count_if(values.begin(), values.end(), [](double e) { return e < 0; });
      CHECK(below == (sum > 1));
      ++(below == 1 ? with : without);
      least = std::min(least, *std::min_element(values.begin(), values.end()));
    }
  CHECK(least >= u - c);
  CHECK((rate < 0 ? without : with) > 0);
  if (of.beta.defined())
    CHECK(near(of.beta.value(), Tensor::full({1, N, H}, c, DType::f64), 1e-15));
}
