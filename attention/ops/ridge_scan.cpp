// x_i = (A_i + diag(λ))⁻¹ q_i and out_i = B_iᵀ x_i. A_i p_i is a scan with values β_j k_j, for all
// i at once.
//
// Gradients: with M x = q, dM = -y xᵀ and dq = y for y = M⁻¹ dx. Therefore x is recorded as x + M⁻¹
// r for the residual r = q - M x, with x held constant; the gradients of r are those of a scan.
#include "longhand/attention/ops/ridge_scan.h"

#include <algorithm>
#include <limits>

#include "longhand/attention/ops/inverse.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/ops/tile/state_rows.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

using Solver = std::function<Tensor(const Tensor& y)>;

// The solution x, given the residual q - M x, which is 0 except for rounding: dq = solve(dx).
Variable implicit_solution(const Tensor& x, const Variable& residual, const Solver& solve) {
  return record("implicit_solution", x, {residual},
                [solve](const Tensor& dx, std::span<GradSlot> slots) { slots[0].take(solve(dx)); });
}

// A_i for every token, (B, N, H, D, D): the scan read with each unit vector.
Variable all_matrices(const ScanInputs& of, const ScanState* start) {
  const Shape& s = of.k.shape();
  Variables rows;
  for (int64_t d = 0; d < s[3]; ++d) {
    Tensor unit = Tensor::zeros({s[3]}, of.k.dtype());
    unit.slice(0, d, d + 1).fill(1);
    ScanInputs read = of;
    read.q = Variable(unit.expand(s));
    rows.push_back(scan(read, start, {.normalizer = false, .final_state = false}).out);
  }
  return stack(rows, 3);
}

// M⁻¹ y for M (…, D, D) and y (…, D).
Variable solved(const Variable& M, const Variable& y) {
  const int64_t D = y.size(-1), n = y.value().numel() / D;
  const Variable x = matmul(inverse(reshape(M, {n, D, D})), reshape(y, {n, D, 1}));
  return reshape(x, y.shape());
}

Variable diagonal(const Variable& lambda) {
  const int64_t D = lambda.size(-1);
  Tensor I = Tensor::zeros({D, D}, lambda.dtype());
  for (int64_t d = 0; d < D; ++d) I.slice(0, d, d + 1).slice(1, d, d + 1).fill(1);
  return unsqueeze(lambda, 2) * Variable(I);
}

// Conjugate gradients for a system M x = y, from x = 0: r = y - M x, direction p. Inside simd().
template <class T>
struct System {
  T *x, *r, *p;
  int64_t D;

  struct Norms {
    T square, least;  // |r|², and where it ends
  };
  Norms start(const T* y) const {
    constexpr T relative = std::numeric_limits<T>::epsilon() / 8;
    std::fill_n(x, D, T{0});
    std::copy_n(y, D, r);
    std::copy_n(y, D, p);
    const T square = kernels::row_dot(r, r, D);
    return {square, square * relative * relative};
  }
  // A step with M p. Returns whether the system is still unsolved; p of a solved system is 0.
  bool step(const T* Mp, Norms& norms) const {
    const T curvature = kernels::row_dot(p, Mp, D), before = norms.square;
    if (before == 0 || before < norms.least || curvature <= 0) {  // not for NaN or infinity
      std::fill_n(p, D, T{0});
      return false;
    }
    const T alpha = before / curvature;
    for (int64_t d = 0; d < D; ++d) x[d] += alpha * p[d], r[d] -= alpha * Mp[d];
    norms.square = kernels::row_dot(r, r, D);
    const T beta = norms.square / before;
    for (int64_t d = 0; d < D; ++d) p[d] = r[d] + beta * p[d];
    return true;
  }
};

}  // namespace

Tensor conjugate_gradients(const std::function<Tensor(const Tensor& p)>& product, const Tensor& y,
                           int64_t steps) {
  const int64_t D = y.size(-1), rows = y.numel() / D;
  const Tensor in = y.contiguous();
  Tensor x = Tensor::empty(y.shape(), y.dtype()), r = Tensor::empty(y.shape(), y.dtype()),
         p = Tensor::empty(y.shape(), y.dtype()), all = Tensor::empty({rows, 2}, y.dtype());
  dispatch_float(y.dtype(), [&]<class T>() {
    // The number of rows for which f(row begin, system, norms) is true.
    const auto count = [&, xs = x.data<T>(), rs = r.data<T>(), ps = p.data<T>(),
                        norms = reinterpret_cast<System<T>::Norms*>(all.data<T>())](auto f) {
      return parallel_sum<int64_t>(
          rows, std::max<int64_t>(1, 4096 / D), [&](int64_t begin, int64_t end) {
            int64_t found = 0;
            simd([&] {
              for (int64_t row = begin, at = begin * D; row < end; ++row, at += D)
                found += f(at, System<T>{xs + at, rs + at, ps + at, D}, norms[row]);
            });
            return found;
          });
    };
    int64_t left = count([from = in.data<T>()](int64_t at, const System<T>& of, auto& norms) {
      norms = of.start(from + at);
      return true;
    });
    for (int64_t step = 0; step < steps && (step == 0 || left > 0); ++step) {
      const Tensor products = product(p).contiguous();
      left = count([Mp = products.data<T>()](int64_t at, const System<T>& of, auto& norms) {
        return of.step(Mp + at, norms);
      });
    }
  });
  return x;
}

