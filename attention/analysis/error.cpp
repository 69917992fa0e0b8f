#include "longhand/attention/analysis/error.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/analysis/spectrum.h"
#include "longhand/attention/analysis/weights.h"
#include "longhand/attention/bases/landmarks.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"

namespace longhand::attention::analysis {
namespace {

using Values = std::vector<double>;

/// Attention of one head, with everything that is compared.
struct Outcome {
  Tensor out, P, dq, dk, dv;  // P (N, N), the others (1, N, 1, D)
};

/// Attention by its definition, with the weights given as a function of q and k.
template <class Weights>
Outcome defined_by(const HeadInputs& in, const Tensor& cotangent, const Weights& weights_of) {
  const Variable q(in.q, true), k(in.k, true), v(in.v, true);
  const Variable P = weights_of(q, k);
  const Variable out = definitions::apply(P, v);
  backward(out, cotangent);
  return {out.value(), P.value().select(0, 0).select(0, 0), gradient_or_zeros(q),
          gradient_or_zeros(k), gradient_or_zeros(v)};
}

Tensor visible_keys(int64_t length, bool causal) {
  return definitions::visible(length, length, {.causal = causal});
}

Outcome exact(const HeadInputs& in, const Tensor& cotangent, bool causal) {
  return defined_by(in, cotangent, [&](const Variable& q, const Variable& k) {
    return definitions::softmax(q, k, visible_keys(in.length(), causal));
  });
}

Outcome uniform(const HeadInputs& in, const Tensor& cotangent, bool causal) {
  return defined_by(in, cotangent, [&](const Variable& q, const Variable&) {
    return definitions::mean(visible_keys(in.length(), causal), q.dtype());
  });
}

/// The slice of x (1, N, H or kv_heads, D) for query head h, (1, N, 1, D) in f64.
Tensor of_head(const Tensor& x, int64_t h, const Tensor& q) {
  const int64_t at = h * x.size(2) / q.size(2);
  return x.slice(2, at, at + 1).to(DType::f64).contiguous();
}

/// All query heads of a variant on one sequence without padding, q (1, N, H, D), k and v (1, N,
/// kv_heads, D). Heads that share keys have the same gradients of these.
std::vector<Outcome> outcomes_of(Variant& variant, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& x, const Tensor& cotangent) {
  const DType dtype = variant.parameter_dtype();
  const auto leaf = [&](const Tensor& t) { return Variable(t.to(dtype).contiguous(), true); };
  const Inputs in{leaf(q), leaf(k), leaf(v), x.defined() ? leaf(x) : Variable()};
  variant.zero_grad();
  const Variable out = variant.forward(in, {}, {});
  if (out.requires_grad()) backward(out, cotangent.to(dtype));
  variant.zero_grad();
  const Tensor P = weights(variant, in);
  std::vector<Outcome> heads;
  for (int64_t h = 0; h < q.size(2); ++h)
    heads.push_back({of_head(out.value(), h, q), P.select(0, 0).select(0, h),
                     of_head(gradient_or_zeros(in.q), h, q), of_head(gradient_or_zeros(in.k), h, q),
                     of_head(gradient_or_zeros(in.v), h, q)});
  return heads;
}

/// Replaces the gradients of keys and values of each query head by the sum over the heads that
/// share them, given the number of key heads.
void add_in_groups(std::vector<Outcome>& heads, int64_t key_heads) {
  const auto H = static_cast<int64_t>(heads.size()), size = H / key_heads;
  for (int64_t first = 0; first < H && size > 1; first += size)
    for (Tensor Outcome::*const part : {&Outcome::dk, &Outcome::dv}) {
      Tensor sum = heads[first].*part;
      for (int64_t h = first + 1; h < first + size; ++h)
        sum = (Variable(sum) + Variable(heads[h].*part)).value();
      for (int64_t h = first; h < first + size; ++h) heads[h].*part = sum;
    }
}

Tensor random_cotangent(const Shape& shape, uint64_t seed, int64_t input) {
  Tensor out = Tensor::empty(shape, DType::f64);
  fill_normal(out, Generator(seed).fork("cotangent").fork(static_cast<uint64_t>(input)));
  return out;
}

double floor_of(const Values& singular_values, int64_t rank) {
  double all = 0, left = 0;
  for (size_t i = singular_values.size(); i-- > 0;) {
    all += singular_values[i] * singular_values[i];
    if (static_cast<int64_t>(i) >= rank) left = all;
  }
  return std::sqrt(left / all);
}

/// The errors of one variant on each input.
struct Samples : Errors<Values> {
  /// Adds an input, from the outcomes of all draws.
  void add(const std::vector<Outcome>& draws, const Outcome& right, const Values& singular_values,
           int64_t rank) {
    const auto rms = [&](Tensor Outcome::*part) {
      double squares = 0;
      for (const Outcome& draw : draws)
        squares += std::pow(relative_error(draw.*part, right.*part), 2);
      return std::sqrt(squares / static_cast<double>(draws.size()));
    };
    output.push_back(rms(&Outcome::out));
    weights.push_back(rms(&Outcome::P));
    dq.push_back(rms(&Outcome::dq));
    dk.push_back(rms(&Outcome::dk));
    dv.push_back(rms(&Outcome::dv));
    svd_floor.push_back(floor_of(singular_values, rank));
    split(draws, right.out);
  }

