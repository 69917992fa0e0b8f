#include "longhand/nn/sequence_part.h"

#include <algorithm>
#include <cstdlib>

namespace longhand::nn {
namespace {

// The sizes of x from axis `first` on, behind `front`.
Shape with_front(Shape front, const Variable& x, int first) {
  for (int axis = first; axis < x.rank(); ++axis) front.push_back(x.size(axis));
  return front;
}

// x with axis `from` moved to axis `to`.
Variable moved(const Variable& x, int from, int to) {
  std::vector<int> order;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (axis != from) order.push_back(axis);
  order.insert(order.begin() + to, from);
  return permute(x, order);
}

// x (B, P n, …) up to the end of sequences.
Variable without_end(const Variable& x, const SequencePart& part) {
  return part.length == part.padded() ? x : slice(x, 1, 0, part.length);
}

// Tensors that are exchanged together: their axes from `first` on, joined to one, lie side by side.
class Rows {
 public:
  Rows(const Variables& parts, int first) : parts_(parts) {
    for (const Variable& x : parts) {
      Shape shape;
      for (int axis = 0; axis < first; ++axis) shape.push_back(x.size(axis));
      int64_t width = 1;
      for (int axis = first; axis < x.rank(); ++axis) width *= x.size(axis);
      shape.push_back(width);
      flat_.push_back(reshape(x, shape));
    }
  }
  Variable joined(int axis) const { return flat_.size() == 1 ? flat_[0] : concat(flat_, axis); }
  // shaped(part, its columns of y) of each part.
  template <class F>
  Variables split(const Variable& y, F shaped) const {
    Variables out;
    for (size_t i = 0, begin = 0; i < parts_.size(); ++i) {
      const auto width = static_cast<size_t>(flat_[i].size(-1));
      out.push_back(shaped(parts_[i], slice(y, 2, static_cast<int64_t>(begin),
                                            static_cast<int64_t>(begin + width))));
      begin += width;
    }
    return out;
  }

 private:
  const Variables& parts_;
  Variables flat_;
};

Variable zeros(const Variable& like, int64_t tokens) {
  return Variable(Tensor::zeros(with_front({like.size(0), tokens}, like, 2), like.dtype()));
}

}  // namespace

Tensor lengths_of_part(const Tensor& lengths, const SequencePart& part) {
  if (!lengths.defined() || !part.cut()) return lengths;
  Tensor own = lengths.clone();
  for (int64_t b = 0; b < own.numel(); ++b) {
    int32_t& n = own.data<int32_t>()[b];
    n = static_cast<int32_t>(std::clamp<int64_t>(n - part.begin, 0, part.tokens()));
  }
  return own;
}

Variable sum_of_parts(const Variable& x, const SequencePart& part) {
  return part.cut() ? sum_over_ranks(x, *part.ranks) : x;
}

Variables whole_sequences(const Variables& parts, const SequencePart& part) {
  if (!part.cut()) return parts;
  Rows rows(parts, 2);
  const Variable all = moved(all_gather(rows.joined(2), *part.ranks), 0, 1);  // (B, P, n, …)
  return rows.split(without_end(reshape(all, {all.size(0), part.padded(), all.size(3)}), part),
                    [](const Variable& x, const Variable& piece) {
                      return reshape(piece, with_front({piece.size(0), piece.size(1)}, x, 2));
                    });
}

Variable tokens_of_part(const Variable& x, const SequencePart& part) {
  if (!part.cut()) return x;
  const int64_t n = part.tokens(), begin = std::min(part.begin, x.size(1)),
                end = std::min(part.begin + n, x.size(1));
  const Variable own = slice(x, 1, begin, end);
  return end - begin == n ? own : concat({own, zeros(x, n - (end - begin))}, 1);
}

Variables heads_of_sequences(const Variables& parts, const SequencePart& part) {
  if (!part.cut()) return parts;
  const int64_t P = part.ranks->size();
  Variables of_ranks;  // (B, n, P, H / P, …)
  for (const Variable& x : parts) {
    check<ShapeError>(x.size(2) % P == 0, "heads over ranks: ", P, " ranks do not divide ",
                      x.size(2), " heads");
    of_ranks.push_back(reshape(x, with_front({x.size(0), x.size(1), P, x.size(2) / P}, x, 3)));
  }
  Rows rows(of_ranks, 3);
  const Variable all =
      moved(all_to_all(moved(rows.joined(3), 2, 0), *part.ranks), 0, 1);  // (B, P, n, …)
  return rows.split(without_end(reshape(all, {all.size(0), part.padded(), all.size(3)}), part),
                    [](const Variable& x, const Variable& piece) {
                      return reshape(piece, with_front({piece.size(0), piece.size(1)}, x, 3));
                    });
}

Variable tokens_of_heads(const Variable& x, const SequencePart& part) {
  if (!part.cut()) return x;
  const int64_t B = x.size(0), n = part.tokens(), heads = x.size(2), P = part.ranks->size();
  Variable padded = x;
  if (part.length < part.padded()) padded = concat({x, zeros(x, part.padded() - part.length)}, 1);
  const Variable of_ranks = reshape(padded, with_front({B, P, n, heads}, x, 3));
  const Variable all = all_to_all(moved(of_ranks, 1, 0), *part.ranks);  // (P, B, n, H / P, …)
  return reshape(moved(all, 0, 2), with_front({B, n, P * heads}, x, 3));
}

Variable with_neighbours(const Variable& x, const SequencePart& part, int64_t before,
                         int64_t after) {
  if (!part.cut()) return x;
  const int64_t n = x.size(1);
  const int rank = part.ranks->rank(), size = part.ranks->size();
  Variables parts{x};
  // `count` tokens of the rank `distance` before this one, from its token `first` on. Ranks that have no
  // such neighbour take part in the exchange, and ignore what they receive.
  const auto add = [&](int distance, int64_t first, int64_t count) {
    Variable y;
    if (std::abs(distance) < size) {
      const bool exists = rank - distance >= 0 && rank - distance < size;
      y = where(Tensor::full({1}, exists, DType::u8),
                shift(slice(x, 1, first, first + count), *part.ranks, distance), 0.0);
    } else {
      y = zeros(x, count);
    }
    parts.insert(distance > 0 ? parts.begin() : parts.end(), y);
  };
  for (int64_t d = 1, left = before; left > 0; ++d, left -= n)
    add(static_cast<int>(d), std::max<int64_t>(0, n - left), std::min(n, left));
  for (int64_t d = 1, left = after; left > 0; ++d, left -= n)
    add(static_cast<int>(-d), 0, std::min(n, left));
  return parts.size() == 1 ? x : concat(parts, 1);
}

Variable conv_over_ranks(const Variable& x, const Variable& weight,
                         const DepthwiseConvOptions& options, const SequencePart& part) {
  if (!part.cut()) return depthwise_conv1d(x, weight, options);
  const int64_t n = x.size(1), width = weight.size(1),
                before = options.causal ? width - 1 : width / 2, after = width - 1 - before;
  DepthwiseConvOptions of_part = options;
  if (options.lengths.defined()) {
    of_part.lengths = options.lengths.clone();
    for (int64_t b = 0; b < of_part.lengths.numel(); ++b) {
      int32_t& length = of_part.lengths.data<int32_t>()[b];
      length = static_cast<int32_t>(
          std::clamp<int64_t>(length - part.begin + before, 0, before + n + after));
    }
  }
  const Variable y = depthwise_conv1d(with_neighbours(x, part, before, after), weight, of_part);
  return slice(y, 1, before, before + n);
}

}  // namespace longhand::nn
