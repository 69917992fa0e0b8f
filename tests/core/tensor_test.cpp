#include "longhand/core/tensor.h"

#include <cmath>
#include <limits>

#include "longhand/core/view.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

Shape random_shape(RandomStream& random, int max_rank, int64_t smallest, int64_t largest) {
  Shape shape;
  for (int i = static_cast<int>(pick(random, 0, max_rank)); i > 0; --i)
    shape.push_back(pick(random, smallest, largest));
  return shape;
}

Tensor counting(const Shape& shape) {
  Tensor t = Tensor::empty(shape, DType::i64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = i;
  return t;
}

// A shape of the same number of elements, with sizes of 1 inserted.
Shape refactored(RandomStream& random, int64_t numel) {
  Shape shape;
  while (shape.rank() < Shape::max_rank - 1 && (numel > 1 || random.below(2))) {
    int64_t factor = pick(random, 1, 4);
    while (numel % factor != 0) --factor;
    shape.push_back(factor);
    numel /= factor;
  }
  shape.push_back(numel);
  return shape;
}

}  // namespace

TEST_CASE("tensor: borrowed memory is used in place, kept alive, and never unique") {
  auto owner = std::make_shared<std::vector<double>>(std::vector<double>{1, 2, 3, 4, 5, 6});
  const std::weak_ptr<const void> alive = owner;
  const size_t in_use = memory_stats().in_use;
  Tensor t = Tensor::borrow(owner->data(), {2, 3}, {3, 1}, DType::f64, owner);
  CHECK(memory_stats().in_use == in_use);
  CHECK(t.data<double>() == owner->data());
  CHECK(t.transpose(0, 1).at({2, 1}) == 6);
  CHECK_FALSE(t.unique());
  const Tensor repeated = Tensor::borrow(owner->data() + 1, {4, 2}, {0, 2}, DType::f64, owner);
  CHECK(repeated.to_vector<double>() == std::vector<double>{2, 4, 2, 4, 2, 4, 2, 4});
  CHECK(Tensor::borrow(owner->data(), {0, 3}, {3, 1}, DType::f64, owner).numel() == 0);
  owner.reset();
  CHECK_FALSE(alive.expired());
  CHECK_THROWS_AS(Tensor::borrow(t.data<double>(), {2, 3}, {-3, 1}, DType::f64, alive.lock()),
                  ShapeError);
  CHECK_THROWS_AS(Tensor::borrow(t.data<double>(), {2, 3}, {1}, DType::f64, alive.lock()),
                  ShapeError);
  CHECK_THROWS_AS(Tensor::borrow(t.data<double>(), {2, 3}, {3, 1}, DType::f64, nullptr), Error);
  t = {};
  CHECK_FALSE(alive.expired());  // of the other
}

TEST_CASE("new tensors are row-major and hold the given values") {
  const Tensor t = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.strides() == Strides{3, 1});
  CHECK(t.dtype() == DType::f32);
  CHECK(t.at({1, 0}) == 4);
  CHECK(t.at({-1, -1}) == 6);
  CHECK(Tensor::zeros({2, 2}, DType::u8).to_vector<uint8_t>() == std::vector<uint8_t>(4));
  CHECK(Tensor::full({3}, 2.5, DType::f64).to_vector<double>() == std::vector<double>(3, 2.5));
  CHECK(Tensor::scalar(7, DType::i32).item() == 7);
  CHECK(Tensor::scalar(7).rank() == 0);
  for (DType d : {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8})
    CHECK(Tensor::full({1}, 3, d).item() == 3);
}