 private:
  // With the mean of n draws m and their unbiased variance s², E|m - exact|² = bias² + s² / n.
  void split(const std::vector<Outcome>& draws, const Tensor& right) {
    const auto n = static_cast<double>(draws.size());
    Values mean(static_cast<size_t>(right.numel()));
    std::vector<Values> all;
    for (const Outcome& draw : draws) {
      all.push_back(draw.out.to_vector<double>());
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += all.back()[i] / n;
    }
    const Values to = right.to_vector<double>();
    double bias = 0, around = 0, norm = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      bias += (mean[i] - to[i]) * (mean[i] - to[i]);
      norm += to[i] * to[i];
      for (const Values& draw : all) around += (draw[i] - mean[i]) * (draw[i] - mean[i]);
    }
    if (draws.size() > 1) around /= n - 1;
    variance.push_back(around / norm);
    bias_squared.push_back((bias - around / n) / norm);
  }
};

template <class T>
constexpr T Errors<T>::*members[] = {
    &Errors<T>::output, &Errors<T>::weights,      &Errors<T>::dq,       &Errors<T>::dk,
    &Errors<T>::dv,     &Errors<T>::bias_squared, &Errors<T>::variance, &Errors<T>::svd_floor};

VariantError summary_of(const Samples& s, VariantError facts) {
  for (size_t i = 0; i < std::size(members<Values>); ++i)
    facts.*members<Estimate>[i] = members<Values>[i] == &Samples::bias_squared
                                      ? estimate(s.bias_squared)  // may be below 0
                                      : estimate_of_positive(s.*members<Values>[i]);
  return facts;
}

Tensor matrix(const Tensor& x) { return x.select(2, 0).select(0, 0).contiguous(); }

// softmax(x yᵀ / sqrt(D)) of rows.
Tensor row_weights(const Tensor& x, const Tensor& y) {
  const double scale = 1 / std::sqrt(static_cast<double>(x.size(1)));
  return softmax(matmul(Variable(x), transpose(Variable(y), 0, 1), scale)).value();
}

}  // namespace

std::unique_ptr<Variant> make_candidate(const Candidate& candidate, const HeadInputs& in,
                                        bool causal, uint64_t seed) {
  Config config{.head_dim = in.dim(), .max_length = in.length(), .causal = causal};
  for (const auto& [key, value] : candidate.options) config.options.set(key, value);
  config.options.check_known(names_of(spec(candidate.variant).options));
  return make(candidate.variant, nn::root(DType::f64, seed), config);
}

