#include "longhand/attention/bases/feature_attention.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/decoding/state_decoder.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/linear_attention.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {
namespace {

using Features = FeatureMap::Features;

Variable largest(const Variable& x, int axis) { return max(x.detach(), axis, true); }

// The features, with W x computed explicitly if a projection is given.
Features written_out(const Features& f) {
  if (!f.formula.projection.defined()) return f;
  const Variable W(f.formula.projection), query = linear_of_heads(f.query, W);
  const Variable key = linear_of_heads(f.key, W);
  const double half_norm = f.formula.half_norm;
  if (half_norm == 0) return {query, key, {.exponentials = true}};
  return {query, key - affine(sum(square(f.key), {-1}, true), half_norm), {.exponentials = true}};
}

// A factor e^h_j common to all features of key j enters as exp(h_j - max_j h_j), with the maximum
// over real tokens; the rest cancels in the quotient.
Variable attend_to_all(const Features& f, const Variable& v, const Mask& mask, const nn::Pass& pass,
                       const Guard& guard, Tensor* normalisers) {
  const Tensor lengths = lengths_from(mask.lengths, pass.tokens.first, v.size(1));
  Variable key = f.key;
  if (f.key_log.defined()) {
    Variable h = f.key_log;
    if (lengths.defined()) h = where(real_tokens(lengths, v.size(1)), h, never);
    Variable c(max_of_parts(largest(h, 1).value(), pass.join));
    // For an empty sequence the maximum is -inf; any finite value works instead.
    if (lengths.defined()) c = where(not_empty(mask.lengths), c, 0.0);
    key = key * exp(h - c);
  }
  return linear_attention(
      f.query, key, v,
      {.features = f.formula, .key_lengths = lengths, .guard = guard, .join = pass.join},
      normalisers);
}

// Returns c_i, the maximum of h (B, n, H) over the keys j <= i, including earlier parts, and the
// log decay of sums that are relative to it.
std::pair<Variable, Variable> scale_of_keys(const Tensor& h, const Join* join) {
  const int64_t n = h.size(1);
  const Variable c(running_max(h));
  if (!join) return {c, log_decay_of_scale(c)};
  // Keys of earlier parts count as one token. If there are none, -inf resets an empty state.
  const Variable before(max_before(c.value().slice(1, n - 1, n), *join)),
      all(running_max(concat({before, c}, 1).value())), own = slice(all, 1, 1, n + 1);
  return {own, slice(all, 1, 0, n) - own};
}

// A causal query must not depend on the maximum over later keys: sums are kept relative to c_j, the
// maximum over j' <= j, and decay when it rises. Padding follows all real tokens.
Variable causal_sums(const Features& f, const Variable& v,
                     const std::shared_ptr<const Join>& join) {
  ScanInputs in{f.query, f.key, v, f.log_decay};
  if (f.key_log.defined()) {
    const auto [c, decay] = scale_of_keys(f.key_log.value().squeeze(3), join.get());
    in.k = f.key * exp(f.key_log - unsqueeze(c, 3));
    in.log_decay = decay;
  }
  return scan(in, nullptr, {.features = f.formula, .final_state = false, .join = join}).out;
}

}  // namespace

FeatureAttention::FeatureAttention(
    const nn::Scope& scope_, const Config& given,
    const std::function<std::unique_ptr<FeatureMap>(const MapScope&)>& make)
    : Variant(scope_, given),
      map_(make({[this](const std::string& name) { return scope(name); }, config(),
                 parameter_dtype(), init_random()})) {
  if (map_->may_underflow)
    nonpositive_.emplace(scope("nonpositive_normalizers"), Tensor::zeros({2}, DType::i64));
}

Variable FeatureAttention::attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) {
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const Features f = map_->gated(map_->features(q, k, first_token(pass)), inputs.x);
  Variable out;
  Tensor normalisers;  // (B, N, H)
  if (config().causal) {
    const Variable sums = causal_sums(f, v, pass.join);
    normalisers = sums.value().select(3, v.size(3));
    out = normalised(sums, map_->guard);
  } else {
    out = attend_to_all(f, v, mask, pass, map_->guard, &normalisers);
  }
  count(normalisers, lengths_from(mask.lengths, pass.tokens.first, v.size(1)), pass);
  return out;
}

void FeatureAttention::count(const Tensor& normalisers, const Tensor& lengths,
                             const nn::Pass& pass) {
  // With or without recomputation, gradients are recorded exactly once, so no count is doubled.
  if (!nonpositive_ || !pass.training || !grad_enabled()) return;
  int64_t queries = normalisers.size(0) * normalisers.size(1);
  if (lengths.defined()) {
    const auto real = lengths.to_vector<int32_t>();
    queries = std::accumulate(real.begin(), real.end(), int64_t{0});
  }
  Tensor more = Tensor::from<int64_t>(
      {nonpositive_normalisers(normalisers, lengths, map_->guard), queries * normalisers.size(2)},
      {2});
  if (pass.others) more = pass.others->sum(more);
  int64_t* const counts = nonpositive_->mutable_value().data<int64_t>();
  for (int i = 0; i < 2; ++i) std::atomic_ref(counts[i]) += more.data<int64_t>()[i];
}

std::unique_ptr<Decoder> FeatureAttention::make_decoder(int64_t batch) const {
  const auto step = [this](const Token& token, int64_t position) {
    const Inputs of = sequences_of(token);
    Features f = map_->gated(written_out(map_->features(of.q, of.k, position)), of.x);
    if (f.formula.exponentials) {
      f.key_log = largest(f.key, 3);
      f.key = exp(f.key - f.key_log);
      f.query = exp(f.query - largest(f.query, 3));
    }
    StepInputs in{f.query.value().squeeze(1), f.key.value().squeeze(1), token.v};
    if (f.log_decay.defined()) in.log_decay = f.log_decay.value().squeeze(1);
    if (f.key_log.defined()) in.key_log = f.key_log.value().squeeze(3).squeeze(1);
    return in;
  };
  return make_state_decoder(batch, config(), step, Normalizer::query, map_->guard);
}

// Per head: the features and their products with values and with queries, or a scan if causal; two
// products for each of them in the backward pass. A scan of a single block keeps its features. In
// memory: D + 1 columns of values.
Work FeatureAttention::work(int64_t queries, int64_t keys) const {
  const auto [N, M, H, D, bytes] = sizes(queries, keys);
  const double tokens = N + M, m = static_cast<double>(map_->count);
  const double products = tokens * 2 * m * D, numbers = tokens * m + (M + m) * (D + 1),
               again = map_->computed_again && !(config().causal && N <= max_scan_block) ? 1 : 0;
  const auto features = [&](const Work::Counts& token, double times) -> Work::Counts {
    return {times * tokens * token.flops, times * tokens * token.exponentials};
  };
  Work all = config().causal ? scan_work(N, m, D, bytes) : Work{{products}, {2 * products}};
  all = all + Work{features(map_->forward, 1), features(map_->backward, 1), numbers * bytes};
  return H * (all + Work{{}, features(map_->forward, again)});
}

// With a causal mask the weights are not a product of features, so the rank is not bounded by m.
int64_t FeatureAttention::rank(int64_t tokens) const {
  return config().causal ? tokens : map_->count;
}

std::map<std::string, double> FeatureAttention::own_metrics() const {
  if (!nonpositive_) return {};
  const auto counts = nonpositive_->value().to_vector<int64_t>();
  const auto all = static_cast<double>(std::max<int64_t>(1, counts[1]));
  return {{"nonpositive_normalizers", static_cast<double>(counts[0]) / all}};
}

}  // namespace longhand::attention
