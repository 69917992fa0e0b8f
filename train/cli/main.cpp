// Converts errors to messages and exit codes.
#include <exception>
#include <new>

#include "longhand/core/error.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/run/process.h"

int main(int argc, char** argv) {
  using namespace longhand;
  using cli::fail;
  // First, because a signal without a handler ends the process. Never destroyed, because the exit code
  // no longer changes once the result is written.
  static const auto* const signals = new train::SignalRequests;
  static_cast<void>(signals);
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
