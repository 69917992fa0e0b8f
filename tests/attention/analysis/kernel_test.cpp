#include "longhand/attention/analysis/kernel.h"

#include <cmath>
#include <map>

#include "longhand/attention/analysis/measures.h"
#include "longhand/core/error.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;

namespace {

// Points (n, 6), in groups of `same` equal ones.
Tensor points(int64_t n, double norm, int64_t same = 1) {
  Tensor x = Tensor::empty({n, 6}, DType::f64);
  fill_normal(x, Generator(5), 0, norm / std::sqrt(6.0));
  for (int64_t i = 0; i < n; ++i)
    if (i % same) copy_into(x.select(0, i), x.select(0, i - 1));
  return x;
}

const KernelError& at(const std::vector<KernelError>& all, const char* method, const char* draw,
                      int64_t size) {
  for (const KernelError& e : all)
    if (e.method == method && e.draw == draw && e.size == size) return e;
  FAIL("no " << method << " " << draw << " of size " << size);
  return all[0];
}

}  // namespace

TEST_CASE("analysis: random features have the errors of their closed forms") {
  const Tensor x = points(40, 0.3);  // estimates at larger norms have long tails
  for (const Kernel kernel : {Kernel::softmax, Kernel::gaussian}) {
    const auto found =
        kernel_errors(x, kernel, {.sizes = {16, 64, 256}, .draws = 50, .ensemble = 4});
    std::map<std::string, std::vector<double>> rms;
    for (const KernelError& e : found) {
      if (e.draw.empty()) continue;
      INFO(name_of(kernel) << " " << e.method << " " << e.draw << " " << e.size);
      CHECK(e.draws == 200);
      CHECK(e.least_eigenvalue >= -1e-12);
      if (e.draw == "iid") {
        CHECK(e.ratio.mean == Approx(1).margin(0.12));
        CHECK(e.rms == Approx(e.expected).epsilon(0.06));
        rms[e.method].push_back(e.rms);
        // The mean of 4 matrices is as good as one of 4 m rows: half the error.
        CHECK(e.ensemble_error.mean == Approx(e.error.mean / 2).epsilon(0.2));
        CHECK(e.single_error.mean == Approx(e.ensemble_error.mean).epsilon(0.25));
      } else {
        CHECK(e.ratio.mean <= 1.1);  // orthogonal rows are never worse
      }
    }
    CHECK(rms.size() == (kernel == Kernel::softmax ? 4 : 2));
    for (const auto& [method, errors] : rms)
      CHECK(fit_power(std::vector<double>{16, 64, 256}, errors).slope == Approx(-0.5).margin(0.03));
    CHECK(at(found, "trigonometric", "iid", 64).rms <
          at(found, "trigonometric_bias", "iid", 64).rms);
  }
}

TEST_CASE("analysis: nystrom matrices are exact at the rank of the kernel") {
  const Tensor x = points(36, 1.5, 4);  // 9 different points: rank 9
  const auto found = kernel_errors(x, Kernel::gaussian, {.sizes = {4, 9, 12}, .draws = 8});
  for (const char* const how : {"segment", "kmeans"}) {
    CHECK(at(found, how, "", 9).error.mean <= 1e-6);
    CHECK(at(found, how, "", 4).error.mean >= 0.05);
  }
  CHECK(at(found, "uniform", "", 9).error.mean > at(found, "kmeans", "", 9).error.mean);
  CHECK(at(found, "segment", "", 9).draws == 1);
  CHECK(at(found, "segment", "", 9).expected <= 1e-6);
  for (const KernelError& e : found) {
    INFO(e.method << " " << e.size);
    CHECK(e.least_eigenvalue >= -1e-9);
    if (e.draw.empty()) CHECK(e.error.mean >= e.expected * (1 - 1e-9) - 1e-9);
  }
}

TEST_CASE("analysis: landmarks by k-means and leverage, ensembles of nystrom") {
  const Tensor x = points(60, 1.5);
  const auto found = kernel_errors(x, Kernel::softmax, {.sizes = {10}, .draws = 30, .ensemble = 4});
  const KernelError &uniform = at(found, "uniform", "", 10), &kmeans = at(found, "kmeans", "", 10),
                    &leverage = at(found, "leverage", "", 10);
  CHECK(kmeans.error.mean < uniform.error.mean);
  CHECK(leverage.error.mean < uniform.error.mean);
  // Averaging helps, but less than as many landmarks in one matrix.
  CHECK(uniform.ensemble_error.mean < uniform.error.mean);
  CHECK(uniform.single_error.mean < uniform.ensemble_error.mean);
  CHECK(kernel_errors(x, Kernel::softmax, {.sizes = {100}}).size() == 8);  // no 100 landmarks
  CHECK_THROWS_AS(kernel_errors(x, Kernel::softmax, {.sizes = {0}}), ConfigError);
  // All points.
  for (const Landmarks how : {Landmarks::uniform, Landmarks::segment, Landmarks::leverage})
    CHECK(
        relative_error(nystrom_matrix(Kernel::gaussian, x,
                                      choose_landmarks(how, Kernel::gaussian, x, 60, Generator(1))),
                       kernel_matrix(Kernel::gaussian, x)) <= 1e-6);
}

TEST_CASE("analysis: kernel errors are the same for any number of threads") {
  const Tensor x = points(20, 1);
  const int before = threads();
  std::vector<double> found[2];
  for (int i = 0; i < 2; ++i) {
    set_threads(i == 0 ? 1 : 3);
    for (const KernelError& e : kernel_errors(x, Kernel::softmax, {.sizes = {4}, .draws = 5}))
      found[i].insert(found[i].end(), {e.error.mean, e.rms, e.ensemble_error.mean});
  }
  set_threads(before);
  CHECK(found[0] == found[1]);
}
