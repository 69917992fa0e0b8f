// Efficient attention: two softmaxes, of each query over its D entries and of each entry d over the
// keys. Shen et al. 2018 (arXiv 1812.01243):
//
//   O = softmax_D(Q) (softmax_M(K)ᵀ V)
//
// The weights of a query are positive and sum to 1; there is no 1/sqrt(D).
//
// Causally, O_i = sum_d ρ_id S_id / z_id with ρ = softmax_D(q), S_id = sum_(j<=i) e^k_jd v_j and
// z_id = sum_(j<=i) e^k_jd: kernel attention with features ρ_i / z_i of queries and e^k_j of keys,
// both relative to a scale of each entry d, R_gd = max over keys up to the first of chunk g. Rows
// know that key, so z >= 1, and nothing looks ahead.
#include "longhand/attention/registry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

// (B, N, H, D) to (B, H, G, C, D), with zeros up to G C tokens.
Variable in_chunks(const Variable& x, int64_t chunks, int64_t chunk) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2), D = x.size(3);
  const Variable padding(Tensor::zeros({B, chunks * chunk - N, H, D}, x.dtype()));
  return permute(reshape(concat({x, padding}, 1), {B, chunks, chunk, H, D}), {0, 3, 1, 2, 4});
}

// min(x, most)
Variable at_most(const Variable& x, double most) { return most - relu(most - x); }

Variable causal(const Variable& q, const Variable& k, const Variable& v) {
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
  const int64_t C = std::min(causal_chunk, N), G = (N + C - 1) / C;
  const Tensor so_far = running_max(k.value().contiguous().reshape({B, N, H * D}));
  const Variable R(  // (B, H, G, 1, D)
      so_far.slice(1, 0, N, C).contiguous().reshape({B, G, H, 1, D}).permute({0, 2, 1, 3, 4}));
  // A key that exceeds all before its chunk by more than this counts as if it did not.
  const double most = q.dtype() == DType::f32 ? 80 : 700;
  const Variable e = exp(at_most(in_chunks(k, G, C) - R, most));
  const Variable ones(Tensor::full({B, N, H, 1}, 1, v.dtype()));
  const Variable v1 = in_chunks(concat({v, ones}, 3), G, C);

  // S_g, of the chunks before g and relative to R_g: (B, H, D, D + 1)
  Variables states{Variable(Tensor::zeros({B, H, D, D + 1}, v.dtype()))};
  const Variable added = matmul(transpose(e, 3, 4), v1);
  for (int64_t g = 1; g < G; ++g) {
    const Variable decay = exp(select(R, 2, g - 1) - select(R, 2, g));  // (B, H, 1, D)
    states.push_back(transpose(decay, 2, 3) * (states.back() + select(added, 2, g - 1)));
  }
  const Variable S = stack(states, 2);

  Tensor past = Tensor::zeros({C, C}, v.dtype());  // 1 where j <= i
  for (int64_t i = 0; i < C; ++i) past.slice(0, i, i + 1).slice(1, 0, i + 1).fill(1);
  const Variable z = matmul(Variable(past), e) + transpose(slice(S, 4, D, D + 1), 3, 4);
  const Variable fq = in_chunks(softmax(q), G, C) / z;
  const Variable sums = matmul(matmul(fq, transpose(e, 3, 4)) * Variable(past), v1) + matmul(fq, S);
  return normalised(slice(reshape(permute(sums, {0, 2, 3, 1, 4}), {B, G * C, H, D + 1}), 1, 0, N));
}

// S, z and the largest key so far, of each entry d.
class EfficientDecoder final : public Decoder {
 public:
  EfficientDecoder(int64_t batch, int64_t heads, int64_t dim, DType dtype)
      : sums_(Tensor::zeros({batch, heads, dim, dim + 1}, dtype)),
        largest_(
            Tensor::full({batch, heads, dim}, -std::numeric_limits<double>::infinity(), dtype)) {}

