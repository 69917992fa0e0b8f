// Warnings about the cores of several ranks.
#include "longhand/train/ranks/places.h"

#include <sched.h>

#include "longhand/core/parallel.h"
#include "longhand/train/ranks/grid.h"
#include "tests/support/catch.h"
#include "tests/support/thread_ranks.h"

using namespace longhand;
using namespace longhand::test;

namespace {

/// The warnings for `count` ranks of this machine that may each run on `cores`.
std::vector<std::string> warnings(int count, const std::set<int>& cores) {
  std::vector<std::string> out;
  run_ranks(count, [&](Communicator& ranks) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);  // of this thread
    const auto found = train::binding_warnings(ranks);
    if (ranks.rank() == 0) out = found;
  });
  return out;
}

std::string cores_text(int64_t n) { return std::to_string(n) + (n == 1 ? " core" : " cores"); }

}  // namespace

TEST_CASE("ranks that leave half of the cores or share them are warned about") {
  const train::Place here = train::places(alone()).begin()->second.front();
  const int64_t machine = here.machine_cores;
  if (machine < 2 || machine % 2 == 1 || std::ssize(here.cores) < machine) return;
  const std::string host = train::host_name(), n = std::to_string(machine),
                    half = std::to_string(machine / 2), twice = std::to_string(2 * machine);
  const int64_t before = threads();
  set_threads(1);
  CHECK(warnings(1, here.cores).empty());
  std::set<int> some;
  for (const int core : here.cores)
    if (std::ssize(some) < machine / 2) some.insert(core);
  CHECK(warnings(1, some) ==
        std::vector<std::string>{"1 rank may run on " + cores_text(machine / 2) + " of " + n +
                                 " that " + host + " has: add --map-by slot:PE=" + n +
                                 " to mpirun (-c " + n + " to srun), or start more ranks"});
  CHECK(warnings(2, here.cores).empty());  // one thread each
  set_threads(static_cast<int>(machine));
  CHECK(warnings(2, here.cores) ==
        std::vector<std::string>{"2 ranks with " + twice + " threads share " + cores_text(machine) +
                                 " of " + host + ": add --threads " + half});
  set_threads(static_cast<int>(before));
}
