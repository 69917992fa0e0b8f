// Residual branches.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/norm.h"

namespace longhand::nn {

/// Where a block normalises: what a branch reads (Xiong et al. 2020, arXiv 2002.04745), or the sum
/// behind it (Vaswani et al. 2017).
enum class NormPlace { pre, post };

/// x + dropout(branch(norm(x))) or norm(x + dropout(branch(x))); branch takes and gives a Lazy. The
/// norm is computed by the linear layers that the branch begins with, dropout and the residual by
/// the one that it ends with: none of them is a pass over memory of its own.
template <class Branch>
Variable residual_branch(const Variable& x, const Norm& norm, NormPlace place,
                         const Dropout& dropout, const Pass& pass, const Branch& branch) {
  if (place == NormPlace::pre) return x + dropout.forward(branch(norm.forward(x)), pass);
  return norm.forward(x + dropout.forward(branch(Lazy(x)), pass));
}

}  // namespace longhand::nn
