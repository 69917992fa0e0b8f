// Linear attention: the inner product φ(q)·φ(k) of a fixed feature map replaces the softmax kernel.
// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5-9. These kernels do not approximate the
// softmax kernel: only taylor2 has the factor 1/sqrt(D), and nothing is added to the normaliser.
//
//   elu1:          elu(x) + 1, eq. 7
//   relu, squared_relu:  max(x, 0), max(x, 0)²
//   exp:           e^x
//   taylor2:       φ(q)·φ(k) = 1 + s + s²/2, s = q·k / sqrt(D), the Taylor expansion of e^s, at
//                  least 1/2. Arora et al. 2024, "Based" (arXiv 2402.18668). The features hold only
//                  the upper triangle of x x^T, with its diagonal divided by sqrt(2).
//   cosformer:     max(x, 0) ⊗ [cos, sin](π i / 2M) for token i = 1, 2, …, M = max_length: weights
//                  relu(q_i)·relu(k_j) cos(π (i - j) / 2M). Qin et al. 2022 (arXiv 2202.08791)
//   hedgehog:      softmax([A x, -A x]), A (D, D) learned, per head, one for queries and one for
//                  keys, initialised to the identity. Zhang et al. 2024 (arXiv 2402.04347)
//
// With rectified features all weights of a query may be 0: its result is then 0, and it is counted
// in the metric nonpositive_normalizers.
#include <cmath>
#include <numbers>
#include <optional>

#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"
#include "longhand/core/view.h"

namespace longhand::attention {
namespace {

// Calls f(l, i, j, c) for each product c x_i x_j, i <= j, at index l. Their squares sum to
// (x·x)²/2.
template <class F>
void for_pairs(int64_t n, F f) {
  for (int64_t i = 0, l = 0; i < n; ++i) {
    f(l++, i, i, 1 / std::numbers::sqrt2);
    for (int64_t j = i + 1; j < n; ++j) f(l++, i, j, 1.0);
  }
}

// Returns [1, x, products] of x (…, D), of shape (…, 1 + D + D (D + 1) / 2).
//
//   dx_i = dy_(1+i) + sum_j c_ij x_j dy_ij, the diagonal counted twice
Variable quadratic(const Variable& x) {
  const int64_t D = x.size(-1), m = 1 + D + D * (D + 1) / 2;
  const Tensor in = x.value().contiguous();
  Shape shape = x.shape();
  shape[-1] = m;
  Tensor out = Tensor::empty(shape, x.dtype());
  constexpr int64_t grain = 16;
  dispatch_float(x.dtype(), [&]<class T>() {
    const Rows<const T> from = rows<T>(in);
    const Rows<T> to = rows<T>(out);
    parallel_for(from.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* const a = from[r];
        T* const y = to[r];
        y[0] = 1;
        for (int64_t i = 0; i < D; ++i) y[1 + i] = a[i];
        for_pairs(D, [&](int64_t l, int64_t i, int64_t j, double c) {
          y[1 + D + l] = static_cast<T>(c) * a[i] * a[j];
        });
      }
    });
  });
  return record("quadratic", out, {x}, [in, D](const Tensor& grad_out, std::span<GradSlot> slots) {
    const Tensor dy = grad_out.contiguous();
    Tensor dx = Tensor::empty(in.shape(), in.dtype());
    dispatch_float(in.dtype(), [&]<class T>() {
      const Rows<const T> from = rows<T>(in), back = rows<T>(dy);
      const Rows<T> to = rows<T>(dx);
      parallel_for(from.count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const T *const a = from[r], *const g = back[r];
          T* const d = to[r];
          for (int64_t i = 0; i < D; ++i) d[i] = g[1 + i];
          for_pairs(D, [&](int64_t l, int64_t i, int64_t j, double c) {
            const T w = static_cast<T>(c) * g[1 + D + l];
            d[i] += w * a[j];
            d[j] += w * a[i];
          });
        }
      });
    });
    slots[0].take(dx);
  });
}

void identity(Tensor& w, const Generator&) {  // (H, D, D)
  const int64_t H = w.size(0), D = w.size(1);
  w.fill(0);
  w.reshape({H, D * D}).slice(1, 0, D * D, D + 1).fill(1);
}

struct LinearOptions {
  std::string feature_map = "elu1";

  void describe(OptionVisitor& v) {
    v.choice("feature_map", feature_map,
             {"elu1", "relu", "squared_relu", "exp", "taylor2", "cosformer", "hedgehog"},
             "feature map of queries and keys");
  }

  // Whether normalisers may be 0.
  bool rectified() const {
    return feature_map == "relu" || feature_map == "squared_relu" || feature_map == "cosformer";
  }

