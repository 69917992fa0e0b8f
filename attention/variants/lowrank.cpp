// Low-rank synthesizer: learned attention weights that depend on positions and not on content.
// After the factorised random synthesizer of Tay et al. 2020 (arXiv 2005.00743); for each head
//
//   O = softmax(U Vᵀ) X,   U, V (max_length, r) learned, X the values
//
// The softmax makes this cost N² D. Without it (the default), the cost is N r D, and a causal state
// has r D elements:
//
//   O = U (Vᵀ X),   causal: o_i = (sum over j <= i of x_j V_jᵀ) U_i, a scan
//
// These weights may be negative and have any sum. Shorter sequences use the first rows of U and V.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/decoding/state_decoder.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct LowrankOptions {
  bool softmax = false;
  int64_t rank = 8;
  double dropout = 0;

  static LowrankOptions defaults(const Config& config) {
    return {.rank = std::min<int64_t>(8, config.max_length)};
  }

  void describe(OptionVisitor& v) {
    v.integer("rank", rank, {1, 1 << 20}, "rank r of the weights", "8, at most max_length");
    v.boolean("softmax", softmax,
              "whether the weights are softmax(U Vᵀ), at cost N² D, instead of U Vᵀ");
    v.when(softmax, "softmax = true", [&] { describe_dropout(v, dropout); });
  }

  Capabilities capabilities() const {
    return {.averages = softmax,
            .positional = true,
            .causal = true,
            .decodes = !softmax,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .fixed_length = true,
            .needs = softmax ? Needs::heads : Needs::sums,
            .time = softmax ? "N^2 D" : "N r D",
            .memory = softmax ? "N^2" : "r D"};
  }
};

class Lowrank final : public Variant {
 public:
  Lowrank(const nn::Scope& scope_, const Config& config, const LowrankOptions& options)
      : Variant(scope_, config),
        options_(options),
        // Without a softmax, a sum over max_length values has the variance of one value.
        u_(scope("u"), {config.heads, config.max_length, options_.rank}, deviation(options_.rank)),
        v_(scope("v"), {config.heads, config.max_length, options_.rank},
           deviation(options_.softmax ? 1 : config.max_length)) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const auto step = [u = u_.value(), v = v_.value()](const Token& token, int64_t position) {
      const Tensor& x = token.v;
      check<ShapeError>(position < u.size(1), "lowrank: expected at most ", u.size(1),
                        " tokens to decode");
      const auto row = [&](const Tensor& factor) {
        return factor.select(1, position).unsqueeze(0).expand({x.size(0), u.size(0), u.size(2)});
      };
      return StepInputs{row(u), row(v), x};
    };
    return make_state_decoder(batch, config(), step, Normalizer::none);
  }
  int64_t rank(int64_t tokens) const override {
    return options_.softmax || config().causal ? tokens : options_.rank;
  }
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const auto r = static_cast<double>(options_.rank);
    if (options_.softmax)
      return H * Work{{2 * N * N * (r + D), N * N}, {4 * N * N * (r + D)}, bytes * 2 * N * N};
    if (config().causal) return H * scan_work(N, r, D, bytes);
    return H * Work{{4 * N * r * D}, {8 * N * r * D}, bytes * r * D};
  }

 private:
  static nn::Init deviation(int64_t terms) {
    return nn::init::normal(1 / std::sqrt(static_cast<double>(terms)));
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2), first = first_token(pass);
    check_length(first + N);
    const auto rows_of = [&](const Variable& x) {
      return slice(heads_of_pass(x, 0, H, pass), 1, first, first + N);
    };
    const Variable U = rows_of(u_), V = rows_of(v_);  // (H, N, r)
    const Variable X = transpose(v, 1, 2);            // (B, H, N, D)
    if (!options_.softmax && config().causal) {
      const auto rows = [&](const Variable& x) {
        return broadcast_to(unsqueeze(transpose(x, 0, 1), 0), {B, N, H, options_.rank});
      };
      return scan({rows(U), rows(V), v}, nullptr,
                  {.normalizer = false, .final_state = false, .join = pass.join})
          .out;
    }
    if (!options_.softmax) {
      const Variable sums = sum_of_parts(matmul(transpose(V, 1, 2), X), pass.join);
      return transpose(matmul(U, sums), 1, 2);
    }
    const Variable scores = matmul(U, transpose(V, 1, 2));
    Variable p = longhand::softmax(masked_scores(scores, config().causal, mask.lengths));
    if (const DropoutOptions drop = weight_dropout(options_.dropout, pass); drop.p > 0)
      p = dropout(broadcast_to(p, {B, H, N, N}), drop);
    return transpose(matmul(p, X), 1, 2);
  }

  LowrankOptions options_;
  nn::Parameter u_, v_;  // (H, max_length, r)
};

Variable weights_of(const DefinitionInputs& in) {
  const auto rows = [&](const char* of) {
    return slice(Variable(in.state.at(of)), 1, 0, in.q.size(1));
  };
  return definitions::lowrank(rows("u"), rows("v"),
                              read_variant_options<LowrankOptions>(in.config).softmax, in.visible);
}

}  // namespace

Spec lowrank_variant() {
  return make_spec<LowrankOptions, Lowrank>(
      {.summary = "learned weights that depend on positions, of rank r",
       .paper = "Tay et al. 2020, arXiv 2005.00743",
       .cases = {{{"rank", 3}}, {{"rank", 3}, {"softmax", true}, {"dropout", 0.3}}},
       .weights = weights_of});
}

}  // namespace longhand::attention
