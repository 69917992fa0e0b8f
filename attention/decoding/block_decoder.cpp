#include "longhand/attention/decoding/block_decoder.h"

#include <algorithm>

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/autograd/grad_mode.h"

namespace longhand::attention {
namespace {

class BlockDecoder final : public Decoder {
 public:
  BlockDecoder(int64_t batch, const Config& config, const BlockSummaries& summaries)
      : config_(config),
        summaries_(summaries),
        cache_(batch, config.heads, config.head_dim),
        attend_({.scale = config.softmax_scale()}) {}

  Tensor step(const Token& token) override {
    keep(token);
    runs_.front().assign(1, {0, cache_.size()});
    const int64_t summarised = tokens_ / summaries_.block * summaries_.rows;
    const Tensor out = attend_(token.q, cache_, runs_, {}, summaries_.bias, summarised);
    advance();
    return out;
  }
  void append(const Token& token) override {
    keep(token);
    advance();
  }

  int64_t bytes() const override { return cache_.bytes() + queries_.bytes(); }
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t own = tokens % summaries_.block, before = tokens / summaries_.block,
                  rows = summaries_.rows;
    // The maximum number at once: now, or when the last block was full.
    const int64_t most =
        std::max(before * rows + own, before > 0 ? (before - 1) * rows + summaries_.block : 0);
    return cache_.capacity_after(most) * cache_.token_bytes() + queries_.bytes();
  }
  Traffic traffic() const override { return {.read = cache_.size() * cache_.token_bytes()}; }

 private:
  void keep(const Token& token) {
    check<ShapeError>(!config_.capabilities.fixed_length || tokens_ < config_.max_length,
                      config_.name, ": expected at most max_length = ", config_.max_length,
                      " tokens to decode");
    cache_.put(cache_.size(), repeat_groups(token.k, config_.heads),
               repeat_groups(token.v, config_.heads));
    if (!summaries_.queries) return;
    const Shape& s = token.q.shape();
    if (!queries_.defined())
      queries_ = Tensor::empty({s[0], summaries_.block, s[1], s[2]}, token.q.dtype());
    copy_into(queries_.select(1, tokens_ % summaries_.block), token.q);
  }

  void advance() {
    if (++tokens_ % summaries_.block != 0) return;
    const NoGrad no_grad;
    const int64_t begin = cache_.size() - summaries_.block;
    const auto own = [&](const Tensor& x) {
      return Variable(x.slice(2, begin, cache_.size()).transpose(1, 2).contiguous());
    };
    const auto [keys, values] =
        summaries_.of({Variable(queries_), own(cache_.keys()), own(cache_.values())});
    cache_.truncate(begin);
    for (int64_t row = 0; row < summaries_.rows; ++row)
      cache_.put(begin + row, keys.value().select(1, row), values.value().select(1, row));
  }

  const Config& config_;
  BlockSummaries summaries_;
  int64_t tokens_ = 0;
  KeyValueCache cache_;  // summaries, then the tokens of the current block
  CacheAttention attend_;
  std::vector<KeyRuns> runs_{1};
  Tensor queries_;  // (B, block, H, D), of the current block
};

}  // namespace

std::unique_ptr<Decoder> make_block_decoder(int64_t batch, const Config& config,
                                            const BlockSummaries& summaries) {
  return std::make_unique<BlockDecoder>(batch, config, summaries);
}

}  // namespace longhand::attention
