// Uniform attention: the limit of softmax attention when all scores are equal.
//
//   out_i = mean of v_j over the real tokens j (causal: over j <= i)
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/registry.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// Keeps running sums, in double like cumsum().
class MeanDecoder final : public Decoder {
 public:
  explicit MeanDecoder(int64_t heads) : heads_(heads) {}
  Tensor step(const Token& token) override {
    const Tensor& v = token.v;
    if (!sums_) sums_ = Tensor::zeros(v.shape(), DType::f64);
    ++tokens_;
    const Tensor in = v.contiguous();
    Tensor out = Tensor::empty(v.shape(), v.dtype());
    dispatch_float(v.dtype(), [&]<class T>() {
      simd([&, n = out.numel(), inverse = T{1} / static_cast<T>(tokens_), from = in.data<T>(),
            sums = sums_.data<double>(), to = out.data<T>()] {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) {
          sums[i] += static_cast<double>(from[i]);
          to[i] = static_cast<T>(sums[i]) * inverse;
        }
      });
    });
    return repeat_groups(out, heads_);
  }
  int64_t bytes() const override { return sums_.bytes(); }

 private:
  int64_t heads_;
  Tensor sums_;  // (B, G, D)
  int64_t tokens_ = 0;
};

struct MeanOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {.causal = true,
            .decodes = true,
            .uses_queries_and_keys = false,
            .needs = Needs::sums,
            .time = "N D",
            .memory = "D"};
  }
};

class Mean final : public Variant {
 public:
  Mean(const nn::Scope& scope_, const Config& config, const MeanOptions&)
      : Variant(scope_, config) {}

  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    return std::make_unique<MeanDecoder>(config().heads);
  }
  int64_t rank(int64_t tokens) const override { return config().causal ? tokens : 1; }
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double sums = (config().causal ? N : 1) * H * D, flops = M * H * D + sums;
    return {{flops}, {flops}, sums * bytes};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable& v = inputs.v;
    const int64_t M = v.size(1), first = pass.tokens.first, all = pass.all_tokens(M);
    if (config().causal) {
      std::vector<int32_t> counts;
      for (int64_t i = first; i < first + M; ++i) counts.push_back(static_cast<int32_t>(i + 1));
      Variable sums = cumsum(v, 1);
      if (pass.join) sums = sums + sum_before(sum(v, {1}, true), *pass.join);
      return sums * inverse(counts, {1, M, 1, 1}, v.dtype());
    }
    const std::vector<int32_t> n = sample_lengths(mask.lengths, all);
    const Variable sums = sum_of_parts(sum(v, {1}, true), pass.join);
    return broadcast_to(sums * inverse(n, {std::ssize(n), 1, 1, 1}, v.dtype()), inputs.q.shape());
  }

  // Returns 1 / n for each count n, and 0 for n = 0.
  static Variable inverse(const std::vector<int32_t>& counts, const Shape& shape, DType dtype) {
    Tensor out = Tensor::empty(shape, dtype);
    dispatch_float(dtype, [&]<class T>() {
      T* to = out.data<T>();
      for (const int32_t n : counts) *to++ = n ? T{1} / static_cast<T>(n) : T{0};
    });
    return Variable(out);
  }
};

}  // namespace

Spec mean_variant() {
  return make_spec<MeanOptions, Mean>(
      {.summary = "the mean of all values: uniform attention, a baseline",
       .paper = "-",
       .weights = [](const DefinitionInputs& in) {
         return definitions::mean(in.visible, in.q.dtype());
       }});
}

}  // namespace longhand::attention
