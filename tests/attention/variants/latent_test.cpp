#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("latent equals its definition") {
  const int64_t N = GENERATE(1, 7, 130), m = GENERATE(1, 5, 60);
  const auto n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const auto variant = make_variant("latent", {.max_length = N}, options_of({{"latents", m}}));
  const Variable L(variant->state_dict().at("latents"));
  const Tensor seen = attention::definitions::visible(N, N, {.lengths = mask.lengths});
  const Tensor expected =
      attention::definitions::apply(
          attention::definitions::latent(Variable(q), Variable(k), L, seen), Variable(v))
          .value();
  const Tensor found = forward(*variant, q, k, v, mask);
  CHECK(near(one(found, 0, N), one(expected, 0, N), 1e-12));
  if (mask.lengths.defined())
    CHECK(near(one(found, 1, (n + 1) / 2), one(expected, 1, (n + 1) / 2), 1e-12));
  if (m < N) CHECK(variant->rank(N) == m);
}