  Tensor step(const Token& token) override {
    const Tensor &q = token.q, &k = token.k, &v = token.v;
    const NoGrad no_grad;
    const int64_t D = q.size(2), heads = q.size(1);
    check<ShapeError>(q.shape() == largest_.shape(), "decoder: q ", largest_.shape(),
                      " is wanted, not ", q.shape());
    const Tensor rho = softmax(Variable(q)).value().contiguous();
    const Tensor keys = repeat_groups(k, heads).contiguous();
    const Tensor values = repeat_groups(v, heads).contiguous();
    Tensor out = Tensor::zeros(q.shape(), q.dtype());
    dispatch_float(q.dtype(), [&]<class T>() {
      parallel_for(q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin * D; r < end * D; ++r) {  // (b H + head) D + d
          const T key = keys.data<T>()[r], before = largest_.data<T>()[r];
          const T now = std::max(key, before);
          const T decay = std::exp(before - now), e = std::exp(key - now);
          largest_.data<T>()[r] = now;
          const T* const value = values.data<T>() + r / D * D;
          T *const S = sums_.data<T>() + r * (D + 1), *const o = out.data<T>() + r / D * D;
          S[D] = decay * S[D] + e;
          const T weight = rho.data<T>()[r] / S[D];
          for (int64_t c = 0; c < D; ++c) {
            S[c] = decay * S[c] + e * value[c];
            o[c] += weight * S[c];
          }
        }
      });
    });
    return out;
  }

  int64_t bytes() const override {
    return (sums_.numel() + largest_.numel()) * static_cast<int64_t>(size_of(sums_.dtype()));
  }

 private:
  Tensor sums_;     // (B, H, D, D + 1): S, z
  Tensor largest_;  // (B, H, D)
};

struct EfficientOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {.causal = true, .decodes = true, .time = "N D^2", .memory = "N D"};
  }
};

class EfficientAttention final : public Variant {
 public:
  EfficientAttention(const nn::Scope& scope_, const Config& config, const EfficientOptions&)
      : Variant(scope_, config) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<EfficientDecoder>(batch, config().heads, config().head_dim,
                                              parameter_dtype());
  }

  std::optional<int64_t> rank(int64_t tokens) const override {
    if (config().causal || config().head_dim >= tokens) return {};
    return config().head_dim;
  }

  Work work(int64_t queries, int64_t keys) const override {
    const double N = static_cast<double>(queries), M = static_cast<double>(keys);
    const double D = static_cast<double>(config().head_dim);
    double numbers = (N + M) * D + D * D;
    if (config().causal) {
      const double C = std::min(static_cast<double>(causal_chunk), N);
      numbers += N * C + std::ceil(N / C) * D * D;
    }
    return static_cast<double>(config().heads) *
           Work{{(N + M) * 2 * D * D, (N + M) * D},
                {(N + M) * 4 * D * D},
                numbers * static_cast<double>(size_of(parameter_dtype()))};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    if (config().causal) return causal(q, k, v);
    Variable keys = permute(k, {0, 2, 3, 1});  // (B, H, D, M)
    if (mask.lengths.defined())
      keys = where(real_tokens(mask.lengths, k.size(1)).permute({0, 2, 3, 1}), keys,
                   -std::numeric_limits<double>::infinity());
    const Variable mixed = matmul(softmax(keys), transpose(v, 1, 2));  // (B, H, D, D)
    return transpose(matmul(softmax(transpose(q, 1, 2)), mixed), 1, 2);
  }
};

}  // namespace

Spec efficient_variant() {
  return make_spec<EfficientOptions, EfficientAttention>(
      {.summary = "softmax over entries of queries, softmax over positions of keys",
       .paper = "Shen et al. 2018, arXiv 1812.01243",
       .evidence = {{"weights", "the product of the two softmaxes, causally over earlier keys",
                     conformance::efficient_weights}}});
}

}  // namespace longhand::attention
