// longhand plan: what a training step takes on any number of ranks, and how to divide them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/parallel.h"
#include "longhand/data/file.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/cli/results.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/forecast.h"

namespace longhand::cli {
namespace {

using train::Choice;
using train::Forecast;
using train::ForecastRequest;
using train::Table;

struct Arguments : ResultsArguments {
  std::string config, bench, table;
  std::vector<int64_t> ranks{1, 2, 4, 8}, length;  // length: empty: that of the configuration
  std::vector<std::string> rates;
  std::optional<double> latency, bandwidth;  // us, GB/s
  std::optional<double> memory;              // GiB
  double seconds = 0.5;
  bool here = false;
};

/// The configuration of the model alone, for sequences of this length.
train::Config model_config(const train::Config& config, const attention::TransformerConfig& model,
                           int64_t length) {
  train::Config out = config;
  for (const auto& [name, value] : config.given())
    if (!name.starts_with("model.") && !name.starts_with("attention.") && name != "optimizer.type")
      out.erase(name.substr(0, name.find('.')), name.substr(name.find('.') + 1));
  const auto set = [&](const char* key, OptionValue value) {
    out.assign("model", key, std::move(value), "the data");
  };
  set("vocabulary", model.vocabulary);
  set("classes", model.classes);
  set("per_token", model.per_token);
  set("causal", model.causal);
  out.assign("model", "max_length", length, "--length");
  return out;
}

train::Rates network_of(const Arguments& a) {
  check<ConfigError>(a.rates.empty() || (!a.latency && !a.bandwidth),
                     "plan: --rates are measured, --latency and --bandwidth assumed; expected one "
                     "or the other");
  for (const auto& [flag, value] :
       {std::pair("--latency", a.latency), {"--bandwidth", a.bandwidth}})
    check<ConfigError>(!value || (*value > 0 && std::isfinite(*value)), flag, " ",
                       value.value_or(0), ": expected a number above 0");
  if (a.rates.empty())
    return train::Rates::assumed(1e-6 * a.latency.value_or(50), 1e9 * a.bandwidth.value_or(1));
  std::vector<train::CollectiveRate> rates;
  std::string names;
  for (const std::string& file : a.rates) {
    const auto more =
        train::rates_in(train::results_of_json(data::read_text_file(file), file), file);
    rates.insert(rates.end(), more.begin(), more.end());
    names += (names.empty() ? "" : ", ") + file;
  }
  return {std::move(rates), names};
}

/// The cores that this process may use.
int64_t cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

/// What the ranks have, if all of them run on this machine.
void share_machine(ForecastRequest& request, int64_t ranks, const train::MemoryLimit& machine) {
  const double needed = static_cast<double>(ranks * threads());
  request.cores_per_thread = std::min(1.0, static_cast<double>(cores()) / needed);
  request.has_free_cores = needed < static_cast<double>(cores());
  request.limit.bytes = machine.bytes / static_cast<double>(ranks);
  if (ranks > 1) request.limit.what = fmt::format("each of {} ranks on this machine", ranks);
}

/// The forecasts for one length and number of ranks.
struct Group {
  int64_t length = 0, ranks = 0;
  double one = 0;  // seconds of one rank
  std::vector<Forecast> forecasts{};
  std::optional<Choice> choice{};  // nothing: no split can train
  std::string why{};
  std::string options{};  // to set

