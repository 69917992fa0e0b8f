// Exact top-k attention: each query attends to the k keys with the highest scores. Gupta et al. 2021
// (arXiv 2106.06899), section 2:
//
//   O = softmax(S where S_ij is among the k largest of row i, otherwise -inf) V,  S = Q Kᵀ / sqrt(D)
//
// An oracle for sparse attention, as svd is for attention of low rank: all N² scores are computed, but
// only the lists of selected keys are kept. Of equal scores those of earlier keys are selected.
// Gradients treat the selection as a constant.
#include <algorithm>
#include <cmath>
#include <vector>

#include "longhand/attention/bases/highest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/ops/listed_attention.h"
#include "longhand/attention/ops/tile/probability_dropout.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/gemm_tile.h"
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
    return {.any_mask = true,
            .causal = true,
            .decodes = true,
            .needs = Needs::heads,
            .time = "N^2 D",
            .memory = "N k"};
  }
  // The lists, and two sums for each query; with dropout the factors of the keys on the lists.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double lists = z.tokens * std::min(static_cast<double>(k), e.keys);
    const bool drops = dropout > 0 && e.training;
    return {.kept = (drops ? 2 : 1) * lists + 2 * z.tokens};
  }
};

constexpr int64_t query_block = 64, key_block = 512;  // whose scores are in memory at once

// The keys that a query may attend to, and what a bias adds to their scores.
class Seen {
 public:
  // For scores (B, H, N, M).
  Seen(const Mask& mask, bool causal, const Shape& scores)
      : causal_(causal), queries_(scores[2]), keys_(scores[3]) {
    if (mask.lengths.defined()) lengths_ = mask.lengths.to_vector<int32_t>();
    if (mask.keep.defined()) keep_ = mask.keep.expand(scores);
    if (mask.bias.defined()) bias_ = mask.bias.value().expand(scores);
  }

  // Queries of a sample; those of padding attend to nothing.
  int64_t queries(int64_t b) const {
    return lengths_.empty() ? queries_ : lengths_[static_cast<size_t>(b)];
  }
  // Keys from this index on are hidden from query i.
  int64_t end(int64_t b, int64_t i) const {
    if (causal_) return i + 1;
    return lengths_.empty() ? keys_ : lengths_[static_cast<size_t>(b)];
  }
  // Completes n scores of query i against the keys from `first` on; -inf for those it may not see.
  template <class T>
  void complete(int64_t b, int64_t h, int64_t i, int64_t first, int64_t n, T* scores) const {
    const auto at = [&](const Tensor& x, int64_t j) {
      const Strides& s = x.strides();
      return b * s[0] + h * s[1] + i * s[2] + (first + j) * s[3];
    };
    if (bias_.defined())
      for (int64_t j = 0; j < n; ++j) scores[j] += bias_.data<T>()[at(bias_, j)];
    if (keep_.defined())
      for (int64_t j = 0; j < n; ++j)
        if (!keep_.data<uint8_t>()[at(keep_, j)]) scores[j] = static_cast<T>(never);
  }

 private:
  bool causal_;
  int64_t queries_, keys_;
  std::vector<int32_t> lengths_;
  Tensor keep_, bias_;
};

// Selects the keys of a block of queries, from the scores of one block of keys at a time.
template <class T>
class Selection {
 public:
  explicit Selection(int64_t k)
      : scores_(query_block * key_block), rows_(query_block, Highest<T>(k)) {}

