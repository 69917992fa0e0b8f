// Synthesizer: attention weights without dot products of queries and keys. Tay et al. 2020 (arXiv
// 2005.00743), 3.1 and 3.2; for each head, with L = max_length,
//
//   O = softmax(S) V,   dense:  S_i = W max(P x_i + c, 0) + b,  W (L, r) learned
//                       random: S = R, R (L, L) learned
//
// over the real keys of each sample (causal: j <= i). Dense scores are computed from the token x_i
// alone; random ones depend on positions only. Shorter sequences use the first rows and columns.
// The random control has an R that is not trained, and lowrank one of rank r.
//
// Dense scores are inner products with the rows of W and a bias of keys, so they are computed as
// softmax attention, tile by tile (softmax_attention.h): hidden layers, W and values are padded
// with zeros to the same width.
#include <algorithm>
#include <optional>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {
namespace {

struct SynthesizerOptions {
  std::string kind = "dense";
  int64_t hidden = 32;
  double dropout = 0;

  static SynthesizerOptions defaults(const Config& config) { return {.hidden = config.head_dim}; }

  void describe(OptionVisitor& v) {
    v.choice("kind", kind, {"dense", "random"},
             "scores computed from each query's token, or learned scores of positions");
    v.when(kind == "dense", "kind = \"dense\"", [&] {
      v.integer("hidden", hidden, {1, 1 << 20}, "hidden width r of each head",
                "the width of a head");
    });
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    const bool dense = kind == "dense";
    return {.positional = true,
            .causal = true,
            .decodes = true,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .fixed_length = true,
            .uses_x = dense,
            .needs = Needs::heads,
            .time = dense ? "N^2 max(r, D)" : "N^2 D",
            .memory = dense ? "N" : "N^2"};
  }
};

class Synthesizer final : public Variant {
 public:
  Synthesizer(const nn::Scope& scope_, const Config& config, const SynthesizerOptions& options)
      : Variant(scope_, config), hidden_(options.hidden), dropout_(options.dropout) {
    const int64_t H = config.heads, L = config.max_length;
    if (options.kind == "random") {
      scores_.emplace(scope("scores"), Shape{H, L, L}, nn::init::normal(1));
      return;
    }
    first_.emplace(scope("hidden"), H * config.head_dim, H * hidden_);
    weight_.emplace(scope("weight"), Shape{H, L, hidden_}, nn::init::xavier_uniform());
    bias_.emplace(scope("bias"), Shape{H, L}, nn::init::zeros());
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<ValueDecoder>(*this, batch);
  }
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    if (scores_) return H * Work{{2 * N * M * D, N * M}, {4 * N * M * D}, 2 * N * M * bytes};
    const double r = static_cast<double>(hidden_), wide = std::max(r, D),
                 seen = config().causal ? M / 2 : M, projection = 2 * N * H * D * r;
    return H * (softmax_work(N * seen, wide, N * (wide + 3) * bytes) +
                Work{{projection}, {2 * projection}});
  }

 private:
  // Keeps all values, and computes the weights of each token anew.
  class ValueDecoder final : public Decoder {
   public:
    ValueDecoder(const Synthesizer& variant, int64_t batch)
        : variant_(variant), cache_(batch, variant.config().kv_heads, variant.config().head_dim) {}
    void append(const Token& token) override {
      const int64_t most = variant_.config().max_length;
      check<ShapeError>(cache_.size() < most, "synthesizer: expected at most max_length = ", most,
                        " tokens to decode");
      cache_.put(cache_.size(), {}, token.v);
    }
    Tensor step(const Token& token) override {
      const NoGrad no_grad;
      append(token);
      const int64_t i = cache_.size() - 1;
      const Variable x = token.x.defined() ? Variable(token.x.unsqueeze(1)) : Variable();
      const Variable p = softmax(variant_.scores(x, i, i + 1, i + 1));  // (B or 1, H, 1, t)
      const int64_t B = token.v.size(0), G = token.v.size(1), H = variant_.config().heads,
                    D = token.v.size(2);
      const Variable weights = reshape(broadcast_to(p, {B, H, 1, i + 1}), {B, G, H / G, i + 1});
      const Variable values(cache_.values().slice(2, 0, i + 1));  // (B, G, t, D)
      return matmul(weights, values).value().contiguous().reshape({B, H, D});
    }
    int64_t bytes() const override { return cache_.bytes(); }
    int64_t bytes_after(int64_t tokens) const override {
      return cache_.capacity_after(tokens) * cache_.token_bytes();
    }
    Traffic traffic() const override { return {.read = cache_.size() * cache_.token_bytes()}; }

   private:
    const Synthesizer& variant_;
    KeyValueCache cache_;  // of values alone
  };

