// Residual branches.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/norm.h"

namespace longhand::nn {

/// Where a block normalises: the input of a branch (Xiong et al. 2020, arXiv 2002.04745), or the
/// sum after it (Vaswani et al. 2017).
enum class NormPlace { pre, post };

/// x + dropout(branch(norm(x))) or norm(x + dropout(branch(x))); branch takes and returns a Lazy.
/// The norm is fused into the linear layers at the beginning of the branch, dropout and the
/// residual into the one at its end: none of them is a separate pass over memory.
template <class Branch>
Variable residual_branch(const Variable& x, const Norm& norm, NormPlace place,
                         const Dropout& dropout, const Pass& pass, const Branch& branch) {
  if (place == NormPlace::pre) return x + dropout.forward(branch(norm.forward(x)), pass);
  return norm.forward(x + dropout.forward(branch(Lazy(x)), pass));
}

}  // namespace longhand::nn
