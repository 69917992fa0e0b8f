// Exact softmax attention. Vaswani et al. 2017 (arXiv 1706.03762), eq. 1:
//
//   O = softmax(τ Q Kᵀ + B) V,  τ = 1 / sqrt(D)
//
// With a sink, e^z is added to the normalisers of a head, as by one more key with score z and value
// 0: z is learned (gpt-oss; Xiao et al. 2023, arXiv 2309.17453), or 0 (softmax1; Miller 2023).
//
// Computed tile by tile in O(N) memory (softmax_attention.h), or as written, with the N x M
// probabilities: the reference for all other variants, and the path for masks that are N x M
// themselves.
#include <algorithm>
#include <cmath>
#include <optional>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/ring_attention.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct SoftmaxOptions {
  std::string impl = "tiled", bias = "none", sink = "none";
  double scale = 0, dropout = 0;
  int64_t window = 0;

  void describe(OptionVisitor& v) {
    v.choice(
        "impl", impl, {"tiled", "naive"},
        "how it is computed: tile by tile in O(N) memory, or with the N x M probabilities stored");
    v.number("scale", scale, {0}, "scale factor of the scores; 0: 1/sqrt(D)");
    v.integer("window", window, {0},
              "with w > 0, queries attend to keys with |i - j| < w; 0: to all keys");
    v.choice("bias", bias, {"none", "alibi"},
             "alibi: -2^(-8 (h + 1) / H) |i - j| is added to the scores of head h");
    v.choice("sink", sink, {"none", "one", "learned"},
             "one: 1 is added to normalisers; learned: e^z, z learned per head and initially 0");
    describe_dropout(v, dropout);
  }

  Capabilities capabilities() const {
    const bool positional = window > 0 || bias == "alibi";
    return {.exact = scale == 0 && !positional && sink == "none",
            .averages = sink == "none",
            .positional = positional,
            .any_mask = true,
            .causal = true,
            .decodes = true,
            .cross_lengths = !positional,
            .needs = impl == "tiled" ? Needs::key_blocks : Needs::heads,
            .time = "N M D",
            .memory = impl == "tiled" ? "N" : "N M"};
  }
};

class Softmax final : public Variant {
 public:
  Softmax(const nn::Scope& scope_, const Config& config, const SoftmaxOptions& options)
      : Variant(scope_, config),
        tiled_(options.impl == "tiled"),
        scale_(options.scale != 0 ? options.scale : config.softmax_scale()),
        window_(options.window),
        dropout_(options.dropout) {
    if (options.bias == "alibi")
      for (int64_t h = 0; h < config.heads; ++h)
        slopes_.push_back(
            std::exp2(-8 * static_cast<double>(h + 1) / static_cast<double>(config.heads)));
    if (options.sink == "learned")
      sink_ = learned_sink_.emplace(scope("sink"), Shape{config.heads}, nn::init::zeros());
    else if (options.sink == "one")
      sink_ = Variable(Tensor::zeros({config.heads}, parameter_dtype()));
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(
        batch, config(),
        {.scale = scale_,
         .window = window_,
         .slopes = slopes_,
         .sinks = sink_.defined() ? sink_.value().to_vector<double>() : std::vector<double>()});
  }

