// The entry point of libFuzzer for one target, LONGHAND_FUZZ_TARGET.
#include "longhand/core/error.h"
#include "tests/reliability/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    longhand::fuzz::LONGHAND_FUZZ_TARGET({data, size});
  } catch (const longhand::Error&) {  // refused
  }
  return 0;
}
