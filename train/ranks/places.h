// Where the ranks of a run are: machines and cores.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace longhand {
class Communicator;
}  // namespace longhand

namespace longhand::train {

/// Where a rank runs.
struct Place {
  int rank = 0;
  std::string host{};
  int64_t threads = 1;
  int64_t machine_cores = 1;
  std::set<int> cores{};  // that the rank may run on
};
/// The places of all ranks, by host. Collective.
std::map<std::string, std::vector<Place>> places(Communicator& ranks);

/// Warnings about threads and cores that this choice of flags wastes or shares, each with the flag to
/// add. Collective.
std::vector<std::string> binding_warnings(Communicator& ranks);

}  // namespace longhand::train
