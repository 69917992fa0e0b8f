#include "longhand/attention/analysis/spectrum.h"

#include <algorithm>
#include <cmath>

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
  // Rounding must not require one more value: the last sums differ from 1 by their rounding errors.
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

Spectrum spectrum(const std::vector<HeadInputs>& sequences, bool causal) {
  struct Values {
    std::vector<double> values, energy, squared;
  };
  std::vector<Values> all(sequences.size());
  for (const HeadInputs& in : sequences)
    check<ConfigError>(in.length() == sequences[0].length(),
                       "spectra: expected sequences of one length, got ", sequences[0].length(),
                       " and ", in.length());
  parallel_for_each(std::ssize(sequences), 1, [&](int64_t i) {
    const auto values = svd(exact_weights(sequences[i], causal)).s.to_vector<double>();
    all[i] = {values, cumulative_energy(values, false), cumulative_energy(values, true)};
  });
  const auto mean = [&](const auto& f) {
    std::vector<double> each;
    for (const Values& v : all) each.push_back(static_cast<double>(f(v)));
    return estimate_of_positive(each);
  };
  Spectrum out{mean([](const Values& v) { return energy_rank(v.values, 0.9, false); }),
               mean([](const Values& v) { return energy_rank(v.values, 0.9, true); }),
               mean([](const Values& v) { return entropy_rank(v.values); })};
  for (int64_t r = 0; r < sequences[0].length(); ++r)
    out.points.push_back({r + 1, mean([&](const Values& v) { return v.values[r] / v.values[0]; }),
                          mean([&](const Values& v) { return v.energy[r]; }),
                          mean([&](const Values& v) { return v.squared[r]; })});
  return out;
}

}  // namespace longhand::attention::analysis
