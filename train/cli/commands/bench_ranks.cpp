// longhand-mpi bench ranks: the speed-up of several ranks over one, and how much of their communication is hidden.
#include "longhand/core/communicator.h"
#include "longhand/core/parallel.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/cost/scaling.h"
#include "longhand/train/ranks/places.h"

namespace longhand::cli {
namespace {

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

}  // namespace

void add_bench_ranks(Command& bench) {
  auto [c, a] = bench.command<BenchRanksArguments>("ranks", bench_ranks);
  c.add("config", a->config).required();
  c.add("--steps", a->steps).positive();
  c.add("--turns", a->turns).positive();
  c.runs_on_ranks();
  c.common(*a, "set seed threads results quiet json words");
}

}  // namespace longhand::cli