Variable ridge_scan(const DeltaInputs& inputs, const Variable& lambda,
                    const RidgeOptions& options) {
  const Variable &q = inputs.q, &k = inputs.k, &v = inputs.v, &beta = inputs.beta,
                 &g = inputs.log_decay;
  const Shape &qs = q.shape(), &vs = v.shape(), tokens{qs[0], qs[1], qs[2]};
  check<ShapeError>(qs.rank() == 4 && k.shape() == qs && vs.rank() == 4 &&
                        vs.without_axis(3) == tokens && qs.numel() > 0 && vs[3] > 0 &&
                        beta.shape() == tokens && (!g.defined() || g.shape() == tokens) &&
                        lambda.shape() == Shape{qs[2], qs[3]},
                    "ridge_scan: expected q and k (B, N, H, D), v (B, N, H, E), beta and log_decay "
                    "(B, N, H) and lambda (H, D), nothing empty, got q ",
                    qs, ", k ", k.shape(), ", v ", vs, ", beta ", beta.shape(), ", log_decay ",
                    g.defined() ? g.shape() : tokens, ", lambda ", lambda.shape());
  const DType dtype = q.dtype(), of_g = g.defined() ? g.dtype() : dtype;
  check<ShapeError>(is_float(dtype) && k.dtype() == dtype && v.dtype() == dtype &&
                        beta.dtype() == dtype && of_g == dtype && lambda.dtype() == dtype,
                    "ridge_scan: expected one float dtype, got q ", dtype, ", k ", k.dtype(),
                    ", v ", v.dtype(), ", beta ", beta.dtype(), ", log_decay ", of_g, ", lambda ",
                    lambda.dtype());
  const int64_t D = q.size(3);
  const Variable keys = k * unsqueeze(beta, 3);
  const ScanInputs for_A{q, keys, k, g}, for_B{q, keys, v, g};
  ScanState A, B;
  if (options.join) {
    const ScanInputs both{q, keys, concat({k, v}, 3), g};
    const Variable S =
        state_before(scan(both, nullptr, {.normalizer = false}).state, g, *options.join).S;
    A.S = slice(S, 3, 0, D), B.S = slice(S, 3, D, S.size(3));
  }
  const auto scanned = [join = options.join](ScanInputs of, const ScanState& start,
                                             const Variable& x) {
    of.q = x;
    return scan(of, join ? &start : nullptr, {.normalizer = false, .final_state = false}).out;
  };
  Variable x;
  if (options.exact) {
    x = solved(all_matrices(for_A, options.join ? &A : nullptr) + diagonal(lambda), q);
  } else {
    const auto product = [=](const Variable& p) { return scanned(for_A, A, p) + lambda * p; };
    const Solver solve = [product, steps = options.steps](const Tensor& y) {
      const NoGrad no_grad;
      return conjugate_gradients([&](const Tensor& p) { return product(Variable(p)).value(); }, y,
                                 steps);
    };
    const Tensor found = solve(q.value());
    x = implicit_solution(found, q - product(Variable(found)), solve);
  }
  return scanned(for_B, B, x);
}

Tensor ridge_step(Tensor& A, Tensor& B, const DeltaOperands<Tensor>& in, const Tensor& lambda,
                  const RidgeOptions& options) {
  const NoGrad no_grad;
  const Tensor keys = (Variable(in.k) * unsqueeze(Variable(in.beta), 2)).value();
  const auto step = [&](Tensor& S, const Tensor& q, const Tensor& v) {
    ScanState state{Variable(S)};
    Tensor out = scan_step(state, {q, keys, v, in.log_decay}, Normalizer::none);
    S = state.S.value();
    return out;
  };
  step(A, in.q, in.k);
  const Tensor wide = lambda.to(DType::f64).contiguous(), y = in.q.to(DType::f64).contiguous();
  Tensor x;
  if (options.exact) {
    x = solved(Variable(A) + diagonal(Variable(wide)), Variable(y)).value();
  } else {
    const int64_t H = y.size(1), D = y.size(2);
    x = Tensor::empty({y.size(0) * H, 4, D}, DType::f64);  // x, r, p and M p of each head
    parallel_for_each(x.size(0), 1, [&, A = A.data<double>()](int64_t head) {
      simd([&, to = x.data<double>() + head * 4 * D, A = A + head * D * D,
            lambda = wide.data<double>() + head % H * D, from = y.data<double>() + head * D] {
        const System<double> of{to, to + D, to + 2 * D, D};
        double* const Mp = to + 3 * D;
        auto norms = of.start(from);
        for (int64_t i = 0; i < options.steps; ++i) {
          for (int64_t d = 0; d < D; ++d) Mp[d] = lambda[d] * of.p[d];
          tile::add_rows(A, D, D, of.p, Mp);  // A is symmetric
          if (!of.step(Mp, norms)) break;
        }
      });
    });
    x = x.select(1, 0).reshape(y.shape());
  }
  return step(B, x.to(in.q.dtype()), in.v);
}

}  // namespace longhand::attention
