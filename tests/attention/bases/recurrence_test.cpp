// What variants with a decaying state have in common.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/bases/scan_attention.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

// The state after the last token of sequences with the given lengths.
Tensor final_state(const Variant& variant, const Inputs& in, const Tensor& lengths) {
  if (const auto* scans = dynamic_cast<const ScanAttention*>(&variant))
    return scan(scans->padded_operands(in, lengths)).state.S.value();
  const auto& corrects = dynamic_cast<const DeltaAttention&>(variant);
  return delta_scan(corrects.padded_operands(in, lengths)).state.value();
}

}  // namespace

TEST_CASE("padding leaves the state of a recurrence as it is") {
  const int64_t N = 70, real = 41, H = 2, D = 4;
  int found = 0;
  for (const std::string& name : attention::names()) {
    if (capabilities(name).needs != Needs::state) continue;
    INFO(name);
    Made made;
    made.heads = H, made.dim = D, made.max_length = N, made.causal = true;
    const auto variant = make_variant(name, made);
    if (!dynamic_cast<const ScanAttention*>(variant.get()) &&
        !dynamic_cast<const DeltaAttention*>(variant.get()))
      continue;
    ++found;
    // Zeros at padding, as attend() receives it.
    const auto padded = [&](const Shape& shape, uint64_t seed) {
      Tensor x = normal(shape, seed);
      x.slice(1, real, N).fill(0);
      return Variable(x);
    };
    const Inputs in{padded({1, N, H, D}, 1), padded({1, N, H, D}, 2), padded({1, N, H, D}, 3),
                    padded({1, N, H * D}, 4)};
    const auto first = [&](const Variable& x) { return slice(x, 1, 0, real); };
    const Tensor state = final_state(*variant, in, lengths({static_cast<int32_t>(real)}).lengths);
    CHECK(near(state,
               final_state(*variant, {first(in.q), first(in.k), first(in.v), first(in.x)}, {}),
               1e-12));
  }
  CHECK(found >= 8);
}
