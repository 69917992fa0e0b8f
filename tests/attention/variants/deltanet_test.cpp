// deltanet, gated_deltanet, deltaproduct, kda and gdn2; the suite of conformance/ tests what holds for every variant.
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/delta_scan.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace def = longhand::attention::definitions;

namespace {

using Parameters = std::map<std::string, Variable>;

// y of length 1, for y = silu(x) or x.
Variable unit(const Variable& x, bool silu) {
  const Variable y = silu ? x * sigmoid(x) : x;
  return y / sqrt(sum(square(y), {3}, true) + 1e-6);
}
Variable steps(const Variable& y) { return log(exp(y) + 1); }

// The formulas at the top of the variants' files, without padding.
Variable formula(const std::string& name, Parameters p, const Variable& q, const Variable& k,
                 const Variable& v, bool silu, double limit) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
  const Variable x = reshape(q, {B, N, H * D});
  Variable g;
  if (name == "gated_deltanet" || name == "deltaproduct")
    g = -(exp(p["log_rate"]) * steps(linear(x, p["step.weight"]) + p["step_bias"]));
  if (name == "kda" || name == "gdn2")
    g = -(exp(p["log_rate"]) *
          steps(reshape(linear(linear(x, p["decay_down.weight"]), p["decay_up.weight"]),
                        {B, N, H, D}) +
                p["step_bias"]));
  attention::DeltaInputs in{
      unit(q, silu) / std::sqrt(static_cast<double>(D)), unit(k, silu), v, {}, g};
  if (name == "gdn2") {
    const auto gate = [&](const char* of) { return sigmoid(reshape(linear(x, p[of]), k.shape())); };
    in.beta = Variable(Tensor::full({B, N, H}, 1, DType::f64));
    in.read = in.k * (limit * gate("erase.weight"));
    in.v = v * gate("write.weight");
  } else {
    in.beta = limit * sigmoid(linear(x, p["beta.weight"]));
  }
  int64_t n = 1;
  if (name == "deltaproduct") {  // n rules for each token, in order
    n = p["keys.weight"].size(0) / (H * D) + 1;
    Variables queries(n, in.q), keys{in.k}, values{in.v}, strengths{in.beta}, decays{g};
    for (int64_t j = 1; j < n; ++j) {
      const auto of = [&](const char* weight, int64_t width) {
        return slice(linear(x, p[weight]), 2, (j - 1) * width, j * width);
      };
      keys.push_back(unit(reshape(of("keys.weight", H * D), k.shape()), silu));
      values.push_back(reshape(of("values.weight", H * D), v.shape()));
      strengths.push_back(limit * sigmoid(of("strengths.weight", H)));
      decays.push_back(0 * g);
    }
    const auto in_order = [&](const Variables& steps) {
      Variables all;
      for (int64_t i = 0; i < N; ++i)
        for (const Variable& step : steps) all.push_back(slice(step, 1, i, i + 1));
      return concat(all, 1);
    };
    in = {in_order(queries), in_order(keys), in_order(values), in_order(strengths),
          in_order(decays)};
  }
  Variable y = def::apply(def::delta(in.q, in.k, in.beta, in.log_decay, in.read), in.v);
  if (n > 1) y = slice(y, 1, n - 1, n * N, n);
  if (p.count("norm")) y = y / sqrt(mean(square(y), {3}, true) + 1e-5) * p["norm"];
  if (p.count("gate.weight")) {
    const Variable u = reshape(linear(x, p["gate.weight"]), y.shape());
    y = y * u * sigmoid(u);
  }
  if (p.count("gate_up.weight"))
    y = y * reshape(sigmoid(linear(linear(x, p["gate_down.weight"]), p["gate_up.weight"],
                                   p["gate_up.bias"])),
                    y.shape());
  return y;
}

}  // namespace

TEST_CASE("delta rules equal their N x N form, with their gradients") {
  const std::string name = GENERATE("deltanet", "gated_deltanet", "deltaproduct", "kda", "gdn2");
  const bool plain = GENERATE(false, true);
  INFO(name << " plain " << plain);
  Settings settings;
  if (plain) settings = {{"silu", false}, {"negative", true}, {"norm", false}};
  if (plain && name != "deltanet") settings["gate"] = false;
  const int64_t N = 55;
  const auto variant = make_variant(name, {.max_length = N, .causal = true}, options_of(settings));
  Parameters parameters;
  for (const auto& [key, value] : variant->named_parameters()) parameters[key] = value;
  const Operands x({2, N, 2, 4});
  const Outcome got = run_variant(*variant, x);
  variant->zero_grad();
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable y = formula(name, parameters, q, k, v, !plain, plain ? 2 : 1);
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

TEST_CASE("delta rules: a sample of a batch gives what it gives alone") {
  const std::string name = GENERATE("deltanet", "gated_deltanet", "deltaproduct", "kda", "gdn2");
  const auto variant = make_variant(name, {.max_length = 60, .causal = true});
  check_samples(*variant, Operands({3, 60, 2, 4}), {60, 17, 1}, 1e-12, 1e-11);
}

TEST_CASE("delta rules: a decoder keeps D x D numbers per head") {
  const std::string name = GENERATE("deltanet", "gated_deltanet", "deltaproduct", "kda", "gdn2");
  const auto variant =
      make_variant(name, {.heads = 3, .dim = 8, .max_length = 100, .causal = true});
  CHECK(variant->state_bytes(1) == 3 * 8 * 8 * 8);
  CHECK(variant->state_bytes(100000) == variant->state_bytes(1));
}
