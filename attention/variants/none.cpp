// No attention: every token keeps its own value, so a model processes each token without the
// others.
//
//   out_i = v_i
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

class NoneDecoder final : public Decoder {
 public:
  explicit NoneDecoder(int64_t heads) : heads_(heads) {}
  Tensor step(const Token& token) override { return repeat_groups(token.v, heads_).clone(); }
  int64_t bytes() const override { return 0; }

 private:
  int64_t heads_;
};

struct NoneOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {.causal = true,
            .decodes = true,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .needs = Needs::nothing,
            .time = "0",
            .memory = "0"};
  }
};

class None final : public Variant {
 public:
  None(const nn::Scope& scope_, const Config& config, const NoneOptions&)
      : Variant(scope_, config) {}

  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    return std::make_unique<NoneDecoder>(config().heads);
  }
  Work work(int64_t, int64_t) const override { return {}; }

 private:
  Variable attend(const Inputs& inputs, const Mask&, const nn::Pass&) override { return inputs.v; }
};

}  // namespace

Spec none_variant() {
  return make_spec<NoneOptions, None>({.summary = "the token's own value: no attention, a baseline",
                                       .paper = "-",
                                       .weights = [](const DefinitionInputs& in) {
                                         return definitions::none(in.visible, in.q.dtype());
                                       }});
}

}  // namespace longhand::attention
