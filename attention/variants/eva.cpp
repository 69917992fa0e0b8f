// EVA: exact attention to a block of tokens, and control variates for the rest. Zheng et al. 2023
// (arXiv 2302.04542), section 4. The tokens outside of the block of query i are grouped into chunks
// of c tokens, each represented by one key and one value:
//
//   O_i = (Σ_(j in block) e^s_ij v_j + Σ_n e^(q_i·k̄_n / sqrt(D)) w_n β_n)
//         / (Σ_(j in block) e^s_ij + Σ_n e^(q_i·k̄_n / sqrt(D)) w_n),   s_ij = q_i·k_j / sqrt(D)
//   β_n = Σ_(j in chunk n) softmax_j(ω_n·y_j - |y_j|²/2) v_j,   y = D^(-1/4) k
//   ω_n ~ N(D^(-1/4) (q̄_n + k̄_n), I),   q̄_n and k̄_n the means of chunk n
//
// (eq. 16-18). Causally, a query sees the keys of its block up to its own, and the chunks of
// earlier blocks. The factor w_n is the number of tokens of a chunk, so that equal keys have the
// weights of softmax attention; w_n = 1 is the paper's. Training passes draw ω; others use its
// mean, so that nothing is random.
//
// Computed as softmax attention of tiles (softmax_attention.h), in O(N) memory: β_n are results of
// the queries ω_n, each with the keys of its chunk. The block and the chunks of a query are
// attended to one after the other, and joined by the logarithms l and l' of their normalisers:
//
//   O_i = g o_i + (1 - g) o'_i,  g = sigmoid(l_i - l'_i)
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/bases/half_square.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/block_decoder.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct EvaOptions {
  int64_t window = 64, chunk = 16;
  std::string chunk_weight = "tokens";
  bool sampled = true;

  void describe(OptionVisitor& v) {
    v.integer("window", window, {1, 1 << 24},
              "tokens of a block, which attend to each other exactly; a multiple of chunk");
    v.integer("chunk", chunk, {1, 1 << 24}, "tokens c that share one key and one value elsewhere");
    v.require(window % chunk == 0, "window",
              concat_message("expected a multiple of chunk = ", chunk));
    v.choice("chunk_weight", chunk_weight, {"tokens", "one"},
             "weight of a chunk: as many keys as it has tokens, or one key, as in the paper");
    v.boolean("sampled", sampled, "whether training passes draw ω; otherwise its mean is used");
  }
  Capabilities capabilities() const {
    return {.separate_queries = false,
            .positional = true,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N (w + N/c) D",
            .memory = "N + (N/w)^2"};
  }
};

