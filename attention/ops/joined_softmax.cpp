#include "longhand/attention/ops/joined_softmax.h"

#include <algorithm>
#include <limits>

#include "longhand/attention/ops/joined.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {

Variable joined_softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                                  const SoftmaxAttentionOptions& options,
                                  const std::shared_ptr<const Join>& join) {
  if (!join) return softmax_attention(q, k, v, options);
  const auto [out, log_sums] = softmax_attention_with_sums(q, k, v, options);
  // A part without keys has log_sums of -inf. Weights are relative to the largest of all parts.
  const Tensor largest = max_of_parts(log_sums.value(), join);  // (B, H, N)
  const Tensor some = [&] {
    Tensor finite = Tensor::empty(largest.shape(), DType::u8);
    if (is_dry()) return finite;
    dispatch_float(largest.dtype(), [&]<class T>() {
      std::transform(largest.data<T>(), largest.data<T>() + largest.numel(), finite.data<uint8_t>(),
                     [](T x) { return x > -std::numeric_limits<T>::infinity(); });
    });
    return finite;
  }();
  const Variable top = where(some, Variable(largest), 0.0);
  const Variable weight = unsqueeze(transpose(exp(log_sums - top), 1, 2), 3);  // (B, N, H, 1)
  const int64_t D = out.size(3);
  const Variable sums = join->sum(concat({out * weight, weight}, 3));
  const Variable den = slice(sums, 3, D, D + 1);
  // Without a key in any part the result is 0, as everywhere.
  return slice(sums, 3, 0, D) / where(some.transpose(1, 2).unsqueeze(3), den, 1.0);
}

}  // namespace longhand::attention
