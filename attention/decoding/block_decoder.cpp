#include "longhand/attention/decoding/block_decoder.h"

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/grad_mode.h"

namespace longhand::attention {
namespace {

class BlockDecoder final : public Decoder {
 public:
  BlockDecoder(const Config& config, const BlockSummaries& summaries)
      : config_(config), summaries_(summaries) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    check<ShapeError>(!config_.capabilities.fixed_length || tokens_ < config_.max_length,
                      config_.name, ": expected at most max_length = ", config_.max_length,
                      " tokens to decode");
    const auto append = [&](Variable& to, const Tensor& x) {
      const Variable row(repeat_groups(x, config_.heads).unsqueeze(1).clone());
      to = to.defined() ? concat({to, row}, 1) : row;
    };
    if (summaries_.queries) append(queries_, token.q);
    append(keys_, token.k);
    append(values_, token.v);
    const Tensor out = attend(Variable(token.q.unsqueeze(1)));
    if (++tokens_ % summaries_.block == 0) close_block();
    return out.squeeze(1);
  }

  int64_t bytes() const override {
    int64_t total = 0;
    for (const Variable* const x : {&queries_, &keys_, &values_})
      if (x->defined()) total += x->value().numel() * static_cast<int64_t>(size_of(x->dtype()));
    return total;
  }
  int64_t bytes_after(int64_t tokens) const override {
    const int64_t own = tokens % summaries_.block, before = tokens / summaries_.block;
    const Tensor& k = keys_.value();
    return ((summaries_.queries ? 3 : 2) * own + 2 * before * summaries_.rows) *
           (k.numel() / k.size(1)) * static_cast<int64_t>(size_of(k.dtype()));
  }

 private:
  Tensor attend(const Variable& q) const {
    SoftmaxAttentionOptions options;
    if (summaries_.bias != 0) {
      Tensor bias = Tensor::zeros({q.size(0), keys_.size(1), q.size(2)}, q.dtype());
      bias.slice(1, 0, tokens_ / summaries_.block * summaries_.rows).fill(summaries_.bias);
      options.key_bias = Variable(bias);
    }
    return softmax_attention(q, keys_, values_, options).value();
  }

  void close_block() {
    const int64_t end = keys_.size(1), begin = end - summaries_.block;
    const auto own = [&](const Variable& x) { return slice(x, 1, begin, end); };
    const auto [keys, values] = summaries_.of({queries_, own(keys_), own(values_)});
    keys_ = concat({slice(keys_, 1, 0, begin), keys}, 1);
    values_ = concat({slice(values_, 1, 0, begin), values}, 1);
    queries_ = {};
  }

  const Config& config_;
  BlockSummaries summaries_;
  int64_t tokens_ = 0;
  Variable keys_, values_;  // (B, rows of summaries and tokens of the current block, H, D)
  Variable queries_;        // of the current block
};

}  // namespace

std::unique_ptr<Decoder> make_block_decoder(const Config& config, const BlockSummaries& summaries) {
  return std::make_unique<BlockDecoder>(config, summaries);
}

}  // namespace longhand::attention
