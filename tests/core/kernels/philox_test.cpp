#include "longhand/core/kernels/philox.h"

#include <vector>

#include "tests/support/catch.h"

using namespace longhand;

TEST_CASE("philox: words in bulk equal those of the generator") {
  for (const Generator& generator : {Generator(0), Generator(7).fork("x").fork(3)}) {
    for (uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 20, ~uint64_t{0} - 99}) {
      for (int64_t blocks : {0, 1, 3, 16, 67}) {
        std::vector<uint32_t> words(4 * blocks + 1, 42);
        kernels::philox_words(generator.state(), first, blocks, words.data());
        bool equal = words.back() == 42;
        for (int64_t i = 0; i < blocks; ++i) {
          const auto block = generator.block(first + static_cast<uint64_t>(i));
          for (int64_t k = 0; k < 4; ++k) equal = equal && words[4 * i + k] == block[k];
        }
        INFO("first " << first << ", blocks " << blocks);
        CHECK(equal);
      }
    }
  }
}
