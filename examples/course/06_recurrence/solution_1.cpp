// Exercise 1: S_i = a_i S_(i-1) + b_i for all i in log2 N sweeps, in each of which every i can be done at once.
#include <cmath>
#include <cstdio>
#include <vector>

#include "longhand/core/random.h"

// What a run of tokens does to the state: S -> a S + b.
struct Step {
  double a, b;
};
Step combine(const Step& first, const Step& then) {
  return {first.a * then.a, then.a * first.b + then.b};
}

int main() {
  const int N = 1000;
  const longhand::Generator random(6);
  std::vector<Step> steps(N);
  for (int i = 0; i < N; ++i) steps[i] = {random.uniform(2 * i), random.normal(2 * i + 1)};

  std::vector<Step> all = steps;
  int sweeps = 0;
  for (int distance = 1; distance < N; distance *= 2, ++sweeps) {
    std::vector<Step> next = all;  // all[i] is the run of the `distance` tokens that end at i
    for (int i = distance; i < N; ++i) next[i] = combine(all[i - distance], all[i]);
    all = next;
  }
  double S = 0, worst = 0;
  for (int i = 0; i < N; ++i) {
    S = steps[i].a * S + steps[i].b;
    worst = std::max(worst, std::abs(S - all[i].b));
  }
  const bool right = worst < 1e-12 && sweeps == 10;
  std::printf("%d sweeps %s the recurrence of %d steps\n", sweeps, right ? "give" : "do not give",
              N);
  return right ? 0 : 1;
}