TEST_CASE("tensors reject invalid arguments") {
  const Tensor t = Tensor::zeros({2, 3});
  CHECK_THROWS_AS(Tensor::empty({2, -1}), ShapeError);
  CHECK_THROWS_AS(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}), ShapeError);
  CHECK_THROWS_AS(Tensor::from<float>({1, 2}, {3}), ShapeError);
  CHECK_THROWS_AS(t.data<double>(), ShapeError);
  CHECK_THROWS_AS(t.item(), ShapeError);
  CHECK_THROWS_AS(t.at({0}), ShapeError);
  CHECK_THROWS_AS(t.at({0, 3}), ShapeError);
  CHECK_THROWS_AS(t.at({0, 0, 0}), ShapeError);
  CHECK_THROWS_AS(t.reshape({4, 2}), ShapeError);
  CHECK_THROWS_AS(t.reshape({-1, -1}), ShapeError);
  CHECK_THROWS_AS(t.reshape({-1, 4}), ShapeError);
  CHECK_THROWS_AS(t.reshape({-2, 3}), ShapeError);
  CHECK_THROWS_AS(t.permute({0}), ShapeError);
  CHECK_THROWS_AS(t.permute({0, 0}), ShapeError);
  CHECK_THROWS_AS(t.permute({0, 2}), ShapeError);
  CHECK_THROWS_AS(t.transpose(0, 2), ShapeError);
  CHECK_THROWS_AS(t.slice(0, 1, 3), ShapeError);
  CHECK_THROWS_AS(t.slice(0, 1, 0), ShapeError);
  CHECK_THROWS_AS(t.slice(1, 0, 3, 0), ShapeError);
  CHECK_THROWS_AS(t.slice(2, 0, 1), ShapeError);
  CHECK_THROWS_AS(t.select(1, 3), ShapeError);
  CHECK_THROWS_AS(t.select(1, -4), ShapeError);
  CHECK_THROWS_AS(t.expand({2, 4}), ShapeError);
  CHECK_THROWS_AS(t.expand({3}), ShapeError);
  CHECK_THROWS_AS(Tensor::zeros({1}).expand({-1}), ShapeError);
  CHECK_THROWS_AS(t.unsqueeze(3), ShapeError);
  CHECK_THROWS_AS(t.unsqueeze(-4), ShapeError);
  CHECK_THROWS_AS(t.squeeze(0), ShapeError);
  CHECK_THROWS_AS(Tensor::empty_ordered({2, 3}, DType::f32, {1}), ShapeError);
  Tensor to = Tensor::zeros({3, 2});
  CHECK_THROWS_AS(copy_into(to, t), ShapeError);
  const Tensor undefined;
  CHECK_FALSE(undefined);
  CHECK_THROWS_AS(undefined.data<float>(), ShapeError);
  CHECK_THROWS_AS(undefined.reshape({1}), ShapeError);
}

TEST_CASE("views read the elements that index arithmetic gives") {
  RandomStream random(Generator(1));
  for (int round = 0; round < 300; ++round) {
    const Tensor t = random_view(random_shape(random, 4, 0, 4), DType::i64, random);
    const auto same = [&](const Tensor& view, auto&& source) {
      CHECK(view.shares_memory_with(t));
      std::vector<int64_t> expected;
      for_each_index(view.shape(), [&](const Shape& i) {
        expected.push_back(t.data<int64_t>()[offset_of(source(i), t.strides())]);
      });
      CHECK(values_of<int64_t>(view) == expected);
    };
    const std::vector<int> order = random_order(random, t.rank());
    const Tensor permuted = t.permute(order);
    same(permuted, [&](const Shape& i) {
      Shape s = i;
      for (int a = 0; a < t.rank(); ++a) s[order[a]] = i[a];
      return s;
    });
    const int at = static_cast<int>(pick(random, 0, t.rank()));
    same(t.unsqueeze(at), [&](const Shape& i) { return i.without_axis(at); });
    same(t.unsqueeze(at).squeeze(at), [](const Shape& i) { return i; });
    same(t.expand(t.shape().rank() < 5 ? t.shape().with_axis(0, 3) : t.shape()),
         [&](const Shape& i) { return i.rank() == t.rank() ? i : i.without_axis(0); });
    if (t.rank() == 0) continue;
    const int axis = static_cast<int>(pick(random, 0, t.rank() - 1)), b = t.rank() - 1 - axis;
    same(t.transpose(axis, b), [&](Shape i) {
      std::swap(i[axis], i[b]);
      return i;
    });
    const int64_t begin = pick(random, 0, t.size(axis)), end = pick(random, begin, t.size(axis));
    const int64_t step = pick(random, 1, 3);
    same(t.slice(axis, begin, end, step), [&](Shape i) {
      i[axis] = begin + i[axis] * step;
      CHECK(i[axis] < end);
      return i;
    });
    CHECK(t.slice(axis, begin, end, step).size(axis) == (end - begin + step - 1) / step);
    if (t.size(axis) == 0) continue;
    const int64_t index = pick(random, 0, t.size(axis) - 1);
    same(t.select(axis, index), [&](const Shape& i) { return i.with_axis(axis, index); });
    same(t.select(axis, index - t.size(axis)),
         [&](const Shape& i) { return i.with_axis(axis, index); });
  }
}

