// Mixture of block attention. Lu et al. 2025 (arXiv 2502.13189), eq. 3-6. The tokens are split into
// blocks of b; with m_c the mean key of block c, and c_i the block of token i,
//
//   O_i = softmax(q_i·k_j / sqrt(D)) V over the keys j <= i of block c_i, and of the n - 1 blocks c < c_i with
//   the largest q_i·m_c
//
// Each head of each query selects its own blocks. Gradients treat the selection as a constant. With
// n b >= N it is causal softmax attention.
#include <algorithm>
#include <vector>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/highest.h"
#include "longhand/attention/ops/selected_blocks.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

struct MobaOptions {
  int64_t block = 64, blocks = 3;

  void describe(OptionVisitor& v) {
    v.integer("block", block, {1, 1 << 24}, "tokens b of a block");
    v.integer("blocks", blocks, {1, 1 << 24},
              "number n of blocks that a query attends to, including its own");
  }
  Capabilities capabilities() const {
    return {.positional = true,
            .causal = true,
            .causal_only = true,
            .decodes = true,
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N n b D",
            .memory = "N n"};
  }
};

// The keys and values of all tokens, and the means of the keys of whole blocks.
class MobaDecoder final : public Decoder {
 public:
  MobaDecoder(int64_t batch, const Config& config, const MobaOptions& options)
      : options_(options),
        heads_(config.heads),
        cache_(batch, config.kv_heads, config.head_dim),
        means_(batch, config.kv_heads, config.head_dim),
        attend_({.scale = config.softmax_scale()}) {}

  Tensor step(const Token& token) override {
    append(token);
    const int64_t b = options_.block, t = cache_.size(), own = (t - 1) / b;
    const int64_t most = std::min(options_.blocks - 1, own);
    Tensor lists;
    if (most > 0) {
      const NoGrad no_grad;
      const Variable means(means_.values().slice(2, 0, own).transpose(1, 2));
      lists = highest_keys(token.q.unsqueeze(1), for_all_heads(means, heads_).value(), most, {});
    }
    runs_.resize(static_cast<size_t>(token.q.size(0) * heads_));
    for (size_t r = 0; r < runs_.size(); ++r) {
      runs_[r].clear();
      for (int64_t n = 0; n < most; ++n) {
        const int64_t c = lists.data<int32_t>()[static_cast<int64_t>(r) * most + n];
        runs_[r].emplace_back(c * b, (c + 1) * b);
      }
      runs_[r].emplace_back(own * b, t);
    }
    return attend_(token.q, cache_, runs_);
  }

  void append(const Token& token) override {
    const NoGrad no_grad;
    const int64_t b = options_.block, t = cache_.size() + 1;
    cache_.put(t - 1, token.k, token.v);
    if (t % b == 0)
      means_.put(t / b - 1, {}, mean(Variable(cache_.keys().slice(2, t - b, t)), {2}).value());
  }
  int64_t bytes() const override { return bytes_after(cache_.size()); }
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t blocks = tokens / options_.block;
    return cache_.capacity_after(tokens) * cache_.token_bytes() +
           (blocks ? means_.capacity_after(blocks) * cache_.token_bytes() / 2 : 0);
  }
  Traffic traffic() const override {
    int64_t keys = 0;  // of all heads
    for (const KeyRuns& runs : runs_)
      for (const auto& [begin, end] : runs) keys += end - begin;
    return {.read = (keys / static_cast<int64_t>(runs_.size()) + means_.size() / 2) *
                    cache_.token_bytes()};
  }

 private:
  MobaOptions options_;
  int64_t heads_;
  KeyValueCache cache_, means_;  // means_: as values
  CacheAttention attend_;
  std::vector<KeyRuns> runs_;  // of each head of each sequence
};

