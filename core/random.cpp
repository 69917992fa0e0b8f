#include "longhand/core/random.h"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include "longhand/core/parallel.h"

namespace longhand {
namespace {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t low, uint64_t high) {
  using Philox = r123::Philox4x32;
  const Philox::ctr_type counter{{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                                  static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}};
  const Philox::key_type philox_key{{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
  const Philox::ctr_type out = Philox()(counter, philox_key);
  return {out[0], out[1], out[2], out[3]};
}

uint64_t join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

// 53 random bits as a multiple of 2^-53.
double to_unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

template <class F>
void fill_by_index(Tensor& out, F f) {
  Tensor dense = out.is_contiguous() ? out : Tensor::empty(out.shape(), out.dtype());
  dispatch_float(out.dtype(), [&]<class T>() {
    T* const p = dense.data<T>();
    parallel_for_each(dense.numel(), 4096,
                      [&](int64_t i) { p[i] = static_cast<T>(f(static_cast<uint64_t>(i))); });
  });
  if (!out.is_contiguous()) copy_into(out, dense);
}

}  // namespace

// The seed is hashed, so that seeds 0, 1, 2, … do not give related keys.
Generator::Generator(uint64_t seed) : state_{seed, 0} { *this = fork(uint64_t{0}); }

Generator Generator::fork(uint64_t name) const {
  // A different key than block()'s, so that children and numbers never use the same words.
  const auto r = philox(state_.key ^ 0x9e3779b97f4a7c15u, name, state_.stream);
  return from_state({join(r[0], r[1]), join(r[2], r[3])});
}

Generator Generator::fork(std::string_view name) const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fork(hash);
}

std::array<uint32_t, 4> Generator::block(uint64_t index) const {
  return philox(state_.key, index, state_.stream);
}

uint64_t Generator::bits(uint64_t index) const {
  const auto r = block(index);
  return join(r[0], r[1]);
}

double Generator::uniform(uint64_t index) const { return to_unit(bits(index)); }

double Generator::normal(uint64_t index) const {
  const auto r = block(index);
  // 1 - u is never 0, so the logarithm is finite.
  const double radius = std::sqrt(-2 * std::log(1 - to_unit(join(r[0], r[1]))));
  return radius * std::cos(2 * std::numbers::pi * to_unit(join(r[2], r[3])));
}

uint64_t RandomStream::below(uint64_t bound) {
  // Lemire 2019: the high half of bits * bound; rejecting the lowest 2^64 mod bound values of the
  // low half makes it unbiased.
  for (;;) {
    const unsigned __int128 product = static_cast<unsigned __int128>(bits()) * bound;
    const uint64_t low = static_cast<uint64_t>(product);
    if (low >= bound || low >= -bound % bound) return static_cast<uint64_t>(product >> 64);
  }
}

void fill_uniform(Tensor& out, const Generator& generator, double low, double high) {
  fill_by_index(out, [&](uint64_t i) { return low + (high - low) * generator.uniform(i); });
}

void fill_normal(Tensor& out, const Generator& generator, double mean, double std) {
  fill_by_index(out, [&](uint64_t i) { return mean + std * generator.normal(i); });
}

}  // namespace longhand
