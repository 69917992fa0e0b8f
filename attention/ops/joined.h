// Operations over tokens when other parts of the same sequences hold some of them (Join). Each
// takes one exchange, forward and backward. With a null join, all tokens are here.
#pragma once

#include <functional>
#include <memory>

#include "longhand/autograd/join.h"

namespace longhand::attention {

/// The elementwise sum, or maximum, of x over all parts.
Variable sum_of_parts(const Variable& x, const std::shared_ptr<const Join>& join);
Tensor max_of_parts(const Tensor& x, const std::shared_ptr<const Join>& join);

/// The elementwise maximum of x over the parts before this one; -inf if there is none.
Tensor max_before(const Tensor& x, const Join& join);
/// The sum of x over the parts before this one.
Variable sum_before(const Variable& x, const Join& join);
/// log Σ e^x over the parts before this one, elementwise; about -1e30 if there is none.
Variable log_sum_exp_before(const Variable& x, const Join& join);

/// `front`, followed by the sizes of x from axis `first` on.
Shape with_front(Shape front, const Variable& x, int first);
/// Tensors side by side, to be exchanged together: their axes from `first` on become one.
Variable side_by_side(const Variables& parts, int first);
/// The inverse: the columns of y (M, N, columns) for each part, with its axes from `first` on.
Variables apart(const Variable& y, const Variables& parts, int first);

/// The state after the parts before this one: joins their states in order by `combine`. A part's
/// state is the tensors (B, H, …) that result when it is started from nothing. `neutral` broadcasts
/// to the states of parts not before this one, and replaces them.
Variables state_before(
    const Variables& own, const Variables& neutral,
    const std::function<Variables(const Variables& left, const Variables& right)>& combine,
    const Join& join);

/// Gathers x (B, n, …) of all parts: (B, length, …).
Variable whole_sequence(const Variable& x, const Join& join, int64_t length);

}  // namespace longhand::attention
