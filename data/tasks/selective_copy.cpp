// selective_copy: copy, with the symbols scattered among blanks (Gu & Dao 2023, "Mamba",
// arXiv 2312.00752), so that where to look depends on what stands there.
#include "longhand/data/copying.h"
#include "longhand/data/registry.h"

namespace longhand::data {

TaskRegistration register_selective_copy() {
  return {
      "symbols scattered among blanks, to be written in order after a delimiter; length=256, "
      "count=16, symbols=16, train_size=100000, validation_size=2000, test_size=2000",
      [](const Options& options, uint64_t seed, const Splits&) {
        return make_copying(options, seed, {.length = 256, .count = 16, .symbols = 16}, true);
      }};
}

}  // namespace longhand::data
