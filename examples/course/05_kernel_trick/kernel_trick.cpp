// Chapter 5: random features of the softmax kernel, their bias and variance, and when they fail.
#include <cmath>
#include <cstdio>
#include <numbers>

#include "longhand/attention/features/random_features.h"
#include "longhand/autograd/ops.h"

using namespace longhand;

// Standard deviations of the two estimators of e^(x·y) from one w ~ N(0, I), relative to e^(x·y), for
// |x| = |y| = 0.7 and an angle between them.
void one_feature() {
  std::puts("angle  kernel  positive  by formula  trigonometric  by formula");
  const Generator random(5);
  const double r = 0.7, rr = r * r;
  const uint64_t draws = 200000;
  for (int angle = 0; angle <= 180; angle += 20) {
    const double cosine = std::cos(angle * std::numbers::pi / 180),
                 sine = std::sqrt(1 - cosine * cosine);
    const double kernel = std::exp(rr * cosine), zz = 2 * rr * (1 + cosine),
                 dd = 2 * rr * (1 - cosine);
    double positive = 0, waves = 0;
    for (uint64_t i = 0; i < draws; ++i) {
      const double x = r * random.normal(2 * i),
                   y = cosine * x + sine * r * random.normal(2 * i + 1);
      positive += std::pow(std::exp(x + y - rr) - kernel, 2);
      waves += std::pow(std::exp(rr) * std::cos(x - y) - kernel, 2);
    }
    const auto relative = [&](double sum) { return std::sqrt(sum / double(draws)) / kernel; };
    std::printf("%-5d  %6.2f  %8.2f  %10.2f  %13.2f  %10.2f\n", angle, kernel, relative(positive),
                std::sqrt(std::expm1(zz)), relative(waves), std::sqrt(std::cosh(dd) - 1));
  }
}

// φ(x) = e^(W x - |x|²/2) for each row x. A factor m^(-1/2) would cancel in the quotient.
Variable features(const Variable& x, const Variable& W) {
  return exp(linear(x, W) - sum(square(x), {1}, true) / 2);
}

// Σ_j φ(q)·φ(k_j) v_j / Σ_j φ(q)·φ(k_j): the sums over j come first, and no N x N matrix appears.
Variable attend(const Variable& phi_q, const Variable& phi_k, const Variable& v) {
  const Variable S = matmul(transpose(phi_k, 0, 1), v), z = transpose(sum(phi_k, {0}, true), 0, 1);
  return matmul(phi_q, S) / matmul(phi_q, z);
}

double norm(const Variable& x) { return std::sqrt(sum(square(x)).value().item()); }
Variable normal(const Shape& shape, const char* name, double std = 1) {
  Tensor x = Tensor::empty(shape, DType::f64);
  fill_normal(x, Generator(5).fork(name), 0, std);
  return Variable(x);
}

struct Measured {
  double one_draw, mean_of_draws;
};
// Errors relative to exact attention over 128 tokens, whose queries and keys have root mean square norm
// `size`, with m rows of W in each of 16 draws; m = 0: with equal weights.
Measured measure(double size, int64_t m) {
  const int64_t N = 128, D = 16, draws = 16;
  const double root = std::sqrt(double(D));
  const Variable q = normal({N, D}, "q", size / root), k = normal({N, D}, "k", size / root);
  const Variable v = normal({N, D}, "v"),
                 exact = matmul(softmax(matmul(q, transpose(k, 0, 1)) / root), v);
  if (m == 0) return {norm(mean(v, {0}, true) - exact) / norm(exact), 0};
  double squares = 0;
  Variable average(Tensor::zeros({N, D}, DType::f64));
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const Variable W(attention::draw_gaussian(Generator(draw), m, D));
    const Variable out =
        attend(features(q / std::sqrt(root), W), features(k / std::sqrt(root), W), v);
    squares += std::pow(norm(out - exact), 2) / draws;
    average = average + out / draws;
  }
  return {std::sqrt(squares) / norm(exact), norm(average - exact) / norm(exact)};
}

int main() {
  one_feature();
  std::string ratios;
  std::puts("\nm     norm 1  norm 2  norm 4");
  for (int64_t m = 4; m <= 4096; m *= 4) {
    const Measured e[] = {measure(1, m), measure(2, m), measure(4, m)};
    std::printf("%-4d  %6.3f  %6.3f  %6.3f\n", int(m), e[0].one_draw, e[1].one_draw, e[2].one_draw);
    char line[64];
    std::snprintf(line, sizeof line, "%-12d  %6.3f  %6.3f  %6.3f\n", int(m), e[0].mean_of_draws,
                  e[1].mean_of_draws, e[2].mean_of_draws);
    ratios += line;
  }
  std::printf("equal weights err by %.3f, %.3f and %.3f\n", measure(1, 0).one_draw,
              measure(2, 0).one_draw, measure(4, 0).one_draw);
  std::printf("\nmean of 16, m  norm 1  norm 2  norm 4\n%s", ratios.c_str());
}
