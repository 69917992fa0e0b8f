#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("embedding: values") {
  const Variable table(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor tokens = Tensor::from<int32_t>({2, 0, 2, 1}, {2, 2});
  const Variable y = embedding(table, tokens);
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(y.value().to_vector<double>() == std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4});
  CHECK(embedding(table, tokens.transpose(0, 1)).value().to_vector<double>() ==
        std::vector<double>{5, 6, 5, 6, 1, 2, 3, 4});
}

TEST_CASE("embedding: errors") {
  const Variable table(random({3, 2}));
  CHECK_THROWS_WITH(embedding(table, Tensor::from<int32_t>({0, 1, 3}, {3})),
                    Catch::Contains("embedding") && Catch::Contains("token 3 at index 2") &&
                        Catch::Contains("3 rows"));
  CHECK_THROWS_AS(embedding(table, Tensor::from<int32_t>({-1}, {1})), ShapeError);
  CHECK_THROWS_WITH(embedding(table, Tensor::zeros({1}, DType::i64)), Catch::Contains("i64"));
  CHECK_THROWS_AS(embedding(Variable(random({3})), Tensor::zeros({1}, DType::i32)), ShapeError);
}
