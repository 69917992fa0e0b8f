// What every Communicator promises, checked on all of its ranks.
#pragma once

#include "longhand/core/communicator.h"

namespace longhand::test {

/// Throws Error for the first promise of core/communicator.h that does not hold. Collective.
void check_communicator(Communicator& ranks);

}  // namespace longhand::test
