#include "longhand/core/kernels/subnormals.h"

#include <limits>

#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("subnormal numbers are zeros while SubnormalsAsZeros exists") {
  volatile float least = std::numeric_limits<float>::min(), half = 0.5f, subnormal = least * half;
  REQUIRE(subnormal != 0);
#if defined(__x86_64__)
  {
    const kernels::SubnormalsAsZeros zeros;
    volatile float product = least * half, sum = subnormal + subnormal;
    CHECK(product * 0x1p24f == 0);
    CHECK(sum * 0x1p24f == 0);
  }
#endif
  volatile float product = least * half;
  CHECK(product * 0x1p24f == 0x1p-103f);
}
