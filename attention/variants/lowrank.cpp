// Low-rank synthesizer: weights that are learned and know positions but no content. After the
// factorised random synthesizer of Tay et al. 2020 (arXiv 2005.00743), of each head
//
//   O = softmax(U Vᵀ) X,   U, V (max_length, r) learned, X the values
//
// That softmax makes it cost N² D. Left out (the default), what remains is linear in X and r
// numbers of state are enough:
//
//   O = U (Vᵀ X),   causal: o_i = (sum over j <= i of x_j V_jᵀ) U_i, in chunks of tokens
//
// whose weights may be negative and sum to anything. Shorter sequences use the first rows.
#include <cmath>
#include <limits>

#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

constexpr int64_t chunk = 64;

// S = sum of V_j x_jᵀ (r, D) of each head.
class LowrankDecoder final : public Decoder {
 public:
  LowrankDecoder(const Tensor& u, const Tensor& v, int64_t batch, int64_t dim)
      : u_(u.clone()),
        v_(v.clone()),
        state_(Tensor::zeros({batch, u.size(0), u.size(2), dim}, u.dtype())) {}

  Tensor step(const Token& token) override {
    const Tensor& v = token.v;
    check<ShapeError>(next_ < u_.size(1), "lowrank: a decoder of at most ", u_.size(1), " tokens");
    const auto row = [&](const Tensor& factor) {  // (H, r, 1)
      return Variable(factor.select(1, next_).unsqueeze(2));
    };
    const Variable x(repeat_groups(v, u_.size(0)).unsqueeze(2));  // (B, H, 1, D)
    state_ = (Variable(state_) + row(v_) * x).value();
    const Tensor out = sum(Variable(state_) * row(u_), {2}).value();
    ++next_;
    return out;
  }
  int64_t bytes() const override {
    return state_.numel() * static_cast<int64_t>(size_of(state_.dtype()));
  }

 private:
  Tensor u_, v_, state_;
  int64_t next_ = 0;
};

struct LowrankOptions {
  bool softmax = false;
  int64_t rank = 8;
  double dropout = 0;

  static LowrankOptions defaults(const Config& config) {
    LowrankOptions options;
    options.rank = std::min<int64_t>(8, config.max_length);
    return options;
  }

  void describe(OptionVisitor& v) {
    v.integer("rank", rank, {1, 1 << 20}, "rank r of the weights", "8, at most max_length");
    v.boolean("softmax", softmax, "whether the weights are softmax(U Vᵀ), in N² D, or U Vᵀ");
    v.when(softmax, "softmax = true", [&] {
      v.number("dropout", dropout, NumberRange::fraction(), "dropout of attention probabilities");
    });
  }

  Capabilities capabilities() const {
    return {.averages = softmax,
            .positional = true,
            .causal = true,
            .decodes = !softmax,
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .fixed_length = true,
            .time = softmax ? "N^2 D" : "N r D",
            .memory = softmax ? "N^2" : "r D"};
  }
};

