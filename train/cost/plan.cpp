#include "longhand/train/cost/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "longhand/core/parallel.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::train {
namespace {

constexpr double mib = 1 << 20;

/// Returns the number of cores that this process may use.
int64_t cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

/// Sets the ranks' resources if all of them run on this machine.
void share_machine(ForecastRequest& request, int64_t ranks, const MemoryLimit& machine) {
  const double needed = static_cast<double>(ranks * threads());
  request.cores_per_thread = std::min(1.0, static_cast<double>(cores()) / needed);
  request.has_free_cores = needed < static_cast<double>(cores());
  request.limit.bytes = machine.bytes / static_cast<double>(ranks);
  if (ranks > 1) request.limit.what = fmt::format("each of {} ranks on this machine", ranks);
}

/// The forecasts for one length and number of ranks.
struct Group {
  int64_t length = 0, ranks = 0;
  double one = 0;  // seconds with one rank
  std::vector<Forecast> forecasts{};
  std::optional<Choice> choice{};  // nothing: no split can train

  const Forecast& chosen() const { return forecasts[choice->index]; }
};

std::string options_of(const ForecastRequest& request, const Split& split) {
  std::string out;
  if (split.data_ranks > request.memory.train.trainer.step.shards)
    out = fmt::format("train.shards={}", split.data_ranks);
  if (split.sequence_ranks > 1)
    out += fmt::format("{}train.sequence_ranks={}", out.empty() ? "" : " ", split.sequence_ranks);
  return out;
}

Group plan_group(ForecastRequest request, bool here, int64_t ranks, const MemoryLimit& machine) {
  Group out{.length = request.memory.model.max_length, .ranks = ranks};
  const auto forecast_of = [&](const Split& split) {
    if (here) share_machine(request, split.ranks(), machine);
    return forecast(request, split);
  };
  out.one = forecast_of({1, 1}).seconds();
  for (const Split& split : possible_splits(request, ranks))
    out.forecasts.push_back(forecast_of(split));
  if (!out.forecasts.empty()) out.choice = choose(out.forecasts, request.limit);
  return out;
}

std::string speed_text(double times) {
  return times < 10 ? fmt::format("{:.2g}", times) : fmt::format("{:.0f}", times);
}

Table choice_table(const std::vector<Group>& groups, const ForecastRequest& request,
                   const std::string& title) {
  Table table{"choices", title,
              fmt::format("Computed, not measured. Compute: {}. Network: {}. Split: ranks that "
                          "divide the sequences of a batch x ranks that divide the tokens of each. "
                          "Sent and memory are per rank.",
                          request.compute.source, request.network.source())};
  const int64_t sequences = request.memory.train.loading.batch_size;
  const std::string no_split = fmt::format(
      "cannot train: the number of ranks that divide {} {} must be a power of two, and the number "
      "of ranks that divide a sequence must be a divisor of the rest",
      sequences, sequences == 1 ? "sequence" : "sequences");
  for (const Group& g : groups) {
    const Forecast f = g.choice ? g.chosen() : Forecast();
    const auto of_chosen = [&](double value) { return g.choice ? Cell(value) : Cell(); };
    add_row(table, {{"length", g.length},
                    {"ranks", g.ranks},
                    {"split", g.choice ? to_text(f.split) : "-"},
                    {"step_s", of_chosen(f.seconds()), "step (s)", 3},
                    {"speed_up", of_chosen(g.one / f.seconds()), "speed-up", 2},
                    {"memory_mib", of_chosen(f.memory / mib), "memory (MiB)", 3},
                    {"sent_mib", of_chosen(f.sent / mib), "sent (MiB)", 3},
                    {"options", g.choice ? options_of(request, f.split) : ""},
                    {"why", g.choice ? g.choice->why : no_split}});
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
  for (const Group& g : groups)
    for (size_t i = 0; i < g.forecasts.size(); ++i) {
      const Forecast& f = g.forecasts[i];
      if (i == g.choice->index) table.marked.insert({table.rows.size(), 4});
      table.rows.push_back({g.length, g.ranks, f.split.data_ranks, f.split.sequence_ranks,
                            f.seconds(), f.compute, f.optimizer, f.communication(), f.hidden,
                            f.sent / mib, f.memory / mib, f.fits ? "yes" : "no"});
    }
  const std::vector<std::string> series{"length", "sequence_ranks"};
  add_chart(table, "Computed seconds of a step against ranks", "ranks", "step_s", series, true,
            true);
  add_chart(table, "Computed memory of a rank against ranks (MiB)", "ranks", "memory_mib", series,
            true, true);
  return table;
}

/// Recommends, for each length, the fewest ranks that are about as fast as the fastest.
std::string summary_of(const std::vector<Group>& groups) {
  constexpr double equal = 1.05;
  std::string out;
  for (const auto& same_length : in_groups(groups, [](const Group& g) { return g.length; })) {
    const std::string tokens = with_commas(same_length[0]->length);
    const Group* best = nullptr;
    for (const Group* const g : same_length) {
      if (!g->choice || !g->chosen().fits) continue;
      const double ratio = best ? best->chosen().seconds() / g->chosen().seconds() : INFINITY;
      if (ratio > equal || (ratio > 1 / equal && g->ranks < best->ranks)) best = g;
    }
    if (!out.empty()) out += " ";
    if (!best) {
      out += fmt::format("{} tokens do not fit on any of these numbers of ranks.", tokens);
      continue;
    }
    const Forecast& f = best->chosen();
    out += fmt::format("{} tokens: {} {} as {}, {} a step, {} times as fast as one rank.", tokens,
                       best->ranks, best->ranks == 1 ? "rank" : "ranks", to_text(f.split),
                       seconds_text(f.seconds()), speed_text(best->one / f.seconds()));
  }
  return out;
}

}  // namespace

Config model_config(const Config& config, const attention::TransformerConfig& model,
                    int64_t length) {
  Config out = config;
  for (const auto& [name, value] : config.given())
    if (!name.starts_with("model.") && !name.starts_with("attention.") && name != "optimizer.type")
      out.erase(name.substr(0, name.find('.')), name.substr(name.find('.') + 1));
  const auto set = [&](const char* key, OptionValue value) {
    out.assign("model", key, std::move(value), "the data");
  };
  set("vocabulary", model.vocabulary);
  set("classes", model.classes);
  set("per_token", model.per_token);
  set("targets", model.targets);
  set("causal", model.causal);
  out.assign("model", "max_length", length, "--length");
  return out;
}

Results plan(const ForecastRequest& request,
             const std::vector<attention::TransformerConfig>& models, const PlanOptions& options) {
  std::vector<Group> groups;
  ForecastRequest of_length = request;
  for (const attention::TransformerConfig& model : models)
    for (const int64_t ranks : options.ranks) {
      of_length.memory.model = model;
      groups.push_back(plan_group(of_length, options.here, ranks, request.limit));
    }
  const std::string attention = request.memory.model.attention_name();
  const std::string title = fmt::format("The best split: {} attention, {} sequences a step",
                                        attention, request.memory.train.loading.batch_size);
  return {.title = fmt::format("{} attention on several ranks, computed", attention),
          .summary = summary_of(groups),
          .tables = {choice_table(groups, request, title), forecast_table(groups)}};
}

}  // namespace longhand::train
