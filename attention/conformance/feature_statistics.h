// Evidence of performer: the mean and the error of random features as estimators of the softmax kernel, and of
// attention with them.
#pragma once

namespace longhand::attention::conformance {

class Findings;

void closed_forms(Findings&);
void orthogonal_unbiased(Findings&);
void givens_unbiased(Findings&);
void orthogonal_better(Findings&);
void optimal_better(Findings&);
void row_distribution(Findings&);
void redraws(Findings&);

void positive_rate(Findings&);
void orthogonal_rate(Findings&);
void balanced_better(Findings&);
void softmax_of_features(Findings&);
void no_collapse(Findings&);

}  // namespace longhand::attention::conformance
