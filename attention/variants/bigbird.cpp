// Sparse softmax attention over blocks of tokens: a window, global blocks and random blocks. Zaheer
// et al. 2020, "Big Bird" (arXiv 2007.14062), section 2 and appendix D, with the internal global
// tokens of its ITC form. With n blocks of `block` tokens, a query of block a attends to the keys
// of block b if
//
//   |a - b| <= window                                  neighbours
//   a or b is among the first g or the last e blocks   global blocks
//   b is one of r blocks drawn for a among the others  random blocks, for each head
//
// Causal: b <= a, random blocks among earlier ones, j <= i, and e = 0, as the last block is not yet
// known.
//
// Random blocks depend on a generator state kept in checkpoints, on the head, on a and, unless
// causal, on n, so that a causal pattern of a shorter sequence is the start of that of a longer
// one. Every sample has the pattern of its own length: padding changes nothing. Blocks that are not
// attended to are skipped (softmax_attention.h).
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct BigbirdOptions {
  int64_t block = 64, window = 1, global_blocks = 1, last_blocks = 0, random_blocks = 3;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("block", block, {2, 1 << 24}, "tokens of a block, an even number");
    v.require(block % 2 == 0, "block", "expected an even number");
    v.integer("window", window, {0, 1 << 24},
              "number of blocks on each side of its own that a query attends to");
    v.integer("global_blocks", global_blocks, {0, 1 << 24},
              "number of blocks at the start that attend to all blocks and are attended to by all");
    v.integer("last_blocks", last_blocks, {0, 1 << 24},
              "number of blocks at the end that do so too; causal: 0");
    v.integer("random_blocks", random_blocks, {0, 1 << 24},
              "number of other blocks, drawn at random, that the queries of a block attend to");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {
        .random = true,
        .positional = true,
        .causal = last_blocks == 0,
        .causal_reason = last_blocks == 0 ? "" : "which block is the last depends on the future",
        .decodes = last_blocks == 0,
        .cross_lengths = false,
        .needs = Needs::heads,
        .time = "N b D",
        .memory = "N",
        .state = "random_state"};
  }
};