class Moba final : public Variant {
 public:
  Moba(const nn::Scope& scope_, const Config& config, const MobaOptions& options)
      : Variant(scope_, config), options_(options) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<MobaDecoder>(batch, config(), options_);
  }
  // Counts the keys of selected blocks, whose scores are recomputed, and unless these are all,
  // block means and their scores. In memory: queries and results of selected blocks, in two orders.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double b = static_cast<double>(options_.block), n = static_cast<double>(options_.blocks),
                 seen = N * std::min(M / 2, (n - 0.5) * b);
    const Work attention = softmax_work(seen, D, 2 * N * bytes);
    if (n * b >= N) return H * attention;
    return H * (attention + Work{{N * D + N * N / b * (2 * D + 1), 0},
                                 {},
                                 N * (n - 1) * (sizeof(int32_t) + 3 * D * bytes) + N * N / b});
  }
  std::string advice(int64_t tokens) const override {
    if (options_.block * options_.blocks < tokens) return {};
    return concat_message("attention.blocks = ", options_.blocks, " blocks of ", options_.block,
                          " tokens are all of at most ", tokens,
                          ", as for softmax attention; reduce attention.block or attention.blocks");
  }

 private:
  Variable attend(const Inputs& in, const Mask&, const nn::Pass&) override {
    const int64_t b = options_.block, B = in.q.size(0), N = in.q.size(1), H = in.q.size(2),
                  before = (N - 1) / b,  // blocks before the last one
        most = options_.blocks - 1;      // on a list
    const double scale = config().softmax_scale();
    if (options_.blocks * b >= N)
      return softmax_attention(in.q, in.k, in.v, {.scale = scale, .causal = true});
    Tensor lists = Tensor::empty({B, H, N, 0}, DType::i32);
    if (most > 0) {
      const NoGrad no_grad;
      const Variable means =
          mean(reshape(slice(in.k, 1, 0, before * b), {B, before, b, H, in.k.size(3)}), {2});
      lists = highest_keys(in.q.value(), means.value(), most, {.keep = earlier(N, before)});
    }
    return selected_blocks_attention(in.q, in.k, in.v, lists, b, scale);
  }

  // (N, blocks) u8, 1 where a block is before that of a query.
  Tensor earlier(int64_t tokens, int64_t blocks) const {
    Tensor keep = Tensor::empty({tokens, blocks}, DType::u8);
    if (is_dry()) return keep;
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t c = 0; c < blocks; ++c)
        keep.data<uint8_t>()[i * blocks + c] = c < i / options_.block;
    return keep;
  }

  MobaOptions options_;
};

using namespace conformance;

void moba_limits(Findings& f) {
  const auto softmax = make_variant("softmax", {}, made(true));
  const Sample x;
  equal(f, "all blocks, and softmax",
        *make_variant("moba", {{"block", 5}, {"blocks", 5}}, made(true)), *softmax, 1e-12);
  equal(f, "one block, and softmax",
        *make_variant("moba", {{"block", N}, {"blocks", 1}}, made(true)), *softmax, 1e-12);
  // The first n b queries attend to all earlier tokens.
  const auto first = [](const Tensor& t) { return t.slice(1, 0, 15); };
  equal(f, "queries of the first three blocks, and softmax",
        first(forward(*make_variant("moba", {{"block", 5}, {"blocks", 3}}, made(true)), x)),
        first(forward(*softmax, x)), 1e-12);
  // In the latter, more queries select a block than are computed together.
  for (const auto& [block, some] :
       {std::pair{int64_t{5}, x}, std::pair{int64_t{64}, sample({1, 250, H, D})}}) {
    const int64_t tokens = some.q.size(1);
    const Tensor seen = definitions::visible(tokens, tokens, {.causal = true});
    for (const int64_t n : {1, 2, 3})
      equal(
          f, concat_message(n, " blocks of ", block, ", and the definition"),
          forward(*make_variant("moba", {{"block", block}, {"blocks", n}}, made(true)), some),
          definitions::apply(definitions::moba(Variable(some.q), Variable(some.k), block, n, seen),
                             Variable(some.v))
              .value(),
          1e-12);
  }
}

}  // namespace

Spec moba_variant() {
  return make_spec<MobaOptions, Moba>(
      {.summary = "softmax attention of each query to its block and the best earlier ones",
       .paper = "Lu et al. 2025, arXiv 2502.13189",
       .cases = {{{"block", 3}, {"blocks", 2}}, {{"block", 4}, {"blocks", 3}}},
       .evidence = {{"limits",
                     "with all blocks it is causal softmax attention; otherwise its definition",
                     moba_limits}}});
}

}  // namespace longhand::attention
