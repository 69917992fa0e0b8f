// arithmetic: an expression modulo m, and its value (Deletang et al. 2022, arXiv 2207.02098; drawn
// as by Beck et al. 2024, arXiv 2405.04517, and Grazzi et al. 2024, arXiv 2411.12537). Without
// brackets a finite state suffices; with brackets a stack is needed.
#include <algorithm>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

/// Tokens: 0 … modulus-1 the numbers, then + - * = ( ).
struct ArithmeticOptions : MixtureOfLengths {
  int64_t modulus = 5;
  bool brackets = false, multiplication = true;

  ArithmeticOptions() : MixtureOfLengths{{40}} { min_length = {3}; }
  void describe(OptionVisitor& v) {
    v.integer("modulus", modulus, {2, 1 << 20}, "the m of results modulo m");
    v.boolean("brackets", brackets,
              "whether every operation is in brackets; otherwise products precede sums");
    multiplication = !brackets;
    v.boolean("multiplication", multiplication,
              "whether there are products beside sums and differences",
              "true without brackets, else false");
    sizes.describe(v);
    describe_lengths(v, "tokens per example with its result", 3);
  }
  int64_t operations() const { return multiplication ? 3 : 2; }
};

class Expression {
 public:
  Expression(const ArithmeticOptions& options, RandomStream& random, std::span<int32_t> tokens)
      : options_(options), random_(random), tokens_(tokens) {}

  /// Fills the tokens with numbers and operations in turn, and returns the value.
  int64_t plain() {
    const int64_t m = options_.modulus;
    int64_t sum = 0, product = number(), sign = 1;
    while (at_ < tokens_.size()) {
      const auto operation = static_cast<int32_t>(random_.below(options_.operations()));
      put(operation_token(operation));
      const int64_t next = number();
      if (operation == times) {
        product = product * next % m;
        continue;
      }
      sum += sign * product;
      product = next;
      sign = operation == minus ? -1 : 1;
    }
    return residue(sum + sign * product);
  }

  /// Writes an expression of `length` tokens, bracketed if it has two operands; returns its value.
  int64_t bracketed(int64_t length) {
    if (length < 5) {  // a, -a, (a), (-a)
      const bool inside = length > 2, negative = length % 2 == 0;
      if (inside) put(open());
      if (negative) put(operation_token(minus));
      const int64_t value = number();
      if (inside) put(open() + 1);
      return residue(negative ? -value : value);
    }
    const auto left_length = static_cast<int64_t>(1 + random_.below(length - 4));
    put(open());
    const int64_t left = bracketed(left_length);
    const size_t place = at_;
    put(0);
    const int64_t right = bracketed(length - 3 - left_length);
    put(open() + 1);
    const auto operation = static_cast<int32_t>(random_.below(options_.operations()));
    tokens_[place] = operation_token(operation);
    return residue(operation == times   ? left * right
                   : operation == minus ? left - right
                                        : left + right);
  }

  int32_t equals() const { return operation_token(times + 1); }

 private:
  enum Operation : int32_t { plus, minus, times };

  int32_t operation_token(int32_t operation) const {
    return static_cast<int32_t>(options_.modulus) + operation;
  }
  int32_t open() const { return equals() + 1; }
  int64_t residue(int64_t value) const {
    return (value % options_.modulus + options_.modulus) % options_.modulus;
  }
  void put(int32_t token) { tokens_[at_++] = token; }
  int64_t number() {
    put(static_cast<int32_t>(random_.below(options_.modulus)));
    return tokens_[at_ - 1];
  }

  const ArithmeticOptions& options_;
  RandomStream& random_;
  std::span<int32_t> tokens_;
  size_t at_ = 0;
};

// The input tokens for an expression of this length. The source also counts the result and, with
// brackets, a token after it; else lengths are odd: numbers, one operation fewer, "=", result.
int64_t inputs(const ArithmeticOptions& o, int64_t length) {
  return o.brackets ? std::max<int64_t>(length, 5) - 2 : 2 * ((length + 1) / 2) - 2;
}

std::optional<TaskInfo> info_of(const ArithmeticOptions& o) {
  return TaskInfo{.vocabulary = o.modulus + 6,
                  .classes = o.modulus,
                  .per_token = true,
                  .max_length = inputs(o, o.max_length()),
                  .tracks = true};
}

Task make(const ArithmeticOptions& o, uint64_t seed, const Splits&) {
  const Draw draw = [o](RandomStream& random, std::span<int32_t> tokens,
                        std::span<int32_t> targets) {
    Expression expression(o, random, tokens.first(tokens.size() - 1));
    std::ranges::fill(targets, ignore_index);
    targets.back() = static_cast<int32_t>(o.brackets ? expression.bracketed(std::ssize(tokens) - 1)
                                                     : expression.plain());
    tokens.back() = expression.equals();
  };
  return o.make(*info_of(o), seed, [&](GeneratedSegment& segment, int64_t least) {
    segment.draw = draw;
    const int64_t step = o.brackets ? 1 : 2, most = segment.length;
    segment.length = inputs(o, most);
    if (segment.draw_length)
      segment.draw_length = [=](RandomStream& random) {
        const int64_t first = (least + step - 1) / step, last = (most + step - 1) / step;
        return inputs(o, step * (first + static_cast<int64_t>(random.below(last - first + 1))));
      };
  });
}

}  // namespace

TaskSpec register_arithmetic() {
  return make_spec<ArithmeticOptions>("an expression modulo m, and its value", info_of, make);
}

}  // namespace longhand::data
