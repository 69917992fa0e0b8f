// Spectrum: singular values of exact attention's weights, and how many of them hold its energy.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/attention/analysis/probe.h"
#include "longhand/core/statistics.h"

namespace longhand::attention::analysis {

/// The weights P = softmax(Q Kᵀ / sqrt(D)) of a head, (N, N) in f64.
Tensor exact_weights(const HeadInputs& in, bool causal = false);

/// Entry r - 1 is the fraction of the energy in the first r of σ_1 >= … >= σ_n, Σ_{i <= r}
/// σ_i^p / Σ σ_i^p, p = 2 if `squared` (the energy of the Frobenius norm), else 1 (as in figure 1
/// of Linformer, arXiv 2006.04768).
std::vector<double> cumulative_energy(const std::vector<double>& values, bool squared);
/// The smallest r that holds at least this fraction of the energy.
int64_t energy_rank(const std::vector<double>& values, double energy, bool squared);
/// e^H with the entropy H of σ_i / Σ σ (Roy & Vetterli 2007): n for equal values, 1 for one.
double entropy_rank(const std::vector<double>& values);

struct SpectrumPoint {
  int64_t index = 0;                // from 1
  Estimate value;                   // σ_index / σ_1
  Estimate energy, energy_squared;  // cumulative, of σ and of σ²
};
/// Means over the sequences of one head.
struct Spectrum {
  Estimate rank90, rank90_squared;  // energy_rank() for 90 % of σ and of σ²
  Estimate entropy_rank;
  std::vector<SpectrumPoint> points{};
};
/// Throws ConfigError unless all sequences have the same length.
Spectrum spectrum(const std::vector<HeadInputs>& sequences, bool causal = false);

}  // namespace longhand::attention::analysis
