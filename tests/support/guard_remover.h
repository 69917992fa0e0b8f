// For tests that install a file guard.
#pragma once

#include "longhand/data/file_guard.h"

namespace longhand::test {

/// Removes the guard at the end of a test.
struct GuardRemover {
  ~GuardRemover() { data::set_file_guard(nullptr); }
};

}  // namespace longhand::test
