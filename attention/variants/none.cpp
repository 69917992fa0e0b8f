// No attention: every token keeps its own value. What a model learns with it, it learns without
// looking at other tokens.
//
//   out_i = v_i
#include "longhand/attention/bases/dropout_option.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

class NoneDecoder final : public Decoder {
 public:
  explicit NoneDecoder(int64_t heads) : heads_(heads) {}
  Tensor step(const Tensor&, const Tensor&, const Tensor& v) override {
    return repeat_groups(v, heads_).clone();
  }
  int64_t bytes() const override { return 0; }

 private:
  int64_t heads_;
};

class None final : public Variant {
 public:
  None(const nn::Scope& scope_, const Config& config) : Variant(scope_, config) {
    refuse_dropout(config, "none");
  }
  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    return std::make_unique<NoneDecoder>(config().heads);
  }

 private:
  Variable attend(const Variable& q, const Variable& k, const Variable& v, const Mask&,
                  const nn::Pass&) override {
    check<ShapeError>(q.size(1) == k.size(1), "none: as many queries as keys are wanted, not ",
                      q.size(1), " and ", k.size(1));
    return v;
  }
};

}  // namespace

Registration none_variant() {
  return {{.summary = "the token's own value: no attention, a control",
           .causal = true,
           .decodes = true,
           .uses_queries_and_keys = false,
           .cross_lengths = false,
           .time = "0",
           .memory = "0",
           .state = "-",
           .paper = "-"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<None>(scope, config);
          }};
}

}  // namespace longhand::attention
