#include "longhand/attention/bases/over_ranks.h"

#include <algorithm>
#include <limits>

#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

constexpr double none = -std::numeric_limits<double>::infinity();

// The largest of the first `count` of x (P, …).
Tensor largest(const Tensor& x, int count) {
  Tensor out = Tensor::full(x.shape().without_axis(0), none, x.dtype());
  dispatch_float(x.dtype(), [&]<class T>() {
    const int64_t n = out.numel();
    T* const to = out.data<T>();
    for (int p = 0; p < count; ++p)
      for (int64_t i = 0; i < n; ++i) to[i] = std::max(to[i], x.data<T>()[p * n + i]);
  });
  return out;
}

// What several tensors (B, H, …) of all ranks are, exchanged together: of_rank(p)[i] is tensor i of rank p.
class Gathered {
 public:
  Gathered(const Variables& tensors, const nn::SequencePart& part) {
    Variables flat;
    for (const Variable& x : tensors) {
      const int64_t B = x.size(0), H = x.size(1);
      flat.push_back(reshape(x, {B, H, x.value().numel() / (B * H)}));
      shapes_.push_back(x.shape());
    }
    all_ = all_gather(flat.size() == 1 ? flat[0] : concat(flat, 2), *part.ranks);
  }
  Variables of_rank(int p) const {
    const Variable x = select(all_, 0, p);
    Variables out;
    int64_t begin = 0;
    for (const Shape& shape : shapes_) {
      const int64_t width = shape.numel() / (shape[0] * shape[1]);
      out.push_back(reshape(slice(x, 2, begin, begin + width), shape));
      begin += width;
    }
    return out;
  }

 private:
  std::vector<Shape> shapes_;
  Variable all_;  // (P, B, H, …)
};

// `x`, or `otherwise` if `used` is false: on every rank an operation of the same graph, so that all
// ranks take part in the gradient of the exchange that x is from.
Variable if_used(bool used, const Variable& x, double otherwise) {
  return where(Tensor::full({1}, used, DType::u8), x, otherwise);
}

// x of all ranks, (P, …), with `otherwise` in place of those that are not before this one.
Variable gathered_before(const Variable& x, const nn::SequencePart& part, double otherwise) {
  Tensor used = Tensor::zeros({part.ranks->size()}, DType::u8);
  used.slice(0, 0, part.ranks->rank()).fill(1);
  for (int axis = 0; axis < x.rank(); ++axis) used = used.unsqueeze(1);
  return where(used, all_gather(x, *part.ranks), otherwise);
}

// Sums over the tokens of g (B, n, H) or (B, n, H, m): (B, H), (B, H, m).
Variable total(const Variable& g) { return g.defined() ? sum(g, {1}) : Variable(); }

}  // namespace

Tensor max_over_ranks(const Tensor& x, const nn::SequencePart& part) {
  if (!part.cut()) return x;
  return largest(part.ranks->all_gather(x.contiguous()), part.ranks->size());
}

Tensor max_before_part(const Tensor& x, const nn::SequencePart& part) {
  if (!part.cut()) return Tensor::full(x.shape(), none, x.dtype());
  return largest(part.ranks->all_gather(x.contiguous()), part.ranks->rank());
}

Variable sum_before_part(const Variable& x, const nn::SequencePart& part) {
  return sum(gathered_before(x, part, 0), {0});
}

Variable log_sum_exp_before_part(const Variable& x, const nn::SequencePart& part) {
  const Variable all = gathered_before(x, part, -1e30);
  const Variable top = max(all.detach(), 0, true);
  return squeeze(log(sum(exp(all - top), {0}, true)) + top, 0);
}

