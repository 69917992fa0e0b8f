// Scatterbrain: exact attention to near keys, random features for the others. Chen et al. 2021
// (arXiv 2110.15343), section 4.1, with a window as the sparse part and Performer's positive
// features φ as the part of low rank:
//
//   out_i = Σ_j a_ij v_j / Σ_j a_ij,   a_ij = e^(s_ij) if |i - j| < w, otherwise φ(q_i)·φ(k_j)
//
// with s_ij = q_i·k_j / sqrt(D) and E φ(q)·φ(k) = e^s: numerator and normaliser are unbiased, and
// the near pairs have no variance. The paper adds e^s - φ·φ over the near pairs to the sums of φ·φ
// over all pairs. Here nothing is subtracted, so no sum can be negative: far keys are summed by
// scans that run w tokens behind the query, from the left and, unless causal, from the right:
//
//   out_i = (e^(L_i) o_i + Σ_(j <= i - w) φ·φ v_j + Σ_(j >= i + w) φ·φ v_j) / (e^(L_i) + …)
//
// where o_i is exact attention within the window and L_i the logarithm of its normaliser. All three
// terms are relative to the largest of them.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/features/random_features.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/near_and_far.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"

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
    return {.random = !projection.learned(),
            .positional = window > 0,
            .causal = true,
            .decodes = true,
            .cross_lengths = false,
            // A shared projection serves any of the heads.
            .needs = projection.heads == "shared" ? Needs::heads : Needs::tokens,
            .time = "N (w + m) D",
            .memory = "N m",
            .state = projection.state(false)};
  }
};

class Scatterbrain final : public FeatureAttention {
 public:
  Scatterbrain(const nn::Scope& scope_, const Config& config, const ScatterbrainOptions& options)
      : FeatureAttention(scope_, config,
                         [&](const MapScope& scope) {
                           return exponential_map(scope, options.projection, false, true, true);
                         }),
        window_(options.window) {}

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;

  // Also counts the pairs in the window, and the scans of both directions.
  Work work(int64_t queries, int64_t keys) const override {
    const double scans = config().causal || window_ == 0 ? 1 : 2;
    const Work far = scans * FeatureAttention::work(queries, keys);
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double w = static_cast<double>(std::min(window_, queries));
    const double before = N * w - w * (w - 1) / 2;  // pairs with i - w < j <= i
    const double pairs = H * (config().causal ? before : std::max(0.0, 2 * before - N));
    return far + softmax_work(pairs, D, 0);
  }
  int64_t rank(int64_t tokens) const override {
    return window_ > 0 ? tokens : FeatureAttention::rank(tokens);
  }
  std::string algorithm(int64_t tokens) const override {
    if (tokens > window_) return {};
    return concat_message("softmax: ", tokens, " tokens are within a window of ", window_);
  }
  int64_t window() const { return window_; }
  // log φ(x) = w_l·x̂ - |x̂|²/2 with x̂ = D^(-1/4) x, up to the factor 1/m.
  Variable logarithms(const Variable& x) const {
    const auto& of = static_cast<const RandomFeatureMap&>(map());
    return of.project(x, of.x_scale()) - half_square(x, of.x_scale());
  }

 private:
  // The sums over keys at least w tokens to the left of queries, or to the right; w < N.
  FarSums far_sums(const FeatureMap::Features& f, const Variable& v, const Tensor& lengths,
                   bool right) const {
    const int64_t w = window_, N = v.size(1);
    const auto queries = [&](const Variable& x) {
      return right ? slice(x, 1, 0, N - w) : slice(x, 1, w, N);
    };
    const auto keys = [&](const Variable& x) {
      return right ? slice(x, 1, w, N) : slice(x, 1, 0, N - w);
    };
    ScanInputs in{queries(f.query), keys(f.key), keys(v)};
    if (right && lengths.defined()) in.log_decay = Variable(resets(lengths, N, v));
    const ScanResult r = scan(in, nullptr,
                              {.features = f.formula,
                               .query_norm = f.formula.projection.defined(),
                               .reverse = right,
                               .log_scales = true,
                               .final_state = false});
    const double log_m = std::log(static_cast<double>(map().count));
    return {r.out, (Variable(r.log_scales) - log_m).value(), right ? 0 : w, right ? w : 0};
  }
  // -inf at the last key of each sample, where a scan from the right drops the padding.
  Tensor resets(const Tensor& lengths, int64_t N, const Variable& v) const {
    Tensor out = Tensor::zeros({v.size(0), N - window_, v.size(2)}, v.dtype());
    const auto ends = lengths.to_vector<int32_t>();
    for (int64_t b = 0; b < v.size(0); ++b)
      if (ends[b] > window_) out.select(0, b).select(0, ends[b] - 1 - window_).fill(never);
    return out;
  }

  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const int64_t N = q.size(1);
    const bool causal = config().causal;
    if (window_ == 0) return FeatureAttention::attend(inputs, mask, pass);
    const SoftmaxAttentionOptions near_options{.causal = causal,
                                               .window = window_,
                                               .key_lengths = mask.lengths,
                                               .query_lengths = mask.lengths};
    if (window_ >= N) return softmax_attention(q, k, v, near_options);
    const SoftmaxAttentionResult near = softmax_attention_with_sums(q, k, v, near_options);
    const FeatureMap::Features f = map().features(q, k, 0);
    ShortVector<FarSums> far{far_sums(f, v, mask.lengths, false)};
    if (!causal) far.push_back(far_sums(f, v, mask.lengths, true));
    std::vector<int32_t> lengths(static_cast<size_t>(q.size(0)), static_cast<int32_t>(N));
    if (mask.lengths.defined()) lengths = mask.lengths.to_vector<int32_t>();
    // All but w queries of each sample have far keys on a side.
    const Tensor with_far = lengths_from(Tensor::from(lengths, {q.size(0)}), window_, N);
    for (const FarSums& side : far) count(side.sums.value().select(3, v.size(3)), with_far, pass);
    return near_and_far(near, far, lengths);
  }

  int64_t window_;
};

