#include "longhand/train/cli/ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "longhand/core/communicator.h"
#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/distributed/grid.h"

namespace longhand::cli {
namespace {

Launcher* of_program = nullptr;
Communicator* connected = nullptr;

int environment(std::initializer_list<const char*> names, int default_value) {
  for (const char* name : names)
    if (const char* const value = std::getenv(name)) return std::atoi(value);
  return default_value;
}

/// The cores that this process may run on.
std::set<int> own_cores() {
  std::set<int> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) out.insert(core);
  return out;
}

/// The place of this process, for the others.
std::string own_place() {
  std::ostringstream out;
  out << train::host_name() << ' ' << threads() << ' ' << sysconf(_SC_NPROCESSORS_ONLN);
  for (const int core : own_cores()) out << ' ' << core;
  return out.str();
}

std::string count(int64_t n, const char* one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

/// The warning about the ranks of one machine; empty if there is none.
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
          train::rank_name(rank.rank, host), count(rank.threads, "thread"),
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

Launcher* launcher() { return of_program; }
void set_launcher(Launcher* launcher) { of_program = launcher; }

Communicator& ranks() { return connected ? *connected : alone(); }
void connect_ranks() {
  if (of_program) connected = &of_program->connect();
}

std::string program_words() {
  if (!of_program) return "longhand";
  const int size = ranks().size();
  if (size == 1) return "longhand-mpi";
  const bool by_mpirun = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  return fmt::format("{} {} longhand-mpi", by_mpirun ? "mpirun -np" : "srun --mpi=pmix -n", size);
}

int threads_given() { return environment({"SLURM_CPUS_PER_TASK"}, 0); }

// Those of Open MPI's mpirun, and of srun --mpi=pmix.
std::vector<std::string> rank_variables() {
  return {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"};
}

StartedAs started_as() {
  const bool by_srun = std::getenv("PMIX_RANK") != nullptr;
  return {environment({"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}, 0),
          environment({"OMPI_COMM_WORLD_SIZE"}, by_srun ? environment({"SLURM_NTASKS"}, 1) : 1)};
}

void require_several_ranks() {
  check<ConfigError>(ranks().size() > 1, chosen_command(),
                     ": expected several ranks, found one; start it as mpirun -np 2 longhand-mpi ",
                     chosen_command());
}

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

}  // namespace longhand::cli
