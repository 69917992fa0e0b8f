#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor index_of(const Shape& shape, int64_t bound) {
  Tensor t = Tensor::empty(shape, DType::i32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(Generator(4).bits(static_cast<uint64_t>(i)) %
                                                static_cast<uint64_t>(bound));
  return t;
}

}  // namespace

TEST_CASE("gather: values") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const Tensor along_rows = Tensor::from<int32_t>({2, 2, 0, 1, 0, 1, 2, 0}, {2, 4});
  CHECK(gather(x, 1, along_rows).value().to_vector<double>() ==
        std::vector<double>{3, 3, 1, 2, 4, 5, 6, 4});
  const Tensor along_columns = Tensor::from<int32_t>({1, 0, 1}, {1, 3});
  CHECK(gather(x, -2, along_columns).value().to_vector<double>() == std::vector<double>{4, 2, 6});
}

TEST_CASE("gather: the order of axes, and errors") {
  const Variable x(random({4, 3}).transpose(0, 1));
  CHECK(gather(x, 1, index_of({3, 2}, 4)).value().strides() == Strides{1, 3});
  CHECK_THROWS_WITH(
      gather(x, 1, Tensor::from<int32_t>({0, 4, 0}, {3, 1})),
      Catch::Contains("gather") && Catch::Contains("index 4") && Catch::Contains("[3, 4]"));
  CHECK_THROWS_AS(gather(x, 1, Tensor::from<int32_t>({0, -1, 0}, {3, 1})), ShapeError);
  CHECK_THROWS_AS(gather(x, 1, index_of({2, 1}, 2)), ShapeError);
  CHECK_THROWS_AS(gather(x, 1, index_of({3}, 2)), ShapeError);
  CHECK_THROWS_AS(gather(x, 2, index_of({3, 1}, 2)), ShapeError);
  CHECK_THROWS_WITH(gather(x, 1, Tensor::zeros({3, 1}, DType::i64)), Catch::Contains("i64"));
  CHECK_THROWS_AS(gather(Variable(Tensor::zeros({0}, DType::f64)), 0, index_of({1}, 1)),
                  ShapeError);
}
