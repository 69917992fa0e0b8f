// Converts errors to messages and exit codes.
#include <exception>
#include <new>

#include "longhand/core/error.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/run/process.h"

namespace {

// Never destroyed, because signals must not change the exit code after the result is written.
longhand::train::SignalRequests* signals = nullptr;

void catch_signals() {
  if (!signals) signals = new longhand::train::SignalRequests;
}

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// A signal without a handler ends the process. This runs before the constructors of the shared
// libraries, of which that of OpenBLAS takes most of the time until main().
[[gnu::section(".preinit_array"), gnu::used]] void (*before_libraries)() = catch_signals;
#endif

}  // namespace

int main(int argc, char** argv) {
  using namespace longhand;
  using cli::fail;
  catch_signals();
  cli::open_standard_streams();
  try {
    const int code = cli::run_program(argc, argv);
    cli::flush_stdout();
    return code;
  } catch (const ConfigError& error) {
    return fail(error.what(), cli::usage_error);
  } catch (const DataError& error) {
    return fail(error.what(), cli::data_error);
  } catch (const DivergedError& error) {
    return fail(error.what(), cli::diverged);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", cli::failure);
  } catch (const std::exception& error) {
    return fail(error.what(), cli::failure);
  }
}
