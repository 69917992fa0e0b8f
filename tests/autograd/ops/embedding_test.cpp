#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Tensor tokens_of(const Shape& shape, int64_t vocabulary) {
  Tensor t = Tensor::empty(shape, DType::i32);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(RandomStream(Generator(4), static_cast<uint64_t>(i))
                                                    .below(static_cast<uint64_t>(vocabulary)));
  return t;
}

}  // namespace

TEST_CASE("embedding: values") {
  const Variable table(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor tokens = Tensor::from<int32_t>({2, 0, 2, 1}, {2, 2});
  const Variable y = embedding(table, tokens);
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(y.value().to_vector<double>() == std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4});
  CHECK(embedding(table, tokens.transpose(0, 1)).value().to_vector<double>() ==
        std::vector<double>{5, 6, 5, 6, 1, 2, 3, 4});
}

TEST_CASE("embedding: gradients, of tokens seen often, once and never") {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{9}, Shape{2, 3}, Shape{2, 1, 3}}) {
    INFO(shape);
    const Tensor tokens = tokens_of(shape, 4);
    check_op([&](const Variables& in) { return embedding(in[0], tokens); },
             {{{4, 3}}, {{4, 1}}, {{5, 0}}});
  }
  const Tensor tokens = tokens_of({2, 3}, 4);
  // Tied to the output: two gradients are added.
  check_op([&](const Variables& in) { return linear(embedding(in[0], tokens), in[0]); },
           {{{4, 3}}});
  check_op([&](const Variables& in) { return transpose(embedding(in[0], tokens), 0, 2); },
           {{{4, 3}}});
  const Tensor many = tokens_of({4000}, 700), few = tokens_of({4000}, 3);
  check_threads([&](const Variables& in) { return embedding(in[0], many); }, {{700, 65}});
  check_threads([&](const Variables& in) { return embedding(in[0], few); }, {{700, 65}});
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
