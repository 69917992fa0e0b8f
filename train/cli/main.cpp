// Converts errors to messages and exit codes.
#include "longhand/train/cli/main.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <new>

#include "longhand/core/error.h"
#include "longhand/core/gemm.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/run/process.h"

extern "C" void __gcov_dump() __attribute__((weak));  // in coverage builds

namespace longhand::cli {
namespace {

// KiB, measured with OpenBLAS 0.3.21: the minimum for small runs and evaluations. Each thread that
// OpenBLAS starts allocates 128 MiB and a stack.
constexpr uint64_t of_process = 180'000, of_thread = 140'000;

}  // namespace

void leave(int code) {
  std::fflush(nullptr);
  if (__gcov_dump) __gcov_dump();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  std::exit(code);  // reports are written at exit
#else
  _exit(code);
#endif
}

void refuse_small_address_space(uint64_t threads) {
  rlimit limit{};
  const uint64_t least = of_process + of_thread * threads;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur / 1024 >= least) return;
  dprintf(STDERR_FILENO,
          "longhand: the address space is limited to %" PRIu64
          " KiB (ulimit -v), expected at least %" PRIu64 ": run \"ulimit -v unlimited\" first%s\n",
          uint64_t{limit.rlim_cur / 1024}, least,
          threads > 0 ? ", or set OPENBLAS_NUM_THREADS=1" : "");
  _exit(usage_error);
}

void catch_signals() {
  // Never destroyed, because signals must not change the exit code after the result is written.
  static longhand::train::SignalRequests* signals = nullptr;
  if (!signals) signals = new longhand::train::SignalRequests;
}

int main(int argc, char** argv) {
  catch_signals();
  open_standard_streams();
  std::error_code no_proc;
  const std::filesystem::directory_iterator threads("/proc/self/task", no_proc);
  if (!no_proc)
    refuse_small_address_space(
        static_cast<uint64_t>(std::distance(begin(threads), end(threads)) - 1));
  try {
    use_better_blas_core();
    const int code = run_program(argc, argv);
    flush_stdout();
    return code;
  } catch (const ConfigError& error) {
    return fail(error.what(), usage_error);
  } catch (const DataError& error) {
    return fail(error.what(), data_error);
  } catch (const DivergedError& error) {
    return fail(error.what(), diverged);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", failure);
  } catch (const std::filesystem::filesystem_error& error) {
    return fail(error.path1().string() + ": " + data::system_reason(error.code().value()),
                data_error);
  } catch (const std::exception& error) {
    return fail(error.what(), failure);
  }
}

}  // namespace longhand::cli
