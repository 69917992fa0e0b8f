// Scatterbrain: exact attention to near keys, random features for the others. Chen et al. 2021 (arXiv
// 2110.15343), section 4.1, with a window as the sparse part and Performer's positive features φ as
// the part of low rank:
//
//   out_i = Σ_j a_ij v_j / Σ_j a_ij,   a_ij = e^(s_ij) if |i - j| < w, otherwise φ(q_i)·φ(k_j)
//
// with s_ij = q_i·k_j / sqrt(D) and E φ(q)·φ(k) = e^s: numerator and normaliser are unbiased, and the
// near pairs have no variance. The paper adds e^s - φ·φ over the near pairs to the sums of φ·φ over all
// pairs. Here nothing is subtracted, so that no sum can become negative: far keys are summed by scans
// that run w tokens behind the query, from the left and, unless causal, from the right:
//
//   out_i = (e^(L_i) o_i + Σ_(j <= i - w) φ·φ v_j + Σ_(j >= i + w) φ·φ v_j) / (e^(L_i) + …)
//
// where o_i is exact attention within the window and L_i the logarithm of its normaliser. All three
// terms are relative to the largest of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/bases/random_features.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

struct ScatterbrainOptions {
  int64_t window = 64;
  RandomFeatureOptions projection;

  void describe(OptionVisitor& v) {
    v.integer("window", window, {0, 1 << 30},
              "keys with |i - j| < w have exact weights; 0: none, all are estimated");
    projection.describe(v);
  }
  Capabilities capabilities() const {
    return {.random = true,
            .positional = window > 0,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            .time = "N (w + m) D",
            .memory = "N m",
            .state = "features, redraws, steps, random_state"};
  }
  // The features and, in each direction, those that run behind, with their values; the results of each
  // part. Gradients of all of these at the same time.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double m = static_cast<double>(projection.features), all = z.tokens * m;
    if (static_cast<double>(window) >= e.queries)
      return with_buffers(config, projection, {.kept = 2 * z.tokens});
    const double directions = config.causal ? 1 : 2, near = window > 0 ? 1 : 0;
    const double copies = directions - 1 + near;  // of features of keys, and of values
    Memory out{.kept = (2 + copies + directions - 1) * all + (copies + 2 + near) * z.values +
                       (4 + 2 * near) * z.tokens + directions * kept_scan_states(config, e, m),
               .forward = 2 * all,
               .backward = std::max(2 * directions * all - (3 - near) * z.values, 0.0)};
    return with_buffers(config, projection, out);
  }
};

// x (B, N, ...) with the tokens in reverse order.
Tensor reversed_rows(const Tensor& x) {
  const Tensor from = x.contiguous();
  Tensor out = Tensor::empty(from.shape(), from.dtype());
  const int64_t N = x.size(1), row = x.numel() / (x.size(0) * N);
  dispatch_float(x.dtype(), [&]<class T>() {
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 16) / row);
    parallel_for(x.size(0) * N, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::copy_n(from.data<T>() + (i / N * N + N - 1 - i % N) * row, row,
                    out.data<T>() + i * row);
    });
  });
  return out;
}
Variable reversed(const Variable& x) {
  return record("reversed", reversed_rows(x.value()), {x},
                [](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  if (grad_in[0]) grad_in[0].take(reversed_rows(grad_out));
                });
}

// x (B, N, ...) `steps` tokens later, after zeros. steps < N.
Variable delayed(const Variable& x, int64_t steps) {
  if (steps == 0) return x;
  Shape first = x.shape();
  first[1] = steps;
  return concat({Variable(Tensor::zeros(first, x.dtype())), slice(x, 1, 0, x.size(1) - steps)}, 1);
}

// The smallest normaliser of features that counts: smaller ones cannot be rescaled.
double least(DType dtype) {
  return dtype == DType::f32 ? static_cast<double>(std::numeric_limits<float>::min())
                             : std::numeric_limits<double>::min();
}

