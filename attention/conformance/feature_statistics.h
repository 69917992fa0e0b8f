// The mean and the error of random features as estimators of the softmax kernel: evidence of performer.
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

}  // namespace longhand::attention::conformance
