#include "longhand/autograd/ops.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options mamba2(bool skip, bool norm, bool gate) {
  return options_of({{"skip", skip}, {"norm", norm}, {"gate", gate}});
}

}  // namespace

TEST_CASE("mamba2: in blocks, as a recurrence and as weights") {
  const auto variant = make_variant("mamba2", {.max_length = 140, .causal = true},
                                    mamba2(GENERATE(false, true), false, false));
  variant->state_dict().at("step_bias").fill(GENERATE(-4.0, 2.0));
  check_scan_forms(*variant);
}

TEST_CASE("mamba2: steps, decays and what follows the sums") {
  const int64_t N = 9;
  const ScanCase c(2, N, 2, 4);
  const auto variant =
      make_variant("mamba2", {.max_length = N, .causal = true}, small_options("mamba2"));
  auto state = variant->state_dict();
  const auto of = [&](const char* name) { return Variable(state.at(name)); };
  copy_into(state.at("skip"), normal({2}, 9));
  copy_into(state.at("norm"), normal({8}, 10));
  auto& scanning = dynamic_cast<attention::ScanAttention&>(*variant);
  const attention::ScanInputs in = scanning.operands(c.inputs());
  const Variable step = log(1 + exp(linear(Variable(c.x), of("step.weight")) + of("step_bias")));
  CHECK(near(in.v.value(), (Variable(c.v) * unsqueeze(step, 3)).value(), 1e-14));
  CHECK(near(in.log_decay.value(), (-step * exp(of("log_rate"))).value(), 1e-14));
  const Variable sums(
      recurrent(in.q.value(), in.k.value(), in.v.value(), in.log_decay.value(), nullptr, false)
          .out);
  const Variable gate = linear(Variable(c.x), of("gate.weight"));
  const Variable y = reshape(sums / 2 + Variable(c.v) * unsqueeze(of("skip"), 1), {2, N, 8}) *
                     gate * sigmoid(gate);
  const Variable expected = y / sqrt(mean(square(y), {2}, true) + 1e-5) * of("norm");
  CHECK(near(variant->forward(c.inputs(), {}, {}).value().reshape({2, N, 8}), expected.value(),
             1e-13));
}

TEST_CASE("mamba2: steps start between 0.001 and 0.1, rates between 1 and 16") {
  const auto variant = make_variant("mamba2", {.heads = 500, .dim = 1, .causal = true});
  const auto state = variant->state_dict();
  const auto b = state.at("step_bias").to_vector<double>(),
             A = state.at("log_rate").to_vector<double>();
  double low = 1, high = 0, middle = 0, rates = 0;
  for (size_t h = 0; h < b.size(); ++h) {
    const double step = std::log1p(std::exp(b[h]));
    low = std::min(low, step), high = std::max(high, step);
    middle += std::log10(step) / static_cast<double>(b.size());
    rates += std::exp(A[h]) / static_cast<double>(A.size());
    CHECK((std::exp(A[h]) >= 1 && std::exp(A[h]) <= 16));
  }
  CHECK(low >= 1e-3 * (1 - 1e-9));
  CHECK(high <= 0.1 * (1 + 1e-9));
  CHECK(middle == Approx(-2).margin(0.1));
  CHECK(rates == Approx(8.5).margin(0.8));
}

TEST_CASE("mamba2: f32 over 65,536 tokens is near f64, for decays near 0 and near 1") {
  const double bias = GENERATE(-12.0, -4.0, 4.0);
  const auto of = [&](DType dtype) {
    return make_variant("mamba2", {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        mamba2(true, false, false));
  };
  const auto narrow = of(DType::f32), wide = of(DType::f64);
  narrow->state_dict().at("step_bias").fill(bias);
  const LongErrors e = long_errors(*narrow, *wide, 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-5);
  CHECK(e.gradients < 1e-4);
}

TEST_CASE("mamba2: decoding gives the rows of the whole sequence") {
  check_decoding("mamba2", mamba2(GENERATE(false, true), true, true));
}