// Sums and normalisers e^L [o, 1] + e^b F, as a quotient. L and b (B, N, H, 1), o (B, N, H, D), F (B,
// N, H, D + 1); o and L may be undefined, and so may F and b. Rows without any keys give 0.
Variable joined(const Variable& o, const Variable& L, const Variable& F, const Variable& b) {
  Variable far_scale, near_scale;
  if (F.defined()) {
    const Variable sum = slice(F.detach(), 3, F.size(3) - 1, F.size(3));
    Tensor some = Tensor::empty(sum.shape(), DType::u8);
    const auto values = sum.value().to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      some.data<uint8_t>()[i] = values[i] >= least(F.dtype());
    far_scale = where(some, b, never);
    const Variable logs = far_scale.detach() + log(where(some, sum, 1.0));
    near_scale = L.defined() ? max(concat({L.detach(), logs}, 3), 3, true) : logs;
  } else {
    near_scale = L.detach();
  }
  // The larger of both logarithms, or 0 where there are no keys.
  Tensor finite = Tensor::empty(near_scale.shape(), DType::u8);
  const auto values = near_scale.value().to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) finite.data<uint8_t>()[i] = values[i] > never;
  const Variable top = where(finite, near_scale, 0.0);
  Variable sums;
  if (L.defined()) {
    const Variable weight = exp(L - top);
    sums = concat({o * weight, weight}, 3);
  }
  if (F.defined()) {
    const Variable far = F * exp(far_scale - top);
    sums = sums.defined() ? sums + far : far;
  }
  return normalised(sums);
}

class Scatterbrain final : public RandomFeatureAttention {
 public:
  Scatterbrain(const nn::Scope& scope_, const Config& config, const ScatterbrainOptions& options)
      : RandomFeatureAttention(scope_, config, options.projection, false),
        window_(options.window),
        scale_(1 / std::sqrt(static_cast<double>(config.head_dim))) {
    const double m = static_cast<double>(features_count());
    const Work::Counts token{2 * m * static_cast<double>(config.head_dim), m};
    set_work(features_count(), token, token);
  }

  // log φ(x) = w_l·x̂ - |x̂|²/2 with x̂ = D^(-1/4) x; that of queries also has the factor 1/m.
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const double scale = std::pow(static_cast<double>(config().head_dim), -0.25);
    const auto logarithms = [&](const Variable& x) {
      return project(x, scale) - half_square(x, scale);
    };
    return {logarithms(q) - std::log(static_cast<double>(features_count())), logarithms(k), true};
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;
  int64_t state_bytes(int64_t) const override;

  // Also counts the pairs in the window.
  Work work(int64_t queries, int64_t keys) const override {
    const Work far = FeatureAttention::work(queries, keys);
    const double H = static_cast<double>(config().heads), N = static_cast<double>(queries),
                 D = static_cast<double>(config().head_dim),
                 w = static_cast<double>(std::min(window_, queries));
    const double before = N * w - w * (w - 1) / 2;  // pairs with i - w < j <= i
    const double pairs = H * (config().causal ? before : std::max(0.0, 2 * before - N));
    return {{far.forward.flops + 4 * pairs * D, far.forward.exponentials + pairs},
            {far.backward.flops + 10 * pairs * D, far.backward.exponentials + pairs},
            far.bytes};
  }
  std::optional<int64_t> rank(int64_t tokens) const override {
    return window_ > 0 ? std::optional<int64_t>() : FeatureAttention::rank(tokens);
  }
  std::string algorithm(int64_t tokens) const override {
    if (tokens > window_) return {};
    return concat_message("softmax: ", tokens, " tokens are within a window of ", window_);
  }
  int64_t window() const { return window_; }
  int64_t feature_number() const { return features_count(); }
  double scale() const { return scale_; }

