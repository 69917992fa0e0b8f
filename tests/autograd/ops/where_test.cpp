#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor bits(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::u8);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<uint8_t>()[i] =
        static_cast<uint8_t>(Generator(3).bits(static_cast<uint64_t>(i)) % 3);  // 0, 1, 2
  return t;
}

}  // namespace

TEST_CASE("where: values; any condition but 0 is true") {
  const Tensor condition = Tensor::from<uint8_t>({0, 1, 255}, {3});
  const Variable a(Tensor::from<double>({1, 2, 3}, {3})), b(Tensor::from<double>({4, 5, 6}, {3}));
  CHECK(where(condition, a, b).value().to_vector<double>() == std::vector<double>{4, 2, 3});
  CHECK(where(condition, a, -7).value().to_vector<double>() == std::vector<double>{-7, 2, 3});
}

TEST_CASE("where: the order of axes, and errors") {
  const Variable a(random({4, 3}).transpose(0, 1)), one(random({1}));
  CHECK(where(bits({3, 4}), a, one).value().strides() == Strides{1, 3});
  CHECK(where(bits({3, 4}), one, a).value().strides() == Strides{1, 3});
  CHECK_THROWS_WITH(where(Tensor::zeros({3, 4}), a, a),
                    Catch::Contains("where") && Catch::Contains("u8"));
  CHECK_THROWS_WITH(where(bits({5}), a, a), Catch::Contains("where") && Catch::Contains("[5]"));
}
