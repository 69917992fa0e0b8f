#include "longhand/autograd/ops.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options retnet(int64_t fastest, bool norm, bool gate) {
  return options_of({{"fastest", fastest}, {"norm", norm}, {"gate", gate}});
}

}  // namespace

TEST_CASE("retnet: in blocks, as a recurrence and as weights") {
  check_scan_forms(*make_variant("retnet", {.max_length = 140, .causal = true},
                                 retnet(GENERATE(1, 5), false, false)));
}

TEST_CASE("retnet: norm and gate of the sums") {
  const int64_t N = 20;
  const ScanCase c(2, N, 2, 4);
  const auto of = [&](bool norm, bool gate) {
    return make_variant("retnet", {.max_length = N, .causal = true}, retnet(5, norm, gate));
  };
  const auto result = [&](attention::Variant& variant) {
    return variant.forward(c.inputs(), {}, {}).value();
  };
  const Variable sums(result(*of(false, false)));
  const Variable normed = rms_norm(sums, {}, 1e-5);
  CHECK(near(result(*of(true, false)), normed.value(), 1e-14));
  const auto gated = of(true, true);
  const Variable gate = linear(Variable(c.x), Variable(gated->state_dict().at("gate.weight")));
  CHECK(near(result(*gated), (normed * reshape(gate * sigmoid(gate), c.q.shape())).value(), 1e-14));
  CHECK(gated->parameter_count() == 64);
  CHECK(of(true, false)->parameter_count() == 0);
}

TEST_CASE("retnet: f32 over 65,536 tokens is near f64, for decays of 1/2 and almost 1") {
  const int64_t fastest = GENERATE(1, 5, 16, 40);
  const auto of = [&](DType dtype) {
    return make_variant("retnet", {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        retnet(fastest, false, false));
  };
  const LongErrors e = long_errors(*of(DType::f32), *of(DType::f64), 1, 4);
  INFO("fastest " << fastest << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-5);
  CHECK(e.gradients < 1e-5);
}

TEST_CASE("retnet: decoding gives the rows of the whole sequence") {
  check_decoding("retnet", retnet(5, true, GENERATE(false, true)));
}
