#include "longhand/train/ranks/places.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "longhand/core/communicator.h"
#include "longhand/core/parallel.h"
#include "longhand/train/ranks/grid.h"

namespace longhand::train {
namespace {

/// Returns the cores that this process may run on.
std::set<int> own_cores() {
  std::set<int> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) out.insert(core);
  return out;
}

/// Returns the place of this process as text for the others.
std::string own_place() {
  std::ostringstream out;
  out << host_name() << ' ' << threads() << ' ' << sysconf(_SC_NPROCESSORS_ONLN);
  for (const int core : own_cores()) out << ' ' << core;
  return out.str();
}

std::string count(int64_t n, const char* one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

/// Returns the warning about one machine's ranks; empty if there is none.
std::string warning_for(const std::string& host, const std::vector<Place>& ranks) {
  std::set<int> all;
  int64_t threads = 0, cores = 0;
  for (const Place& rank : ranks) {
    threads += rank.threads;
    cores += std::ssize(rank.cores);
    all.insert(rank.cores.begin(), rank.cores.end());
  }
  const int64_t machine = ranks.front().machine_cores, number = std::ssize(ranks);
  for (const Place& rank : ranks)
    if (rank.threads > std::ssize(rank.cores))
      return fmt::format(
          "{} has {}, but may run on {}: add --map-by slot:PE={} to mpirun (-c {} to srun), or "
          "--bind-to none",
          rank_name(rank.rank, host), count(rank.threads, "thread"),
          count(std::ssize(rank.cores), "core"), rank.threads, rank.threads);
  const int64_t each = std::max<int64_t>(1, machine / number);
  if (number > std::ssize(all))
    return fmt::format("{} share {} of {}: start at most {} there", count(number, "rank"),
                       count(std::ssize(all), "core"), host, std::ssize(all));
  if (cores > std::ssize(all) && threads > std::ssize(all))
    return fmt::format("{} with {} share {} of {}: add --threads {}", count(number, "rank"),
                       count(threads, "thread"), count(std::ssize(all), "core"), host,
                       std::max<int64_t>(1, std::ssize(all) / number));
  if (cores == std::ssize(all) && 2 * cores <= machine)
    return fmt::format(
        "{} may run on {} of {} that {} has: add --map-by slot:PE={} to mpirun (-c {} to srun), or "
        "start more ranks",
        count(number, "rank"), count(cores, "core"), machine, host, each, each);
  return "";
}

}  // namespace

std::map<std::string, std::vector<Place>> places(Communicator& ranks) {
  std::map<std::string, std::vector<Place>> out;
  const std::vector<std::string> texts = ranks.gather(own_place());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream in(texts[rank]);
    Place place{.rank = static_cast<int>(rank)};
    in >> place.host >> place.threads >> place.machine_cores;
    for (int core; in >> core;) place.cores.insert(core);
    out[place.host].push_back(std::move(place));
  }
  return out;
}

std::vector<std::string> binding_warnings(Communicator& ranks) {
  std::vector<std::string> out;
  for (const auto& [host, of_host] : places(ranks))
    if (const std::string text = warning_for(host, of_host); !text.empty()) out.push_back(text);
  return out;
}

}  // namespace longhand::train
