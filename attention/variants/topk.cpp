// Exact top-k attention: each query attends to the k keys with the highest scores. Gupta et al. 2021
// (arXiv 2106.06899), section 2:
//
//   O = softmax(S where S_ij is among the k largest of row i, otherwise -inf) V,  S = Q Kᵀ / sqrt(D)
//
// An oracle for sparse attention, as svd is for attention of low rank: all N² scores are computed,
// so it saves no time. Of equal scores those of earlier keys are selected. Gradients treat the
// selection as a constant.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "longhand/attention/bases/highest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"
#include "longhand/nn/dropout.h"

namespace longhand::attention {
namespace {

struct TopkOptions {
  int64_t k = 32;
  double dropout = 0;

  void describe(OptionVisitor& v) {
    v.integer("k", k, {1, 1 << 24}, "number of keys that a query attends to");
    v.number("dropout", dropout, NumberRange::fraction(),
             "dropout probability for attention weights");
  }
  Capabilities capabilities() const {
    return {.any_mask = true, .causal = true, .decodes = true, .time = "N^2 D", .memory = "N^2"};
  }
  // The probabilities, twice with dropout, which of them are selected, and as much again for the
  // scores and their gradients.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const bool drops = dropout > 0 && e.training;
    return {.kept = (drops ? 2.25 : 1.25) * z.pairs,
            .forward = (drops ? 1.2 : 1.95) * z.pairs,
            .backward = z.pairs - z.values};
  }
};

class Topk final : public Variant {
 public:
  Topk(const nn::Scope& scope_, const Config& config, const TopkOptions& options)
      : Variant(scope_, config), k_(options.k), dropout_(options.dropout) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return make_cache_decoder(batch, config(), {.scale = scale(), .most = k_});
  }
  int64_t state_bytes(int64_t tokens) const override {
    return decodes() ? cache_bytes(config(), parameter_dtype(), tokens) : 0;
  }
  // Counts all scores, of which only k in a row have exponentials.
  Work work(int64_t queries, int64_t keys) const override {
    const double pairs = static_cast<double>(config().heads * queries * keys);
    const double selected = static_cast<double>(config().heads * queries * std::min(k_, keys));
    const double D = static_cast<double>(config().head_dim);
    return {{4 * pairs * D, selected},
            {8 * pairs * D},
            2 * pairs * static_cast<double>(size_of(parameter_dtype()))};
  }
  std::string advice(int64_t tokens) const override {
    if (k_ < tokens) return {};
    return concat_message("attention.k = ", k_, " selects all of at most ", tokens,
                          " keys, as softmax attention does; reduce it");
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(config().head_dim)); }

  // 1 at the k largest of each row of s (…, M) that are not -inf. Of equal ones the earlier.
  Tensor selected(const Tensor& s) const {
    const Tensor scores = s.contiguous();
    const int64_t M = scores.size(-1), rows = scores.numel() / M;
    Tensor out = Tensor::empty(scores.shape(), DType::u8);
    dispatch_float(scores.dtype(), [&]<class T>() {
      parallel_for(rows, std::max<int64_t>(1, (1 << 14) / M), [&](int64_t begin, int64_t end) {
        std::vector<T> sorted;
        for (int64_t r = begin; r < end; ++r) {
          const T* const row = scores.data<T>() + r * M;
          uint8_t* const keep = out.data<uint8_t>() + r * M;
          for (int64_t j = 0; j < M; ++j) keep[j] = row[j] > -std::numeric_limits<T>::infinity();
          omit_all_but_highest(row, M, k_, sorted, [=](int64_t j) { keep[j] = 0; });
        }
      });
    });
    return out;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable Q = transpose(inputs.q, 1, 2), K = transpose(inputs.k, 1, 2),
                   V = transpose(inputs.v, 1, 2);
    Variable s = matmul(Q, transpose(K, 2, 3), scale());  // (B, H, N, M)
    if (mask.bias.defined()) s = s + mask.bias;
    s = masked_scores(s, config().causal, mask.lengths);
    if (mask.keep.defined()) s = masked_scores(mask.keep, s);
    Variable p = softmax(masked_scores(selected(s.value()), s));
    if (pass.training && dropout_ > 0) p = dropout(p, dropout_, pass.random.fork(full_name()));
    return transpose(matmul(p, V), 1, 2);
  }

  int64_t k_;
  double dropout_;
};

}  // namespace

Spec topk_variant() {
  return make_spec<TopkOptions, Topk>(
      {.summary = "softmax attention of each query to the k keys with the highest scores",
       .paper = "Gupta et al. 2021, arXiv 2106.06899",
       .cases = {{{"k", 4}}, {{"k", 9}, {"dropout", 0.3}}},
       .evidence = {{"limits",
                     "k >= N is softmax attention; k = 1 copies the value of the best key",
                     conformance::topk_limits}}});
}

}  // namespace longhand::attention