std::vector<VariantError> errors(const std::vector<HeadInputs>& inputs,
                                 const std::vector<Candidate>& candidates,
                                 const ErrorOptions& options) {
  check<ConfigError>(!inputs.empty() && options.draws >= 1,
                     "errors: expected at least one input and one draw, got ", inputs.size(),
                     " and ", options.draws);
  const auto all = static_cast<int64_t>(inputs.size() * (candidates.size() + 1));
  std::vector<Samples> samples(candidates.size() + 1);
  std::vector<VariantError> facts(candidates.size() + 1);
  facts[0].rank = 1;
  int64_t done = 0;
  const auto progress = [&] {
    if (options.on_progress) options.on_progress(++done, all);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const HeadInputs& in = inputs[i];
    const Tensor cotangent = random_cotangent(in.q.shape(), options.seed, static_cast<int64_t>(i));
    const Outcome right = exact(in, cotangent, options.causal);
    const Values singular_values = svd(right.P).s.to_vector<double>();
    samples[0].add({uniform(in, cotangent, options.causal)}, right, singular_values, 1);
    progress();
    for (size_t c = 0; c < candidates.size(); ++c) {
      std::vector<Outcome> draws;
      VariantError& fact = facts[c + 1];
      for (int64_t d = 0; d < options.draws && (d == 0 || fact.draws > 1); ++d) {
        const uint64_t seed = Generator(options.seed).fork(i).bits(static_cast<uint64_t>(d));
        const auto variant = make_candidate(candidates[c], in, options.causal, seed);
        // The initial values of parameters are random too.
        const bool random = variant->capabilities().random || !variant->named_parameters().empty();
        fact.draws = random ? options.draws : 1;
        fact.rank = std::min(in.length(), variant->rank(in.length()));
        fact.algorithm = variant->algorithm(in.length());
        const Tensor x =
            variant->capabilities().uses_x ? in.q.reshape({1, in.length(), in.dim()}) : Tensor();
        draws.push_back(outcomes_of(*variant, in.q, in.k, in.v, x, cotangent)[0]);
      }
      samples[c + 1].add(draws, right, singular_values, fact.rank);
      progress();
    }
  }
  std::vector<VariantError> out;
  for (size_t c = 0; c < samples.size(); ++c) out.push_back(summary_of(samples[c], facts[c]));
  return out;
}

std::vector<VariantError> errors_of_layer(Variant& variant, const LayerInputs& layer, bool causal,
                                          uint64_t seed) {
  const int64_t B = layer.in.q.size(0), H = layer.in.q.size(2);
  std::vector<Samples> samples(static_cast<size_t>(H));
  VariantError facts;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = layer.lengths[static_cast<size_t>(b)];
    const auto one = [&](const Variable& all) {
      return all.defined() ? all.value().slice(0, b, b + 1).slice(1, 0, length).contiguous()
                           : Tensor();
    };
    const Tensor q = one(layer.in.q), k = one(layer.in.k), v = one(layer.in.v);
    const Tensor cotangent = random_cotangent(q.shape(), seed, b);
    const auto heads = outcomes_of(variant, q, k, v, one(layer.in.x), cotangent);
    facts.rank = std::max(facts.rank, std::min(length, variant.rank(length)));
    facts.algorithm = variant.algorithm(length);
    std::vector<Outcome> right;
    for (int64_t h = 0; h < H; ++h)
      right.push_back(exact({of_head(q, h, q), of_head(k, h, q), of_head(v, h, q)},
                            of_head(cotangent, h, q), causal));
    add_in_groups(right, k.size(2));
    for (size_t h = 0; h < heads.size(); ++h)
      samples[h].add({heads[h]}, right[h], svd(right[h].P).s.to_vector<double>(),
                     std::min(length, variant.rank(length)));
  }
  std::vector<VariantError> out;
  for (const Samples& each : samples) out.push_back(summary_of(each, facts));
  return out;
}

