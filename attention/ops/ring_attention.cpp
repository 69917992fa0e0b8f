// In step s, part r holds the keys and values of part p = r - s, modulo P, and passes them on to
// part r + 1. With o_p and L_p over the keys of part p alone,
//
//   L = log Σ_p e^(L_p),  o = Σ_p e^(L_p - L) o_p
//
// Given o and L, gradients are sums over the keys, hence over the parts. Gradients of keys and
// values travel with them: every part adds its contribution, and after P steps they are back at
// their part. A sink is added to the result over all keys.
#include "longhand/attention/ops/ring_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "longhand/attention/mask.h"
#include "longhand/attention/ops/tile/sink.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/core/view.h"

namespace longhand::attention {
namespace {

/// Keys and values, or their gradients, as one message: (2, B, n, Hkv, D).
Tensor pack(const Tensor& keys, const Tensor& values) {
  Tensor out =
      Tensor::empty({2, keys.size(0), keys.size(1), keys.size(2), keys.size(3)}, keys.dtype());
  copy_into(out.select(0, 0), keys);
  copy_into(out.select(0, 1), values);
  return out;
}

/// o (B, n, H, D) and L (B, H, n): the results over all keys so far.
struct Attended {
  Tensor out, log_sums;

  void add(const Tensor& o, const Tensor& l) {
    if (!out.defined()) {
      out = o, log_sums = l;
      return;
    }
    const int64_t B = out.size(0), n = out.size(1), H = out.size(2), D = out.size(3);
    dispatch_float(out.dtype(), [&]<class T>() {
      const T *const more = o.data<T>(), *const more_log = l.data<T>();
      T *const to = out.data<T>(), *const to_log = log_sums.data<T>();
      parallel_for_each(B * n, 64, [=](int64_t token) {
        for (int64_t h = 0; h < H; ++h) {
          const int64_t at = (token / n * H + h) * n + token % n, row = (token * H + h) * D;
          const T a = to_log[at], b = more_log[at], top = std::max(a, b);
          if (b == -std::numeric_limits<T>::infinity()) continue;
          const T weight_a = std::exp(a - top), weight_b = std::exp(b - top),
                  sum = weight_a + weight_b;
          for (int64_t d = row; d < row + D; ++d)
            to[d] = (weight_a * to[d] + weight_b * more[d]) / sum;
          to_log[at] = top + std::log(sum);
        }
      });
    });
  }
};

class Ring {
 public:
  Ring(const SoftmaxAttentionOptions& options, const std::shared_ptr<const Join>& join)
      : options_(options), join_(join), part_(join->part()), parts_(join->parts()) {
    check<ConfigError>(
        !options.log_decay.defined() && !options.key_bias.defined() && !options.pattern &&
            !options.sigmoid,
        "ring attention: expected neither log_decay, key_bias, pattern nor sigmoid weights");
    options_.sink = {};
  }

  Attended forward(const Tensor& q, const Tensor& own) const {
    const NoGrad no_grad;
    Attended out;
    Tensor block = own;
    for (int64_t step = 0; step < parts_; ++step) {
      const Join::Arrival next = pass_on(block, step);
      if (const int64_t p = owner(step); sees(p)) {
        const auto [o, l] = softmax_attention_with_sums(Variable(q), Variable(block.select(0, 0)),
                                                        Variable(block.select(0, 1)), of_part(p));
        out.add(o.value(), l.value());
      }
      if (next.wait) next.wait();
      block = next.x;
    }
    return out;
  }

  /// The gradients of q and of `own`, in the form of pack().
  std::pair<Tensor, Tensor> backward(const Tensor& q, const Tensor& own, const Attended& result,
                                     const Tensor& dout) const {
    Tensor dq = Tensor::zeros(q.shape(), q.dtype());
    Tensor block = own, sum;  // sum: gradients of the block from earlier parts
    Join::Arrival sum_arrival;
    for (int64_t step = 0; step < parts_; ++step) {
      const Join::Arrival next = pass_on(block, step);
      Tensor share;
      if (const int64_t p = owner(step); sees(p)) {
        share = Tensor::zeros(own.shape(), own.dtype());
        Tensor dk = share.select(0, 0), dv = share.select(0, 1);
        add_softmax_attention_gradients(q, block.select(0, 0), block.select(0, 1), result.out,
                                        result.log_sums, dout, of_part(p), dq, dk, dv);
      }
      if (sum_arrival.wait) sum_arrival.wait();
      if (!sum.defined())
        sum = share;  // step 0, of this part
      else if (share.defined())
        accumulate_into(sum, 1, share);
      sum_arrival = join_->pass_on(sum);
      sum = sum_arrival.x;
      if (next.wait) next.wait();
      block = next.x;
    }
    sum_arrival.wait();
    return {dq, sum};
  }

 private:
  /// The part whose keys are held in a step.
  int64_t owner(int64_t step) const { return (part_ - step + parts_) % parts_; }
  Join::Arrival pass_on(const Tensor& block, int64_t step) const {
    return step + 1 == parts_ ? Join::Arrival() : join_->pass_on(block);
  }

  /// Whether any query of this part may attend to keys of part p.
  bool sees(int64_t p) const {
    const int64_t between = (std::abs(p - part_) - 1) * join_->tokens() + 1;
    return !(options_.causal && p > part_) && !(options_.window > 0 && between >= options_.window);
  }
  SoftmaxAttentionOptions of_part(int64_t p) const {
    const int64_t n = join_->tokens();
    SoftmaxAttentionOptions out = options_;
    out.key_lengths = lengths_from(options_.key_lengths, p * n, n);
    out.query_lengths = lengths_from(options_.key_lengths, part_ * n, n);
    out.first_query = part_ * n;
    out.first_key = p * n;
    return out;
  }

  SoftmaxAttentionOptions options_;
  std::shared_ptr<const Join> join_;
  int64_t part_, parts_;
};

}  // namespace

Variable ring_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SoftmaxAttentionOptions& options,
                        const std::shared_ptr<const Join>& join) {
  const Ring ring(options, join);
  const Tensor own = pack(k.value(), v.value()), sink = options.sink.value();
  Attended result = ring.forward(q.value(), own);
  Variables operands{q, k, v};
  if (sink.defined()) {
    tile::add_sink(sink, 1, result.out, result.log_sums);
    operands.push_back(options.sink);
  }
  return record(
      "ring_attention", result.out, operands,
      [ring, q = q.value(), own, sink, result](const Tensor& grad, std::span<GradSlot> dx) {
        const Tensor dout = grad.contiguous();
        if (sink.defined() && dx[3])
          dx[3].take(tile::sink_gradient(sink, 1, result.out, result.log_sums, dout, {}));
        const auto [dq, of_own] = ring.backward(q, own, result, dout);
        const Tensor gradients[] = {dq, of_own.select(0, 0), of_own.select(0, 1)};
        for (size_t i = 0; i < 3; ++i)
          if (dx[i]) dx[i].take(gradients[i]);
      });
}

}  // namespace longhand::attention
