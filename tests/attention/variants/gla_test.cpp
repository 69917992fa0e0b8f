#include "longhand/autograd/ops.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options gla(bool norm, bool gate, int64_t rank = 3, double temperature = 16) {
  return options_of(
      {{"decay_rank", rank}, {"temperature", temperature}, {"norm", norm}, {"gate", gate}});
}

}  // namespace

TEST_CASE("gla: in blocks, as a recurrence and as weights") {
  check_scan_forms(*make_variant("gla", {.max_length = 140, .causal = true},
                                 gla(false, false, 3, GENERATE(0.5, 16.0))));
}

TEST_CASE("gla: decays are roots of gates, one for each channel") {
  const int64_t N = 9;
  const ScanCase c(2, N, 2, 4);
  const auto variant =
      make_variant("gla", {.max_length = N, .causal = true}, gla(true, true, 3, 5));
  auto state = variant->state_dict();
  copy_into(state.at("decay.bias"), normal({8}, 9, DType::f64, 2));
  const Variable logits =
      linear(linear(Variable(c.x), Variable(state.at("decay.weight_in"))),
             Variable(state.at("decay.weight_out")), Variable(state.at("decay.bias")));
  const Tensor decays =
      exp(dynamic_cast<attention::ScanAttention&>(*variant).operands(c.inputs()).log_decay).value();
  const auto gates = sigmoid(logits).value().to_vector<double>(),
             found = decays.to_vector<double>();
  REQUIRE(gates.size() == found.size());
  for (size_t i = 0; i < gates.size(); ++i)
    CHECK(found[i] == Approx(std::pow(gates[i], 0.2)).epsilon(1e-13));
  CHECK(variant->parameter_count() == 64 + 3 * 8 * 2 + 8 + 4);
}

TEST_CASE("gla: f32 over 65,536 tokens is near f64, for decays near 0 and near 1") {
  const double bias = GENERATE(-30.0, 0.0, 14.0);
  const auto of = [&](DType dtype) {
    return make_variant("gla", {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        gla(false, false, 2, 1));
  };
  const auto narrow = of(DType::f32), wide = of(DType::f64);
  narrow->state_dict().at("decay.bias").fill(bias);
  const LongErrors e = long_errors(*narrow, *wide, 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-5);
  CHECK(e.gradients < 1e-4);
}

TEST_CASE("gla: decoding gives the rows of the whole sequence") {
  check_decoding("gla", gla(true, GENERATE(false, true)));
}

TEST_CASE("gla: a rank above the width of the model is refused") {
  CHECK_THROWS_WITH(make_variant("gla", {.causal = true}, gla(true, true, 9)),
                    Catch::Contains("decay_rank") && Catch::Contains("at most d_model = 8"));
}