TEST_CASE("reshape returns a view exactly if strides allow one") {
  RandomStream random(Generator(2));
  int views = 0, refusals = 0;
  for (int round = 0; round < 3000; ++round) {
    Tensor t = random_view(random_shape(random, 4, 1, 4), DType::i64, random,
                           {.holes = random.below(2) == 0, .broadcast = true});
    if (random.below(2)) t = t.in_memory_order();
    const Shape shape = refactored(random, t.numel());
    std::vector<int64_t> offsets;
    for_each_index(t.shape(),
                   [&](const Shape& i) { offsets.push_back(offset_of(i, t.strides())); });

    // A view exists if stepping along one new axis always moves by the same distance.
    Strides strides = contiguous_strides(shape);
    for (int i = 0; i < shape.rank(); ++i)
      strides[i] = shape[i] == 1 ? 1 : offsets[strides[i]] - offsets[0];
    std::vector<int64_t> moved;
    for_each_index(shape, [&](const Shape& i) { moved.push_back(offset_of(i, strides)); });
    const bool possible = moved == offsets;

    const Tensor view = t.try_reshape(shape);
    INFO(concat_message(t.shape(), " strides ", t.strides(), " to ", shape));
    REQUIRE(view.defined() == possible);
    ++(possible ? views : refusals);
    if (possible) {
      CHECK(view.shape() == shape);
      CHECK(view.shares_memory_with(t));
      REQUIRE(values_of<int64_t>(view) == values_of<int64_t>(t));
    } else {
      CHECK_THROWS_AS(t.reshape(shape), ShapeError);
      CHECK(values_of<int64_t>(t.contiguous().reshape(shape)) == values_of<int64_t>(t));
    }
  }
  CHECK(views > 500);
  CHECK(refusals > 500);
}

TEST_CASE("reshape infers a size of -1") {
  const Tensor t = counting({2, 3, 4});
  CHECK(t.reshape({-1}).shape() == Shape{24});
  CHECK(t.reshape({4, -1, 2}).shape() == Shape{4, 3, 2});
  CHECK(Tensor::zeros({0, 3}).reshape({-1, 3}).shape() == Shape{0, 3});
  CHECK(Tensor::zeros({2, 0}).transpose(0, 1).reshape({5, 0, 7}).shape() == Shape{5, 0, 7});
  CHECK(Tensor::scalar(1).reshape({1, 1}).shape() == Shape{1, 1});
  CHECK(Tensor::zeros({1, 1}).reshape({}).shape() == Shape{});
  // A head of (B, T, H D), as attention uses it.
  CHECK(t.reshape({2, 3, 2, 2}).permute({0, 2, 1, 3}).strides() == Strides{12, 2, 4, 1});
}

TEST_CASE("dense tensors have no holes in some order of axes") {
  RandomStream random(Generator(3));
  for (int round = 0; round < 300; ++round) {
    const Shape shape = random_shape(random, 5, 0, 3);
    const Tensor t = random_view(shape, DType::f32, random, {.holes = false});
    CHECK(t.is_dense());
    CHECK(t.in_memory_order().is_contiguous());
    CHECK(values_of<float>(t.clone()) == values_of<float>(t));
    CHECK_FALSE(t.clone().shares_memory_with(t));
    CHECK(t.clone().is_dense());
    if (shape.numel() == 0) continue;
    CHECK(has_strides(t.clone(), t.strides()));
    CHECK(has_strides(Tensor::empty_ordered(shape, DType::u8, t.strides()), t.strides()));
    CHECK(t.to(DType::f64).to_vector<float>() == values_of<float>(t));
    CHECK(has_strides(t.to(DType::f64), t.strides()));
  }
  const Tensor t = Tensor::zeros({4, 6});
  CHECK_FALSE(t.slice(1, 0, 5).is_dense());
  CHECK_FALSE(t.slice(1, 0, 6, 2).is_dense());
  CHECK(t.slice(0, 1, 3).is_dense());
  CHECK_FALSE(t.slice(0, 0, 4, 2).is_dense());
  CHECK_FALSE(Tensor::zeros({3, 1}).expand({3, 2}).is_dense());
  CHECK(t.transpose(0, 1).is_dense());
  CHECK_FALSE(t.transpose(0, 1).is_contiguous());
  CHECK(t.slice(0, 1, 2).transpose(0, 1).is_contiguous());
}

