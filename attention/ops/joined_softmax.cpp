#include "longhand/attention/ops/joined_softmax.h"

#include <limits>

#include "longhand/attention/ops/joined.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/elementwise.h"

namespace longhand::attention {

Variable joined_softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                                  const SoftmaxAttentionOptions& options,
                                  const std::shared_ptr<const Join>& join) {
  if (!join) return softmax_attention(q, k, v, options);
  const auto [out, log_sums] = softmax_attention_with_sums(q, k, v, options);
  // A part without keys has log_sums of -inf. Weights are relative to the maximum over all parts.
  const Tensor largest = max_of_parts(log_sums.value(), join);  // (B, H, N)
  Tensor some = Tensor::empty(largest.shape(), DType::u8);
  dispatch_float(largest.dtype(), [&]<class T>() {
    kernels::elementwise<uint8_t>(
        some, [](T x) { return static_cast<uint8_t>(x > -std::numeric_limits<T>::infinity()); },
        kernels::in<T>(largest));
  });
  const Variable top = where(some, Variable(largest), 0.0);
  const Variable weight = unsqueeze(transpose(exp(log_sums - top), 1, 2), 3);  // (B, N, H, 1)
  const int64_t D = out.size(3);
  const Variable sums = join->sum(concat({out * weight, weight}, 3));
  const Variable den = slice(sums, 3, D, D + 1);
  // If no part has a key, the result is 0, as everywhere.
  return slice(sums, 3, 0, D) / where(some.transpose(1, 2).unsqueeze(3), den, 1.0);
}

}  // namespace longhand::attention
