// The machines and cores that a run's ranks use.
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
  std::set<int> cores{};  // cores that the rank may use
};
/// Returns the places of all ranks, by host. Collective.
std::map<std::string, std::vector<Place>> places(Communicator& ranks);

/// Returns warnings about threads and cores that these flags waste or share, each with the flag to
/// add. Collective.
std::vector<std::string> binding_warnings(Communicator& ranks);

}  // namespace longhand::train
