#include "longhand/core/view.h"

#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("rows of a permuted tensor are in memory order") {
  Tensor t = Tensor::empty({2, 3, 4, 5});
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i);
  Tensor heads = t.permute({0, 2, 1, 3});
  CHECK(row_dense(heads).shares_memory_with(t));
  const Rows<float> r = rows<float>(heads);
  CHECK(r.count == 24);
  CHECK(r.width == 5);
  CHECK(r[1][2] == 7);
  CHECK(heads.at({0, 1, 0, 2}) == 7);
}

TEST_CASE("rows of tensors whose last axis does not have stride 1 are copied") {
  const Tensor t = Tensor::full({4, 6}, 1);
  CHECK_FALSE(row_dense(t.transpose(0, 1)).shares_memory_with(t));
  CHECK_FALSE(row_dense(t.slice(1, 0, 3)).shares_memory_with(t));
  CHECK_FALSE(row_dense(t.select(0, 0).expand({4, 6})).shares_memory_with(t));
  CHECK_THROWS_AS(rows<float>(t.slice(1, 0, 3)), ShapeError);
  CHECK_THROWS_AS(rows<float>(t.transpose(0, 1)), ShapeError);
  CHECK_THROWS_AS(rows<double>(t), ShapeError);
}

TEST_CASE("rows of scalars, of width 1 and of width 0") {
  CHECK(rows<float>(Tensor::scalar(1)).count == 1);
  CHECK(rows<float>(Tensor::scalar(1)).width == 1);
  CHECK(rows<float>(Tensor::zeros({3, 1})).count == 3);
  CHECK(rows<float>(Tensor::zeros({3, 0})).count == 0);
  CHECK(rows<float>(Tensor::zeros({0, 3})).count == 0);
}

TEST_CASE("row_dense keeps the values") {
  RandomStream random(Generator(5));
  for (int round = 0; round < 200; ++round) {
    Shape shape;
    for (int64_t i = pick(random, 0, 4); i > 0; --i) shape.push_back(pick(random, 0, 3));
    const Tensor t =
        random_view(shape, DType::f32, random, {.holes = random.below(2) == 0, .broadcast = true});
    const Tensor dense = row_dense(t);
    CHECK(values_of<float>(dense) == values_of<float>(t));
    const Rows<const float> r = rows<float>(dense);
    CHECK(r.count * r.width == t.numel());
    const Tensor like = random_view(shape, DType::f32, random, {.holes = false});
    const Tensor same = with_strides_of(t, like);
    CHECK(values_of<float>(same) == values_of<float>(t));
    if (t.numel()) CHECK(has_strides(same, like.strides()));
  }
  const Tensor t = Tensor::zeros({2, 3});
  CHECK(with_strides_of(t, Tensor::zeros({2, 3}, DType::f64)).shares_memory_with(t));
  CHECK_THROWS_AS(with_strides_of(t, Tensor::zeros({3, 2})), ShapeError);
}
