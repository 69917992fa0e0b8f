// Exercise 1: which orders of the axes of a (2, 3, 4) tensor can be reshaped to (6, 4) without a copy?
#include <algorithm>
#include <array>
#include <iostream>

#include "longhand/core/tensor.h"

using namespace longhand;

int main() {
  const Tensor x = Tensor::zeros({2, 3, 4});
  bool right = true;
  std::array<int, 3> order{0, 1, 2};
  do {
    const Tensor y = x.permute(order);
    const bool view = y.try_reshape({y.size(0) * y.size(1), y.size(2)}).defined();
    // Two axes merge if one step of the first is as long as all steps of the second.
    const bool expected = y.strides()[0] == y.size(1) * y.strides()[1];
    std::cout << "shape " << y.shape() << ", strides " << y.strides() << ": "
              << (view ? "a view" : "needs a copy") << '\n';
    right = right && view == expected;
  } while (std::next_permutation(order.begin(), order.end()));
  return right ? 0 : 1;
}
