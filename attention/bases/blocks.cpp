#include "longhand/attention/bases/blocks.h"

#include <algorithm>
#include <vector>

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {

Variable padded(const Variable& x, int64_t before, int64_t after) {
  Variables parts;
  const auto zeros = [&](int64_t tokens) {
    if (tokens <= 0) return;
    Shape shape = x.shape();
    shape[1] = tokens;
    parts.emplace_back(Tensor::zeros(shape, x.dtype()));
  };
  zeros(before);
  parts.push_back(x);
  zeros(after);
  return parts.size() == 1 ? x : concat(parts, 1);
}

Variable in_blocks(const Variable& x, int64_t block) {
  const int64_t blocks = (x.size(1) + block - 1) / block;
  return reshape(padded(x, 0, blocks * block - x.size(1)),
                 {x.size(0), blocks, block, x.size(2), x.size(3)});
}

Tensor filled_blocks(const Tensor& lengths, int64_t block) {
  if (!lengths.defined()) return {};
  std::vector<int32_t> filled = lengths.to_vector<int32_t>();
  for (int32_t& n : filled) n = static_cast<int32_t>((n + block - 1) / block);
  return Tensor::from(filled, lengths.shape());
}

Tensor of_block_sizes(const Tensor& lengths, int64_t tokens, int64_t block, DType dtype,
                      double (*f)(double)) {
  const std::vector<int32_t> ends = sample_lengths(lengths, tokens);
  const int64_t samples = std::ssize(ends), blocks = (tokens + block - 1) / block;
  Tensor out = Tensor::empty({samples, blocks, 1, 1}, DType::f64);
  double* to = out.data<double>();
  for (const int64_t n : ends)
    for (int64_t b = 0; b < blocks; ++b)
      *to++ = f(static_cast<double>(std::clamp<int64_t>(n - b * block, 1, block)));
  return out.to(dtype);
}

Variable block_means(const Variable& x, const Tensor& lengths, int64_t block) {
  const Tensor shares =
      of_block_sizes(lengths, x.size(1), block, x.dtype(), [](double n) { return 1 / n; });
  return sum(in_blocks(x, block), {2}) * Variable(shares);
}

}  // namespace longhand::attention
