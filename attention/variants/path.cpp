// PaTH attention: the position of a key is a product of generalised Householder matrices of the
// tokens between it and the query. Yang et al. 2025 (arXiv 2505.16381), section 2-3:
//
//   O_i = Σ_j p_ij v_j,  p_ij = softmax_j((q_iᵀ H_i H_(i-1) … H_(j+1) k_j + G_i - G_j) / sqrt(D)) over j <= i
//   H_t = I - β_t w_t w_tᵀ,  w_t = u_t / |u_t|,  u_t = x_t D_w U_w,  β_t = 2 σ(x_t P + b)
//   with forget gates, G_i = Σ_(t<=i) log σ(x_t F + f);  otherwise G = 0
//
// The gates are divided by sqrt(D) with the scores, as in the authors' code. Computed chunk by
// chunk in O(N) memory (path_attention.h). A decoder keeps H_t … H_(j+1) k_j in place of k_j. The
// authors' short convolution of u is not part of the variant.
#include <algorithm>
#include <cmath>
#include <optional>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/ops/path_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {
namespace {

struct PathOptions {
  int64_t rank = 32;
  bool forget = false;

  void describe(OptionVisitor& v) {
    v.integer("rank", rank, {1, 1 << 20}, "rank of the map D_w U_w from tokens to w");
    v.boolean("forget", forget, "whether gates computed from the tokens let the past fade");
  }
  Capabilities capabilities() const {
    return {.positional = true,
            .causal = true,
            .causal_only = true,
            .decodes = true,
            .cross_lengths = false,
            .uses_x = true,
            .needs = Needs::heads,
            .time = "N^2 D",
            .memory = "N D"};
  }
};

class Path final : public Variant {
 public:
  Path(const nn::Scope& scope_, const Config& config, const PathOptions& options)
      : Variant(scope_, config),
        rank_(options.rank),
        down_(scope("down"), config.width(), options.rank, false),
        up_(scope("up"), options.rank, config.width(), false),
        beta_(scope("beta"), config.width(), config.heads) {
    if (options.forget) gate_.emplace(scope("gate"), config.width(), config.heads);
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    // w has all query heads, and so do the keys that it transforms.
    Config config_of_heads = config();
    config_of_heads.kv_heads = config_of_heads.heads;
    const double scale = config().softmax_scale();
    CacheScores scores{.scale = scale};
    scores.before = [this](const Token& token, const Tensor& keys) {
      const Tensor of_token = gates_of(token);
      reflect_keys(keys, of_token.slice(2, 0, keys.size(3)), of_token.select(2, keys.size(3)));
    };
    if (gate_)
      scores.log_decay = [this, scale](const Token& token) {
        return affine(select(Variable(gates_of(token)), 2, config().head_dim + 1), scale).value();
      };
    return make_cache_decoder(batch, config_of_heads, scores);
  }

  // Each block of queries is multiplied by P of every earlier chunk, D² per query and c keys.
  // Gradients recompute scores and products. In memory: about ten elements per channel, and P.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double c = static_cast<double>(path_chunk(queries, config().head_dim)), chunks = N / c,
                 r = static_cast<double>(rank_),
                 passes = N * D * D * std::max(0.0, (chunks - 1) * (chunks - 2) / chunks),
                 local = N * (c * (14 * D + 4 * c) + 2 * D * D),
                 gates = N * (4 * D * r + 2 * H * D * (gate_ ? 2 : 1));
    return H * Work{{2 * N * M * D + passes + local + gates, N * M / 2},
                    {5 * N * M * D + 3 * passes + 2 * local + 4 * N * c * c + 2 * gates, N * M / 2},
                    N * (10 * D + 6 * c + D * D / c) * bytes};
  }

 private:
  // w, β and g of each head in one tensor, (B, N, H, D + 1) or with gates (B, N, H, D + 2).
  Variable gates(const Variable& x) const override {
    const int64_t B = x.size(0), N = x.size(1), H = config().heads, D = config().head_dim;
    // The root mean square of a vector of norm 1 is 1 / sqrt(D).
    Variables parts{rms_norm(reshape(up_.forward(down_.forward(x)), {B, N, H, D}), {}) /
                        std::sqrt(static_cast<double>(D)),
                    unsqueeze(2 * sigmoid(beta_.forward(x)), 3)};
    if (gate_) parts.push_back(unsqueeze(softplus(gate_->forward(x), -1, -1), 3));
    return concat(parts, 3);
  }
  // The gates of a token, (B, H, …).
  Tensor gates_of(const Token& token) const {
    const NoGrad no_grad;
    return gates(Variable(token.x.unsqueeze(1))).value().select(1, 0);
  }