TEST_CASE("results have the axis order of a tensor with holes, but no holes") {
  const Tensor like = Tensor::zeros({4, 5, 6}).slice(2, 0, 6, 2).permute({2, 0, 1});
  const Tensor out = Tensor::empty_ordered(like.shape(), DType::f32, like.strides());
  CHECK(out.strides() == Strides{1, 15, 3});
  CHECK(Tensor::empty_ordered({2, 3, 4}, DType::f32, {0, 1, 3}).strides() == Strides{12, 1, 3});
}

TEST_CASE("empty tensors are dense and have rows") {
  // The axes of an empty tensor may have any strides.
  Tensor t = Tensor::empty_ordered({0, 3}, DType::f32, {1, 10});
  CHECK(t.is_contiguous());
  CHECK(t.is_dense());
  CHECK(rows<float>(t).count == 0);
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{3, 0, 2}, Shape{3, 2, 0}}) {
    const Tensor permuted = Tensor::zeros(shape).permute({2, 0, 1});
    CHECK(permuted.is_dense());
    CHECK(permuted.clone().shape() == permuted.shape());
    CHECK(permuted.to_vector<float>().empty());
    CHECK(rows<float>(row_dense(permuted)).count == 0);
  }
  Tensor none = Tensor::zeros({0});
  none.fill(1);
  copy_into(none, Tensor::zeros({0}, DType::i32));
  CHECK(identical(none, Tensor::zeros({0})));
}

TEST_CASE("copies convert between all dtypes and strides") {
  RandomStream random(Generator(4));
  const DType dtypes[] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8};
  for (DType from : dtypes)
    for (DType to : dtypes)
      for (int round = 0; round < 12; ++round) {
        const Shape shape = random_shape(random, 4, 0, 5);
        const Tensor in = random_view(shape, from, random, {.broadcast = true});
        Tensor out = random_view(shape, to, random);
        copy_into(out, in);
        std::vector<double> expected = in.to(DType::f64).to_vector<double>();
        if (!is_float(to))
          for (double& x : expected) x = std::trunc(x);
        CHECK(out.to_vector<double>() == expected);
        CHECK(in.contiguous().to_vector<double>() == in.to_vector<double>());
        CHECK(in.contiguous().is_contiguous());
      }
}

TEST_CASE("writing to a view does not change the memory around it") {
  Tensor memory = Tensor::zeros({5, 6}, DType::i32);
  Tensor view = memory.slice(0, 1, 5, 2).slice(1, 0, 6, 3).transpose(0, 1);
  view.fill(7);
  for_each_index(memory.shape(), [&](const Shape& i) {
    const bool inside = i[0] % 2 == 1 && i[1] % 3 == 0;
    CHECK(memory.at({i[0], i[1]}) == (inside ? 7 : 0));
  });
}

TEST_CASE("handles share memory until they are cloned") {
  Tensor a = Tensor::zeros({2});
  CHECK(a.unique());
  Tensor b = a;
  CHECK_FALSE(a.unique());
  b.fill(3);
  CHECK(a.at({0}) == 3);
  CHECK(a.to(DType::f32).shares_memory_with(a));
  CHECK(a.contiguous().shares_memory_with(a));
  b = a.clone();
  CHECK(a.unique());
  b.fill(4);
  CHECK(a.at({0}) == 3);
  const Tensor view = a.reshape({1, 2});
  CHECK_FALSE(a.unique());
  CHECK(view.shares_memory_with(a));
}

TEST_CASE("identical tensors have the same bits") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor a = Tensor::from<float>({0, nan, 1, 2}, {2, 2});
  CHECK(identical(a, a.clone()));
  CHECK(identical(a, a.transpose(0, 1).clone().transpose(0, 1)));
  CHECK_FALSE(identical(a, a.transpose(0, 1)));
  CHECK_FALSE(identical(a, Tensor::from<float>({-0.0f, nan, 1, 2}, {2, 2})));
  CHECK_FALSE(identical(a, a.reshape({4})));
  CHECK_FALSE(identical(Tensor::zeros({1}), Tensor::zeros({1}, DType::i32)));
}