  const Forecast& chosen() const { return forecasts[choice->index]; }
};

std::string options_of(const ForecastRequest& request, const train::Split& split) {
  std::string out;
  if (split.data_ranks > request.shards) out = fmt::format("train.shards={}", split.data_ranks);
  if (split.sequence_ranks > 1)
    out += fmt::format("{}train.sequence_ranks={}", out.empty() ? "" : " ", split.sequence_ranks);
  return out;
}

Group plan_group(ForecastRequest request, const Arguments& a, int64_t ranks,
                 const train::MemoryLimit& machine) {
  Group out{.length = request.memory.model.max_length, .ranks = ranks};
  const auto forecast = [&](const train::Split& split) {
    if (a.here) share_machine(request, split.ranks(), machine);
    return train::forecast(request, split);
  };
  out.one = forecast({1, 1}).seconds();
  for (const train::Split& split : train::possible_splits(request, ranks))
    out.forecasts.push_back(forecast(split));
  if (out.forecasts.empty()) {
    out.why = fmt::format(
        "cannot train: the ranks that share out {} {} must be a power of two, and those that share "
        "out a sequence a divisor of the rest",
        request.memory.batch_size, request.memory.batch_size == 1 ? "sequence" : "sequences");
    return out;
  }
  out.choice = choose(out.forecasts, request.limit);
  out.why = out.choice->why;
  out.options = options_of(request, out.chosen().split);
  return out;
}

std::string speed_text(double times) {
  return times < 10 ? fmt::format("{:.2g}", times) : fmt::format("{:.0f}", times);
}

Table choice_table(const std::vector<Group>& groups, const ForecastRequest& request,
                   const std::string& title) {
  Table table{"choices",
              title,
              fmt::format("Computed, not measured. Compute: {}. Network: {}. Split: ranks that "
                          "share out the sequences of a batch x ranks that share out the tokens of "
                          "each. Sent and memory are those of one rank.",
                          request.compute.source, request.network.source()),
              {{"length", ""},
               {"ranks", ""},
               {"split", ""},
               {"step", ""},
               {"speed_up", "speed-up", 2},
               {"memory", ""},
               {"sent", ""},
               {"options", ""},
               {"why", ""}}};
  for (const Group& g : groups) {
    if (!g.choice) {
      table.rows.push_back({g.length, g.ranks, "-", {}, {}, {}, {}, "", g.why});
      continue;
    }
    const Forecast& f = g.chosen();
    table.rows.push_back({g.length, g.ranks, to_text(f.split), train::seconds_text(f.seconds()),
                          g.one / f.seconds(), train::bytes_text(f.memory),
                          train::bytes_text(f.sent), g.options, g.why});
  }
  return table;
}

Table forecast_table(const std::vector<Group>& groups) {
  Table table{"forecasts",
              "Every split: computed seconds of a step, and MiB of each rank",
              "Hidden is the part of the communication during which ranks compute.",
              {{"length", ""},
               {"ranks", ""},
               {"data_ranks", "data ranks"},
               {"sequence_ranks", "sequence ranks"},
               {"step_s", "step", 3},
               {"compute_s", "compute", 3},
               {"optimizer_s", "optimizer", 3},
               {"communication_s", "communication", 3},
               {"hidden_s", "hidden", 3},
               {"sent_mib", "sent", 3},
               {"memory_mib", "memory", 3},
               {"fits", ""}}};
  table.mark = "chosen";
  constexpr double mib = 1 << 20;
  for (const Group& g : groups)
    for (size_t i = 0; i < g.forecasts.size(); ++i) {
      const Forecast& f = g.forecasts[i];
      if (i == g.choice->index) table.marked.insert({table.rows.size(), 4});
      table.rows.push_back({g.length, g.ranks, f.split.data_ranks, f.split.sequence_ranks,
                            f.seconds(), f.compute, f.optimizer, f.communication(), f.hidden,
                            f.sent / mib, f.memory / mib, f.fits ? "yes" : "no"});
    }
  table.charts = {{.title = "Computed seconds of a step against ranks",
                   .x = "ranks",
                   .y = "step_s",
                   .series = {"length", "sequence_ranks"},
                   .log_x = true,
                   .log_y = true},
                  {.title = "Computed memory of a rank against ranks (MiB)",
                   .x = "ranks",
                   .y = "memory_mib",
                   .series = {"length", "sequence_ranks"},
                   .log_x = true,
                   .log_y = true}};
  return table;
}

/// For each length, the number of ranks to take: the fewest of those that are about as fast as the fastest.
std::string summary_of(const std::vector<Group>& groups) {
  constexpr double equal = 1.05;
  std::string out;
  std::set<int64_t> done;
  for (const Group& first : groups) {
    if (!done.insert(first.length).second) continue;
    const Group* best = nullptr;
    for (const Group& g : groups) {
      if (g.length != first.length || !g.choice || !g.chosen().fits) continue;
      const double ratio = best ? best->chosen().seconds() / g.chosen().seconds() : INFINITY;
      if (ratio > equal || (ratio > 1 / equal && g.ranks < best->ranks)) best = &g;
    }
    if (!out.empty()) out += " ";
    if (!best) {
      out += fmt::format("{} tokens do not fit on any of these numbers of ranks.",
                         with_commas(first.length));
      continue;
    }
    const Forecast& f = best->chosen();
    out += fmt::format("{} tokens: {} {} as {}, {} a step, {} times as fast as one rank.",
                       with_commas(first.length), best->ranks, best->ranks == 1 ? "rank" : "ranks",
                       to_text(f.split), train::seconds_text(f.seconds()),
                       speed_text(best->one / f.seconds()));
  }
  return out;
}

void check_numbers(const std::vector<int64_t>& values, const char* flag, int64_t most) {
  for (const int64_t value : values)
    check<ConfigError>(value <= most, flag, " ", value, ": expected at most ", most);
}

int plan(const Arguments& a) {
  check_numbers(a.ranks, "--ranks", 1 << 20);
  check_numbers(a.length, "--length", int64_t{1} << 30);
  check<ConfigError>(!a.memory || (*a.memory > 0 && std::isfinite(*a.memory)), "--memory ",
                     a.memory.value_or(0), ": expected a number above 0, in GiB");
  if (!a.table.empty()) train::check_format(a.table);
  train::Config config = train::Config::load(a.config);
  apply(a, config);
  ForecastRequest request;
  request.network = network_of(a);
  {
    const Waiting waiting(a.progress(), "plan: reading the data");
    request.memory = train::memory_request(config);
  }
  const auto section = read_section<train::TrainSection>(config.train());
  request.shards = section.trainer.shards;
  request.micro_batches = section.trainer.micro_batches;
  request.memory.shares_optimizer = section.trainer.shard_optimizer;
  train::MemoryLimit machine = train::memory_limit(request.memory);
  if (a.memory) machine = {*a.memory * (1 << 30), "--memory"};
  request.limit = machine;

  const attention::TransformerConfig model = request.memory.model;
  std::vector<int64_t> lengths = a.length;
  if (lengths.empty()) lengths = {model.max_length};
  // Errors of any length come before the measurement.
  std::vector<attention::TransformerConfig> models;
  for (const int64_t length : lengths)
    models.push_back(train::read_model(model_config(config, model, length), nullptr));
  if (!a.bench.empty()) {
    request.compute =
        train::compute_of_bench(data::read_text_file(a.bench), model.attention_name(), a.bench);
  } else {
    Progress progress(a.progress(), "plan: measuring steps", 2);
    train::BenchOptions options{
        .seconds = a.seconds, .seed = seed_or_default(a), .recompute = request.memory.recompute};
    options.on_progress = [&](int64_t done, int64_t all) { progress.update(done, all, ""); };
    request.compute = train::measure_compute(
        model_config(config, model, *std::max_element(lengths.begin(), lengths.end())),
        request.memory.micro_batch_size(), options);
  }
  std::vector<Group> groups;
  {
    const Waiting waiting(a.progress(), "plan: computing");
    for (const attention::TransformerConfig& of_length : models)
      for (const int64_t ranks : a.ranks) {
        request.memory.model = of_length;
        groups.push_back(plan_group(request, a, ranks, machine));
      }
  }
  train::Results results =
      new_results(fmt::format("{} attention on several ranks, computed", model.attention_name()),
                  summary_of(groups));
  results.tables = {choice_table(groups, request,
                                 fmt::format("The best split: {} attention, {} sequences a step",
                                             model.attention_name(), request.memory.batch_size)),
                    forecast_table(groups)};
  return finish(a, std::move(results), {.hidden = {}, .format = a.table});
}

}  // namespace

void add_plan(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command(
      "plan", "Predict time, memory and traffic of training on several ranks, and choose a split",
      [a] { return plan(*a); });
  c.add("config", a->config, "CONFIG.toml", "Configuration of the run").required();
  c.add("--ranks", a->ranks, "N,...", "Numbers of ranks [1,2,4,8]")
      .separated_by_commas()
      .positive();
  c.add("--length", a->length, "N,...",
        "Lengths of sequences in tokens [that of the configuration]")
      .separated_by_commas()
      .positive();
  c.add("--rates", a->rates, "FILE.json",
        "Rates of the network, measured by longhand-mpi bench comm -o FILE.json; may be repeated, "
        "for several numbers of ranks: the nearest one counts")
      .repeated();
  c.add("--latency", a->latency, "US",
        "Without --rates: assume a network of this latency, in microseconds [50]");
  c.add("--bandwidth", a->bandwidth, "X",
        "Without --rates: assume a network of this bandwidth, in GB/s [1]");
  c.add("--bench", a->bench, "FILE.json",
        "How fast a rank computes, from longhand bench step --json > FILE.json, instead of "
        "measuring it now");
  c.add("--seconds", a->seconds, "S", "Measure steps at each of two lengths for S seconds [0.5]")
      .not_negative();
  c.add("--memory", a->memory, "GIB",
        "Memory of each rank, in GiB [train.memory_limit, or what this machine has]");
  c.flag("--here", a->here,
         "All ranks run on this machine and share its cores and its memory, instead of one rank on "
         "each machine");
  c.add("--table", a->table, "FORMAT", "Print only the choices, as md, csv, tex or text");
  add_out(c, *a);
  c.set(*a);
  c.seed(*a);
  c.threads();
  c.quiet(*a);
  c.json(a->json);
  c.words_to_set(*a);
  c.footer(
      "Trains nothing: measures a few steps of short sequences, and computes the rest. Ranks are "
      "divided into rows: the ranks of a row share out the tokens of the same sequences "
      "(train.sequence_ranks), the rows share out the sequences of a batch (train.shards). Of the "
      "splits that fit into memory the fastest one is chosen. --threads are those of each rank. "
      "train/cost/plan.md has the formulas, and how far measured times are from computed "
      "ones.\n"
      "Examples:\n"
      "  mpirun -np 4 longhand-mpi bench comm -o comm.json\n"
      "  longhand plan CONFIG.toml --rates comm.json --ranks 4,16,64 --length 65536,1048576\n"
      "  longhand plan CONFIG.toml --latency 2 --bandwidth 12 --memory 64 --table md");
}

}  // namespace longhand::cli