  // For queries q (., D) from `first` on, and the keys of their head in panels.
  void run(const Seen& seen, int64_t b, int64_t h, int64_t first, kernels::Strided<T> q, int64_t D,
           const T* panels, Tensor& lists) {
    const int64_t count = std::min(query_block, seen.queries(b) - first);
    if (count <= 0) return;
    for (Highest<T>& row : rows_) row.clear();
    const int64_t end = seen.end(b, first + count - 1);
    for (int64_t begin = 0; begin < end; begin += key_block) {
      const int64_t keys = std::min(key_block, end - begin);
      kernels::gemm_panels<T>(count, keys, D, q, panels + begin * D, scores_.data(), key_block,
                              false);
      for (int64_t r = 0; r < count; ++r) {
        const int64_t visible = std::min(keys, seen.end(b, first + r) - begin);
        T* const scores = scores_.data() + r * key_block;
        seen.complete(b, h, first + r, begin, visible, scores);
        rows_[static_cast<size_t>(r)].add(scores, visible, begin);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      keys_.clear();
      rows_[static_cast<size_t>(r)].append_to(keys_);
      std::copy(keys_.begin(), keys_.end(),
                lists.data<int32_t>() +
                    ((b * lists.size(1) + h) * lists.size(2) + first + r) * lists.size(3));
    }
  }

 private:
  std::vector<T> scores_;  // (query_block, key_block)
  std::vector<Highest<T>> rows_;
  std::vector<int32_t> keys_;
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
  // Counts all scores, and those of the selected keys, which are computed again.
  Work work(int64_t queries, int64_t keys) const override {
    const double rows = static_cast<double>(config().heads * queries),
                 selected = rows * static_cast<double>(std::min(k_, keys)),
                 D = static_cast<double>(config().head_dim);
    return {
        {2 * rows * static_cast<double>(keys) * D + 4 * selected * D, selected},
        {10 * selected * D, selected},
        selected * sizeof(int32_t) + 2 * rows * static_cast<double>(size_of(parameter_dtype()))};
  }
  std::string advice(int64_t tokens) const override {
    if (k_ < tokens) return {};
    return concat_message("attention.k = ", k_, " selects all of at most ", tokens,
                          " keys, as softmax attention does; reduce it");
  }

 private:
  double scale() const { return 1 / std::sqrt(static_cast<double>(config().head_dim)); }

  // The keys that each query attends to, in increasing order: (B, H, N, min(k, M)) i32, ended by -1
  // if there are fewer.
  Tensor selected(const Tensor& queries, const Tensor& keys, const Mask& mask) const {
    const int64_t B = queries.size(0), N = queries.size(1), H = queries.size(2),
                  D = queries.size(3), M = keys.size(1), panels = kernels::panels_size(D, M),
                  blocks = (N + query_block - 1) / query_block;
    Tensor lists = Tensor::full({B, H, N, std::min(k_, M)}, -1, DType::i32);
    const Tensor q = queries.contiguous(), k = keys.contiguous();
    const Seen seen(mask, config().causal, {B, H, N, M});
    dispatch_float(q.dtype(), [&]<class T>() {
      Tensor packed = Tensor::empty({B, H, panels}, q.dtype());
      parallel_for(B * H, 1, [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head)
          kernels::pack_panels<T>(D, M, {k.data<T>() + (head / H * M * H + head % H) * D, 1, H * D},
                                  static_cast<T>(scale()), 0, panels / (D * kernels::panel_width),
                                  packed.data<T>() + head * panels);
      });
      parallel_for(B * H * blocks, 1, [&](int64_t begin, int64_t end) {
        Selection<T> selection(k_);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t head = task / blocks, b = head / H, h = head % H,
                        first = task % blocks * query_block;
          selection.run(seen, b, h, first, {q.data<T>() + ((b * N + first) * H + h) * D, H * D, 1},
                        D, packed.data<T>() + head * panels, lists);
        }
      });
    });
    return lists;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const Tensor lists = selected(q.value(), k.value(), mask);
    ListedOptions options{.scale = scale()};
    if (mask.bias.defined())
      options.added = gather(broadcast_to(mask.bias, {q.size(0), q.size(2), q.size(1), k.size(1)}),
                             3, without_ends(lists));
    if (const DropoutOptions drop = weight_dropout(dropout_, pass); drop.p > 0)
      options.factors = ProbabilityDropout(drop.p, drop.generator, q.size(2), drop.section)
                            .factors(lists, k.size(1), q.dtype());
    return listed_attention(
        q, k, v, options, [lists](int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys) {
          const int64_t most = lists.size(3);
          const int32_t* const list =
              lists.data<int32_t>() + ((b * lists.size(1) + h) * lists.size(2) + i) * most;
          keys.insert(keys.end(), list, std::find(list, list + most, -1));
        });
  }

  // The lists with 0 in place of -1.
  static Tensor without_ends(const Tensor& lists) {
    Tensor out = lists.clone();
    int32_t* const x = out.data<int32_t>();
    std::transform(x, x + out.numel(), x, [](int32_t j) { return std::max(j, 0); });
    return out;
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
