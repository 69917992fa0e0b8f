#include "longhand/attention/bases/recurrence.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {

Capabilities recurrence_capabilities(bool linear) {
  return {.averages = false,
          .linear = linear,
          .positional = true,
          .causal = true,
          .causal_only = true,
          .decodes = true,
          .uses_x = true,
          .needs = Needs::state,
          .time = "N D^2",
          .memory = "D^2"};
}

void describe_norm(OptionVisitor& v, bool& norm) {
  v.boolean("norm", norm,
            "whether the result of a head is divided by its root mean square, with a learned "
            "weight");
}

// Per token: two products with the state and, for blocks of C tokens, products with C / 2 keys and
// their values; or with the N / 2 keys before a query, without a state, if that is less. Two
// products for each of them in the backward pass. In memory: one in four of the states between
// blocks.
Work scan_work(double N, double m, double E, double bytes) {
  const double C = scan_block, products = N * (m + E) * std::min(4 * m * E / (m + E) + C, N);
  return {{products}, {2 * products}, std::ceil(N / (4 * C)) * m * E * bytes};
}

Variable without_decay_of_padding(const Variable& log_decay, const Tensor& lengths) {
  if (!lengths.defined() || !log_decay.defined()) return log_decay;
  const Tensor real = real_tokens(lengths, log_decay.size(1));  // (B, N, 1, 1)
  return where(log_decay.rank() == 4 ? real : real.squeeze(3), log_decay, 0.0);
}

Inputs sequences_of(const Token& token) {
  const auto one = [](const Tensor& t) {
    return t.defined() ? Variable(t.unsqueeze(1)) : Variable();
  };
  return {one(token.q), one(token.k), one(token.v), one(token.x)};
}

Inputs sequences_of(const Token& token, int64_t batch, int64_t heads) {
  check<ShapeError>(token.q.rank() == 3 && token.q.size(0) == batch && token.k.rank() == 3 &&
                        token.k.shape() == token.v.shape() && token.k.size(0) == batch,
                    "decoder: expected q (", batch, ", ", heads, ", D), k and v of one shape (",
                    batch, ", kv_heads, D), got q ", token.q.shape(), ", k ", token.k.shape(),
                    ", v ", token.v.shape());
  return sequences_of(
      {token.q, repeat_groups(token.k, heads), repeat_groups(token.v, heads), token.x});
}

}  // namespace longhand::attention