// Keeps the latest w keys and values in a ring, and the sums over the features of the others.
class ScatterbrainDecoder final : public Decoder {
 public:
  ScatterbrainDecoder(const Scatterbrain& variant, int64_t batch)
      : variant_(variant),
        batch_(batch),
        heads_(variant.config().heads),
        window_(std::min(variant.window(), variant.config().max_length)),
        near_(batch, heads_, variant.config().head_dim, window_) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const Tensor q = token.q.contiguous();
    const int64_t slot = next_ % window_;
    ShortVector<FarSums> far;
    if (next_ >= window_)
      far = {add(q, near_.keys().select(2, slot).contiguous(),
                 near_.values().select(2, slot).contiguous())};
    ++next_;
    near_.put(slot, repeat_groups(token.k, heads_), repeat_groups(token.v, heads_));
    const Variable keys(near_.keys().slice(2, 0, near_.size())),
        values(near_.values().slice(2, 0, near_.size()));
    const Variable s = matmul(Variable(q.unsqueeze(2)), transpose(keys, 2, 3),
                              variant_.config().softmax_scale());  // (B, H, 1, count)
    const Variable top = max(s, 3, true), p = exp(s - top), sum_p = sum(p, {3}, true);
    const SoftmaxAttentionResult near{cast(transpose(matmul(p, values) / sum_p, 1, 2), DType::f64),
                                      cast(squeeze(top + log(sum_p), 3), DType::f64)};
    const ShortVector<int32_t> lengths(static_cast<size_t>(q.size(0)), 1);
    return near_and_far(near, far, lengths).value().squeeze(1).to(q.dtype()).contiguous();
  }
  int64_t bytes() const override {
    const int64_t m = far_features(), D = variant_.config().head_dim;
    return near_.bytes() + batch_ * heads_ * (m * (D + 1) + 1) * int64_t{8};
  }
  Traffic traffic() const override {
    return {.read = near_.bytes(), .updated = bytes() - near_.bytes()};
  }

 private:
  int64_t far_features() const { return variant_.map().count; }

  // Adds a key to the state and returns the sums over it for q.
  FarSums add(const Tensor& q, const Tensor& k, const Tensor& v) {
    const auto logarithms = [&](const Tensor& x) {
      return variant_.logarithms(Variable(x.unsqueeze(1)));
    };
    const Variable query = logarithms(q), key = logarithms(k);  // (B, 1, H, m)
    const Variable a = max(query, 3, true), c = max(key, 3, true);
    const Tensor sums = scan_step(state_,
                                  {.q = exp(query - a).value().squeeze(1),
                                   .k = exp(key - c).value().squeeze(1),
                                   .v = v,
                                   .key_log = c.value().squeeze(3).squeeze(1)},
                                  Normalizer::column);
    const Variable log_scale = cast(squeeze(squeeze(a, 3), 1), DType::f64) +
                               Variable(state_.log_scale.value()) -
                               std::log(static_cast<double>(far_features()));  // (B, H)
    return {Variable(sums.unsqueeze(1)), log_scale.value().unsqueeze(2).contiguous()};
  }

  const Scatterbrain& variant_;
  int64_t batch_, heads_, window_;
  KeyValueCache near_;
  ScanState state_;
  int64_t next_ = 0;
};

std::unique_ptr<Decoder> Scatterbrain::make_decoder(int64_t batch) const {
  if (window_ == 0) return FeatureAttention::make_decoder(batch);
  return std::make_unique<ScatterbrainDecoder>(*this, batch);
}

using namespace conformance;

// Both use the features of the same state.
void scatterbrain_limits(Findings& f) {
  for (const bool causal : {false, true}) {
    equal(f, concat_message("a window of N", causal ? ", causal" : "", " and softmax"),
          *make_variant("scatterbrain", {{"window", N}}, made(causal)),
          *make_variant("softmax", {}, made(causal)), 1e-12);
    const auto none = make_variant("scatterbrain", {{"window", 0}, {"features", 16}}, made(causal));
    const auto performer = make_variant("performer", {{"features", 16}}, made(causal));
    set(*performer, {{"features", none->state_dict().at("features")}});
    equal(f, concat_message("a window of 0", causal ? ", causal" : "", " and performer"), *none,
          *performer, 1e-12);
  }
}

// Exact weights remove the variance of the near pairs.
void scatterbrain_rate(Findings& f) {
  rate(f, "scatterbrain", {{"draw", "iid"}, {"window", 8}});
  const Case c = small_case(0.5, 21);
  double before = attention_error("performer", {{"draw", "iid"}}, 64, c);
  f.measured("at 64 features without a window ", before);
  for (const int64_t window : {32, 64, 120}) {
    const double error =
        attention_error("scatterbrain", {{"draw", "iid"}, {"window", window}}, 64, c);
    f.measured("of ", window, " ", error);
    f.expect(error < 0.95 * before, "expected a window of ", window, " to lower the error of ",
             before, ", got ", error);
    before = error;
  }
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
       .evidence = {
           {"limits", "a window of N gives softmax; a window of 0, performer", scatterbrain_limits},
           {"rate", "the error decreases as m^-0.5, and with the window", scatterbrain_rate}}});
}

}  // namespace longhand::attention