 private:
  // The sums over keys `behind` or more tokens to the left, for features fq and fk = e^(t - c); with
  // c (B, N, H), a scale that rises, or undefined if it is constant. Sums are relative to the c of the
  // latest of these keys.
  static Variable sums_behind(const Variable& fq, const Variable& fk, const Variable& v,
                              const Variable& c, int64_t behind) {
    ScanInputs in{fq, delayed(fk, behind), delayed(v, behind)};
    if (c.defined()) in.log_decay = log_decay_of_scale(c);
    return scan(in, nullptr, {.final_state = false}).out;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t N = q.size(1);
    const bool causal = config().causal;
    check<ShapeError>(k.size(1) == N, "scatterbrain: expected as many queries as keys, got ", N,
                      " queries and ", k.size(1), " keys");
    Variable near, L, far, b;
    if (window_ > 0) {
      const SoftmaxAttentionResult r = softmax_attention_with_sums(q, k, v,
                                                                   {.scale = scale_,
                                                                    .causal = causal,
                                                                    .window = window_,
                                                                    .key_lengths = mask.lengths,
                                                                    .query_lengths = mask.lengths});
      if (window_ >= N) return r.out;
      near = r.out, L = unsqueeze(transpose(r.log_sums, 1, 2), 3);
    }
    // log φ = W x̂ - |x̂|²/2. The norms and all scales are numbers of a token: only W x̂ is large.
    const double x_scale = std::pow(static_cast<double>(config().head_dim), -0.25);
    const Variable uq = project(q, x_scale), uk = project(k, x_scale),  // (B, N, H, m)
        norms = half_square(k, x_scale);                                // (B, N, H, 1)
    const Variable a = max(uq.detach(), 3, true), fq = exp(uq - a);
    b = a - half_square(q, x_scale) - std::log(static_cast<double>(features_count()));
    const Variable largest = max(uk.detach(), 3, true) - norms.detach();
    if (causal) {
      const Variable c(running_max(largest.value().squeeze(3)));  // (B, N, H)
      const Variable fk = exp(uk - (norms + unsqueeze(c, 3)));
      // Before the first far key the scale is that of key 0: the sums are 0.
      Variable late = c;
      if (window_ > 0) {
        const Shape first{c.size(0), window_, c.size(2)};
        late = concat({broadcast_to(slice(c, 1, 0, 1), first), slice(c, 1, 0, N - window_)}, 1);
      }
      far = sums_behind(fq, fk, v, late, window_);
      b = b + unsqueeze(late, 3);
    } else {
      Variable c = largest, shift = norms;
      if (mask.lengths.defined()) c = where(real_tokens(mask.lengths, N), c, never);
      c = max(c, 1, true);  // (B, 1, H, 1)
      if (mask.lengths.defined()) {
        c = where(not_empty(mask.lengths), c, 0.0);
        shift = where(real_tokens(mask.lengths, N), norms + c, -never);  // e^-inf = 0
      } else {
        shift = norms + c;
      }
      const Variable fk = exp(uk - shift);
      far = sums_behind(fq, fk, v, {}, window_);
      const int64_t right = std::max<int64_t>(1, window_);
      if (right < N)
        far = far + reversed(sums_behind(reversed(fq), reversed(fk), reversed(v), {}, right));
      b = b + c;
    }
    return joined(near, L, far, b);
  }

  int64_t window_;
  double scale_;
};

