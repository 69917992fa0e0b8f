// Comparison of backward functions with central differences.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "longhand/autograd/variable.h"

namespace longhand {

struct GradcheckOptions {
  double step = 1e-6;        // of the central difference
  double absolute = 1e-7;    // an element passes if |analytic - numeric|
  double relative = 1e-5;    //   <= absolute + relative * max(|analytic|, |numeric|)
  uint64_t seed = 0;         // of the random cotangent
  int64_t max_elements = 0;  // per input, chosen at random; 0: all
};

/// The result of gradcheck(). Prints as one line that names the worst element:
/// "worst at input 1 element 17: analytic 0.31 numeric 0.29 (3 of 40 elements differ)".
struct GradcheckReport {
  bool ok = true;
  int64_t checked = 0, differing = 0;  // elements
  int input = -1;                      // of the worst element; -1 if none was checked
  int64_t element = -1;                // row-major
  double analytic = 0, numeric = 0;
  std::string problem;  // any other failure, such as a gradient of the wrong shape
};
std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

/// Compares d <c, f(inputs)> / d inputs by backward() with central differences, for a random
/// cotangent c. (A constant one would hide all errors in results with constant sums, such as
/// softmax.) The inputs must be f64 and may be views with any strides; throws ShapeError for other
/// dtypes. f may close over further leaves, which are not checked. A missing gradient counts as
/// zero; NaN and infinity never pass.
///
/// Also checks that the result does not depend on the strides of the inputs; that neither inputs
/// nor cotangent are written to; and that a second backward(), with c in other strides, doubles the
/// gradients, to detect backward functions that overwrite gradients instead of adding to them.
GradcheckReport gradcheck(const std::function<Variable(const Variables&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace longhand
