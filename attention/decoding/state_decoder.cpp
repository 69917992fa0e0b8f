#include "longhand/attention/decoding/state_decoder.h"

#include <utility>

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/autograd/fixed_weights.h"

namespace longhand::attention {
namespace {

class StateDecoder final : public Decoder {
 public:
  StateDecoder(int64_t batch, int64_t heads, StepFunction step, Normalizer normalizer,
               const Guard& guard, FinishFunction finish)
      : batch_(batch),
        heads_(heads),
        step_(std::move(step)),
        normalizer_(normalizer),
        guard_(guard),
        finish_(std::move(finish)) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const FixedWeights::Use use(weights_);
    const Tensor &q = token.q, &k = token.k, &v = token.v;
    const auto fits = [&](const Tensor& x) { return x.rank() == 3 && x.size(0) == batch_; };
    check<ShapeError>(
        (!q.defined() || (fits(q) && q.size(1) == heads_)) && (!k.defined() || fits(k)) && fits(v),
        "decoder: expected q (", batch_, ", ", heads_, ", D), k and v (", batch_,
        ", kv_heads, D), got q ", q.shape(), ", k ", k.shape(), ", v ", v.shape());
    const Token all{q, k.defined() ? repeat_groups(k, heads_) : k, repeat_groups(v, heads_),
                    token.x};
    const Tensor out = scan_step(state_, step_(all, position_++), normalizer_, guard_);
    return finish_ ? finish_(out, all) : out;
  }

  int64_t bytes() const override {
    return state_.S.value().bytes() + state_.z.value().bytes() + state_.log_scale.value().bytes();
  }

 private:
  int64_t batch_, heads_;
  StepFunction step_;
  Normalizer normalizer_;
  Guard guard_;
  FinishFunction finish_;
  ScanState state_;
  FixedWeights weights_;
  int64_t position_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_state_decoder(int64_t batch, const Config& config, StepFunction step,
                                            Normalizer normalizer, const Guard& guard,
                                            FinishFunction finish) {
  return std::make_unique<StateDecoder>(batch, config.heads, std::move(step), normalizer, guard,
                                        std::move(finish));
}

}  // namespace longhand::attention
