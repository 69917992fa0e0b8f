#include "longhand/train/checkpoint/provenance.h"

#include <gnu/libc-version.h>

#include <fstream>
#include <thread>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"
#include "longhand/core/version.h"
#include "longhand/data/hdf5.h"
#include "longhand/train/checkpoint/checkpoint.h"

namespace longhand::train {

// In build_info.cpp, which build_info.cmake writes.
extern const char* const build_commit;
extern const char* const build_flags;

namespace {

std::string compiler() {
#ifdef __clang__
  return concat_message("clang ", __clang_major__, ".", __clang_minor__, ".", __clang_patchlevel__);
#else
  return concat_message("gcc ", __GNUC__, ".", __GNUC_MINOR__, ".", __GNUC_PATCHLEVEL__);
#endif
}

std::string cpu() {
  std::string model = "unknown";
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (const size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos) {
      model = line.substr(colon + 2);
      break;
    }
  return concat_message(model, ", ", std::thread::hardware_concurrency(), " cores");
}

std::string libraries() {
  const std::string blas = blas_description();  // "OpenBLAS 0.3.21 pthread Haswell"
  return concat_message(blas.substr(0, blas.find(' ', blas.find(' ') + 1)), ", HDF5 ",
                        data::hdf5_version(), ", glibc ", gnu_get_libc_version());
}

}  // namespace

const std::map<std::string, std::string>& provenance() {
  static const std::map<std::string, std::string> all = {{"commit", build_commit},
                                                         {"compiler", compiler()},
                                                         {"flags", build_flags},
                                                         {"cpu", cpu()},
                                                         {"libraries", libraries()}};
  return all;
}

void add_origin(Results& results, const std::string& command) {
  results.command = command;
  results.machine = machine_and_threads();
  results.date = utc_now();
  results.version = version();
  results.provenance = provenance();
}

}  // namespace longhand::train
