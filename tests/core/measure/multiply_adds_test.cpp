#include "longhand/core/measure/multiply_adds.h"

#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/gemm_tile.h"
#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("multiply-adds: products of any size count m n k, by whichever kernel") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [m, n, k] :
         {std::tuple{3, 5, 7}, {200, 40, 300}, {64, 64, 4096}, {1000, 33, 65}}) {
      CAPTURE(m, n, k, dtype);
      const Tensor a = Tensor::full({m, k}, 1, dtype), b = Tensor::full({k, n}, 1, dtype);
      Tensor c = Tensor::empty({m, n}, dtype);
      const MultiplyAdds counted;
      matmul_into(c, a, b);
      CHECK(counted.count() == int64_t{m} * n * k);
      CHECK_THROWS_AS(MultiplyAdds(), Error);
    }
  const std::vector<double> a(6, 1), b(12, 1);
  std::vector<double> c_of_tile(8);
  {
    const MultiplyAdds counted;
    kernels::gemm_tile<double>(2, 4, 3, {a.data(), 3, 1}, b.data(), 4, c_of_tile.data(), 4, false);
    CHECK(counted.count() == 2 * 4 * 3);
  }
  const Tensor one = Tensor::full({1, 1}, 1);
  Tensor c = Tensor::empty({1, 1});
  matmul_into(c, one, one);
  const MultiplyAdds counted;
  CHECK(counted.count() == 0);
}
