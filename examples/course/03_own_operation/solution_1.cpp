// Exercise 1: softplus, with the loop over any strides that all element-wise operations share.
//
// softplus(x) = log(1 + e^x), whose derivative is 1 / (1 + e^-x).
#include <cmath>
#include <iostream>

#include "longhand/autograd/gradcheck.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/random.h"

using namespace longhand;

// y = log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which cannot overflow.     dx = dy / (1 + e^-x)
Variable softplus(const Variable& x) {
  Tensor out = Tensor::empty_ordered(x.shape(), x.dtype(), x.value().strides());
  dispatch_float(x.dtype(), [&]<class T>() {
    kernels::elementwise<T>(
        out, [](T v) { return std::max(v, T{0}) + std::log1p(std::exp(-std::abs(v))); },
        kernels::in<T>(x.value()));
  });
  // The capture list holds what the operation saves for its gradient: here only x.
  return record("softplus", out, {x},
                [x = x.value()](const Tensor& dy, std::span<GradSlot> grad_in) {
                  if (!grad_in[0]) return;  // no gradient required
                  // accumulate() returns where to write, and whether to add (beta 1) or not (beta 0).
                  const auto dx = grad_in[0].accumulate();
                  dispatch_float(dy.dtype(), [&]<class T>() {
                    kernels::elementwise_accumulate<T>(
                        dx.grad, dx.beta, [](T g, T v) { return g / (1 + std::exp(-v)); },
                        kernels::in<T>(dy), kernels::in<T>(x));
                  });
                });
}

int main() {
  Tensor x = Tensor::empty({5, 7}, DType::f64);
  fill_normal(x, Generator(3), 0, 3);
  const auto report =
      gradcheck([](const Variables& in) { return softplus(in[0]); }, {x, x.transpose(0, 1)});
  std::cout << "softplus(0) = " << softplus(Variable(Tensor::zeros({1}))).value().item()
            << " (log 2 = " << std::log(2.0) << ")\ngradcheck: " << report << '\n';
  return report.ok ? 0 : 1;
}
