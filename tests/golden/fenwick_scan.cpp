// The core of log_linear: a scan with scales of the levels of a Fenwick tree.
#include "longhand/attention/ops/fenwick_scan.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/golden/readers.h"

namespace longhand::test {
namespace {

void check_fenwick_scan(const Golden& golden, DType dtype, double tolerance) {
  std::map<std::string, Variable> leaves;
  for (const char* name : {"q", "k", "v", "log_decay", "level_scales"})
    leaves[name] = Variable(by_token(golden.at(name), dtype).contiguous(), true);
  const Variable q = leaves["q"] / std::sqrt(static_cast<double>(golden.at("q").size(3)));
  const Variable out = attention::fenwick_scan({q, leaves["k"], leaves["v"], leaves["log_decay"]},
                                               leaves["level_scales"]);
  backward(out, by_token(golden.at("grad_out"), dtype));
  compare("out", out.value(), by_token(golden.at("out"), DType::f64), tolerance);
  for (const auto& [name, variable] : leaves)
    compare("grad_" + name, variable.grad(), by_token(golden.at("grad_" + name), DType::f64),
            tolerance);
}

}  // namespace

void read_fenwick_scan(const Golden& golden) {
  check_fenwick_scan(golden, DType::f64, 1e-9);
  check_fenwick_scan(golden, DType::f32, 2e-4);
}

}  // namespace longhand::test
