#include "longhand/attention/ranks/sequence_part.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"

namespace longhand::attention {
namespace {

// x with axis `from` moved to axis `to`.
Variable moved(const Variable& x, int from, int to) {
  ShortVector<int> order;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (axis != from) order.push_back(axis);
  order.insert(order.begin() + to, from);
  return permute(x, order);
}

}  // namespace

std::shared_ptr<const SequencePart> SequencePart::of(Communicator& ranks, int64_t length) {
  check<ShapeError>(length >= 1, "sequences cut over ranks: expected at least 1 token, got ",
                    length);
  const int64_t begin = ranks.rank() * tokens_of(length, ranks.size());
  return std::shared_ptr<const SequencePart>(new SequencePart(ranks, begin, length));
}

int64_t SequencePart::part() const { return ranks.rank(); }
int64_t SequencePart::parts() const { return ranks.size(); }

Tensor SequencePart::sum(const Tensor& x) const {
  Tensor sum = x.contiguous().clone();
  ranks.sum(sum);
  return sum;
}
Variable SequencePart::sum(const Variable& x) const { return sum_over_ranks(x, ranks); }
Tensor SequencePart::all(const Tensor& x) const { return ranks.all_gather(x.contiguous()); }
Variable SequencePart::all(const Variable& x) const { return all_gather(x, ranks); }

Join::Arrival SequencePart::pass_on(const Tensor& x) const {
  Tensor next = Tensor::empty(x.shape(), x.dtype());
  auto arrival = std::make_shared<std::future<void>>(ranks.start_shift(x, next, 1));
  return {next, [this, arrival] { ranks.wait(std::move(*arrival)); }};
}

nn::Pass over_part(nn::Pass pass, const std::shared_ptr<const SequencePart>& part) {
  if (!part->cut()) return pass;
  pass.tokens = {part->begin, part->length};
  pass.join = pass.others = part;
  return pass;
}

Variables whole_sequences(const Variables& parts, const SequencePart& part) {
  if (!part.cut()) return parts;
  return apart(whole_sequence(side_by_side(parts, 2), part, part.length), parts, 2);
}

Variable tokens_of_part(const Variable& x, const SequencePart& part) {
  if (!part.cut()) return x;
  const int64_t n = part.tokens(), begin = std::min(part.begin, x.size(1)),
                end = std::min(part.begin + n, x.size(1));
  return padded(slice(x, 1, begin, end), 0, n - (end - begin));
}

Variables heads_of_sequences(const Variables& parts, const SequencePart& part) {
  if (!part.cut()) return parts;
  const int64_t P = part.parts();
  Variables of_ranks;  // (B, n, P, H / P, …)
  for (const Variable& x : parts) {
    check<ShapeError>(x.size(2) % P == 0, "heads over ranks: ", P, " ranks do not divide ",
                      x.size(2), " heads");
    of_ranks.push_back(reshape(x, with_front({x.size(0), x.size(1), P, x.size(2) / P}, x, 3)));
  }
  const Variable sent = moved(side_by_side(of_ranks, 3), 2, 0);
  const Variable all = moved(all_to_all(sent, part.ranks), 0, 1);  // (B, P, n, …)
  return apart(slice(reshape(all, {all.size(0), part.padded(), all.size(3)}), 1, 0, part.length),
               of_ranks, 3);
}

Variable tokens_of_heads(const Variable& x, const SequencePart& part) {
  if (!part.cut()) return x;
  const int64_t B = x.size(0), n = part.tokens(), heads = x.size(2), P = part.parts();
  const Variable of_ranks =
      reshape(padded(x, 0, part.padded() - x.size(1)), with_front({B, P, n, heads}, x, 3));
  const Variable all = all_to_all(moved(of_ranks, 1, 0), part.ranks);  // (P, B, n, H / P, …)
  return reshape(moved(all, 0, 2), with_front({B, n, P * heads}, x, 3));
}

Variable SequencePart::with_neighbours(const Variable& x, int64_t before, int64_t after) const {
  if (!cut()) return x;
  const int64_t n = x.size(1);
  const int rank = ranks.rank(), size = ranks.size();
  Variables pieces{x};
  // Adds `count` tokens of the rank `distance` before this one, from its token `first` on. Ranks
  // without such a neighbour take part in the exchange and ignore what they receive.
  const auto add = [&](int distance, int64_t first, int64_t count) {
    Variable y;
    if (std::abs(distance) < size) {
      const bool exists = rank - distance >= 0 && rank - distance < size;
      y = where(Tensor::full({1}, exists, DType::u8),
                shift(slice(x, 1, first, first + count), ranks, distance), 0.0);
    } else {
      y = Variable(Tensor::zeros(with_front({x.size(0), count}, x, 2), x.dtype()));
    }
    pieces.insert(distance > 0 ? pieces.begin() : pieces.end(), y);
  };
  for (int64_t d = 1, left = before; left > 0; ++d, left -= n)
    add(static_cast<int>(d), std::max<int64_t>(0, n - left), std::min(n, left));
  for (int64_t d = 1, left = after; left > 0; ++d, left -= n)
    add(static_cast<int>(-d), 0, std::min(n, left));
  return pieces.size() == 1 ? x : concat(pieces, 1);
}

}  // namespace longhand::attention