class Bigbird final : public Variant {
 public:
  Bigbird(const nn::Scope& scope_, const Config& config, const BigbirdOptions& options)
      : Variant(scope_, config),
        options_(options),
        random_state_(scope("random_state"), state_tensor(init_random().fork("pattern"))) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const Generator random = generator_of(random_state_.value());
    return make_cache_decoder(
        batch, config(),
        {.scale = config().softmax_scale(),
         .parts = [this, random](int64_t head, int64_t query, KeyRuns& parts) {
           ShortVector<int32_t> blocks;
           const int64_t block = query / options_.block;
           append_row(random.fork(static_cast<uint64_t>(head)), block, block + 1, blocks);
           for (const int32_t b : blocks)
             parts.emplace_back(b * options_.block, std::min((b + 1) * options_.block, query + 1));
         }});
  }

  // Counts the pairs of a query and a key in the pattern.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const BlockPattern p = pattern({queries}, queries, 0, config().heads);
    const int64_t rows = blocks_of(queries);
    double pairs = 0;
    const auto tokens = [&](int64_t block) {
      return static_cast<double>(std::min(options_.block, queries - block * options_.block));
    };
    for (int64_t r = 0; r < p.heads * rows; ++r)
      for (int64_t at = p.begin[r]; at < p.begin[r + 1]; ++at) {
        const double n = tokens(r % rows);
        pairs +=
            config().causal && p.keys[at] == r % rows ? n * (n + 1) / 2 : n * tokens(p.keys[at]);
      }
    pairs *= static_cast<double>(config().heads / p.heads);
    return softmax_work(pairs, D, 4 * N * H);
  }
  std::string algorithm(int64_t tokens) const override {
    if (!attends_to_all(tokens)) return {};
    return concat_message("softmax: the ", blocks_of(tokens), " blocks of ", tokens,
                          " tokens all attend to each other");
  }
  std::string advice(int64_t tokens) const override {
    if (!attends_to_all(tokens)) return {};
    return concat_message("with attention.block = ", options_.block, " all of at most ",
                          blocks_of(tokens),
                          " blocks attend to each other, as in softmax attention; "
                          "reduce it, or the numbers of blocks");
  }

 protected:
  bool takes_all(const Mask&) const override { return true; }

 private:
  int64_t blocks_of(int64_t tokens) const { return (tokens + options_.block - 1) / options_.block; }

  // Appends the key blocks of block a of n in increasing order. `random` belongs to the head.
  void append_row(const Generator& random, int64_t a, int64_t n, auto& to) const {
    const bool causal = config().causal;
    const int64_t g = options_.global_blocks, last = std::max<int64_t>(0, n - options_.last_blocks);
    const auto append = [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) to.push_back(static_cast<int32_t>(b));
    };
    if (a < g || a >= last) {
      append(0, causal ? a + 1 : n);
      return;
    }
    // Neighbours [low, high); the others lie before and after them: [g, low) and [high, last).
    const int64_t low = std::max(g, a - options_.window),
                  high = causal ? a + 1 : std::min(last, a + options_.window + 1);
    const int64_t before = low - g, others = before + (causal ? 0 : last - high);
    ShortVector<int64_t> drawn;
    // Floyd's algorithm: every set of r out of the others is equally probable.
    RandomStream stream(random.fork(static_cast<uint64_t>(a)));
    for (int64_t top = std::max<int64_t>(0, others - options_.random_blocks); top < others; ++top) {
      const int64_t x = static_cast<int64_t>(stream.below(static_cast<uint64_t>(top) + 1));
      drawn.push_back(std::find(drawn.begin(), drawn.end(), x) == drawn.end() ? x : top);
    }
    std::sort(drawn.begin(), drawn.end());
    const auto append_drawn = [&](int64_t begin, int64_t end, int64_t first) {
      for (const int64_t x : drawn)
        if (x >= begin && x < end) to.push_back(static_cast<int32_t>(first + x - begin));
    };
    append(0, g);
    append_drawn(0, before, g);
    append(low, high);
    append_drawn(before, others, high);
    append(last, n);
  }

  // The pattern of some heads for samples of these lengths, padded to N; one for all if causal.
  BlockPattern pattern(std::vector<int64_t> lengths, int64_t N, int64_t first_head,
                       int64_t heads) const {
    if (config().causal || std::all_of(lengths.begin(), lengths.end(),
                                       [&](int64_t n) { return blocks_of(n) == blocks_of(N); }))
      lengths = {N};
    BlockPattern out{.block = options_.block,
                     .samples = static_cast<int64_t>(lengths.size()),
                     .heads = options_.random_blocks > 0 ? heads : 1};
    const Generator random = generator_of(random_state_.value());
    for (const int64_t length : lengths)
      for (int64_t h = 0; h < out.heads; ++h) {
        const Generator of_head = random.fork(static_cast<uint64_t>(first_head + h));
        for (int64_t a = 0; a < blocks_of(N); ++a) {
          if (a < blocks_of(length)) append_row(of_head, a, blocks_of(length), out.keys);
          out.end_row();
        }
      }
    return out;
  }

  bool attends_to_all(int64_t tokens) const {
    const BlockPattern p = pattern({tokens}, tokens, 0, config().heads);
    const int64_t n = blocks_of(tokens);
    return static_cast<int64_t>(p.keys.size()) ==
           p.heads * (config().causal ? n * (n + 1) / 2 : n * n);
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t N = inputs.q.size(1);
    const std::vector<int32_t> lengths = sample_lengths(mask.lengths, N);
    const DropoutOptions drop = weight_dropout(options_.dropout, pass);
    return softmax_attention(
        inputs.q, inputs.k, inputs.v,
        {.causal = config().causal,
         .key_lengths = mask.lengths,
         .query_lengths = mask.lengths,
         .pattern = std::make_shared<const BlockPattern>(
             pattern({lengths.begin(), lengths.end()}, N, pass.heads.first, inputs.q.size(2))),
         .dropout = drop});
  }

  BigbirdOptions options_;
  nn::Buffer random_state_;  // (2) i64, generator state
};

