// copy: symbols, a pause, a delimiter, and then the symbols are to be written (Hochreiter &
// Schmidhuber 1997; as a test of long memory, Arjovsky et al. 2016, arXiv 1511.06464).
#include "longhand/data/copying.h"
#include "longhand/data/registry.h"

namespace longhand::data {

TaskRegistration register_copy() {
  return {
      "symbols at the start, to be written in order after a delimiter; length=64, count=16, "
      "symbols=8, train_size=100000, validation_size=2000, test_size=2000",
      [](const Options& options, uint64_t seed, const Splits&) {
        return make_copying(options, seed, {.length = 64, .count = 16, .symbols = 8}, false);
      }};
}

}  // namespace longhand::data
