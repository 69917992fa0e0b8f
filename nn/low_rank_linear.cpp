#include "longhand/nn/low_rank_linear.h"

#include <algorithm>
#include <cmath>

namespace longhand::nn {
namespace {

// If the entries of A have the variance c / in and those of B c / out, A Aᵀ and Bᵀ B have the
// diagonal c, and the entries of B A the variance r c² / (in out), which should be 2 / (in + out).
Init init_of(int64_t width, int64_t in, int64_t out, int64_t rank) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double c = std::sqrt(2 * number(in) * number(out) / (number(rank) * number(in + out)));
  return init::uniform(std::sqrt(3 * c / number(width)));
}

int64_t checked_rank(const Scope& scope, int64_t in, int64_t out, int64_t rank) {
  check<ConfigError>(1 <= rank && rank <= std::min(in, out), scope.name, ": rank ", rank,
                     ": expected 1 to ", std::min(in, out), " for a linear layer from ", in, " to ",
                     out);
  return rank;
}

}  // namespace

LowRankLinear::LowRankLinear(const Scope& scope_, int64_t in, int64_t out, int64_t rank,
                             bool with_bias)
    : Module(scope_),
      weight_in(scope("weight_in"), {checked_rank(scope_, in, out, rank), in},
                init_of(in, in, out, rank)),
      weight_out(scope("weight_out"), {out, rank}, init_of(out, in, out, rank)) {
  if (with_bias) bias.emplace(scope("bias"), Shape{out}, init::zeros());
}

Lazy LowRankLinear::forward(const Lazy& x) const {
  const auto [weight, with] = parameters_out();
  return linear(linear(x, weight_in, Variable()), weight, with);
}

LinearOfRank::LinearOfRank(const Scope& scope, int64_t in, int64_t out, int64_t rank)
    : full_(rank ? nullptr : std::make_unique<Linear>(scope, in, out)),
      low_rank_(rank ? std::make_unique<LowRankLinear>(scope, in, out, rank) : nullptr) {}

Lazy LinearOfRank::forward(const Lazy& x) const {
  return full_ ? full_->forward(x) : low_rank_->forward(x);
}

Variables LinearOfRank::parts(const Lazy& x, int64_t count) const {
  const auto [weight, bias] = full_ ? full_->parameters() : low_rank_->parameters_out();
  const int64_t n = weight.size(0) / count;
  ShortVector<LinearParameters> layers;
  for (int64_t begin = 0; begin < weight.size(0); begin += n)
    layers.push_back({slice(weight, 0, begin, begin + n),
                      bias.defined() ? slice(bias, 0, begin, begin + n) : bias});
  return linear(full_ ? x : linear(x, low_rank_->weight_in, Variable()), layers);
}

Variables LinearOfRank::forward(const Lazy& x, const std::vector<const LinearOfRank*>& layers) {
  ShortVector<LinearParameters> full;
  for (const LinearOfRank* layer : layers)
    if (layer->full_) full.push_back(layer->full_->parameters());
  if (full.size() == layers.size()) return linear(x, full);
  Variables out;
  for (const LinearOfRank* layer : layers) out.push_back(layer->forward(x));
  return out;
}

LowRankFactors low_rank_factors(const Svd& weight, int64_t rank) {
  check<ShapeError>(1 <= rank && rank <= weight.s.numel(), "low_rank_factors: rank ", rank,
                    ": expected 1 to ", weight.s.numel());
  LowRankFactors to{weight.vt.slice(0, 0, rank).clone(), weight.u.slice(1, 0, rank).clone()};
  dispatch_float(weight.s.dtype(), [&]<class T>() {
    const int64_t in = to.in.size(1), out = to.out.size(0);
    const T* const s = weight.s.data<T>();
    T *const A = to.in.data<T>(), *const B = to.out.data<T>();
    for (int64_t l = 0; l < rank; ++l) {
      const T root = std::sqrt(s[l]);
      for (int64_t j = 0; j < in; ++j) A[l * in + j] *= root;
      for (int64_t i = 0; i < out; ++i) B[i * rank + l] *= root;
    }
  });
  return to;
}

}  // namespace longhand::nn
