// Counter-based random numbers (Philox4x32-10): number i of a stream depends on (key, i) alone, so
// any thread may compute any of them, and a state to save is a key and a counter.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "longhand/core/tensor.h"

namespace longhand {

/// An immutable source of random numbers, addressed by index. Different generators made by fork()
/// are independent.
class Generator {
 public:
  explicit Generator(uint64_t seed);

  /// An independent generator named by a number or a text.
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

  /// What to save; Generator::from_state gives the generator back.
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

/// A generator read one number after the other, for when their count is not known beforehand.
class RandomStream {
 public:
  explicit RandomStream(const Generator& generator, uint64_t position = 0)
      : generator_(generator), position_(position) {}

  uint64_t bits() { return generator_.bits(position_++); }
  /// Uniform on [0, 1).
  double uniform() { return generator_.uniform(position_++); }
  double normal() { return generator_.normal(position_++); }
  /// Uniform on 0 … bound-1, without bias. bound >= 1.
  uint64_t below(uint64_t bound);
  /// How many numbers were drawn.
  uint64_t position() const { return position_; }

  /// Puts a random-access range in a uniformly random order (Fisher-Yates).
  template <class Range>
  void shuffle(Range& range) {
    for (uint64_t i = range.size(); i > 1; --i) std::swap(range[i - 1], range[below(i)]);
  }

 private:
  Generator generator_;
  uint64_t position_;
};

/// Fills a float tensor with low + (high - low) * uniform, or mean + std * normal. Element i, in
/// row-major order, comes from index i, whatever the dtype and the strides.
void fill_uniform(Tensor& out, const Generator& generator, double low = 0, double high = 1);
void fill_normal(Tensor& out, const Generator& generator, double mean = 0, double std = 1);

}  // namespace longhand