class Lowrank final : public Variant {
 public:
  Lowrank(const nn::Scope& scope_, const Config& config, const LowrankOptions& options)
      : Variant(scope_, config),
        softmax_(options.softmax),
        rank_(options.rank),
        dropout_(options.dropout),
        // Without a softmax, sums over max_length values have the variance of one.
        u_(scope("u"), {config.heads, config.max_length, rank_}, deviation(rank_)),
        v_(scope("v"), {config.heads, config.max_length, rank_},
           deviation(softmax_ ? 1 : config.max_length)) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<LowrankDecoder>(u_.value(), v_.value(), batch, config().head_dim);
  }
  std::optional<int64_t> rank(int64_t tokens) const override {
    if (softmax_ || config().causal || rank_ >= tokens) return {};
    return rank_;
  }
  Work work(int64_t queries, int64_t) const override {
    const auto number = [](int64_t n) { return static_cast<double>(n); };
    const double N = number(queries), D = number(config().head_dim), r = number(rank_),
                 H = number(config().heads), size = number(size_of(parameter_dtype()));
    if (softmax_)
      return H * Work{{2 * N * N * (r + D), N * N}, {4 * N * N * (r + D)}, size * 2 * N * N};
    double numbers = r * D;
    if (config().causal) {
      const double C = number(std::min(chunk, queries));
      numbers = std::ceil(N / C) * (C * C + 2 * r * D + 2 * C * D);
    }
    return H * Work{{4 * N * r * D}, {8 * N * r * D}, size * numbers};
  }

 private:
  static nn::Init deviation(int64_t terms) {
    return nn::init::normal(1 / std::sqrt(static_cast<double>(terms)));
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
    check<ShapeError>(k.size(1) == N && N <= config().max_length, "lowrank: as many queries as ",
                      "keys are wanted, at most ", config().max_length, ", not ", N, " and ",
                      k.size(1));
    const Variable U = slice(u_, 1, 0, N), V = slice(v_, 1, 0, N);  // (H, N, r)
    const Variable X = transpose(v, 1, 2);                          // (B, H, N, D)
    if (!softmax_)
      return transpose(config().causal ? causal(U, V, X) : matmul(U, matmul(transpose(V, 1, 2), X)),
                       1, 2);
    constexpr double never = -std::numeric_limits<double>::infinity();
    Variable scores = matmul(U, transpose(V, 1, 2));
    if (config().causal)
      scores = where(causal_keep(N), scores, never);
    else if (mask.lengths.defined())
      scores = where(real_tokens(mask.lengths, N).permute({0, 2, 3, 1}), scores, never);
    Variable p = longhand::softmax(scores);
    if (pass.training && dropout_ > 0)
      p = dropout(broadcast_to(p, {B, H, N, N}), dropout_, pass.random.fork(full_name()));
    return transpose(matmul(p, X), 1, 2);
  }

  // Inside chunks by their masked weights, between chunks by the states before them.
  static Variable causal(const Variable& U, const Variable& V, const Variable& X) {
    const int64_t B = X.size(0), H = X.size(1), N = X.size(2), D = X.size(3), r = U.size(2);
    const int64_t C = std::min(chunk, N), chunks = (N + C - 1) / C;
    const auto cut = [&](const Variable& x) {  // (…, N, d) to (…, chunks, C, d)
      Shape rest = x.shape(), shape = x.shape();
      rest[-2] = chunks * C - N;
      shape[-2] = chunks;
      return reshape(rest[-2] ? concat({x, Variable(Tensor::zeros(rest, x.dtype()))}, -2) : x,
                     shape.with_axis(-2, C));
    };
    const Variable u = cut(U), v = cut(V), x = cut(X), vt = transpose(v, 2, 3);
    Variable out = matmul(where(causal_keep(C), matmul(u, vt), 0.0), x);  // (B, H, chunks, C, D)
    if (chunks > 1) {
      const Variable sums = cumsum(matmul(vt, x), 2);  // (B, H, chunks, r, D)
      const Variable before = concat(
          {Variable(Tensor::zeros({B, H, 1, r, D}, X.dtype())), slice(sums, 2, 0, chunks - 1)}, 2);
      out = out + matmul(u, before);
    }
    return slice(reshape(out, {B, H, chunks * C, D}), 2, 0, N);
  }

  bool softmax_;
  int64_t rank_;
  double dropout_;
  nn::Parameter u_, v_;  // (H, max_length, r)
};

}  // namespace

Spec lowrank_variant() {
  return make_spec<LowrankOptions, Lowrank>(
      {.summary = "learned weights of positions, of rank r",
       .paper = "Tay et al. 2020, arXiv 2005.00743",
       .cases = {{{"rank", 3}}, {{"rank", 3}, {"softmax", true}, {"dropout", 0.3}}}});
}

}  // namespace longhand::attention