std::vector<VariantError> rank_errors(const std::vector<HeadInputs>& inputs,
                                      const std::vector<int64_t>& ranks, bool causal) {
  std::vector<Values> weights(ranks.size()), outputs(ranks.size());
  for (const HeadInputs& in : inputs) {
    const Tensor P = exact_weights(in, causal);
    const Tensor out = product(P, matrix(in.v));
    const Svd d = svd(P);
    const Values singular_values = d.s.to_vector<double>();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int64_t r = std::clamp<int64_t>(ranks[i], 1, in.length());
      const Tensor u = d.u.slice(1, 0, r).contiguous();
      weights[i].push_back(floor_of(singular_values, r));
      outputs[i].push_back(
          relative_error(product(u, product(u.transpose(0, 1).contiguous(), out)), out));
    }
  }
  std::vector<VariantError> all(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    all[i].rank = ranks[i];
    all[i].output = estimate_of_positive(outputs[i]);
    all[i].weights = all[i].svd_floor = estimate_of_positive(weights[i]);
  }
  return all;
}

Tensor segment_means(const Tensor& x, int64_t m) {
  const int64_t N = x.size(0), D = x.size(1);
  check<ConfigError>(m >= 1 && m <= N, "segment means: expected 1 to ", N, " segments, got ", m);
  const Variable tokens(x.to(DType::f64).contiguous().reshape({1, N, 1, D}));
  return attention::segment_means(tokens, {static_cast<int32_t>(N)}, {static_cast<int32_t>(m)}, m)
      .value()
      .contiguous()
      .reshape({m, D});
}

InverseError inverse_errors(const std::vector<HeadInputs>& inputs, int64_t landmarks,
                            int64_t steps) {
  check<ConfigError>(!inputs.empty() && steps >= 0,
                     "inverse_errors: expected at least one input and 0 steps, got ", inputs.size(),
                     " and ", steps);
  const NoGrad no_grad;
  Values condition, expected, pseudo;
  std::vector<Values> residuals(static_cast<size_t>(steps + 1)), outputs(residuals.size());
  for (const HeadInputs& in : inputs) {
    const Tensor q = matrix(in.q), k = matrix(in.k), v = matrix(in.v);
    const Tensor landmarks_q = segment_means(q, landmarks),
                 landmarks_k = segment_means(k, landmarks);
    const Tensor F = row_weights(q, landmarks_k), A = row_weights(landmarks_q, landmarks_k);
    const Tensor GV = product(row_weights(landmarks_q, k), v);
    const Tensor right = product(row_weights(q, k), v);
    const auto output_error = [&](const Tensor& Z) {
      return relative_error(product(F, product(Z, GV)), right);
    };
    const Values s = svd(A).s.to_vector<double>();
    const Variable a(A);
    const double columns = max(sum(a, {0}), 0).value().item();  // |A|_1; rows sum to 1 = |A|_inf
    condition.push_back(std::log10(s.front() / s.back()));
    expected.push_back(std::log(columns / (s.back() * s.back())) / std::log(3.25) + 3);
    pseudo.push_back(output_error(pseudo_inverse(A)));
    Variable Z = transpose(a, 0, 1) / columns;
    for (int64_t i = 0; i <= steps; ++i) {
      if (i > 0) Z = iterative_pinv(a, Z, 1);
      const Tensor z = Z.value().contiguous();
      residuals[i].push_back(relative_error(product(A, product(z, A)), A));
      outputs[i].push_back(output_error(z));
    }
  }
  InverseError out{estimate(condition), estimate(expected), {}, estimate(pseudo)};
  for (int64_t i = 0; i <= steps; ++i)
    out.steps.push_back({i, estimate(residuals[i]), estimate(outputs[i])});
  return out;
}

}  // namespace longhand::attention::analysis