// Keeps the latest w keys and values in a ring, and the sums over the features of the others.
class ScatterbrainDecoder final : public Decoder {
 public:
  ScatterbrainDecoder(const Scatterbrain& variant, const Config& config, DType dtype, int64_t batch)
      : variant_(variant),
        dtype_(dtype),
        heads_(config.heads),
        window_(std::min(variant.window(), config.max_length)),
        keys_(
            Tensor::zeros({batch, heads_, std::max<int64_t>(1, window_), config.head_dim}, dtype)),
        values_(keys_.clone()) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const Tensor q = token.q.contiguous(), k = repeat_groups(token.k, heads_),
                 v = repeat_groups(token.v, heads_);
    const int64_t slot = window_ > 0 ? next_ % window_ : 0;
    Variable near, L, far, b;
    if (window_ == 0)
      far = add(q, k, v, b);
    else if (next_ >= window_)
      far = add(q, keys_.select(2, slot).contiguous(), values_.select(2, slot).contiguous(), b);
    ++next_;
    if (window_ > 0) {
      copy_into(keys_.select(2, slot), k);
      copy_into(values_.select(2, slot), v);
      const int64_t count = std::min(next_, window_);
      const Variable keys(keys_.slice(2, 0, count).to(DType::f64)),
          values(values_.slice(2, 0, count).to(DType::f64));
      const Variable s = matmul(Variable(q.to(DType::f64).unsqueeze(2)), transpose(keys, 2, 3),
                                variant_.scale());  // (B, H, 1, count)
      const Variable top = max(s, 3, true), p = exp(s - top), sum_p = sum(p, {3}, true);
      near = transpose(matmul(p, values) / sum_p, 1, 2);
      L = transpose(top + log(sum_p), 1, 2);
    }
    return joined(near, L, far, b).value().squeeze(1).to(dtype_).contiguous();
  }
  int64_t bytes() const override {
    const int64_t m = far_features();
    return (window_ > 0 ? 2 * keys_.numel() * static_cast<int64_t>(size_of(dtype_)) : 0) +
           keys_.size(0) * heads_ * (m * (keys_.size(3) + 1) + 1) * int64_t{8};
  }

 private:
  int64_t far_features() const { return variant_.feature_number(); }

  // Adds a key to the state and returns the sums over it for q, relative to e^b.
  Variable add(const Tensor& q, const Tensor& k, const Tensor& v, Variable& b) {
    const auto f = variant_.features(Variable(q.unsqueeze(1)), Variable(k.unsqueeze(1)), 0);
    const Variable query = Variable(f.query.value().to(DType::f64)),
                   key = Variable(f.key.value().to(DType::f64));
    const Variable a = max(query, 3, true), c = max(key, 3, true);
    const Tensor sums = scan_step(state_,
                                  {.q = exp(query - a).value().squeeze(1),
                                   .k = exp(key - c).value().squeeze(1),
                                   .v = v.to(DType::f64),
                                   .key_log = c.value().squeeze(3).squeeze(1)},
                                  Normalizer::query);
    // (B, H) to (B, 1, H, 1).
    b = a + Variable(state_.log_scale.value().unsqueeze(1).unsqueeze(3));
    return Variable(sums.unsqueeze(1));
  }

  const Scatterbrain& variant_;
  DType dtype_;
  int64_t heads_, window_;
  Tensor keys_, values_;  // (B, H, w, D)
  ScanState state_;
  int64_t next_ = 0;
};

std::unique_ptr<Decoder> Scatterbrain::make_decoder(int64_t batch) const {
  return std::make_unique<ScatterbrainDecoder>(*this, config(), parameter_dtype(), batch);
}
int64_t Scatterbrain::state_bytes(int64_t) const {
  return decodes() ? make_decoder(1)->bytes() : 0;
}

}  // namespace

Spec scatterbrain_variant() {
  return make_spec<ScatterbrainOptions, Scatterbrain>(
      {.summary = "exact weights of keys in a window, random features for the others",
       .paper = "Chen et al. 2021, arXiv 2110.15343",
       .cases = {{{"window", 3}, {"features", 20}},
                 {{"window", 0}, {"features", 20}, {"heads", "per_head"}, {"draw", "iid"}},
                 {{"window", 5},
                  {"features", 20},
                  {"draw", "givens"},
                  {"norm", "sqrt_d"},
                  {"redraw_interval", 1}}},
       .evidence = {{"limits", "a window of N gives softmax; a window of 0, performer",
                     conformance::scatterbrain_limits},
                    {"rate", "the error decreases as m^-0.5, and with the window",
                     conformance::scatterbrain_rate}}});
}

}  // namespace longhand::attention
