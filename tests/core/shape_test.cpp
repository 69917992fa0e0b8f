#include "longhand/core/shape.h"

#include "longhand/core/error.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("a shape counts its elements") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 0, 4}.numel() == 0);
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
}

TEST_CASE("axes count from both ends") {
  const Shape s{2, 3, 5};
  CHECK(s[0] == 2);
  CHECK(s[-1] == 5);
  CHECK(s.index(-3) == 0);
  CHECK_THROWS_AS(s[3], ShapeError);
  CHECK_THROWS_AS(s[-4], ShapeError);
  CHECK_THROWS_WITH(s[7], "axis 7 is out of range for shape [2, 3, 5]");
  CHECK_THROWS_AS(Shape{}[0], ShapeError);
}

TEST_CASE("axes can be added and removed") {
  const Shape s{2, 3};
  CHECK(s.with_axis(0, 7) == Shape{7, 2, 3});
  CHECK(s.with_axis(2, 7) == Shape{2, 3, 7});
  CHECK(s.with_axis(-1, 7) == Shape{2, 3, 7});
  CHECK(s.with_axis(-3, 7) == Shape{7, 2, 3});
  CHECK(s.without_axis(0) == Shape{3});
  CHECK(s.without_axis(-1) == Shape{2});
  CHECK_THROWS_AS(s.with_axis(3, 1), ShapeError);
  CHECK_THROWS_AS(s.with_axis(-4, 1), ShapeError);
  CHECK_THROWS_AS(s.without_axis(2), ShapeError);
}

TEST_CASE("a shape has at most six axes") {
  Shape s{1, 2, 3, 4, 5, 6};
  CHECK(s.numel() == 720);
  CHECK_THROWS_AS(s.push_back(1), ShapeError);
  CHECK_THROWS_AS(s.with_axis(0, 1), ShapeError);
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1}), ShapeError);
}

TEST_CASE("contiguous strides are row-major") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({2, 1, 4}) == Strides{4, 4, 1});
  CHECK(contiguous_strides({}) == Strides{});
}

TEST_CASE("broadcasting aligns axes at the end") {
  CHECK(broadcast_shape({2, 1, 4}, {3, 1}) == Shape{2, 3, 4});
  CHECK(broadcast_shape({3, 1}, {2, 1, 4}) == Shape{2, 3, 4});
  CHECK(broadcast_shape({}, {5}) == Shape{5});
  CHECK(broadcast_shape({1}, {0}) == Shape{0});
  CHECK(broadcast_shape({0, 3}, {1, 3}) == Shape{0, 3});
  CHECK_THROWS_AS(broadcast_shape({2}, {0}), ShapeError);
  CHECK_THROWS_WITH(broadcast_shape({2, 3}, {2, 4}, "add"),
                    "add: shapes [2, 3] and [2, 4] cannot be broadcast together");
}