  // max(P x + c, 0) of tokens x (B, n, H D): (B, n, H, r).
  Variable gates(const Variable& x) const override {
    return relu(reshape(first_->forward(x), {x.size(0), x.size(1), config().heads, hidden_}));
  }
  // The scores (B, H, n, keys) of n queries from `begin` on, with tokens x (B, n, H D); of
  // positions (1, H, n, keys).
  Variable scores(const Variable& x, int64_t begin, int64_t end, int64_t keys) const {
    if (scores_) return unsqueeze(slice(slice(*scores_, 1, begin, end), 2, 0, keys), 0);
    const Variable W = slice(*weight_, 1, 0, keys);  // (H, keys, r)
    const Variable b = unsqueeze(slice(*bias_, 1, 0, keys), 1);
    return matmul(transpose(gates(x), 1, 2), transpose(W, 1, 2)) + b;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = inputs.q.size(0), N = inputs.q.size(1), H = inputs.q.size(2);
    check_length(N);
    const DropoutOptions drop = weight_dropout(dropout_, pass);
    if (!scores_) return dense(inputs, mask, pass, drop);
    const Variable s = heads_of_pass(scores({}, 0, N, N), 1, H, pass);
    Variable p = softmax(masked_scores(s, config().causal, mask.lengths));
    if (drop.p > 0) p = dropout(broadcast_to(p, {B, H, N, N}), drop);
    return transpose(matmul(p, transpose(inputs.v, 1, 2)), 1, 2);
  }

  Variable dense(const Inputs& inputs, const Mask& mask, const nn::Pass& pass,
                 const DropoutOptions& drop) const {
    const int64_t B = inputs.v.size(0), N = inputs.v.size(1), H = inputs.v.size(2),
                  D = inputs.v.size(3), width = std::max(hidden_, D);
    const auto rows = [&](const Variable& x) {  // of the heads of inputs, (N, H, …)
      return transpose(slice(heads_of_pass(x, 0, H, pass), 1, 0, N), 0, 1);
    };
    const Variable W = rows(*weight_), b = rows(*bias_);  // (N, H, r), (N, H)
    const Variable out = softmax_attention(filled_up(inputs.x, width),
                                           broadcast_to(filled_up(W, width), {B, N, H, width}),
                                           filled_up(inputs.v, width),
                                           {.scale = 1,
                                            .causal = config().causal,
                                            .key_lengths = mask.lengths,
                                            .query_lengths = mask.lengths,
                                            .key_bias = broadcast_to(b, {B, N, H}),
                                            .dropout = drop});
    return slice(out, 3, 0, D);
  }
  // Pads x (…, n) with zeros to `width` columns.
  static Variable filled_up(const Variable& x, int64_t width) {
    Shape rest = x.shape();
    rest[rest.rank() - 1] = width - x.size(-1);
    return rest[rest.rank() - 1] == 0 ? x
                                      : concat({x, Variable(Tensor::zeros(rest, x.dtype()))}, -1);
  }

  int64_t hidden_;
  double dropout_;
  std::optional<nn::Parameter> scores_;         // (H, L, L)
  std::optional<nn::Linear> first_;             // P and c of all heads
  std::optional<nn::Parameter> weight_, bias_;  // (H, L, r) and (H, L)
};

using namespace conformance;

void synthesizer_limits(Findings& f) {
  const Shape square{H, N, N};
  for (const bool causal : {false, true}) {
    const auto random = make_variant("synthesizer", {{"kind", "random"}}, made(causal));
    set(*random, {{"scores", Tensor::zeros(square, DType::f64)}});
    equal(f, "scores of 0 and mean", *random, *make_variant("mean", {}, made(causal)), 1e-13);
    const auto dense = make_variant("synthesizer", {{"hidden", 3}}, made(causal));
    const Tensor bias = normal({H, N}, 5);
    set(*dense, {{"weight", Tensor::zeros({H, N, 3}, DType::f64)}, {"bias", bias}});
    set(*random, {{"scores", bias.unsqueeze(1).expand(square).contiguous()}});
    equal(f, "W = 0 and rows b", *dense, *random, 1e-13);
    const auto lowrank = make_variant("lowrank", {{"rank", 3}, {"softmax", true}}, made(causal));
    const auto state = lowrank->state_dict();
    set(*random,
        {{"scores", matmul(Variable(state.at("u")), transpose(Variable(state.at("v")), 1, 2))
                        .value()
                        .contiguous()}});
    equal(f, "R = U Vᵀ and lowrank", *random, *lowrank, 1e-13);
  }
}

}  // namespace

Spec synthesizer_variant() {
  return make_spec<SynthesizerOptions, Synthesizer>(
      {.summary = "attention weights computed from each token alone, or learned for positions",
       .paper = "Tay et al. 2020, arXiv 2005.00743",
       .cases = {{}, {{"hidden", 3}, {"dropout", 0.3}}, {{"kind", "random"}, {"dropout", 0.3}}},
       .evidence = {{"limits",
                     "scores of 0 give the mean; W = 0 makes dense random; R of rank r is lowrank",
                     synthesizer_limits}}});
}

}  // namespace longhand::attention
