// Exact top-k attention: each query attends to the k keys with the highest scores. Gupta et al.
// 2021 (arXiv 2106.06899), section 2:
//
//   O = softmax(S where S_ij is among the k largest of row i, otherwise -inf) V,  S = Q Kᵀ / sqrt(D)
//
// An oracle for sparse attention, as svd is for attention of low rank: all N² scores are computed,
// but only the lists of selected keys are kept. Among equal scores, earlier keys are selected.
// Gradients treat the selection as a constant.
#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/highest.h"
#include "longhand/attention/ops/listed_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {
namespace {

struct TopkOptions {
  int64_t k = 32;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("k", k, {1, 1 << 24}, "number of keys that a query attends to");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {.any_mask = true,
            .causal = true,
            .decodes = true,
            .needs = Needs::heads,
            .time = "N^2 D",
            .memory = "N k"};
  }
};

class Topk final : public Variant {
 public:
  Topk(const nn::Scope& scope_, const Config& config, const TopkOptions& options)
      : Variant(scope_, config), k_(options.k), dropout_(options.dropout) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(), {.scale = config().softmax_scale(), .most = k_});
  }
  // Counts all scores, a comparison of each, and the scores of the selected keys, which are
  // computed again.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double seen = config().causal ? M / 2 : M,
                 selected = N * std::min(static_cast<double>(k_), M);
    return H * (softmax_work(selected, D, selected * sizeof(int32_t) + 2 * N * bytes) +
                Work{{N * seen * (2 * D + 1)}, {}});
  }
  std::string advice(int64_t tokens) const override {
    if (k_ < tokens) return {};
    return concat_message("attention.k = ", k_, " selects all of at most ", tokens,
                          " keys, as softmax attention does; reduce it");
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const Tensor lists =
        highest_keys(q.value(), k.value(), k_,
                     {config().softmax_scale(), config().causal, mask.lengths, mask.keep,
                      mask.bias.defined() ? mask.bias.value() : Tensor()});
    ListedOptions options{.scale = config().softmax_scale()};
    if (mask.bias.defined())
      options.added = gather(broadcast_to(mask.bias, {q.size(0), q.size(2), q.size(1), k.size(1)}),
                             3, without_ends(lists));
    if (const DropoutOptions drop = weight_dropout(dropout_, pass); drop.p > 0)
      options.factors = ProbabilityDropout(drop, q.size(2)).factors(lists, k.size(1), q.dtype());
    return listed_attention(q, k, v, options,
                            [lists](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
                              append_list(lists, (b * lists.size(1) + h) * lists.size(2) + i, keys);
                            });
  }

  // The lists with 0 in place of -1.
  static Tensor without_ends(const Tensor& lists) {
    Tensor out = lists.clone();
    int32_t* const x = out.data<int32_t>();
    if (is_dry()) return out;
    std::transform(x, x + out.numel(), x, [](int32_t j) { return std::max(j, 0); });
    return out;
  }

  int64_t k_;
  double dropout_;
};

using namespace conformance;

void topk_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    equal(f, "k = N and softmax", *make_variant("topk", {{"k", N}}, made(causal)),
          *make_variant("softmax", {}, made(causal)), 1e-12);
    const Sample x;
    const auto best = make_variant("topk", {{"k", 1}}, made(causal));
    const Tensor found = weights(*best, one(x.q, 0, N), one(x.k, 0, N));
    const auto softmax = make_variant("softmax", {}, made(causal));
    const Tensor all = weights(*softmax, one(x.q, 0, N), one(x.k, 0, N));
    for (int64_t i = 0; i < N; ++i) {
      int64_t largest = 0;
      for (int64_t j = 1; j < N; ++j)
        if (all.at({i, j}) > all.at({i, largest})) largest = j;
      f.expect(found.at({i, largest}) == 1, "k = 1: query ", i, " gives its best key ", largest,
               " the weight ", found.at({i, largest}));
    }
    // A row differs from that of softmax by twice the mass of the keys left out, in the l1 norm.
    const auto three = make_variant("topk", {{"k", 3}}, made(causal));
    const Tensor kept = weights(*three, one(x.q, 0, N), one(x.k, 0, N));
    for (int64_t i = 0; i < N; ++i) {
      double difference = 0, left_out = 0;
      for (int64_t j = 0; j < N; ++j) {
        difference += std::abs(kept.at({i, j}) - all.at({i, j}));
        if (kept.at({i, j}) == 0) left_out += all.at({i, j});
      }
      f.expect(std::abs(difference - 2 * left_out) <= 1e-12, "k = 3: row ", i,
               " differs from that of softmax by ", difference, ", and leaves out ", left_out);
    }
    // Among equal scores, those of the first keys count, and only k of them.
    const Tensor equals =
        weights(*three, one(x.q, 0, N), Tensor::full({1, N, H, D}, 0.5, DType::f64));
    for (int64_t i = 0; i < N; ++i)
      for (int64_t j = 0; j < N; ++j) {
        const int64_t seen = causal ? std::min<int64_t>(i + 1, 3) : 3;
        const double expected = j < seen ? 1 / static_cast<double>(seen) : 0;
        f.expect(std::abs(equals.at({i, j}) - expected) <= 1e-12, "k = 3, equal keys: query ", i,
                 " gives key ", j, " the weight ", equals.at({i, j}));
      }
  }
}

}  // namespace

Spec topk_variant() {
  return make_spec<TopkOptions, Topk>(
      {.summary = "softmax attention of each query to the k keys with the highest scores",
       .paper = "Gupta et al. 2021, arXiv 2106.06899",
       .cases = {{{"k", 4}}, {{"k", 9}, {"dropout", 0.3}}},
       .evidence = {{"limits",
                     "k >= N is softmax attention; k = 1 copies the value of the best key",
                     topk_limits}}});
}

}  // namespace longhand::attention
