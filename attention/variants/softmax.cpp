// Exact softmax attention. Vaswani et al. 2017 (arXiv 1706.03762), eq. 1:
//
//   O = softmax(τ Q Kᵀ + B) V,  τ = 1 / sqrt(D)
//
// Tile by tile in memory O(N) (softmax_attention.h), or as written, with the N x M probabilities: the
// oracle of all others, and the way for masks that are N x M themselves.
#include <cmath>

#include "longhand/attention/bases/dropout_option.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/dropout.h"

namespace longhand::attention {
namespace {

class Softmax final : public Variant {
 public:
  Softmax(const nn::Scope& scope_, const Config& config)
      : Variant(scope_, config),
        tiled_(config.options.get_choice("impl", "tiled", {"tiled", "naive"}) == "tiled"),
        scale_(config.options.get_double("scale", 0, 0)),
        window_(config.options.get_int("window", 0, 0)),
        dropout_(read_dropout(config)) {
    if (config.options.get_choice("bias", "none", {"none", "alibi"}) == "alibi")
      for (int64_t h = 0; h < config.heads; ++h)
        slopes_.push_back(
            std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(config.heads)));
    if (scale_ != 0) mutable_traits().exact = false;
    if (window_ || !slopes_.empty()) {
      mutable_traits().exact = false;
      mutable_traits().positional = true;
      mutable_traits().cross_lengths = false;
    }
    if (!tiled_) mutable_traits().memory = std::string("N M");
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(config.head_dim));
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(),
                              {.scale = scale_, .window = window_, .slopes = slopes_});
  }

  Cost cost(int64_t queries, int64_t keys) const override {
    const double heads = static_cast<double>(config().heads), N = static_cast<double>(queries),
                 M = static_cast<double>(keys);
    double seen = M;  // keys of a query, on average
    if (window_) seen = std::min(seen, 2 * static_cast<double>(window_) - 1);
    if (config().causal) seen /= 2;
    if (!tiled_)
      return {4 * heads * N * M * static_cast<double>(config().head_dim), 2 * 4 * heads * N * M};
    return {4 * heads * N * seen * static_cast<double>(config().head_dim), 4 * heads * N};
  }

 protected:
  bool takes_all(const Mask& mask) const override {
    return tiled_ && !mask.keep.defined() && !mask.bias.defined();
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                  const nn::Pass& pass) override {
    const int64_t N = q.size(1), M = k.size(1);
    check<ShapeError>(N == M || traits().cross_lengths,
                      "softmax: a window or ALiBi compares positions, but there are ", N,
                      " queries and ", M, " keys");
    const auto [p, random] = nn::dropout_options(dropout_, pass, full_name());
    if (takes_all(mask))
      return softmax_attention(q, k, v,
                               {.scale = scale_,
                                .causal = config().causal,
                                .window = window_,
                                .key_lengths = mask.lengths,
                                .query_lengths = mask.lengths,
                                .slopes = slopes_,
                                .dropout = p,
                                .generator = random});
    const Variable keys = permute(k, {0, 2, 3, 1});                    // (B, H, D, M)
    Variable scores = matmul(permute(q, {0, 2, 1, 3}), keys, scale_);  // (B, H, N, M)
    if (!slopes_.empty()) scores = scores + Variable(distances(N, q.dtype()));
    if (mask.bias.defined()) scores = scores + mask.bias;
    scores = masked_scores(visible(mask.lengths, q.size(0), N, M), scores);
    if (mask.keep.defined()) scores = masked_scores(mask.keep, scores);
    Variable weights = softmax(scores);
    if (p > 0) {
      const ProbabilityDropout dropout(p, random);
      weights = where(dropout.kept(weights.shape()), weights, 0.0) * dropout.scale();
    }
    return permute(matmul(weights, permute(v, {0, 2, 1, 3})), {0, 2, 1, 3});
  }

  // (H, N, N): -slope |i - j|.
  Tensor distances(int64_t n, DType dtype) const {
    Tensor bias = Tensor::empty({config().heads, n, n}, dtype);
    dispatch_float(dtype, [&]<class T>() {
      T* out = bias.data<T>();
      for (const double slope : slopes_)
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j)
            *out++ = static_cast<T>(-slope * static_cast<double>(std::abs(i - j)));
    });
    return bias;
  }

  // (B or 1, 1, N, M) u8: what length, window and causality leave.
  Tensor visible(const Tensor& lengths, int64_t batch, int64_t n, int64_t m) const {
    std::vector<int32_t> ends(1, static_cast<int32_t>(m));
    if (lengths.defined()) ends = lengths.to_vector<int32_t>();
    Tensor keep = Tensor::empty({lengths.defined() ? batch : 1, 1, n, m}, DType::u8);
    uint8_t* out = keep.data<uint8_t>();
    for (const int32_t end : ends)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j)
          *out++ =
              j < end && (!config().causal || j <= i) && (!window_ || std::abs(i - j) < window_);
    return keep;
  }

  bool tiled_;
  double scale_;
  int64_t window_;
  std::vector<double> slopes_;
  double dropout_;
};

}  // namespace

Registration softmax_variant() {
  return {{.summary = "softmax(Q K^T / sqrt(D)) V",
           .exact = true,
           .any_mask = true,
           .causal = true,
           .decodes = true,
           .time = "N M D",
           .memory = "N",
           .state = "-",
           .paper = "Vaswani et al. 2017, arXiv 1706.03762"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Softmax>(scope, config);
          },
          {{},
           {{"impl", "naive"}, {"dropout", 0.3}},
           {{"window", 5}, {"bias", "alibi"}, {"scale", 0.3}, {"dropout", 0.3}},
           {{"impl", "naive"}, {"window", 5}, {"bias", "alibi"}, {"scale", 0.3}}}};
}

}  // namespace longhand::attention
