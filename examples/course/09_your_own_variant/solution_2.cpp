// Exercise 2: hidden keys get the score -10,000 instead of minus infinity.
#include <cmath>

#include "exercise.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/mask.h"

using namespace longhand;

Variable broken(const attention::Inputs& in, const attention::Mask& mask, bool causal) {
  const Variable q = transpose(in.q, 1, 2), k = transpose(in.k, 1, 2), v = transpose(in.v, 1, 2);
  const Tensor seen = attention::definitions::visible(q.size(2), k.size(2), {causal, mask.lengths});
  Variable scores = matmul(q, transpose(k, 2, 3), 1 / std::sqrt(q.size(3)));
  if (mask.bias.defined()) scores = scores + mask.bias;
  scores = where(seen, scores, -1e4);
  if (mask.keep.defined()) scores = where(mask.keep, scores, -1e4);
  return transpose(matmul(softmax(scores), v), 1, 2);
}

// softmax() gives 0 for a row of which all scores are -inf.
Variable repaired(const attention::Inputs& in, const attention::Mask& mask, bool causal) {
  const Variable q = transpose(in.q, 1, 2), k = transpose(in.k, 1, 2), v = transpose(in.v, 1, 2);
  const Tensor seen = attention::definitions::visible(q.size(2), k.size(2), {causal, mask.lengths});
  Variable scores = matmul(q, transpose(k, 2, 3), 1 / std::sqrt(q.size(3)));
  if (mask.bias.defined()) scores = scores + mask.bias;
  scores = where(seen, scores, attention::never);
  if (mask.keep.defined()) scores = where(mask.keep, scores, attention::never);
  return transpose(matmul(softmax(scores), v), 1, 2);
}

int main() {
  const bool found = failing<Softmax, broken>("broken").contains("nothing-to-attend");
  return found && failing<Softmax, repaired>("repaired").empty() ? 0 : 1;
}
