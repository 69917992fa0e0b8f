// Operations over tokens of which other parts of the same sequences have some (Join): each is one exchange,
// forward and backward. With a null join, all tokens are here.
#pragma once

#include <functional>
#include <memory>

#include "longhand/autograd/join.h"

namespace longhand::attention {

/// The sum of the x of all parts, or the largest, element by element.
Variable sum_of_parts(const Variable& x, const std::shared_ptr<const Join>& join);
Tensor max_of_parts(const Tensor& x, const std::shared_ptr<const Join>& join);

/// The largest x of the parts before this one, element by element; -inf if there is none.
Tensor max_before(const Tensor& x, const Join& join);
/// The sum of the x of the parts before this one.
Variable sum_before(const Variable& x, const Join& join);
/// log Σ e^x over the parts before this one, element by element; about -1e30 if there is none.
Variable log_sum_exp_before(const Variable& x, const Join& join);

/// The sizes of x from axis `first` on, behind `front`.
Shape with_front(Shape front, const Variable& x, int first);
/// Tensors side by side, to exchange them together: their axes from `first` on are joined to one.
Variable side_by_side(const Variables& parts, int first);
/// The columns of y (M, N, columns) that belong to each of these parts, with its axes from `first` on.
Variables apart(const Variable& y, const Variables& parts, int first);

/// The state after the parts before this one: their states, each given as tensors (B, H, …) that the part
/// gives when started from nothing, joined in order by `combine`. `neutral`, in place of the states of
/// the other parts, broadcasts to them.
Variables state_before(
    const Variables& own, const Variables& neutral,
    const std::function<Variables(const Variables& left, const Variables& right)>& combine,
    const Join& join);

/// (B, length, …) with the tokens of all parts, for x (B, n, …).
Variable whole_sequence(const Variable& x, const Join& join, int64_t length);

}  // namespace longhand::attention