  Capabilities capabilities() const {
    const bool by_position = feature_map == "cosformer", taylor = feature_map == "taylor2";
    return {.averages = !rectified(),
            .positional = by_position,
            .causal = true,
            .decodes = true,
            .fixed_length = by_position,
            .time = taylor ? "N D^3" : "N D^2",
            .memory = taylor ? "N D^2" : "D^2",
            .state = rectified() ? "nonpositive_normalizers" : "-"};
  }
  // Features of queries and keys instead of these; exp computes them tile by tile.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double qk = z.values + z.keys, D = z.D;
    const auto of = [&](double m, double kept, double written) {
      return feature_memory(config, e, m, kept, written);
    };
    if (feature_map == "exp") return of(D, 0, 0);
    if (feature_map == "squared_relu") return of(D, qk, qk);
    if (feature_map == "cosformer") return of(2 * D, 2 * qk, 2 * qk);
    if (feature_map == "hedgehog") {
      Memory out = of(2 * D, 2 * qk, 2 * qk);
      out.forward *= 1.2;
      out.parameters = 2 * z.H * D * D;
      return out;
    }
    if (feature_map != "taylor2") return of(D, 0, qk);
    const double m = 1 + D + D * (D + 1) / 2;
    Memory out = of(m, qk / D * m, qk / D * m);
    out.forward = 0;
    return out;
  }
};

class Linear final : public FeatureAttention {
 public:
  Linear(const nn::Scope& scope_, const Config& config, const LinearOptions& options)
      : FeatureAttention(scope_, config), map_(options.feature_map) {
    const int64_t D = config.head_dim;
    const auto d = static_cast<double>(D);
    if (options.rectified()) count_nonpositive();
    if (map_ == "taylor2") {
      const int64_t m = 1 + D + D * (D + 1) / 2;
      const auto products = static_cast<double>(2 * m);
      set_work(m, {products, 0}, {2 * products, 0});
    } else if (map_ == "cosformer") {
      set_work(2 * D, {2 * d, 0}, {2 * d, 0});
    } else if (map_ == "hedgehog") {
      set_work(2 * D, {2 * d * d, 2 * d}, {4 * d * d, 2 * d});
      query_map_.emplace(scope("query_map"), Shape{config.heads, D, D}, identity);
      key_map_.emplace(scope("key_map"), Shape{config.heads, D, D}, identity);
    } else {
      const double exponentials = options.rectified() ? 0 : d;
      set_work(D, {0, exponentials}, {0, exponentials});
    }
  }

  Features features(const Variable& q, const Variable& k, int64_t position) const override {
    if (map_ == "exp") return {q, k, true};
    if (map_ == "taylor2") {
      const double scale = std::pow(static_cast<double>(q.size(3)), -0.25);
      return {quadratic(scale * q), quadratic(scale * k)};
    }
    if (map_ == "cosformer") return {with_positions(q, position), with_positions(k, position)};
    if (map_ == "hedgehog") {  // the query's normaliser cancels
      const Variable uq = linear_of_heads(q, *query_map_), uk = linear_of_heads(k, *key_map_);
      return {concat({uq, -uq}, 3), log_softmax(concat({uk, -uk}, 3)), true};
    }
    const auto map = [&](const Variable& x) {
      return map_ == "elu1" ? elu_plus_one(x) : map_ == "relu" ? relu(x) : square(relu(x));
    };
    return {map(q), map(k)};
  }

 private:
  // Returns the cosformer features (B, N, H, 2D) of x (B, N, H, D), whose first token is at
  // `position`.
  Variable with_positions(const Variable& x, int64_t position) const {
    const int64_t N = x.size(1), M = config().max_length;
    check<ShapeError>(position + N <= M, "cosformer: expected at most max_length = ", M,
                      " tokens, got ", position + N);
    const auto table = [&](auto f) {
      std::vector<double> values;
      for (int64_t i = position + 1; i <= position + N; ++i)
        values.push_back(
            f(std::numbers::pi * static_cast<double>(i) / (2 * static_cast<double>(M))));
      return Variable(Tensor::from(values, {1, N, 1, 1}).to(x.dtype()));
    };
    const Variable y = relu(x);
    return concat({y * table([](double a) { return std::cos(a); }),
                   y * table([](double a) { return std::sin(a); })},
                  3);
  }

  std::string map_;
  std::optional<nn::Parameter> query_map_, key_map_;  // (H, D, D)
};

}  // namespace

Spec linear_variant() {
  return make_spec<LinearOptions, Linear>(
      {.summary = "kernels of fixed feature maps: elu(x) + 1 and others",
       .paper = "Katharopoulos et al. 2020, arXiv 2006.16236",
       .cases = {{},
                 {{"feature_map", "relu"}},
                 {{"feature_map", "squared_relu"}},
                 {{"feature_map", "exp"}},
                 {{"feature_map", "taylor2"}},
                 {{"feature_map", "cosformer"}},
                 {{"feature_map", "hedgehog"}}},
       .evidence = {{"kernels", "weights of taylor2, cosformer and elu1 match their closed forms",
                     conformance::linear_kernels}}});
}

}  // namespace longhand::attention
