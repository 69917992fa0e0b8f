#include "longhand/attention/bases/gaussian_kernel.h"

#include "longhand/autograd/ops.h"

namespace longhand::attention {

Variable half_norms(const Variable& x) { return affine(sum(square(x), {-1}, true), 0.5); }

Variable gaussian_exponents(const Variable& x, const Variable& y, double scale) {
  const Variable s =
      matmul(x, transpose(y, -2, -1)) - half_norms(x) - transpose(half_norms(y), -2, -1);
  return affine(relu(-s), -scale);
}

// -|q - k|²/2 = q·k - |k|²/2 - |q|²/2, whose last term does not depend on the key.
Variable gaussian_attention(const Variable& q, const Variable& k, const Variable& v,
                            SoftmaxAttentionOptions options, bool normalized) {
  const int64_t B = k.size(0), M = k.size(1), G = k.size(2), H = q.size(2);
  const Variable norms = affine(half_norms(k), -options.scale);  // (B, M, G, 1)
  options.key_bias = reshape(broadcast_to(norms, {B, M, G, H / G}), {B, M, H});
  if (normalized) return softmax_attention(q, k, v, options);
  const SoftmaxAttentionResult r = softmax_attention_with_sums(q, k, v, options);
  const Variable logarithms = unsqueeze(transpose(r.log_sums, 1, 2), 3);  // (B, N, H, 1)
  return r.out * exp(logarithms - affine(half_norms(q), options.scale));
}

}  // namespace longhand::attention
