// Attention-free Transformer. Zhai et al. 2021 (arXiv 2105.14103), eq. 2: for each channel c, an
// average over keys that does not depend on queries, multiplied by a gate of the query,
//
//   o_i = sigmoid(q_i) ∘ y_i,   y_ic = Σ_j e^(k_jc + w_ij) v_jc / Σ_j e^(k_jc + w_ij)
//
// with position biases w, the same for all channels, and
//   full    w (L, L) learned, L = max_length, or of rank r: w = U Vᵀ
//   local   w_ij learned where |i - j| < window, otherwise 0
//   simple  w = 0
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/aft_decoder.h"
#include "longhand/attention/ops/aft.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct AftOptions {
  std::string kind = "local";
  int64_t window = 32, rank = 0;

  static AftOptions defaults(const Config& config) {
    return {.window = std::min<int64_t>(32, config.max_length)};
  }

  void describe(OptionVisitor& v) {
    v.choice("kind", kind, {"full", "local", "simple"},
             "biases of positions: of all pairs, of pairs less than `window` apart, or none");
    v.when(kind == "local", "kind = \"local\"", [&] {
      v.integer("window", window, {1, 1 << 24}, "biases are learned for |i - j| < window",
                "32, at most max_length");
    });
    v.when(kind == "full", "kind = \"full\"", [&] {
      v.integer("rank", rank, {0, 1 << 20}, "rank of the biases U Vᵀ; 0: a full matrix");
    });
  }
  // The biases w_ij of a sequence of N tokens are learned for |i - j| < this.
  int64_t reach(int64_t N) const { return kind == "full" ? N : kind == "local" ? window : 0; }

  // Weights differ between channels, so there is no matrix of them: `linear` is false although the
  // result is linear in v.
  Capabilities capabilities() const {
    const bool simple = kind == "simple";
    return {.averages = false,
            .linear = false,
            .positional = !simple,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .fixed_length = !simple,
            .needs = Needs::heads,
            .time = simple            ? "N D"
                    : kind == "local" ? "N w D"
                                      : "N^2 D",
            .memory = "N D"};
  }
};

class Aft final : public Variant {
 public:
  Aft(const nn::Scope& scope_, const Config& config, const AftOptions& options)
      : Variant(scope_, config), options_(options) {
    const int64_t L = config.max_length, r = options.rank;
    const nn::Init small = nn::init::normal(0.01);
    if (options.kind == "local")
      biases_.emplace(scope("biases"), Shape{L, 2 * options.window - 1}, small);
    if (options.kind == "full" && r == 0) biases_.emplace(scope("biases"), Shape{L, L}, small);
    if (options.kind == "full" && r > 0) {
      const nn::Init factor = nn::init::normal(0.1 / std::pow(static_cast<double>(r), 0.25));
      u_.emplace(scope("u"), Shape{L, r}, factor);
      v_.emplace(scope("v"), Shape{L, r}, factor);
    }
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    const int64_t L = config().max_length, w = options_.reach(L);
    const auto row = [this, L, w](int64_t i, int64_t first) {
      check<ShapeError>(i < L, "aft: expected at most max_length = ", L, " tokens to decode");
      if (u_) {
        const NoGrad no_grad;
        const Variable all =
            matmul(slice(*u_, 0, i, i + 1), transpose(slice(*v_, 0, first, i + 1), 0, 1));
        return all.value().contiguous();
      }
      const Tensor& all = biases_->value();
      const int64_t at = options_.kind == "local" ? first + w - 1 - i : first;
      return all.slice(0, i, i + 1).slice(1, at, at + i + 1 - first).contiguous();
    };
    // A window longer than any sequence keeps all tokens.
    return make_aft_decoder(batch, config(), options_.kind == "full" ? L + 1 : w, row);
  }
  // Each pair in the window costs an exponential, shared by all channels, and two multiply-adds per
  // channel; in the backward pass, that exponential twice and four multiply-adds.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double C = H * D, each = config().causal ? 1 : 2,
                 reach = static_cast<double>(std::min(options_.reach(queries), queries));
    const double pairs = options_.kind == "full" ? N * N * each / 2 : N * reach * each;
    const double products = 2 * N * N * static_cast<double>(options_.rank);
    const double own = (each + 2) * N * C;  // of keys, the sums outside and the gate
    return {{(4 * pairs + 8 * N) * C + products, pairs + own},
            {(8 * pairs + 12 * N) * C + 2 * products, 2 * pairs + 2 * own},
            bytes * (3 * N * C + (options_.rank ? N * N : 0))};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const int64_t N = inputs.q.size(1);
    if (options_.kind != "simple") check_length(N);
    Variable w;
    if (u_) w = matmul(slice(*u_, 0, 0, N), transpose(slice(*v_, 0, 0, N), 0, 1));
    if (biases_) {
      w = slice(*biases_, 0, 0, N);
      if (options_.kind == "full") w = slice(w, 1, 0, N);
    }
    const Variable y = aft(inputs.k, inputs.v, w, options_.reach(N), options_.kind == "local",
                           config().causal, mask.lengths);
    return sigmoid(inputs.q) * y;
  }

  AftOptions options_;
  std::optional<nn::Parameter> biases_;  // (L, L), or (L, 2 window - 1)
  std::optional<nn::Parameter> u_, v_;   // (L, r)
};