  Variable attend(const Inputs& in, const Mask&, const nn::Pass&) override {
    const int64_t D = in.q.size(3);
    return path_attention({in.q, in.k, in.v, slice(in.x, 3, 0, D), select(in.x, 3, D),
                           gate_ ? select(in.x, 3, D + 1) : Variable()});
  }

  int64_t rank_;
  nn::Linear down_, up_, beta_;     // D_w, U_w, P and b
  std::optional<nn::Linear> gate_;  // F and f
};

using namespace conformance;

// A variant with β = 2 σ(bias) and log gates that do not depend on the tokens.
std::unique_ptr<Variant> constant_path(double bias, const OptionSet& options = {},
                                       double gate = 0) {
  auto out = make_variant("path", options, made(true));
  set(*out, {{"beta.weight", Tensor::zeros({H, H * D}, DType::f64)},
             {"beta.bias", Tensor::full({H}, bias, DType::f64)}});
  if (!options.empty())
    set(*out, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)},
               {"gate.bias", Tensor::full({H}, gate, DType::f64)}});
  return out;
}

void path_limits(Findings& f) {
  const Sample x = sample({2, 150, H, D}, DType::f64, 1, 1);  // several chunks
  equal(f, "β = 0, and softmax", *constant_path(-1000), *make_variant("softmax", {}, made(true)),
        1e-12, x);
  // Gates are divided by sqrt(D) = 2 here, so those of `forgetting` are their square roots.
  const double gate = 1.3, open = 1 / (1 + std::exp(-gate)), root = std::sqrt(open);
  const auto forgetting = make_variant("forgetting", {}, made(true));
  set(*forgetting, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)},
                    {"gate.bias", Tensor::full({H}, std::log(root / (1 - root)), DType::f64)}});
  equal(f, "β = 0 with gates, and forgetting", *constant_path(-1000, {{"forget", true}}, gate),
        *forgetting, 1e-12, x);
}

void path_definition(Findings& f) {
  for (const int64_t tokens : {int64_t{2}, N, int64_t{250}})  // one chunk and several
    for (const bool gates : {false, true}) {
      const Shape of_heads{2, tokens, H};
      const auto leaf = [&](const Tensor& t) { return Variable(t, true); };
      const auto run = [&](const auto& attention) {
        const Variable w = rms_norm(Variable(normal({2, tokens, H, D}, 5)), {}, 0) /
                           std::sqrt(static_cast<double>(D));
        const PathInputs in{
            leaf(normal({2, tokens, H, D}, 1)),
            leaf(normal({2, tokens, H, D}, 2)),
            leaf(normal({2, tokens, H, D}, 3)),
            leaf(w.value()),
            leaf((2 * sigmoid(Variable(normal(of_heads, 6)) * 3)).value()),
            gates ? leaf(softplus(Variable(normal(of_heads, 7)), -1, -1).value()) : Variable()};
        const Variable out = attention(in);
        backward(out, normal({2, tokens, H, D}, 4));
        std::vector<Tensor> all{out.value()};
        for (const Variable& x : {in.q, in.k, in.v, in.w, in.beta, in.log_decay})
          if (x.defined()) all.push_back(x.grad());
        return all;
      };
      const auto found = run([](const PathInputs& in) { return path_attention(in); });
      const auto expected = run([&](const PathInputs& in) {
        return definitions::apply(
            definitions::path(in.q, in.k, in.w, in.beta, in.log_decay,
                              definitions::visible(tokens, tokens, {.causal = true})),
            in.v);
      });
      const char* const names[] = {"out", "dq", "dk", "dv", "dw", "dβ", "dg"};
      for (size_t i = 0; i < found.size(); ++i)
        near(f, concat_message(tokens, " tokens", gates ? ", gates: " : ": ", names[i]), found[i],
             expected[i], 1e-11);
    }
}

}  // namespace

Spec path_variant() {
  return make_spec<PathOptions, Path>(
      {.summary = "softmax attention to keys moved by reflections computed from tokens",
       .paper = "Yang et al. 2025, arXiv 2505.16381",
       .cases = {{}, {{"rank", 3}, {"forget", true}}},
       .evidence = {
           {"limits", "with β = 0 it is softmax attention, with gates forgetting", path_limits},
           {"definition", "results and gradients are those of products of N matrices",
            path_definition}}});
}

}  // namespace longhand::attention
