// Converts errors to messages and exit codes.
#include <cstdio>
#include <exception>
#include <new>

#include "longhand/core/error.h"
#include "longhand/train/cli/command.h"

int main(int argc, char** argv) {
  using namespace longhand;
  using cli::fail;
  try {
    const int code = cli::run_program(argc, argv);
    // Buffered output may still fail to be written, for example to a full disk.
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return fail("cannot write to stdout", cli::failure);
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
