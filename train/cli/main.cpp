// Converts errors to messages and exit codes.
#include "longhand/train/cli/main.h"

#include <exception>
#include <new>

#include "longhand/core/error.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/run/process.h"

namespace longhand::cli {

void catch_signals() {
  // Never destroyed, because signals must not change the exit code after the result is written.
  static longhand::train::SignalRequests* signals = nullptr;
  if (!signals) signals = new longhand::train::SignalRequests;
}

int main(int argc, char** argv) {
  catch_signals();
  open_standard_streams();
  try {
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
  } catch (const std::exception& error) {
    return fail(error.what(), failure);
  }
}

}  // namespace longhand::cli
