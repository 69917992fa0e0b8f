// FNet: mixing by a Fourier transform, without parameters. Lee-Thorp et al. 2021 (arXiv
// 2105.03824), eq. 1 and 3: for the values v (N, C) of a sequence, C = H D channels of all heads,
//
//   y = scale Re(F_N v F_C),   y_kl = scale Σ_nm v_nm cos(2π (k n / N + l m / C))
//
// N counts real tokens: padding does not enter. The matrix of this map is symmetric, so the
// gradient of v is the same transform of dy and needs nothing kept. With norm = "ortho", scale = (N
// C)^(-1/2), which keeps the variance of values; the paper has scale 1 and a LayerNorm after it.
#include <algorithm>
#include <cmath>

#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/ops/fourier_mix.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct FnetOptions {
  std::string norm = "ortho";

  void describe(OptionVisitor& v) {
    v.choice("norm", norm, {"ortho", "none"},
             "whether results are divided by the root of the number of values, or not at all");
  }
  // Values of all channels are mixed, so there is no matrix of weights between tokens: `linear` is
  // false although the result is linear in v.
  Capabilities capabilities() const {
    return {.averages = false,
            .linear = false,
            .positional = true,
            .causal_reason = "every token of a Fourier transform contains all others",
            .uses_queries_and_keys = false,
            .cross_lengths = false,
            .time = "N D log(N H D)",
            .memory = "N D"};
  }
};

class Fnet final : public Variant {
 public:
  Fnet(const nn::Scope& scope_, const Config& config, const FnetOptions& options)
      : Variant(scope_, config), ortho_(options.norm == "ortho") {}

  // A transform of n takes 5 n log2 n for powers of 2, else two of the next power but one.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double C = H * D;
    const auto transform = [](double n) {
      const double all = std::exp2(std::ceil(std::log2(n)));
      const auto direct = [](double m) { return 5 * m * std::log2(std::max(m, 2.0)); };
      return all == n ? direct(n) : 2 * direct(2 * all) + 6 * (2 * n + 2 * all);
    };
    const double flops = N * transform(C) + C * transform(N);
    return {{flops}, {flops}, 2 * N * C * bytes};
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    return fourier_mix(inputs.v, mask.lengths, ortho_);
  }

  bool ortho_;
};

using namespace conformance;

void fnet_limits(Findings& f) {
  const int64_t C = H * D;
  double worst = 0;
  for (const int64_t n : {1, 2, 3, 5, 8, 12, 13, 24}) {
    const Tensor v = normal({1, n, H, D}, 3);
    const auto variant = make_variant("fnet", {}, made());
    const Tensor found = forward(*variant, v, v, v), twice = forward(*variant, v, v, found);
    Tensor expected = Tensor::zeros(v.shape(), DType::f64), reflected = expected.clone();
    const double* const x = v.data<double>();
    for (int64_t k = 0; k < n; ++k)
      for (int64_t l = 0; l < C; ++l) {
        double sum = 0;
        for (int64_t i = 0; i < n; ++i)
          for (int64_t c = 0; c < C; ++c)
            sum +=
                x[i * C + c] * std::cos(2 * std::numbers::pi *
                                        (static_cast<double>(k * i % n) / static_cast<double>(n) +
                                         static_cast<double>(l * c % C) / static_cast<double>(C)));
        expected.data<double>()[k * C + l] = sum / std::sqrt(static_cast<double>(n * C));
        reflected.data<double>()[k * C + l] = (x[k * C + l] + x[(n - k) % n * C + (C - l) % C]) / 2;
      }
    for (const double d : {distance(found, expected), distance(twice, reflected)}) {
      f.expect(d <= 1e-12, n, " tokens: the result differs by ", d);
      worst = std::max(worst, d);
    }
  }
  f.measured("to ", worst);
}

}  // namespace

Spec fnet_variant() {
  return make_spec<FnetOptions, Fnet>(
      {.summary = "the Fourier transform of the values over tokens and channels, a baseline",
       .paper = "Lee-Thorp et al. 2021, arXiv 2105.03824",
       .cases = {{}, {{"norm", "none"}}},
       .evidence = {{"limits",
                     "the sum of cosines for many lengths; twice, the mean of v and its reflection",
                     fnet_limits}}});
}

}  // namespace longhand::attention
