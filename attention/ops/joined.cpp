#include "longhand/attention/ops/joined.h"

#include <algorithm>
#include <limits>
#include <span>

#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

constexpr double none = -std::numeric_limits<double>::infinity();

// The maximum of the first `count` of x (P, …).
Tensor largest(const Tensor& x, int64_t count) {
  Tensor out = Tensor::full(x.shape().without_axis(0), none, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const int64_t n = out.numel();
    T* const to = out.data<T>();
    for (int64_t p = 0; !is_dry() && p < count; ++p)
      for (int64_t i = 0; i < n; ++i) to[i] = std::max(to[i], x.data<T>()[p * n + i]);
  });
  return out;
}

// 1 for each part before this one, (P, 1, …) for x of all parts (P, …).
Tensor before(const Join& join, int rank) {
  Tensor used = Tensor::zeros({join.parts()}, DType::u8);
  used.slice(0, 0, join.part()).fill(1);
  for (int axis = 0; axis < rank; ++axis) used = used.unsqueeze(1);
  return used;
}

// x of all parts, (P, …), with `otherwise` for all parts that are not before this one.
Variable all_before(const Variable& x, const Join& join, double otherwise) {
  return where(before(join, x.rank()), join.all(x), otherwise);
}

}  // namespace

Variable sum_of_parts(const Variable& x, const std::shared_ptr<const Join>& join) {
  return join ? join->sum(x) : x;
}

Tensor max_of_parts(const Tensor& x, const std::shared_ptr<const Join>& join) {
  return join ? largest(join->all(x), join->parts()) : x;
}

Tensor max_before(const Tensor& x, const Join& join) { return largest(join.all(x), join.part()); }

Variable sum_before(const Variable& x, const Join& join) {
  return sum(all_before(x, join, 0), {0});
}

Variable log_sum_exp_before(const Variable& x, const Join& join) {
  const Variable all = all_before(x, join, -1e30);
  const Variable top = max(all.detach(), 0, true);
  return squeeze(log(sum(exp(all - top), {0}, true)) + top, 0);
}

Shape with_front(Shape front, const Variable& x, int first) {
  for (int axis = first; axis < x.rank(); ++axis) front.push_back(x.size(axis));
  return front;
}

Variable side_by_side(const Variables& parts, int first) {
  Variables flat;
  for (const Variable& x : parts) {
    Shape joined(std::span(x.shape().begin(), first));
    joined.push_back(with_front({}, x, first).numel());
    flat.push_back(reshape(x, joined));
  }
  return flat.size() == 1 ? flat[0] : concat(flat, first);
}

Variables apart(const Variable& y, const Variables& parts, int first) {
  Variables out;
  int64_t begin = 0;
  for (const Variable& x : parts) {
    const int64_t end = begin + with_front({}, x, first).numel();
    out.push_back(reshape(slice(y, 2, begin, end), with_front({y.size(0), y.size(1)}, x, first)));
    begin = end;
  }
  return out;
}

Variables state_before(
    const Variables& own, const Variables& neutral,
    const std::function<Variables(const Variables& left, const Variables& right)>& combine,
    const Join& join) {
  const Variable all = join.all(side_by_side(own, 2));  // (P, B, H, …)
  Variables state;
  for (int64_t p = 0; p < join.parts(); ++p) {
    // The same operations for every part, so that all take part in the gradient of the exchange.
    const Tensor used = Tensor::full({1}, p < join.part(), DType::u8);
    Variables next = apart(select(all, 0, p), own, 2);
    for (size_t i = 0; i < own.size(); ++i) next[i] = where(used, next[i], neutral[i]);
    state = p == 0 ? next : combine(state, next);
  }
  return state;
}

Variable whole_sequence(const Variable& x, const Join& join, int64_t length) {
  const Variable all = transpose(join.all(x), 0, 1);  // (B, P, n, …)
  const Variable whole = reshape(all, with_front({all.size(0), join.parts() * x.size(1)}, x, 2));
  return length == whole.size(1) ? whole : slice(whole, 1, 0, length);
}

}  // namespace longhand::attention
