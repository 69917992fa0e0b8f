#include "longhand/attention/analysis/spectrum.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "longhand/attention/definitions/definitions.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::analysis {

Tensor exact_weights(const HeadInputs& in, bool causal) {
  const NoGrad no_grad;
  const Tensor visible = definitions::visible(in.length(), in.length(), {.causal = causal});
  return definitions::softmax(Variable(in.q), Variable(in.k), visible)
      .value()
      .select(0, 0)
      .select(0, 0);
}

std::vector<double> cumulative_energy(const std::vector<double>& values, bool squared) {
  std::vector<double> out;
  double sum = 0;
  for (const double s : values) out.push_back(sum += squared ? s * s : s);
  for (double& each : out) each /= sum;
  return out;
}

int64_t energy_rank(const std::vector<double>& values, double energy, bool squared) {
  const std::vector<double> held = cumulative_energy(values, squared);
  // Rounding must not require a value more: the last sums differ from 1 by their rounding errors.
  const auto enough = std::find_if(held.begin(), held.end(),
                                   [&](double share) { return share >= energy * (1 - 1e-12); });
  return std::min<int64_t>(enough - held.begin() + 1, static_cast<int64_t>(held.size()));
}

double entropy_rank(const std::vector<double>& values) {
  double sum = 0, entropy = 0;
  for (const double s : values) sum += s;
  for (const double s : values)
    if (s > 0) entropy -= s / sum * std::log(s / sum);
  return std::exp(entropy);
}

std::vector<Spectrum> spectra(const std::vector<HeadInputs>& inputs, bool causal) {
  std::vector<std::vector<double>> values(inputs.size());
  for (const HeadInputs& in : inputs)
    check<ConfigError>(in.length() == inputs[0].length(),
                       "spectra: expected sequences of one length, got ", inputs[0].length(),
                       " and ", in.length());
  parallel_for(static_cast<int64_t>(inputs.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      values[i] = svd(exact_weights(inputs[i], causal)).s.to_vector<double>();
  });
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> of_head;
  for (size_t i = 0; i < inputs.size(); ++i)
    of_head[{inputs[i].layer, inputs[i].head}].push_back(i);
  std::vector<Spectrum> out;
  for (const auto& entry : of_head) {
    const auto& [layer, head] = entry.first;
    const std::vector<size_t>& samples = entry.second;
    const auto mean = [&](const auto& f) {
      std::vector<double> each;
      for (const size_t i : samples) each.push_back(static_cast<double>(f(values[i])));
      return estimate(each);
    };
    Spectrum s{layer, head, inputs[samples[0]].length(), {}, {}, {}, {}};
    s.rank90 = mean([](const auto& v) { return energy_rank(v, 0.9, false); });
    s.rank90_squared = mean([](const auto& v) { return energy_rank(v, 0.9, true); });
    s.entropy_rank = mean([](const auto& v) { return analysis::entropy_rank(v); });
    std::vector<std::vector<double>> energy, squared;
    for (const size_t i : samples) {
      energy.push_back(cumulative_energy(values[i], false));
      squared.push_back(cumulative_energy(values[i], true));
    }
    for (size_t r = 0; r < values[samples[0]].size(); ++r) {
      std::vector<double> one, two;
      for (size_t i = 0; i < samples.size(); ++i) {
        one.push_back(energy[i][r]);
        two.push_back(squared[i][r]);
      }
      s.points.push_back({static_cast<int64_t>(r) + 1,
                          mean([&](const auto& v) { return v[r] / v[0]; }), estimate(one),
                          estimate(two)});
    }
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace longhand::attention::analysis
