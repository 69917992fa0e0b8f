// Ranks as threads of one process, to test what several processes compute together.
#pragma once

#include <functional>

#include "longhand/core/communicator.h"

namespace longhand::test {

/// Calls body(ranks) on `count` threads at once, each a rank of one group. When all have returned,
/// rethrows what the lowest rank has thrown that did not merely wait for another one.
void run_ranks(int count, const std::function<void(Communicator&)>& body);

}  // namespace longhand::test
