// longhand --version
#include "longhand/core/version.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "longhand/core/gemm.h"
#include "longhand/core/kernels/gemm_tile_kernels.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/cli/output/answer.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/ranks.h"

namespace longhand::cli {
namespace {

/// Whether a micro-kernel computes a product of small integers exactly.
bool is_right(const kernels::TileKernel& kernel) {
  constexpr int64_t m = 17, n = 39,
                    k = 5;  // blocks of each height; whole vectors and a partial one
  std::vector<float> a(m * k), b(k * n), c(m * n);
  for (int64_t i = 0; i < m * k; ++i) a[i] = static_cast<float>(i % 7 - 3);
  for (int64_t i = 0; i < k * n; ++i) b[i] = static_cast<float>(i % 11 - 5);
  kernel.multiply(m, n, k, {a.data(), k, 1}, b.data(), n, c.data(), n, {});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
      if (c[i * n + j] != sum) return false;
    }
  return true;
}

}  // namespace

int print_version(bool json) {
  const std::string used(name_of(isa()));
  std::vector<std::string> available, tested, wrong;
  for (const Isa set : all_isas)
    if (set <= machine_isa()) available.emplace_back(name_of(set));
  for (const kernels::TileKernel& kernel : kernels::tile_kernels())
    (is_right(kernel) ? tested : wrong).emplace_back(kernel.name);
  const std::string advice = blas_advice();
  Answer out(json);
  out.add("version", version());
  for (const auto& [what, value] : train::provenance()) out.add(what, value);
  out.add("mpi", launcher() ? Json(launcher()->version()) : Json())
      .add("machine", train::machine_description())
      .add("instruction_sets", Json{{"available", available}, {"used", used}})
      .add("micro_kernels", Json{{"tested", tested}, {"wrong", wrong}})
      .add("threads", threads())
      .text(
          "longhand {version}, commit {commit}\n{compiler}, {flags}\n{cpu}; {machine}; {threads} "
          "threads\n{libraries}\n");
  if (launcher()) out.text("{mpi}\n");
  out.print("instruction sets: this CPU has {}; in use: {}\nmicro-kernels tested: {}\n",
            fmt::join(available, ", "), used, fmt::join(tested, ", "));
  if (!advice.empty()) out.print("{}\n", advice);
  out.end();
  if (wrong.empty()) return success;
  print_stderr("longhand: micro-kernels that give wrong products on this CPU: {}\n",
               fmt::join(wrong, ", "));
  return failure;
}

}  // namespace longhand::cli
