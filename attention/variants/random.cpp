// Fixed random attention: weights that depend on positions and not on content, drawn once. The
// fixed random synthesizer of Tay et al. 2020 (arXiv 2005.00743), in which R is not trained; for
// each head
//
//   O = softmax(R) V,   R_ij ~ N(0, spread²)
//
// over the real keys of each sample (causal: j <= i). Only the generator state is stored; R_ij
// depends on it and on (head, i, j), so R of a shorter sequence is the leading corner of R of a
// longer one. The latest draw is kept: softmax(R) if nothing is padded, so that later passes only
// compute products; otherwise R, as every sample then has its own softmax.

#include "longhand/attention/bases/latest.h"
#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/random_state.h"
#include "longhand/attention/ops/random_rows.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct RandomOptions {
  double spread = 1, dropout = 0;

  void describe(OptionVisitor& v) {
    v.number("spread", spread, {0}, "standard deviation of the scores R");
    describe_dropout(v, dropout);
  }
  Capabilities capabilities() const {
    return {.random = true,
            .positional = true,
            .causal = true,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .needs = Needs::heads,
            .time = "N^2 D",
            .memory = "N^2",
            .state = "random_state"};
  }
};

class Random final : public Variant {
 public:
  Random(const nn::Scope& scope_, const Config& config, const RandomOptions& options)
      : Variant(scope_, config),
        options_(options),
        random_state_(scope("random_state"), state_tensor(init_random().fork("scores"))) {}

  // The exponentials of the first pass are not counted.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double pairs = H * N * M;
    return {{2 * pairs * D}, {2 * pairs * D}, pairs * bytes};
  }

 private:
  struct Drawn {
    Tensor rows;  // (H, n, n): softmax(R), or R
    bool weights;
    Tensor from;  // the generator state
  };

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3);
    const DropoutOptions drop = weight_dropout(options_.dropout, pass);
    const bool padded = mask.lengths.defined(), drops = drop.p > 0;
    // (H, N, N)
    Variable p(rows(N, q.dtype(), !padded).slice(0, pass.heads.first, pass.heads.first + H));
    if (!padded && !drops) {
      // One product per head for all samples.
      const Variable V = reshape(permute(v, {2, 1, 0, 3}), {H, N, B * D});
      return permute(reshape(matmul(p, V), {H, N, B, D}), {2, 1, 0, 3});
    }
    if (padded) p = softmax(masked_scores(p, config().causal, mask.lengths));
    if (drops) p = dropout(broadcast_to(p, {B, H, N, N}), drop);
    return transpose(matmul(p, transpose(v, 1, 2)), 1, 2);
  }

  // Returns softmax(R) or R, (H, n, n). The latest draw is reused, unless the generator state has
  // changed, as it does when a checkpoint is loaded. Shorter sequences use the leading corner, if
  // it does not depend on the length.
  Tensor rows(int64_t n, DType dtype, bool weights) {
    const Tensor& state = random_state_.value();
    if (const Drawn drawn = drawn_.get();
        drawn.rows.defined() && drawn.weights == weights && fits(drawn.rows.size(1), n, weights) &&
        drawn.rows.dtype() == dtype && identical(drawn.from, state))
      return drawn.rows.slice(1, 0, n).slice(2, 0, n);
    drawn_.set({});  // freed before the next is allocated
    const int64_t H = config().heads;
    Tensor out =
        random_rows(generator_of(state), H, n, options_.spread, weights, config().causal, dtype);
    drawn_.set({out, weights, state.clone()});
    return out;
  }
  bool fits(int64_t drawn, int64_t n, bool weights) const {
    return drawn == n || (drawn > n && (!weights || config().causal));
  }

  RandomOptions options_;
  nn::Buffer random_state_;  // (2) i64, generator state
  Latest<Drawn> drawn_;
};

}  // namespace

Spec random_variant() {
  return make_spec<RandomOptions, Random>(
      {.summary = "fixed random weights that depend on positions, a baseline",
       .paper = "Tay et al. 2020, arXiv 2005.00743",
       .cases = {{}, {{"spread", 3.0}, {"dropout", 0.3}}}});
}

}  // namespace longhand::attention
