#include "longhand/attention/ranks/sequence_part.h"

#include <algorithm>

#include "longhand/attention/mask.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/position.h"
#include "longhand/nn/short_conv.h"
#include "tests/support/op_check.h"
#include "tests/support/ranks_gradcheck.h"

using namespace longhand;
using namespace longhand::test;
using attention::SequencePart;

namespace {

// The part of x (B, N, …) that this rank has; behind the end ones.
Variable own(const Tensor& x, const SequencePart& part) {
  Shape padded = x.shape();
  padded[1] = part.padded();
  const Tensor all = Tensor::full(padded, 1, x.dtype());
  copy_into(all.slice(1, 0, x.size(1)), x);
  return Variable(all.slice(1, part.begin, part.begin + part.tokens()).contiguous());
}

// The tokens of x (B, n, …) before the end of sequences.
Tensor real(const Variable& x, const SequencePart& part) {
  return x.value()
      .slice(1, 0, std::clamp<int64_t>(part.length - part.begin, 0, part.tokens()))
      .contiguous();
}

// Checks on 2 and 4 ranks that f of a part, given the part, is the part of `whole`.
void check_parts(const Tensor& x, const Tensor& whole,
                 const std::function<Variable(const Variable&, const SequencePart&)>& f,
                 double tolerance = 0) {
  for (const int size : {2, 4})
    run_ranks(size, [&](Communicator& ranks) {
      const auto of = SequencePart::of(ranks, x.size(1));
      const SequencePart& part = *of;
      const Tensor y = real(f(own(x, part), part), part), expected = real(own(whole, part), part);
      check(tolerance > 0 ? close(y, expected, tolerance) : identical(y, expected), size,
            " ranks: rank ", ranks.rank(), " differs");
    });
}

}  // namespace

TEST_CASE("sequence parts: equal, even numbers of tokens, of which the last may be padding") {
  run_ranks(4, [](Communicator& ranks) {
    for (const auto& [length, n] : {std::pair<int64_t, int64_t>{1, 2}, {8, 2}, {9, 4}, {12, 4}}) {
      const auto of = SequencePart::of(ranks, length);
      const SequencePart& part = *of;
      check(part.tokens() == n && part.padded() == 4 * n && part.begin == n * ranks.rank() &&
                part.cut(),
            "part of ", length);
    }
  });
  CHECK(!SequencePart::of(alone(), 5)->cut());
  CHECK(SequencePart::of(alone(), 5)->tokens() == 5);
  CHECK_THROWS_AS(SequencePart::of(alone(), 0), ShapeError);
}

TEST_CASE("sequence parts: lengths of a part") {
  const Tensor lengths = Tensor::from<int32_t>({0, 3, 4, 7, 8}, {5});
  run_ranks(2, [&](Communicator& ranks) {
    const auto part = SequencePart::of(ranks, 8);
    const auto of =
        attention::lengths_from(lengths, part->begin, part->tokens()).to_vector<int32_t>();
    check(of == (ranks.rank() == 0 ? std::vector<int32_t>{0, 3, 4, 4, 4}
                                   : std::vector<int32_t>{0, 0, 0, 3, 4}),
          "lengths");
  });
}

TEST_CASE("sequence parts: whole sequences and heads, and back") {
  for (const int64_t N : {12, 9})
    for (const int size : {2, 4}) {
      const Tensor x = random({2, N, 4, 3}), y = random({2, N, 8}, DType::f64, -1, 1, 2);
      run_ranks(size, [&](Communicator& ranks) {
        const auto of = SequencePart::of(ranks, N);
        const SequencePart& part = *of;
        const Variables both = attention::whole_sequences({own(x, part), own(y, part)}, part);
        check(identical(both[0].value().contiguous(), x) &&
                  identical(both[1].value().contiguous(), y),
              "whole sequences");
        check(identical(real(attention::tokens_of_part(both[0], part), part),
                        real(own(x, part), part)),
              "tokens of part");
        const Variables heads = attention::heads_of_sequences({own(x, part), own(y, part)}, part);
        const int64_t r = ranks.rank(), P = size;
        check(identical(heads[0].value().contiguous(),
                        x.slice(2, r * 4 / P, (r + 1) * 4 / P).contiguous()) &&
                  identical(heads[1].value().contiguous(),
                            y.slice(2, r * 8 / P, (r + 1) * 8 / P).contiguous()),
              "heads");
        check(identical(real(attention::tokens_of_heads(heads[0], part), part),
                        real(own(x, part), part)),
              "tokens of heads");
      });
    }
}

TEST_CASE("sequence parts: tokens of a part that ends before it are 0") {
  const Tensor x = random({1, 5, 2});
  run_ranks(4, [&](Communicator& ranks) {
    const auto own = attention::tokens_of_part(Variable(x), *SequencePart::of(ranks, 5))
                         .value()
                         .to_vector<double>();
    const auto all = x.to_vector<double>();
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = static_cast<size_t>(ranks.rank()) * 4 + i;
      check(own[i] == (at < all.size() ? all[at] : 0.0), "rank ", ranks.rank());
    }
  });
}

