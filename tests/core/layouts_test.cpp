#include "longhand/core/layouts.h"

#include <numeric>
#include <set>

#include "longhand/core/random.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("layouts: the same values, unless elements are repeated") {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5}, Shape{3, 4}, Shape{2, 1, 3},
                             Shape{2, 3, 4, 5}, Shape{2, 0, 3}}) {
    Tensor values = Tensor::empty(shape, DType::f64);
    fill_uniform(values, Generator(1), 0, 1);
    for (const Layout layout : all_layouts()) {
      INFO(shape << " " << to_string(layout));
      const Tensor copy = with_layout(values, layout);
      CHECK(copy.shape() == shape);
      CHECK_FALSE(copy.shares_memory_with(values));
      if (!repeats_elements(layout)) CHECK(identical(copy, values));
    }
  }
  CHECK(identical(with_layout(Tensor::full({3, 2}, 7, DType::i32), Layout::stride_3),
                  Tensor::full({3, 2}, 7, DType::i32)));
}

TEST_CASE("layouts: strides") {
  const Tensor values = Tensor::zeros({2, 3, 4, 5}, DType::f32);
  const auto strides = [&](Layout layout) { return with_layout(values, layout).strides(); };
  CHECK(strides(Layout::row_major) == Strides{60, 20, 5, 1});
  CHECK(strides(Layout::reversed) == Strides{1, 2, 6, 24});
  CHECK(strides(Layout::stride_2) == Strides{120, 40, 10, 2});
  CHECK(strides(Layout::stride_3) == Strides{180, 60, 15, 3});
  CHECK(strides(Layout::holes) == Strides{9 * 11 * 5, 11 * 5, 5, 1});
  CHECK(strides(Layout::holes_stride_2)[3] == 2);
  CHECK(strides(Layout::channels_first) == Strides{60, 4, 1, 12});
  CHECK(strides(Layout::heads_first) == Strides{60, 5, 15, 1});
  CHECK(strides(Layout::expand_first)[0] == 0);
  CHECK(strides(Layout::expand_last)[3] == 0);
  CHECK(strides(Layout::expand_middle)[2] == 0);
  CHECK(strides(Layout::expand_all) == Strides{0, 0, 0, 0});
  std::set<std::string> names;
  for (const Layout layout : all_layouts()) names.insert(to_string(layout));
  CHECK(names.size() == all_layouts().size());
}
