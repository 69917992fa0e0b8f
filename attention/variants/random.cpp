// Fixed random attention: weights that depend on positions and not on content, drawn once. The
// fixed random synthesizer of Tay et al. 2020 (arXiv 2005.00743), in which R is not trained; for
// each head
//
//   O = softmax(R) V,   R_ij ~ N(0, spread²)
//
// over the real keys of each sample (causal: j <= i). Only the generator state is stored; R_ij
// depends on it and on (head, i, j), so R of a shorter sequence is the leading corner of R of a
// longer one.

#include <algorithm>

#include "longhand/attention/bases/latest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

struct RandomOptions {
  double spread = 1, dropout = 0;

  void describe(OptionVisitor& v) {
    v.number("spread", spread, {0}, "standard deviation of the scores R");
    v.number("dropout", dropout, NumberRange::fraction(),
             "dropout probability for attention weights");
  }
  Capabilities capabilities() const {
    return {.random = true,
            .positional = true,
            .causal = true,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .time = "N^2 D",
            .memory = "N^2",
            .state = "random_state"};
  }
  // R and its softmax, which all sequences share until dropout.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const bool drops = dropout > 0 && e.training;
    const double shared = z.pairs / e.batch;
    return {
        .kept = drops ? z.pairs + shared : 2 * shared,
        .forward = std::max((drops ? 2 : 1) * shared - z.values, drops ? z.pairs / 4 : z.values),
        .backward = std::max({(drops ? 2 : 1) * shared - 3 * z.values,
                              drops ? z.pairs / 4 - 2 * z.values : 0, 0.0})};
  }
};

class Random final : public Variant {
 public:
  Random(const nn::Scope& scope_, const Config& config, const RandomOptions& options)
      : Variant(scope_, config),
        dropout_(options.dropout),
        spread_(options.spread),
        random_state_(scope("random_state"), state_tensor(init_random().fork("scores"))) {}

  Work work(int64_t queries, int64_t keys) const override {
    const double pairs = static_cast<double>(config().heads * queries * keys);
    const double flops = 2 * pairs * static_cast<double>(config().head_dim);
    return {{flops, pairs}, {flops}, 3 * pairs * static_cast<double>(size_of(parameter_dtype()))};
  }

 private:
  struct Drawn {
    Tensor scores, from;
  };

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
    check<ShapeError>(k.size(1) == N, "random: expected as many queries as keys, got ", N,
                      " queries and ", k.size(1), " keys");
    const Variable scores(this->scores(N, q.dtype()));  // (H, N, N)
    Variable p = softmax(masked_scores(scores, config().causal, mask.lengths));
    if (pass.training && dropout_ > 0)
      p = dropout(broadcast_to(p, {B, H, N, N}), dropout_, pass.random.fork(full_name()));
    return transpose(matmul(p, transpose(v, 1, 2)), 1, 2);
  }

  // Returns R (H, n, n). The latest R is reused for shorter sequences, unless the generator state
  // has changed, as it does when a checkpoint is loaded.
  Tensor scores(int64_t n, DType dtype) {
    const Tensor& state = random_state_.value();
    if (const Drawn drawn = drawn_.get(); drawn.scores && drawn.scores.size(1) >= n &&
                                          drawn.scores.dtype() == dtype &&
                                          identical(drawn.from, state))
      return drawn.scores.slice(1, 0, n).slice(2, 0, n);
    const int64_t H = config().heads;
    const Generator generator = generator_of(state);
    Tensor scores = Tensor::empty({H, n, n}, dtype);
    dispatch_float(dtype, [&]<class T>() {
      T* const out = scores.data<T>();
      parallel_for(H * n, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Generator own =
              generator.fork(static_cast<uint64_t>(row / n)).fork(static_cast<uint64_t>(row % n));
          for (int64_t j = 0; j < n; ++j)
            out[row * n + j] = static_cast<T>(spread_ * own.normal(static_cast<uint64_t>(j)));
        }
      });
    });
    drawn_.set({scores, state.clone()});
    return scores;
  }

  double dropout_, spread_;
  nn::Buffer random_state_;  // (2) i64, generator state
  Latest<Drawn> drawn_;
};

}  // namespace

Spec random_variant() {
  return make_spec<RandomOptions, Random>(
      {.summary = "fixed random weights that depend on positions, a control",
       .paper = "Tay et al. 2020, arXiv 2005.00743",
       .cases = {{}, {{"spread", 3.0}, {"dropout", 0.3}}}});
}

}  // namespace longhand::attention