TEST_CASE("sequence parts: gradients of exchanges") {
  const auto shape = [](int ranks) { return Shape{2, 4, 12 / ranks * ranks, 2}; };
  const auto part = [](const Variable& x, Communicator& ranks) {
    return SequencePart::of(ranks, ranks.size() * x.size(1));
  };
  check_rank_op(
      [&](const Variable& x, Communicator& ranks) {
        return square(attention::whole_sequences({x, x}, *part(x, ranks))[1]);
      },
      [](int) {
        return Shape{2, 4, 2};
      });
  check_rank_op(
      [&](const Variable& x, Communicator& ranks) {
        return square(attention::heads_of_sequences({x}, *part(x, ranks))[0]);
      },
      shape);
  check_rank_op(
      [&](const Variable& x, Communicator& ranks) {
        return square(attention::tokens_of_heads(x, *SequencePart::of(ranks, ranks.size() * 4)));
      },
      [](int ranks) {
        return Shape{2, 4 * ranks, 2, 2};
      });
  for (const auto& [before, after] : {std::pair{1, 0}, {5, 2}, {0, 7}})
    check_rank_op(
        [&, before = before, after = after](const Variable& x, Communicator& ranks) {
          return square(part(x, ranks)->with_neighbours(x, before, after));
        },
        [](int) {
          return Shape{2, 4, 2};
        });
}

TEST_CASE("sequence parts: convolutions, also over parts shorter than a filter and padding") {
  const Tensor x = random({3, 7, 6}), lengths = Tensor::from<int32_t>({7, 5, 1}, {3});
  for (const bool causal : {false, true})
    for (const int64_t width : {1, 4, 7, 20})
      for (const bool padded : {false, true}) {
        INFO("causal " << causal << ", width " << width << ", padded " << padded);
        const nn::ShortConv conv(nn::root(DType::f64, 1), 6, width, causal);
        const Tensor of = padded ? lengths : Tensor();
        check_parts(
            x, conv.forward(Variable(x), of).value().contiguous(),
            [&](const Variable& part_of_x, const SequencePart& part) {
              const Tensor all = Tensor::full({3}, 7, DType::i32);
              nn::Pass pass;
              pass.tokens = {part.begin, part.length};
              pass.join = {std::shared_ptr<void>(), &part};
              return conv.forward(part_of_x, padded ? lengths : all, pass);
            },
            1e-14);  // sums at the ends of a part are grouped differently
      }
}

TEST_CASE("sequence parts: dropout keeps what it keeps in the whole") {
  const Tensor x = random({3, 7, 5}), weight = random({7, 5}, DType::f64, -1, 1, 2);
  const Generator generator(3);
  const Variable W(weight);
  const auto masked = [&](const Variable& v, Section section) {
    return dropout(v, {0.5, generator, section});
  };
  check_parts(x, masked(Variable(x), {}).value(), [&](const Variable& v, const SequencePart& part) {
    return masked(v, {part.begin, part.length});
  });
  // Of the input and the result of linear(), and of a permuted tensor.
  const auto fused = [&](const Variable& v, Section section) {
    return linear(v, W, {},
                  {.input = {0.5, generator, section}, .output = {0.3, generator, section}});
  };
  check_parts(x, fused(Variable(x), {}).value(), [&](const Variable& v, const SequencePart& part) {
    return fused(v, {part.begin, part.length});
  });
  check_parts(x, masked(Variable(x), {}).value(), [&](const Variable& v, const SequencePart& part) {
    return masked(transpose(contiguous(transpose(v, 0, 1)), 0, 1), {part.begin, part.length});
  });
  CHECK_THROWS_AS(masked(Variable(random({3})), {2, 9}), ShapeError);
  // The module, by the part of its pass.
  const nn::Dropout module(nn::root(), 0.5);
  check_parts(x, module.forward(Variable(x), nn::Pass::train(generator)).value(),
              [&](const Variable& v, const SequencePart& part) {
                nn::Pass pass = nn::Pass::train(generator);
                pass.tokens = {part.begin, part.length};
                return module.forward(v, pass).eval();
              });
}

TEST_CASE("sequence parts: positions, of which padding has none") {
  const Tensor x = random({2, 8, 6});
  for (const char* const kind : {"learned", "sinusoidal"}) {
    const nn::Position all(nn::root(DType::f64, 1), kind, 8, 6);
    check_parts(
        x, all.forward(Variable(x)).value(),
        [&](const Variable& v, const SequencePart& part) { return all.forward(v, part.begin); });
    CHECK(identical(all.forward(Variable(x.slice(1, 0, 4).contiguous()), 6, 2)
                        .value()
                        .slice(1, 2, 4)
                        .contiguous(),
                    x.slice(1, 2, 4).contiguous()));
    CHECK_THROWS_AS(all.forward(Variable(x), 6), ShapeError);
  }
}
