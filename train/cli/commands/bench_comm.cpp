// longhand bench comm: latency and bandwidth of collective communication.
#include "longhand/core/communicator.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/cost/rates.h"
#include "longhand/train/ranks/places.h"

namespace longhand::cli {
namespace {

using train::CollectiveRate;
using train::CollectiveTime;
using train::Table;

struct BenchCommArguments : Common {
  train::CollectiveBench bench;
};

Table time_table(const std::vector<CollectiveTime>& times) {
  Table table{
      .name = "times",
      .title = "Time of each operation by size",
      .note =
          "Medians of the slowest rank, with quartiles. Bytes are those of the larger one of the "
          "tensors that a rank gives and gets; sent are those that it sends to other ranks.",
      .charts = {{.title = "Time against bytes",
                  .x = "bytes",
                  .y = "us",
                  .series = {"operation"},
                  .low = "us_quartile_1",
                  .high = "us_quartile_3",
                  .log_x = true,
                  .log_y = true}}};
  for (const CollectiveTime& t : times) {
    const double sent = train::bytes_sent(t.operation, t.ranks, static_cast<double>(t.bytes));
    add_row(table, {{"operation", std::string(name_of(t.operation))},
                    {"ranks", t.ranks},
                    {"bytes", t.bytes, "", 12},
                    {"sent", static_cast<int64_t>(sent), "", 12},
                    {"us", 1e6 * t.seconds, "us", 3},
                    {"us_quartile_1", 1e6 * t.seconds_low, "25 %", 3},
                    {"us_quartile_3", 1e6 * t.seconds_high, "75 %", 3},
                    {"repetitions", t.repetitions}});
  }
  return table;
}

Table host_table(const std::map<std::string, std::vector<train::Place>>& hosts) {
  Table table{"hosts", "Machines", "", {{"host", ""}, {"ranks", ""}, {"cores", ""}}};
  for (const auto& [host, places] : hosts) {
    const int64_t cores = places.front().machine_cores;
    table.rows.push_back({host, std::ssize(places), cores});
    if (std::ssize(places) > cores)
      table.note =
          "More ranks than cores: they wait for each other to run, so these times say "
          "nothing about ranks that have cores of their own.";
  }
  return table;
}

void check_sizes(const BenchCommArguments& a, int64_t ranks) {
  const int64_t least = 4 * train::least_bytes(ranks);
  check<ConfigError>(a.bench.max_bytes >= least, "--max-bytes ", a.bench.max_bytes,
                     ": expected at least ", least, ", two sizes for ", ranks, " ranks");
  // What a rank gives and gets and two copies, of all ranks if they share one machine.
  const double most = train::machine_memory().bytes / static_cast<double>(4 * ranks);
  check<ConfigError>(static_cast<double>(a.bench.max_bytes) <= most, "--max-bytes ",
                     a.bench.max_bytes, ": expected at most ", std::floor(most),
                     ", because each rank needs four times as much memory");
}

int bench_comm(const BenchCommArguments& a) {
  Communicator& group = ranks();
  require_several_ranks();
  check_sizes(a, group.size());
  const bool leads = group.rank() == 0;
  const auto hosts = train::places(group);
  Progress progress(!leads || a.quiet || a.json, "bench comm", 2);
  train::CollectiveBench bench = a.bench;
  bench.on_progress = [&](int64_t done, int64_t all, train::Collective next) {
    progress.update(done, all, name_of(next));
  };
  const std::vector<CollectiveTime> times = train::measure_collectives(group, bench);
  progress.clear();
  if (!leads) return success;
  const std::vector<CollectiveRate> rates = train::fit_rates(times);
  return finish(
      a,
      {.title = fmt::format("Operations of {} ranks on {} {}, {}", group.size(), hosts.size(),
                            hosts.size() == 1 ? "machine" : "machines", launcher()->version()),
       .summary = fmt::format("A sum takes {:.0f} us and {:.2f} GB/s.", 1e6 * rates[0].latency,
                              1e-9 * rates[0].bandwidth),
       .tables = {train::rate_table(rates), time_table(times), host_table(hosts)}},
      {.hidden = {"times"}});
}

}  // namespace

void add_bench_comm(Command& bench) {
  auto [c, a] = bench.command<BenchCommArguments>("comm", bench_comm);
  c.add("--max-bytes", a->bench.max_bytes).positive();
  c.add("--seconds", a->bench.seconds).not_negative();
  c.runs_on_ranks();
  c.common(*a, "results quiet json");
}

}  // namespace longhand::cli
