#include "longhand/train/step/gradients.h"

#include <algorithm>
#include <cmath>

#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/view.h"

namespace longhand::train {
namespace {

template <class T>
double sum_of_squares(const T* x, int64_t n) {
  double sum = 0;
  simd([&] {
    sum = kernels::lane_sum<double>(n, [x](int64_t i) {
      const double value = x[i];
      return value * value;
    });
  });
  return sum;
}

// Returns left + right, in the memory of `left` if it has no other owner. One of them may be
// undefined, which counts as zero.
Tensor merge_gradients(Tensor left, Tensor right) {
  if (!right) return left;
  if (!left) return right;
  // One gradient may serve two parameters: see GradSlot::take().
  if (!left.unique()) left = left.clone();
  accumulate_into(left, 1, right);
  return left;
}

}  // namespace

Tensor flat(const Tensor& x) { return x.in_memory_order().reshape({x.numel()}); }

Tensor take_gradient(const Variable& parameter) {
  Tensor grad = Variable(parameter).take_grad();
  // A backward function may return any view; from here on, gradients are dense.
  return grad ? with_strides_of(grad, parameter.value()) : grad;
}

Gradients take_gradients(const Parameters& parameters) {
  Gradients out;
  out.reserve(parameters.size());
  for (const auto& [name, parameter] : parameters) out.push_back(take_gradient(parameter));
  return out;
}

double global_norm(const Gradients& gradients) {
  double sum = 0;
  for (const Tensor& g : gradients) {
    if (!g) continue;
    dispatch_float(g.dtype(), [&]<class T>() {
      const T* x = g.data<T>();
      sum += parallel_sum<double>(
          g.numel(), kernels::elements_per_task,
          [&](int64_t begin, int64_t end) { return sum_of_squares(x + begin, end - begin); });
    });
  }
  return std::sqrt(sum);
}

double clip_scale(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1;
}

LossSums& LossSums::operator+=(const LossSums& other) {
  loss += other.loss;
  correct += other.correct;
  for (const auto& [name, value] : other.terms) terms[name] += value;
  return *this;
}

void merge(Contribution& left, Contribution&& right) {
  check<ShapeError>(left.gradients.size() == right.gradients.size(),
                    "gradients: cannot add lists of ", left.gradients.size(), " and ",
                    right.gradients.size(), " gradients");
  for (size_t i = 0; i < left.gradients.size(); ++i)
    left.gradients[i] =
        merge_gradients(std::move(left.gradients[i]), std::move(right.gradients[i]));
  left.sums += right.sums;
}

void TreeSum::add(Contribution contribution) {
  int height = 0;
  for (; !stack_.empty() && stack_.back().first == height; ++height) {
    merge(stack_.back().second, std::move(contribution));
    contribution = std::move(stack_.back().second);
    stack_.pop_back();
  }
  stack_.emplace_back(height, std::move(contribution));
}

Tensor TreeSum::last_gradient(size_t i, Tensor gradient) {
  // add() and finish() together add the last contribution to all others, latest to first.
  for (auto other = stack_.rbegin(); other != stack_.rend(); ++other)
    gradient = merge_gradients(std::move(other->second.gradients[i]), std::move(gradient));
  return gradient;
}

Contribution TreeSum::finish() {
  check(!stack_.empty(), "tree sum: expected at least one contribution, got none");
  Contribution sum = std::move(stack_.back().second);
  stack_.pop_back();
  while (!stack_.empty()) {
    merge(stack_.back().second, std::move(sum));
    sum = std::move(stack_.back().second);
    stack_.pop_back();
  }
  return sum;
}

}  // namespace longhand::train
