// Counter-based random numbers (Philox4x32-10): number i of a stream depends on (key, i) alone, so
// any thread may compute any of them, and the state to save is a key and a counter.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "longhand/core/tensor.h"

namespace longhand {

/// An immutable source of random numbers, addressed by index. Generators obtained by fork() with
/// different names are independent.
class Generator {
 public:
  explicit Generator(uint64_t seed);

  /// Returns an independent generator, identified by a number or a string.
  Generator fork(uint64_t name) const;
  Generator fork(std::string_view name) const;

  /// 128 random bits.
  std::array<uint32_t, 4> block(uint64_t index) const;
  /// 64 random bits.
  uint64_t bits(uint64_t index) const;
  /// Uniform on [0, 1), a multiple of 2^-53.
  double uniform(uint64_t index) const;
  /// Standard normal (Box-Muller).
  double normal(uint64_t index) const;

  /// The state to save; from_state() restores the generator.
  struct State {
    uint64_t key, stream;
    friend bool operator==(const State&, const State&) = default;
  };
  State state() const { return state_; }
  static Generator from_state(State state) { return Generator(state); }

 private:
  explicit Generator(State state) : state_(state) {}

  State state_;
};

/// A generator read sequentially, for when the number of draws is not known in advance.
class RandomStream {
 public:
  explicit RandomStream(const Generator& generator, uint64_t position = 0)
      : generator_(generator), position_(position) {}

  uint64_t bits() { return generator_.bits(position_++); }
  /// Uniform on [0, 1).
  double uniform() { return generator_.uniform(position_++); }
  double normal() { return generator_.normal(position_++); }
  /// Uniform on the integers 0 … bound-1, without bias. bound >= 1.
  uint64_t below(uint64_t bound);
  /// The index of the next number: the count drawn so far plus the initial position.
  uint64_t position() const { return position_; }

  /// Shuffles a random-access range uniformly (Fisher-Yates).
  template <class Range>
  void shuffle(Range& range) {
    for (uint64_t i = range.size(); i > 1; --i) std::swap(range[i - 1], range[below(i)]);
  }

 private:
  Generator generator_;
  uint64_t position_;
};

/// Fills a float tensor with low + (high - low) * uniform, or mean + std * normal. Element i, in
/// row-major order, is drawn at index i, for any dtype and strides.
void fill_uniform(Tensor& out, const Generator& generator, double low = 0, double high = 1);
void fill_normal(Tensor& out, const Generator& generator, double mean = 0, double std = 1);

}  // namespace longhand
