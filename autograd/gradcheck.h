// Comparing gradient rules with central differences.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "longhand/autograd/variable.h"

namespace longhand {

struct GradcheckOptions {
  double step = 1e-6;        // of the central difference
  double absolute = 1e-7;    // an element is right if |analytic - numeric|
  double relative = 1e-5;    //   <= absolute + relative * max(|analytic|, |numeric|)
  uint64_t seed = 0;         // of the random cotangent
  int64_t max_elements = 0;  // of each input to try, chosen at random; 0: all
};

/// What gradcheck found. Prints as one line that names the worst element:
/// "worst at input 1 element 17: analytic 0.31 numeric 0.29 (3 of 40 elements differ)".
struct GradcheckReport {
  bool ok = true;
  int64_t checked = 0, differing = 0;  // elements
  int input = -1;                      // of the worst element; -1 if none was checked
  int64_t element = -1;                // row-major
  double analytic = 0, numeric = 0;
  std::string problem;  // what else went wrong, such as a gradient of another shape
};
std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

/// Compares d <c, f(inputs)> / d inputs by backward() with central differences, for a random
/// cotangent c (a constant one would hide every error in results with constant sums, such as
/// softmax). inputs are f64 (throws ShapeError otherwise) and may be views of any strides; f may
/// close over more leaves, which are not checked. A missing gradient counts as zero; NaN never
/// passes.
///
/// Checked as well: the result does not depend on the strides of the inputs; inputs and cotangent
/// are not written to; and backward() of the same again, now with c in memory of other strides,
/// doubles the gradients, which catches rules that do not add to what is there.
GradcheckReport gradcheck(const std::function<Variable(const Variables&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace longhand
