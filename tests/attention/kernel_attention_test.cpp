#include "longhand/attention/kernel_attention.h"

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

Tensor positive(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f64);
  fill_uniform(t, Generator(seed), 0.1, 1);
  return t;
}

// Rising along axis 1, in jumps.
Tensor rising(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::empty(shape, DType::f64);
  fill_uniform(t, Generator(seed), -40, 40);
  return running_max(t);
}

}  // namespace

TEST_CASE("kernel attention: a running maximum looks back only") {
  const Tensor x = Tensor::from(std::vector<double>{1, 9, 0, 10, 5, 3, 2, 11}, {1, 4, 2});
  CHECK(running_max(x).to_vector<double>() == std::vector<double>{1, 9, 1, 10, 5, 10, 5, 11});
}

TEST_CASE("kernel attention: chunks of any size give the same") {
  const int64_t N = GENERATE(1, 2, 5, 8, 13);
  const bool scaled = GENERATE(false, true);
  const Shape features{2, N, 2, 3}, values{2, N, 2, 4};
  const Tensor fq = positive(features, 1), fk = positive(features, 2), v = normal(values, 3);
  const Tensor c = scaled ? rising({2, N, 2}, 4) : Tensor();
  // The definition, with e^c in the features of the keys.
  const Variable scaled_keys = scaled ? Variable(fk) * exp(Variable(c.unsqueeze(3))) : Variable(fk);
  const Tensor wanted = naive_kernel_attention(fq, scaled_keys.value(), v, dot, true);
  for (const int64_t chunk : {1, 2, 3, 4, 48}) {
    INFO("N " << N << " chunk " << chunk << " scaled " << scaled);
    const auto f = [&](const Variables& in) {
      return normalised(causal_kernel_sums(in[0], in[1], in[2], {.log_scale = c, .chunk = chunk}));
    };
    CHECK(near(f({Variable(fq), Variable(fk), Variable(v)}).value(), wanted, 1e-13));
    const GradcheckReport report = gradcheck(f, {fq, fk, v});
    INFO(report);
    CHECK(report.ok);
  }
}
