#include "longhand/attention/features/feature_map.h"

namespace longhand::attention {

void GuardOptions::describe(OptionVisitor& v) {
  v.choice("guard", guard, {"none", "add", "clamp"},
           "protection from normalisers near 0; add: adds 2 guard_eps to those within guard_eps of "
           "0; clamp: raises them to at least guard_eps");
  eps = guard == "clamp" ? 1e-2 : 1e-6;
  v.when(guard != "none", "guard = \"add\" or \"clamp\"", [&] {
    v.number("guard_eps", eps, {1e-30},
             "threshold of the guard, as a multiple of what a key in the direction of the query "
             "adds to the normaliser",
             "1e-6; 1e-2 with clamp");
  });
}

Guard GuardOptions::of(double unit, bool has_scale) const {
  Guard out;
  if (guard != "none") out = {guard == "add" ? Guard::Kind::add : Guard::Kind::clamp, unit * eps};
  out.unit = has_scale ? unit : 0;
  return out;
}

Variable linear_of_heads(const Variable& x, const Variable& W) {
  if (W.rank() == 2) return linear(x, W);
  return transpose(matmul(transpose(x, 1, 2), transpose(W, 1, 2)), 1, 2);
}

}  // namespace longhand::attention
