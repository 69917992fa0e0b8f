// longhand-mpi bench ranks, sequence and comm: parallel speed-up, what each attention variant sends
// under sequence parallelism, and the latency and bandwidth of communication.
#include <map>

#include "longhand/attention/registry.h"
#include "longhand/core/communicator.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/cost/rates.h"
#include "longhand/train/cost/scaling.h"
#include "longhand/train/ranks/places.h"

namespace longhand::cli {
namespace {

/// Throws ConfigError, with a command line that starts several ranks, if there is only one.
void require_several_ranks() {
  check<ConfigError>(ranks().size() > 1, chosen_command(),
                     ": expected several ranks, found one; start it as mpirun -np 2 longhand-mpi",
                     command_line().substr(program_words().size()));
}

// ---- one rank and all

struct BenchRanksArguments : Common {
  std::string config;
  int64_t steps = 5, turns = 7;
};

train::Table rates(const train::Scaling& s, int ranks) {
  train::Table out{
      .name = "rates",
      .title = "One rank and all ranks, in turns",
      .note =
          "Each rank has the same number of examples (weak scaling). The speed-up is the ratio of "
          "tokens per second; at best it is the number of ranks."};
  const auto row = [&](int count, const std::vector<double>& seconds) {
    const bool all = count > 1;
    const auto only_all = [&](train::Cell cell) { return all ? cell : train::Cell(); };
    const Estimate step = estimate(seconds);
    add_row(out,
            {{"ranks", int64_t{count}},
             {"threads", int64_t{threads()}, "threads of each"},
             {"tokens_per_second", static_cast<double>(count * s.tokens) / step.mean, "tokens/s"},
             {"speed_up", all ? s.speed_up(ranks) : 1.0, "speed-up"},
             {"sent_bytes", only_all(s.bytes), "sent by a rank in a step (bytes)"},
             {"communication_s", only_all(s.communication), "communication in a step (s)"},
             {"waited_s", only_all(s.waited), "of this, waited (s)"},
             {"hidden", only_all(s.hidden()), "hidden"},
             {"step_s", step, "step (s)"}});
  };
  row(1, s.one);
  row(ranks, s.all);
  return out;
}

train::Table timeline(const train::Scaling& s) {
  train::Table out{
      .name = "timeline",
      .title = "Timeline of one step",
      .note =
          "Each rank has two lanes: what it computes, and what it sends meanwhile. \"wait\" is the "
          "time in which a rank only waits for others.",
      .columns = {{"lane", ""}, {"span", ""}, {"begin_ms", "begin (ms)"}, {"end_ms", "end (ms)"}},
      .charts = {{.title = "Timeline of one step",
                  .x = "begin_ms",
                  .y = "lane",
                  .series = {"span"},
                  .end = "end_ms"}}};
  for (const train::Span& span : s.timeline)
    out.rows.push_back({fmt::format("rank {} {}", span.rank, span.sends ? "sends" : "computes"),
                        span.what, 1e3 * span.begin, 1e3 * span.end});
  return out;
}

int bench_ranks(const BenchRanksArguments& a) {
  require_several_ranks();
  train::Config config = train::Config::load(a.config);
  apply(a, config);
  const bool leads = ranks().rank() == 0;
  const std::vector<std::string> warnings = train::binding_warnings(ranks());
  Progress progress(!leads || a.quiet || a.json, "bench ranks");
  if (leads)
    for (const std::string& warning : warnings) progress.line("longhand: warning: " + warning);
  progress.update(0, a.turns, "the first steps");
  const train::Scaling scaling = train::measure_scaling(
      ranks(), config, {.steps = a.steps, .turns = a.turns, .on_turn = [&](int64_t turn) {
                          progress.update(turn, a.turns, "one rank and all ranks, in turns");
                        }});
  progress.clear();
  if (!leads) return success;
  return finish(a,
                {.title = fmt::format("{} ranks against one", ranks().size()),
                 .summary = fmt::format(
                     "{} ranks process {:.2f} times the tokens per second of one; {:.0f} % of "
                     "their communication happens while they compute.",
                     ranks().size(), scaling.speed_up(ranks().size()), 100 * scaling.hidden()),
                 .tables = {rates(scaling, ranks().size()), timeline(scaling)}},
                {.hidden = {"timeline"}});
}

// ---- sequence parallelism

struct BenchSequenceArguments : Common {
  std::vector<std::string> attention;
  std::vector<int64_t> length{128, 256, 512, 1024};
  int64_t d_model = 64, heads = 8, layers = 2;
  bool causal = false;
};

/// Returns the model of one measurement; nothing if the variant does not support it.
std::optional<attention::TransformerConfig> model_of(const BenchSequenceArguments& a,
                                                     const std::string& variant, int64_t length) {
  train::Config config;
  for (const char* const option :
       {"vocabulary=256", "classes=256", "per_token=true", "positions=none"})
    config.assign(std::string("model.") + option, "bench sequence");
  for (const auto& [key, value] : {std::pair{"max_length", length},
                                   {"d_model", a.d_model},
                                   {"heads", a.heads},
                                   {"layers", a.layers}})
    config.assign("model", key, value, "bench sequence");
  config.assign("attention", "type", variant, "--attention");
  const attention::Capabilities can = attention::capabilities(variant, {.max_length = length});
  if (a.causal && !can.causal) return std::nullopt;
  config.assign("model", "causal", a.causal || can.causal_only, "bench sequence");
  return train::read_model(config, nullptr);
}

int bench_sequence(const BenchSequenceArguments& a) {
  require_several_ranks();
  const std::vector<std::string> variants = a.attention.empty() ? attention::names() : a.attention;
  const bool leads = ranks().rank() == 0;
  Progress progress(!leads || a.quiet || a.json, "bench sequence");
  train::Table table{
      .name = "sequence",
      .title =
          fmt::format("Sent by one of {} ranks for one layer and one sequence", ranks().size()),
      .note =
          "A forward and a backward pass over one sequence that is cut over the ranks. What sums, "
          "states, landmarks and neighbouring tokens take does not depend on the length of "
          "sequences; heads and gathered tokens grow with it.",
      .columns = {{"attention", ""},
                  {"path", "exchanges"},
                  {"length", ""},
                  {"bytes", "sent (bytes)"},
                  {"seconds", "both passes (s)"}}};
  add_chart(table, "Bytes sent for one layer against length", "length", "bytes",
            {"attention", "path"}, true, true);
  const int64_t all = std::ssize(variants) * std::ssize(a.length);
  int64_t done = 0;
  int64_t flat = 0,
          growing = 0;  // variants that send as much at the last length as at the first, or more
  for (const std::string& variant : variants) {
    std::vector<double> sent;
    for (const int64_t length : a.length) {
      progress.update(done++, all, fmt::format("{}, {} tokens", variant, length));
      const auto model = model_of(a, variant, length);
      if (!model) continue;
      const train::SequenceTraffic found = train::measure_sequence_traffic(ranks(), *model);
      table.rows.push_back({variant, found.path, length, found.bytes, found.seconds});
      sent.push_back(found.bytes);
    }
    if (!sent.empty()) ++(sent.front() == sent.back() ? flat : growing);
  }
  progress.clear();
  if (!leads) return success;
  return finish(
      a, {.title = fmt::format("Sequence parallelism over {} ranks", ranks().size()),
          .summary = fmt::format("{} variants send as much at {} tokens as at {}; {} send more.",
                                 flat, a.length.back(), a.length.front(), growing),
          .tables = {std::move(table)}});
}

// ---- collective operations

struct BenchCommArguments : Common {
  train::CollectiveBench bench;
};

train::Table time_table(const std::vector<train::CollectiveTime>& times) {
  train::Table table{.name = "times",
                     .title = "Time of each operation by size",
                     .note =
                         "Medians of the slowest rank, with quartiles. Bytes are those of the "
                         "larger of the tensors that a rank passes in and gets back; sent are the "
                         "bytes that it sends to other ranks.",
                     .charts = {{.title = "Time against bytes",
                                 .x = "bytes",
                                 .y = "us",
                                 .series = {"operation"},
                                 .low = "us_quartile_1",
                                 .high = "us_quartile_3",
                                 .log_x = true,
                                 .log_y = true}}};
  for (const train::CollectiveTime& t : times) {
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

train::Table host_table(const std::map<std::string, std::vector<train::Place>>& hosts) {
  train::Table table{"hosts", "Machines", "", {{"host", ""}, {"ranks", ""}, {"cores", ""}}};
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
  // A rank's input, output and two copies, for all ranks if they share one machine.
  const double most = train::machine_memory().bytes / static_cast<double>(4 * ranks);
  check<ConfigError>(static_cast<double>(a.bench.max_bytes) <= most, "--max-bytes ",
                     a.bench.max_bytes, ": expected at most ", std::floor(most),
                     ", because each rank needs four times as much memory");
}

int bench_comm(BenchCommArguments a) {
  Communicator& group = ranks();
  require_several_ranks();
  check_sizes(a, group.size());
  const bool leads = group.rank() == 0;
  const auto hosts = train::places(group);
  Progress progress(!leads || a.quiet || a.json, "bench comm", 2);
  a.bench.on_progress = [&](int64_t done, int64_t all, train::Collective next) {
    progress.update(done, all, name_of(next));
  };
  const std::vector<train::CollectiveTime> times = train::measure_collectives(group, a.bench);
  progress.clear();
  if (!leads) return success;
  const std::vector<train::CollectiveRate> rates = train::fit_rates(times);
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

void add_bench_ranks(Command& program) {
  auto [c, a] = program.command<BenchRanksArguments>("bench ranks", bench_ranks);
  c.add("config", a->config).required();
  c.add("--steps", a->steps).positive();
  c.add("--turns", a->turns).positive();
  c.runs_on_ranks();
  c.common(*a, "set seed threads results quiet json words");

  auto [sequence, b] = program.command<BenchSequenceArguments>("bench sequence", bench_sequence);
  sequence.add("--attention", b->attention);
  sequence.add("--length", b->length).positive();
  sequence.add("--d-model", b->d_model).positive();
  sequence.add("--heads", b->heads).positive();
  sequence.add("--layers", b->layers).positive();
  sequence.flag("--causal", b->causal);
  sequence.runs_on_ranks();
  sequence.common(*b, "threads results quiet json");

  auto [comm, m] = program.command<BenchCommArguments>("bench comm", bench_comm);
  comm.add("--max-bytes", m->bench.max_bytes).positive();
  comm.add("--seconds", m->bench.seconds).not_negative();
  comm.runs_on_ranks();
  comm.common(*m, "results quiet json");
}

}  // namespace longhand::cli
