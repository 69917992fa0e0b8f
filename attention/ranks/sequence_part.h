// Sequences that are cut over ranks: the part of one rank, and its exchanges with other ranks.
#pragma once

#include <memory>

#include "longhand/attention/variant.h"

namespace longhand {
class Communicator;
}

namespace longhand::attention {

/// The part of each sequence that this rank holds. The group must outlive the graph of the pass.
class SequencePart final : public SequenceJoin {
 public:
  /// This rank's part of sequences of `length` tokens. Throws ShapeError for a length below 1.
  static std::shared_ptr<const SequencePart> of(Communicator& ranks, int64_t length);

  Communicator& ranks;
  const int64_t begin;   // the first token of this part
  const int64_t length;  // N, the length of whole sequences

  /// Whether there are other parts.
  bool cut() const { return parts() > 1; }
  /// Tokens per part, the same on every rank. Tokens from index N of a sequence on are padding,
  /// which may hold anything.
  int64_t tokens() const override { return tokens_of(length, parts()); }
  /// N on one rank, otherwise the smallest even number that is at least N / P, since attention
  /// dropout takes random numbers for pairs of keys.
  static int64_t tokens_of(int64_t length, int64_t ranks) {
    return ranks == 1 ? length : (length + 2 * ranks - 1) / (2 * ranks) * 2;
  }
  /// Tokens of all parts, at least N.
  int64_t padded() const { return tokens() * parts(); }

  int64_t part() const override;
  int64_t parts() const override;
  Tensor sum(const Tensor& x) const override;
  Variable sum(const Variable& x) const override;
  Tensor all(const Tensor& x) const override;
  Variable all(const Variable& x) const override;
  Variable with_neighbours(const Variable& x, int64_t before, int64_t after) const override;
  Arrival pass_on(const Tensor& x) const override;
  /// Defined in over_ranks.cpp.
  Variable attend(Variant& variant, const Inputs& inputs, const Mask& mask,
                  const nn::Pass& pass) const override;

 private:
  SequencePart(Communicator& ranks_, int64_t begin_, int64_t length_)
      : ranks(ranks_), begin(begin_), length(length_) {}
};

/// The pass over this part; the same pass if sequences are not cut.
nn::Pass over_part(nn::Pass pass, const std::shared_ptr<const SequencePart>& part);

/// Gathers the tokens of all ranks, (B, N, …) for each x (B, n, …), in one exchange.
Variables whole_sequences(const Variables& parts, const SequencePart& part);
/// The tokens of this part, (B, n, …), of x (B, N, …), with zeros from token N on.
Variable tokens_of_part(const Variable& x, const SequencePart& part);

/// (B, N, H / P, …) for each x (B, n, H, …), in one exchange: whole sequences of the heads from
/// rank · H / P on. H may differ between tensors. Jacobs et al. 2023 (arXiv 2309.14509). Throws
/// ShapeError unless the number of ranks P divides every H.
Variables heads_of_sequences(const Variables& parts, const SequencePart& part);
/// The inverse for one tensor: (B, n, H, …) for x (B, N, H / P, …).
Variable tokens_of_heads(const Variable& x, const SequencePart& part);

}  // namespace longhand::attention