class Eva final : public Variant {
 public:
  Eva(const nn::Scope& scope_, const Config& config, const EvaOptions& options)
      : Variant(scope_, config), options_(options), weighs_(options.chunk_weight == "tokens") {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_block_decoder(
        batch, config(),
        {.block = options_.window,
         .rows = options_.window / options_.chunk,
         .queries = true,
         .bias = weighs_ ? std::log(static_cast<double>(options_.chunk)) : 0,
         .of = [this](const Inputs& block) { return chunks_of_block(block); }});
  }
  std::string algorithm(int64_t tokens) const override {
    if (tokens > options_.window) return {};
    return concat_message("softmax: ", tokens, " tokens are one block");
  }
  Work work(int64_t queries, int64_t) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, queries);
    const double w = std::min(static_cast<double>(options_.window), N),
                 chunks = N > w ? N / static_cast<double>(options_.chunk) : 0,
                 scores = N * (w + chunks) * (config().causal ? 0.5 : 1);
    return H * (softmax_work(scores, D, 3 * N * D * bytes) + Work{{6 * N * D, N}, {12 * N * D}});
  }
  std::string advice(int64_t tokens) const override {
    if (options_.chunk > 1) return {};
    return concat_message("attention.chunk = 1 attends to each of ", tokens,
                          " tokens, as softmax attention does; use larger chunks");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t B = inputs.q.size(0), N = inputs.q.size(1), H = inputs.q.size(2);
    const SoftmaxAttentionOptions all{
        .causal = config().causal, .key_lengths = mask.lengths, .query_lengths = mask.lengths};
    if (N <= options_.window) return softmax_attention(inputs.q, inputs.k, inputs.v, all);
    SoftmaxAttentionOptions within = all;
    within.pattern = blocks(N, true);
    const auto [exact, sums] = softmax_attention_with_sums(inputs.q, inputs.k, inputs.v, within);

    const auto [keys, values] = chunks(inputs, mask.lengths, pass);
    SoftmaxAttentionOptions elsewhere{.key_lengths = filled_blocks(mask.lengths, options_.chunk),
                                      .query_lengths = mask.lengths,
                                      .pattern = blocks(N, false)};
    if (weighs_) {
      const Tensor weights = of_block_sizes(mask.lengths, N, options_.chunk, inputs.q.dtype(),
                                            [](double n) { return std::log(n); });
      elsewhere.key_bias = Variable(weights.squeeze(3).expand({B, keys.size(1), H}));
    }
    const auto [rest, rest_sums] = softmax_attention_with_sums(inputs.q, keys, values, elsewhere);

    // Padding has no sums, and a block with no chunk to attend to has g = sigmoid(∞) = 1.
    Variable difference = unsqueeze(transpose(sums - rest_sums, 1, 2), 3);  // (B, N, H, 1)
    if (mask.lengths.defined()) difference = where(real_tokens(mask.lengths, N), difference, 0.0);
    const Variable gate = sigmoid(difference);
    return gate * exact + (1 - gate) * rest;
  }

  // Each block attends to itself, or to the chunks of the others; causally, of earlier ones.
  std::shared_ptr<const BlockPattern> blocks(int64_t N, bool own) const {
    const int64_t w = options_.window, count = (N + w - 1) / w;
    BlockPattern out{.block = w, .key_block = own ? w : w / options_.chunk};
    for (int64_t b = 0; b < count; ++b) {
      for (int64_t other = 0; other < (config().causal ? b + 1 : count); ++other)
        if ((other == b) == own) out.keys.push_back(static_cast<int32_t>(other));
      out.end_row();
    }
    return std::make_shared<const BlockPattern>(std::move(out));
  }

  // The keys k̄ and values β of the chunks, (B, chunks, H, D).
  std::pair<Variable, Variable> chunks(const Inputs& inputs, const Tensor& lengths,
                                       const nn::Pass& pass) const {
    const int64_t c = options_.chunk;
    const Variable q_mean = block_means(inputs.q, lengths, c),
                   k_mean = block_means(inputs.k, lengths, c);
    const double scale = std::pow(static_cast<double>(k_mean.size(3)), -0.25);
    Variable W = affine(q_mean + k_mean, scale);
    if (pass.training && options_.sampled)
      W = W + Variable(training_noise(W.shape(), 2, W.dtype(), pass));
    std::shared_ptr<BlockPattern> own;  // a single chunk is a whole sequence
    if (const int64_t chunks = k_mean.size(1); chunks > 1) {
      own = std::make_shared<BlockPattern>(BlockPattern{.block = 1, .key_block = c});
      for (int64_t n = 0; n < chunks; ++n) own->add_row(n);
    }
    const Variable values = softmax_attention(
        W, inputs.k, inputs.v,
        {.scale = scale,
         .key_lengths = lengths,
         .query_lengths = filled_blocks(lengths, c),
         .pattern = own,
         .key_bias = squeeze(affine(half_square(inputs.k, 1), -scale * scale), 3)});
    return {k_mean, values};
  }

  // The same for a whole block of a decoder: each chunk is a sequence, so no pattern is stored.
  std::pair<Variable, Variable> chunks_of_block(const Inputs& block) const {
    const Shape& s = block.q.shape();
    const Shape joined{s[0], s[1] / options_.chunk, s[2], s[3]},
        apart{joined[0] * joined[1], options_.chunk, s[2], s[3]};
    const auto [keys, values] =
        chunks({reshape(block.q, apart), reshape(block.k, apart), reshape(block.v, apart)}, {}, {});
    return {reshape(keys, joined), reshape(values, joined)};
  }

  EvaOptions options_;
  bool weighs_;
};

using namespace conformance;

void eva_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    const auto softmax = make_variant("softmax", {}, made(causal));
    const auto eva = [&](int64_t window, int64_t chunk) {
      return make_variant("eva", {{"window", window}, {"chunk", chunk}}, made(causal));
    };
    const std::string suffix = causal ? ", causal" : "";
    equal(f, "a window of N and softmax" + suffix, *eva(N, 4), *softmax, 1e-12);
    equal(f, "chunks of one token and softmax" + suffix, *eva(4, 1), *softmax, 1e-12);
    Sample x;
    for (int64_t i = 1; i < N; ++i)
      copy_into(x.k.slice(1, i, i + 1), x.k.slice(1, 0, 1).contiguous());
    equal(f, "equal keys" + suffix, forward(*eva(8, 4), x), forward(*softmax, x), 1e-12);
  }
}

}  // namespace

Spec eva_variant() {
  return make_spec<EvaOptions, Eva>(
      {.summary =
           "softmax attention within blocks, and to a mean key and value of each other chunk",
       .paper = "Zheng et al. 2023, arXiv 2302.04542",
       .cases = {{{"window", 4}, {"chunk", 2}},
                 {{"window", 6}, {"chunk", 3}, {"chunk_weight", "one"}},
                 {{"window", 3}, {"chunk", 3}, {"sampled", false}}},
       .evidence = {{"limits",
                     "a window of N, or chunks of one token, give softmax; so do equal keys, of "
                     "which a chunk has the mean value",
                     eva_limits}}});
}

}  // namespace longhand::attention