using namespace conformance;

void aft_limits(Findings& f) {
  const Sample x;
  const Tensor zeros = Tensor::zeros(x.q.shape(), DType::f64);
  for (const bool causal : {false, true}) {
    const auto simple = make_variant("aft", {{"kind", "simple"}}, made(causal));
    const Tensor mean = forward(*make_variant("mean", {}, made(causal)), x);
    equal(f, concat_message(causal ? "causal: " : "", "half the mean"),
          forward(*simple, zeros, zeros, x.v), affine(Variable(mean), 0.5).value(), 1e-14);
    const auto full = make_variant("aft", {{"kind", "full"}}, made(causal));
    const Tensor biases = full->state_dict().at("biases").clone();
    set(*full, {{"biases", Tensor::zeros({N, N}, DType::f64)}});
    equal(f, "biases of 0, full and simple", *full, *simple, 1e-13);
    const auto local = make_variant("aft", {{"kind", "local"}, {"window", 5}}, made(causal));
    set(*local, {{"biases", Tensor::zeros({N, 9}, DType::f64)}});
    equal(f, "biases of 0, local and simple", *local, *simple, 1e-13);
    // A window over all tokens, whose band holds the whole matrix.
    const auto wide = make_variant("aft", {{"kind", "local"}, {"window", N}}, made(causal));
    Tensor band = Tensor::zeros({N, 2 * N - 1}, DType::f64);
    for (int64_t i = 0; i < N; ++i)
      copy_into(band.slice(0, i, i + 1).slice(1, N - 1 - i, 2 * N - 1 - i),
                biases.slice(0, i, i + 1));
    set(*full, {{"biases", biases}});
    set(*wide, {{"biases", band}});
    equal(f, "a window of all tokens and full", *wide, *full, 1e-13);
  }
}

}  // namespace

Spec aft_variant() {
  return make_spec<AftOptions, Aft>(
      {.summary = "gated averages of values, weighted by keys and biases of positions",
       .paper = "Zhai et al. 2021, arXiv 2105.14103",
       .cases = {{},
                 {{"window", 3}},
                 {{"kind", "full"}},
                 {{"kind", "full"}, {"rank", 3}},
                 {{"kind", "simple"}}},
       .evidence = {{"limits",
                     "keys of 0 give half the mean without gates; biases of 0 make full, local and "
                     "simple the same; a window of all tokens makes local full",
                     aft_limits}}});
}

}  // namespace longhand::attention
