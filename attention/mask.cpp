#include "longhand/attention/mask.h"

#include <algorithm>

#include "longhand/core/dry_run.h"

namespace longhand::attention {

std::vector<int32_t> sample_lengths(const Tensor& lengths, int64_t tokens) {
  if (!lengths.defined()) return {static_cast<int32_t>(tokens)};
  return lengths.to_vector<int32_t>();
}

Tensor real_tokens(const Tensor& lengths, int64_t tokens) {
  Tensor real = Tensor::empty({lengths.numel(), tokens, 1, 1}, DType::u8);
  if (is_dry()) return real;
  uint8_t* out = real.data<uint8_t>();
  for (const int32_t length : lengths.to_vector<int32_t>())
    for (int64_t n = 0; n < tokens; ++n) *out++ = n < length;
  return real;
}

Tensor lengths_from(const Tensor& lengths, int64_t first, int64_t count) {
  if (!lengths.defined()) return {};
  std::vector<int32_t> out = lengths.to_vector<int32_t>();
  for (int32_t& n : out) n = static_cast<int32_t>(std::clamp<int64_t>(n - first, 0, count));
  return Tensor::from(out, lengths.shape());
}

Tensor not_empty(const Tensor& lengths) { return real_tokens(lengths, 1); }

}  // namespace longhand::attention