  // Counts Q Kᵀ and P V; in the backward pass dV, dP, dQ and dK and, if tiled, Q Kᵀ and the
  // exponentials again, which is cheaper than storing them.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    if (!tiled_) return H * Work{{4 * N * M * D, N * M}, {8 * N * M * D}, 8 * N * M};
    double seen = M;  // keys of a query, on average
    if (window_) seen = std::min(seen, 2 * static_cast<double>(window_) - 1);
    if (config().causal) seen /= 2;
    return H * softmax_work(N * seen, D, 4 * N);
  }

 protected:
  bool takes_all(const Mask& mask) const override {
    return tiled_ && !mask.keep.defined() && !mask.bias.defined();
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t N = q.size(1), M = k.size(1);
    const DropoutOptions drop = weight_dropout(dropout_, pass);
    std::vector<double> slopes = slopes_;
    if (pass.heads.of && !slopes_.empty())
      slopes.assign(slopes_.begin() + pass.heads.first,
                    slopes_.begin() + pass.heads.first + q.size(2));
    const Variable sink_score = heads_of_pass(sink_, 0, q.size(2), pass);
    if (takes_all(mask)) {
      const SoftmaxAttentionOptions options{.scale = scale_,
                                            .causal = config().causal,
                                            .window = window_,
                                            .key_lengths = mask.lengths,
                                            .query_lengths = mask.lengths,
                                            .slopes = slopes,
                                            .sink = sink_score,
                                            .dropout = drop};
      return pass.join ? ring_attention(q, k, v, options, pass.join)
                       : softmax_attention(q, k, v, options);
    }
    const Variable keys = permute(k, {0, 2, 3, 1});                    // (B, H, D, M)
    Variable scores = matmul(permute(q, {0, 2, 1, 3}), keys, scale_);  // (B, H, N, M)
    if (!slopes.empty()) scores = scores + Variable(distances(slopes, N, q.dtype()));
    if (mask.bias.defined()) scores = scores + mask.bias;
    const Tensor seen = definitions::visible(
        N, M, {.causal = config().causal, .lengths = mask.lengths, .window = window_ - 1});
    scores = masked_scores(seen, scores);
    if (mask.keep.defined()) scores = masked_scores(mask.keep, scores);
    if (sink_score.defined())
      scores = concat({scores, broadcast_to(reshape(sink_score, {1, q.size(2), 1, 1}),
                                            {q.size(0), q.size(2), N, 1})},
                      3);
    Variable weights = softmax(scores);
    if (sink_score.defined()) weights = slice(weights, 3, 0, M);
    weights = dropped(weights, drop);
    return permute(matmul(weights, permute(v, {0, 2, 1, 3})), {0, 2, 1, 3});
  }

  // Returns -slope |i - j|, (H, N, N).
  static Tensor distances(const std::vector<double>& slopes, int64_t n, DType dtype) {
    Tensor bias = Tensor::empty({static_cast<int64_t>(slopes.size()), n, n}, dtype);
    if (is_dry()) return bias;
    dispatch_float(dtype, [&]<class T>() {
      T* out = bias.data<T>();
      for (const double slope : slopes)
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j)
            *out++ = static_cast<T>(-slope * static_cast<double>(std::abs(i - j)));
    });
    return bias;
  }

  bool tiled_;
  double scale_;
  int64_t window_;
  std::vector<double> slopes_;
  double dropout_;
  std::optional<nn::Parameter> learned_sink_;
  Variable sink_;  // z (H): learned_sink_, or 0; undefined: none
};

using namespace conformance;

void softmax_tiled(Findings& f) {
  const Sample x = sample({2, 203, H, D}, DType::f64, 1, 1);  // more than a tile
  for (const bool causal : {false, true})
    for (OptionSet options :
         {OptionSet{}, OptionSet{{"window", 60}, {"bias", "alibi"}, {"scale", 0.3}}}) {
      const auto tiled = make_variant("softmax", options, made(causal));
      options.emplace_back("impl", "naive");
      equal(f, "tiled and naive", *tiled, *make_variant("softmax", options, made(causal)), 1e-12, x,
            lengths({203, 98}));
    }
}

void softmax_sink(Findings& f) {
  const Sample x = sample({2, 203, H, D}, DType::f64, 1, 1);
  const auto lone = [&](double s, bool causal, OptionSet options = {}) {
    options.emplace_back("sink", "learned");
    auto out = make_variant("softmax", options, made(causal));
    set(*out, {{"sink", Tensor::full({H}, s, DType::f64)}});
    return out;
  };
  for (const bool causal : {false, true}) {
    equal(f, "a sink of -1000 and none", *lone(-1000, causal),
          *make_variant("softmax", {}, made(causal)), 1e-12, x);
    equal(f, "tiled and naive", *lone(1.5, causal), *lone(1.5, causal, {{"impl", "naive"}}), 1e-12,
          x, lengths({203, 98}));
  }
  // A key of 0 has the score 0 for every query.
  const auto with_zero = [](const Tensor& t) {
    return concat({Variable(t), Variable(Tensor::zeros({2, 1, H, D}, t.dtype()))}, 1).value();
  };
  equal(f, "sink = one, and one more key and value of 0",
        forward(*make_variant("softmax", {{"sink", "one"}}, made()), x),
        forward(*make_variant("softmax", {}, made()), x.q, with_zero(x.k), with_zero(x.v)), 1e-12);
}

}  // namespace

Spec softmax_variant() {
  return make_spec<SoftmaxOptions, Softmax>(
      {.summary = "softmax(Q K^T / sqrt(D)) V",
       .paper = "Vaswani et al. 2017, arXiv 1706.03762",
       .cases = {{},
                 {{"impl", "naive"}, {"dropout", 0.3}},
                 {{"window", 5}, {"bias", "alibi"}, {"scale", 0.3}, {"dropout", 0.3}},
                 {{"impl", "naive"}, {"window", 5}, {"bias", "alibi"}, {"scale", 0.3}},
                 {{"sink", "learned"}, {"dropout", 0.3}},
                 {{"sink", "one"}, {"impl", "naive"}, {"window", 5}}},
       .evidence = {{"tiled", "tiled and naive give the same results and gradients", softmax_tiled},
                    {"sink",
                     "a sink of -inf adds nothing, that of softmax1 is a key of 0; both "
                     "implementations agree",
                     softmax_sink}},
       .alibi = true});
}

}  // namespace longhand::attention