Variable scan_over_ranks(const ScanInputs& inputs, const ScanOptions& options,
                         const nn::SequencePart& part) {
  ScanOptions of_part = options;
  of_part.final_state = part.cut();
  const ScanResult own = scan(inputs, nullptr, of_part);
  if (!part.cut()) return own.out;

  const Variable decay = total(inputs.log_decay);
  Variables sent{own.state.S};
  if (own.state.z.defined()) sent.push_back(own.state.z);
  if (own.state.log_scale.defined()) sent.push_back(own.state.log_scale);
  if (decay.defined()) sent.push_back(decay);
  const Gathered states(sent, part);
  ScanState before;
  for (int p = 0; p < part.ranks->size(); ++p) {
    const bool used = p < part.ranks->rank();
    const Variables of_rank = states.of_rank(p);
    size_t next = 0;
    ScanState state;
    state.S = if_used(used, of_rank[next++], 0);
    if (own.state.z.defined()) state.z = if_used(used, of_rank[next++], 0);
    if (own.state.log_scale.defined())
      state.log_scale = if_used(used, of_rank[next++], none).detach();
    const Variable g = decay.defined() ? if_used(used, of_rank[next++], 0) : Variable();
    before = p == 0 ? state : combine(before, state, g);
  }
  if (options.exponentials) {
    of_part.final_state = false;
    return scan(inputs, &before, of_part).out;
  }
  // Without exponentials, what the state before the part adds is a product: e^{G_i} q_i S, G_i the sum
  // of g up to token i. Each factor is at most 1.
  Variable q = transpose(inputs.q, 1, 2);  // (B, H, n, m)
  if (inputs.log_decay.defined()) {
    const Variable G = transpose(cumsum(inputs.log_decay, 1), 1, 2);
    q = q * exp(G.rank() == 3 ? unsqueeze(G, 3) : G);
  }
  const Variable S = before.z.defined() ? concat({before.S, unsqueeze(before.z, 3)}, 3) : before.S;
  return own.out + transpose(matmul(q, S), 1, 2);
}

Variable delta_scan_over_ranks(const DeltaInputs& inputs, const nn::SequencePart& part) {
  if (!part.cut()) return delta_scan(inputs, {}, {.final_state = false}).out;
  const Shape& shape = inputs.k.shape();
  const int64_t B = shape[0], n = shape[1], H = shape[2], m = shape[3], E = inputs.v.size(3);
  const DType dtype = inputs.v.dtype();
  // With the values [v, 0] and the initial state [0, I] the states are [B_i, A_i]: S_i = A_i S + B_i.
  Tensor initial = Tensor::zeros({B, H, m, E + m}, dtype);
  for (int64_t l = 0; l < m; ++l) initial.select(3, E + l).select(2, l).fill(1);
  DeltaInputs both = inputs;
  both.v = concat({inputs.v, Variable(Tensor::zeros({B, n, H, m}, dtype))}, 3);
  const DeltaResult own = delta_scan(both, Variable(initial));
  const Gathered states({own.state}, part);
  Tensor unit = Tensor::zeros({m, m}, dtype);
  for (int64_t l = 0; l < m; ++l) unit.select(0, l).slice(0, l, l + 1).fill(1);
  Variable before(Tensor::zeros({B, H, m, E}, dtype));
  for (int p = 0; p < part.ranks->size(); ++p) {
    const Tensor used = Tensor::full({1}, p < part.ranks->rank(), DType::u8);
    const Variable state = states.of_rank(p)[0];
    before = matmul(where(used, slice(state, 3, E, E + m), Variable(unit)), before) +
             where(used, slice(state, 3, 0, E), 0.0);
  }
  // S_iᵀ q_i = Sᵀ (A_iᵀ q_i) + B_iᵀ q_i
  const Variable of_initial = transpose(slice(own.out, 3, E, E + m), 1, 2);  // (B, H, n, m)
  return slice(own.out, 3, 0, E) + transpose(matmul(of_initial, before), 1, 2);
}

Variable softmax_attention_over_ranks(const Variable& q, const Variable& k, const Variable& v,
                                      const SoftmaxAttentionOptions& options,
                                      const nn::SequencePart& part) {
  if (!part.cut()) return softmax_attention(q, k, v, options);
  const auto [out, log_sums] = softmax_attention_with_sums(q, k, v, options);
  // A part without keys has log_sums of -inf. Weights are relative to the largest of all ranks.
  const Tensor largest = max_over_ranks(log_sums.value(), part);  // (B, H, N)
  const Tensor some = [&] {
    Tensor finite = Tensor::empty(largest.shape(), DType::u8);
    dispatch_float(largest.dtype(), [&]<class T>() {
      std::transform(largest.data<T>(), largest.data<T>() + largest.numel(), finite.data<uint8_t>(),
                     [](T x) { return x > static_cast<T>(none); });
    });
    return finite;
  }();
  const Variable top = where(some, Variable(largest), 0.0);
  const Variable weight = unsqueeze(transpose(exp(log_sums - top), 1, 2), 3);  // (B, N, H, 1)
  const int64_t D = out.size(3);
  const Variable sums = sum_over_ranks(concat({out * weight, weight}, 3), *part.ranks);
  const Variable den = slice(sums, 3, D, D + 1);
  // Without a key on any rank the result is 0, as everywhere.
  return slice(sums, 3, 0, D) / where(some.transpose(1, 2).unsqueeze(3), den, 1.0);
}

}  // namespace longhand::attention
