#include "longhand/attention/bases/gaussian_kernel.h"

#include "longhand/attention/bases/half_square.h"

namespace longhand::attention {

Variable gaussian_exponents(const Variable& x, const Variable& y, double scale) {
  const Variable s =
      matmul(x, transpose(y, -2, -1)) - half_square(x, 1) - transpose(half_square(y, 1), -2, -1);
  return affine(relu(-s), -scale);
}

// -|q - k|²/2 = q·k - |k|²/2 - |q|²/2; the last term does not depend on the key.
Variable gaussian_attention(const Variable& q, const Variable& k, const Variable& v,
                            SoftmaxAttentionOptions options, bool normalized) {
  const int64_t B = k.size(0), M = k.size(1), G = k.size(2), H = q.size(2);
  const Variable norms = affine(half_square(k, 1), -options.scale);  // (B, M, G, 1)
  options.key_bias = reshape(broadcast_to(norms, {B, M, G, H / G}), {B, M, H});
  if (normalized) return softmax_attention(q, k, v, options);
  const SoftmaxAttentionResult r = softmax_attention_with_sums(q, k, v, options);
  const Variable logarithms = unsqueeze(transpose(r.log_sums, 1, 2), 3) -  // (B, N, H, 1)
                              affine(half_square(q, 1), options.scale);
  // M weights of at most 1, however the difference of large numbers is rounded.
  const double most = std::log(static_cast<double>(k.size(1)));
  return r.out * exp(most - relu(most - logarithms));
}

}  // namespace longhand::attention
