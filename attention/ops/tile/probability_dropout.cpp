#include "longhand/attention/ops/tile/probability_dropout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

void words(Generator::State state, int64_t head, int64_t begin, int64_t count, uint32_t* first,
           uint32_t* second) {
  constexpr int64_t most = 96;
  std::array<uint32_t, 4 * most> block;
  for (int64_t done = 0; done < count; done += most) {
    const int64_t n = std::min(most, count - done);
    const uint64_t index = static_cast<uint64_t>(head) << 32 | static_cast<uint64_t>(begin + done);
    kernels::philox_words(state, index, n, block.data());
    for (int64_t i = 0; i < n; ++i) {
      first[done + i] = block[4 * i];
      second[done + i] = block[4 * i + 1];
    }
  }
}

}  // namespace

ProbabilityDropout::ProbabilityDropout(const DropoutOptions& options, int64_t heads,
                                       int64_t first_query)
    : threshold_(static_cast<uint32_t>(std::min(std::nearbyint(options.p * 65536), 65535.0))),
      queries_(options.generator.fork("queries").state()),
      keys_(options.generator.fork("keys").state()),
      heads_(heads),
      of_(options.section),
      first_query_(first_query) {}

void ProbabilityDropout::query_words(int64_t head, int64_t begin, int64_t count, uint32_t* first,
                                     uint32_t* second) const {
  words(queries_, whole_head(head), first_query_ + begin, count, first, second);
}

void ProbabilityDropout::key_words(int64_t head, int64_t begin, int64_t count, uint32_t* first,
                                   uint32_t* second) const {
  words(keys_, whole_head(head), begin, count, first, second);
}

template <class F>
void ProbabilityDropout::for_heads(int64_t count, int64_t N, int64_t M, F f) const {
  const int64_t pairs = (M + 1) / 2;
  parallel_for_each(count, 1, [&](int64_t head) {
    std::vector<uint32_t> a(N), b(N), c(pairs), d(pairs);
    query_words(head, 0, N, a.data(), b.data());
    key_words(head, 0, pairs, c.data(), d.data());
    f(head,
      [&](int64_t i, int64_t j) { return keeps(dropout_hash(a[i], b[i], c[j / 2], d[j / 2]), j); });
  });
}

Tensor ProbabilityDropout::kept(const Shape& shape) const {
  const int64_t N = shape[2], M = shape[3];
  Tensor out = Tensor::empty(shape, DType::u8);
  for_heads(shape[0] * shape[1], N, M, [&](int64_t head, const auto& keep) {
    uint8_t* to = out.data<uint8_t>() + head * N * M;
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < M; ++j) *to++ = keep(i, j);
  });
  return out;
}

Tensor ProbabilityDropout::factors(const Tensor& lists, int64_t M, DType dtype) const {
  const int64_t N = lists.size(2), most = lists.size(3);
  Tensor out = Tensor::empty(lists.shape(), dtype);
  dispatch_float(dtype, [&]<class T>() {
    for_heads(lists.size(0) * lists.size(1), N, M, [&](int64_t head, const auto& keep) {
      for (int64_t at = head * N * most; at < (head + 1) * N * most; ++at) {
        const int64_t i = at / most - head * N, j = lists.data<int32_t>()[at];
        out.data<T>()[at] = j >= 0 && keep(i, j) ? static_cast<T>(scale()) : T{0};
      }
    });
  });
  return out;
}

Variable dropped(const Variable& weights, const DropoutOptions& options) {
  if (options.p == 0) return weights;
  const ProbabilityDropout dropout(options, weights.size(1));
  return where(dropout.kept(weights.shape()), weights, 0.0) * dropout.scale();
}

}  // namespace longhand::attention
