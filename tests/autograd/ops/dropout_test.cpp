#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// By definition: half i mod 2 of word (i mod 8) / 2 of block i / 8 is compared with p 2^16.
bool keeps(const Generator& generator, double p, uint64_t i) {
  const uint32_t word = generator.block(i / 8)[i % 8 / 2];
  return (i % 2 ? word >> 16 : word & 0xffff) >= std::nearbyint(p * 65536);
}

// 1 / (1 - p) for p rounded to a multiple of 2^-16.
double scale(double p) { return 65536 / (65536 - std::nearbyint(p * 65536)); }

}  // namespace

TEST_CASE("dropout: element i is dropped depending on number i, for any strides") {
  const Generator generator(9);
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{2, 3, 5}, Shape{3000}}) {
    const Tensor values = random(shape, DType::f64, 1, 2);
    const auto x = values.to_vector<double>();
    for (Layout layout : {Layout::row_major, Layout::reversed, Layout::holes_stride_2}) {
      for (double p : {0.1, 0.5, 0.75}) {
        const Variable y = dropout(Variable(with_layout(values, layout)), p, generator);
        const auto found = y.value().to_vector<double>();
        INFO(shape << " layout " << static_cast<int>(layout) << " p " << p);
        bool ok = true;
        for (size_t i = 0; i < found.size(); ++i)
          ok = ok && found[i] == (keeps(generator, p, i) ? x[i] * scale(p) : 0);
        CHECK(ok);
      }
    }
  }
}

TEST_CASE("dropout: the number of elements kept") {
  const Variable x(Tensor::full({100000}, 1));
  for (double p : {0.0, 0.1, 0.5, 0.9}) {
    int64_t kept = 0;
    bool scaled = true;
    for (float y : dropout(x, p, Generator(3)).value().to_vector<float>()) {
      kept += y != 0;
      scaled = scaled && (y == 0 || y == static_cast<float>(scale(p)));
    }
    CHECK(scaled);
    const double deviation = std::sqrt(1e5 * p * (1 - p));
    CHECK(std::abs(static_cast<double>(kept) - 1e5 * (1 - p)) <= 4 * deviation);
  }
  CHECK(dropout(x, 0, Generator(3)).value().shares_memory_with(x.value()));
  // Almost always dropped, never divided by zero.
  const double nearly_one = std::nextafter(1.0, 0.0);
  CHECK(sum(dropout(slice(x, 0, 0, 1000), nearly_one, Generator(3))).value().item() == 0);
}

TEST_CASE("dropout: errors") {
  const Variable x(random({3}));
  CHECK_THROWS_WITH(dropout(x, 1, Generator(1)), Catch::Contains("dropout"));
  CHECK_THROWS_AS(dropout(x, -0.1, Generator(1)), ConfigError);
  CHECK_THROWS_AS(dropout(x, std::nan(""), Generator(1)), ConfigError);
}