using namespace conformance;

void bigbird_limits(Findings& f) {
  for (const bool causal : {false, true})
    for (const auto& [what, option] :
         {std::pair("global", "global_blocks"), std::pair("neighbouring", "window"),
          std::pair("random", "random_blocks")}) {
      OptionSet options{{"block", 4}, {"window", 0}, {"global_blocks", 0}, {"random_blocks", 0}};
      options.emplace_back(option, N);  // in place of 0
      equal(f, concat_message("all blocks ", what, causal ? ", causal" : "", " and softmax"),
            *make_variant("bigbird", options, made(causal)),
            *make_variant("softmax", {}, made(causal)), 1e-12);
    }
}

// With unit vectors as values, results are the weights of all heads, equal where a query attends.
void bigbird_draws(Findings& f) {
  constexpr int64_t N = 24, block = 2, blocks = N / block, heads = 1000, drawn = 3;
  const Tensor zero = Tensor::zeros({1, N, heads, N}, DType::f64);
  Tensor v = zero.clone();
  for (int64_t j = 0; j < N; ++j) v.select(1, j).select(2, j).fill(1);
  for (const bool causal : {false, true}) {
    const int64_t last = causal ? 0 : 1;
    const auto variant =
        make_variant("bigbird", {{"block", block}, {"random_blocks", drawn}, {"last_blocks", last}},
                     {.heads = heads, .dim = N, .max_length = N, .causal = causal});
    const Row w = forward(*variant, zero, zero, v).to_vector<double>();
    double worst = 0;
    for (int64_t a = 1; a < blocks - last; ++a) {
      Row times(blocks, 0.0);
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t b = 0; b < blocks; ++b)
          times[b] += w[((a * block + 1) * heads + h) * N + b * block] > 0;
      double others = 0;
      const auto fixed = [&](int64_t b) {
        return std::abs(a - b) <= 1 || b == 0 || (!causal && b == blocks - 1);
      };
      for (int64_t b = 0; b < (causal ? a : blocks); ++b) others += !fixed(b);
      const double p = others > 0 ? std::min(1.0, drawn / others) : 0;
      for (int64_t b = 0; b < blocks; ++b) {
        if (causal && b > a) {
          f.expect(times[b] == 0, "block ", a, " attends to the later block ", b);
        } else if (fixed(b) || p == 1) {
          f.expect(times[b] == heads, "block ", a, " does not attend to block ", b);
        } else {
          const double deviation = (times[b] - heads * p) / std::sqrt(heads * p * (1 - p));
          worst = std::max(worst, std::abs(deviation));
          f.expect(std::abs(deviation) <= 4.5, "block ", a, " drew block ", b, " ", times[b],
                   " times of ", heads, ", expected ", heads * p);
        }
      }
      const double all = std::accumulate(times.begin(), times.end(), 0.0);
      double always = 0;
      for (int64_t b = 0; b < (causal ? a + 1 : blocks); ++b) always += fixed(b);
      f.expect(all == heads * (always + std::min<double>(drawn, others)), "block ", a,
               " attends to ", all / heads, " blocks on average");
    }
    f.measured(causal ? "causal, " : "", "frequencies within ", worst, " standard deviations");
  }
}

}  // namespace

Spec bigbird_variant() {
  return make_spec<BigbirdOptions, Bigbird>(
      {.summary = "softmax attention to neighbouring, global and random blocks of tokens",
       .paper = "Zaheer et al. 2020, arXiv 2007.14062",
       .cases = {{{"block", 2}, {"random_blocks", 1}},
                 {{"block", 2},
                  {"window", 0},
                  {"global_blocks", 0},
                  {"random_blocks", 2},
                  {"dropout", 0.3}},
                 {{"block", 4}, {"window", 1}, {"random_blocks", 0}, {"last_blocks", 1}}},
       .evidence = {
           {"limits", "with enough global, neighbouring or random blocks it is softmax attention",
            bigbird_limits},
           {"random-blocks", "every other block is drawn equally often", bigbird_draws}}});
}

}  // namespace longhand::attention
