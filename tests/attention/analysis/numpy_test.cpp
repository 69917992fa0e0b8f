// What analyses report, against NumPy: the formulas of the headers, written out with numpy.linalg and, for
// variances, Gauss-Hermite quadrature, on inputs sin(a i^1.5).
#include <cmath>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/analysis/kernel.h"
#include "longhand/attention/analysis/landmarks.h"
#include "longhand/attention/analysis/measures.h"
#include "longhand/attention/analysis/spectrum.h"
#include "longhand/attention/analysis/weights.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;

namespace {

constexpr int64_t wave_rows = 12, wave_width = 4;

// Element i of the rows, counted from 1, is factor * sin(a i^1.5).
Tensor wave(double a, double factor = 1) {
  Tensor out = Tensor::empty({wave_rows, wave_width}, DType::f64);
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data<double>()[i] = factor * std::sin(a * std::pow(static_cast<double>(i + 1), 1.5));
  return out;
}

HeadInputs wave_head() {
  const auto head = [](const Tensor& x) { return x.reshape({1, wave_rows, 1, wave_width}); };
  return {head(wave(.37, 2)), head(wave(.53, 2)), head(wave(.71))};
}

Approx as_numpy(double expected) { return Approx(expected).epsilon(1e-9); }

}  // namespace

TEST_CASE("analysis: spectra are those of NumPy") {
  const Spectrum all = spectrum({wave_head()}), causal = spectrum({wave_head()}, true);
  CHECK(all.points[1].value.mean == as_numpy(5.769860896991336e-01));
  CHECK(all.points[6].value.mean == as_numpy(7.116019267591414e-02));
  CHECK(all.points[11].value.mean == Approx(2.068063429730170e-04).epsilon(1e-7));
  CHECK(all.points[2].energy.mean == as_numpy(0.656465407294909));
  CHECK(all.points[2].energy_squared.mean == as_numpy(0.822656241238907));
  CHECK(all.rank90.mean == 5);
  CHECK(all.rank90_squared.mean == 4);
  CHECK(all.entropy_rank.mean == as_numpy(6.308121441393062));
  CHECK(causal.points[1].value.mean == as_numpy(8.392771445044300e-01));
  CHECK(causal.points[7].value.mean == as_numpy(1.022184158903687e-01));
  CHECK(causal.points[3].energy.mean == as_numpy(0.763909129482792));
  CHECK(causal.points[3].energy_squared.mean == as_numpy(0.900979666017009));
  CHECK(causal.rank90.mean == 6);
  CHECK(causal.rank90_squared.mean == 4);
  CHECK(causal.entropy_rank.mean == as_numpy(6.604204844627018));
}

TEST_CASE("analysis: errors are those of NumPy") {
  const auto found = errors({wave_head()}, {{"linear", {}}});
  CHECK(found[0].output.mean == as_numpy(0.957423250318042));  // uniform
  CHECK(found[0].weights.mean == as_numpy(0.891027882491371));
  CHECK(found[0].svd_floor.mean == as_numpy(0.699683522599591));
  CHECK(found[1].output.mean == as_numpy(0.885326283095229));
  CHECK(found[1].weights.mean == as_numpy(0.783947427623646));
  CHECK(found[1].svd_floor.mean == as_numpy(0.303932427592576));
  const auto ranks = rank_errors({wave_head()}, {2, 5});
  CHECK(ranks[0].weights.mean == as_numpy(0.565352950480568));
  CHECK(ranks[0].output.mean == as_numpy(0.574689312871251));
  CHECK(ranks[1].weights.mean == as_numpy(0.113552048188951));
  CHECK(ranks[1].output.mean == as_numpy(0.10232446935391));

  const InverseError inverse = inverse_errors({wave_head()}, 5, 8);
  CHECK(inverse.condition.mean == as_numpy(1.878272556719987));
  CHECK(inverse.expected_steps.mean == as_numpy(10.666693213541489));
  CHECK(inverse.pseudo_inverse.mean == as_numpy(2.095399365663177));
  CHECK(inverse.steps[0].residual.mean == as_numpy(0.477000298640358));
  CHECK(inverse.steps[0].output.mean == as_numpy(0.821573316943888));
  CHECK(inverse.steps[6].residual.mean == as_numpy(0.014227823586623));
  CHECK(inverse.steps[6].output.mean == as_numpy(0.749693636636564));
  CHECK(inverse.steps[8].residual.mean == as_numpy(0.002774720159572));
}

TEST_CASE("analysis: landmark errors are those of NumPy") {
  const Tensor q = wave(.37, 2), k = wave(.53, 2);
  const auto error = [&](LandmarkTarget target) { return landmark_error(target, q, k, {1, 4, 9}); };
  CHECK(error(LandmarkTarget::linear) == as_numpy(0.223551393874914));
  CHECK(error(LandmarkTarget::exponential) == as_numpy(28.692779491587178));
  CHECK(error(LandmarkTarget::softmax) == as_numpy(227.42711561701512));
  CHECK(error(LandmarkTarget::nystrom) == as_numpy(9.395881399360652));
}

TEST_CASE("analysis: kernel matrices and their Nyström approximations are those of NumPy") {
  const Tensor x = wave(.37, 2. / 3);
  struct Expected {
    Kernel kernel;
    double first, other, norm, nystrom, least;
  };
  for (const Expected& e : {Expected{Kernel::softmax, 0.879816281967644, 1.053009238887083,
                                     21.162060349743662, 0.131330389598891, 0.063641352241828},
                            Expected{Kernel::gaussian, 0.353538112949066, 0.288129075288879,
                                     6.695272073978715, 0.180035868410861, 0.088499102650975}}) {
    INFO(name_of(e.kernel));
    const Tensor K = kernel_matrix(e.kernel, x);
    CHECK(K.at({0, 1}) == as_numpy(e.first));
    CHECK(K.at({8, 3}) == as_numpy(e.other));
    CHECK(std::sqrt(square_norm(K)) == as_numpy(e.norm));
    const auto found = kernel_errors(x, e.kernel, {.sizes = {4}, .draws = 2});
    for (const KernelError& each : found) {
      if (each.method == "segment") CHECK(each.error.mean == as_numpy(e.nystrom));
      if (each.draw.empty()) CHECK(each.expected == as_numpy(e.least));
    }
  }
}

TEST_CASE("analysis: variances of random features are those of quadrature") {
  const std::vector<double> x{.7, -.3}, y{.2, .5};
  CHECK(softmax_variance(Estimator::positive, x, y) == as_numpy(1.313120066957428));
  CHECK(softmax_variance(Estimator::hyperbolic, x, y) == as_numpy(0.375936471449156));
  CHECK(softmax_variance(Estimator::trigonometric, x, y) == as_numpy(0.4145188654722012));
  CHECK(softmax_variance(Estimator::trigonometric_bias, x, y) == as_numpy(1.607974292234339));
  CHECK(gaussian_variance(false, x, y) == as_numpy(0.173663320881952));
  CHECK(gaussian_variance(true, x, y) == as_numpy(0.673663320881952));
}

TEST_CASE("analysis: the shape of an attention map is that of NumPy") {
  const MapShape shape = map_shape(exact_weights(wave_head()));
  CHECK(shape.entropy == as_numpy(1.283362345685188));
  CHECK(shape.effective_keys == as_numpy(3.949780131722953));
  CHECK(shape.largest == as_numpy(0.555258587322574));
  CHECK(shape.self == as_numpy(0.035017368216694));
  CHECK(shape.first == as_numpy(0.06165556786552));
  CHECK(shape.distance == as_numpy(4.364739748930993));
}
