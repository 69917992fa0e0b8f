// longhand-mpi bench sequence: what each attention variant sends if sequences are cut over ranks.
#include <map>

#include "longhand/attention/registry.h"
#include "longhand/core/communicator.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cli/ranks.h"
#include "longhand/train/cost/scaling.h"

namespace longhand::cli {
namespace {

struct BenchSequenceArguments : Common {
  std::vector<std::string> attention;
  std::vector<int64_t> length{128, 256, 512, 1024};
  int64_t d_model = 64, heads = 8, layers = 2;
  bool causal = false;
};

/// The model of one measurement; nothing if the variant has no form for it.
std::optional<attention::TransformerConfig> model_of(const BenchSequenceArguments& a,
                                                     const std::string& variant, int64_t length) {
  train::Config config;
  const auto set = [&](const char* key, OptionValue value) {
    config.assign("model", key, std::move(value), "bench sequence");
  };
  set("vocabulary", int64_t{256});
  set("classes", int64_t{256});
  set("per_token", true);
  set("max_length", length);
  set("d_model", a.d_model);
  set("heads", a.heads);
  set("layers", a.layers);
  set("positions", std::string("none"));
  config.assign("attention", "type", variant, "--attention");
  const attention::Capabilities can = attention::capabilities(variant, {.max_length = length});
  if (a.causal && !can.causal) return std::nullopt;
  set("causal", a.causal || can.causal_only);
  return train::read_model(config, nullptr);
}

/// The numbers of variants that send as much at the last length as at the first, and of those that
/// send more.
std::pair<int64_t, int64_t> by_growth(const train::Table& table) {
  std::map<std::string, std::pair<double, double>> ends;
  for (const auto& row : table.rows) {
    const double bytes = std::get<double>(row[3]);
    const auto [at, is_first] = ends.try_emplace(std::get<std::string>(row[0]), bytes, bytes);
    at->second.second = bytes;
  }
  const int64_t flat = std::ranges::count_if(
      ends, [](const auto& each) { return each.second.first == each.second.second; });
  return {flat, std::ssize(ends) - flat};
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
                  {"seconds", "both passes (s)"}},
      .charts = {{.title = "Bytes sent for one layer against length",
                  .x = "length",
                  .y = "bytes",
                  .series = {"attention", "path"},
                  .log_x = true,
                  .log_y = true}}};
  const int64_t all = std::ssize(variants) * std::ssize(a.length);
  int64_t done = 0;
  for (const std::string& variant : variants)
    for (const int64_t length : a.length) {
      progress.update(done++, all, fmt::format("{}, {} tokens", variant, length));
      const auto model = model_of(a, variant, length);
      if (!model) continue;
      const train::SequenceTraffic found = train::measure_sequence_traffic(ranks(), *model);
      table.rows.push_back({variant, found.path, length, found.bytes, found.seconds});
    }
  progress.clear();
  if (!leads) return success;
  const auto [flat, growing] = by_growth(table);
  return finish(
      a, {.title = fmt::format("Sequence parallelism over {} ranks", ranks().size()),
          .summary = fmt::format("{} variants send as much at {} tokens as at {}; {} send more.",
                                 flat, a.length.back(), a.length.front(), growing),
          .tables = {std::move(table)}});
}

}  // namespace

void add_bench_sequence(Command& bench) {
  auto [c, a] = bench.command<BenchSequenceArguments>("sequence", bench_sequence);
  c.add("--attention", a->attention);
  c.add("--length", a->length).positive();
  c.add("--d-model", a->d_model).positive();
  c.add("--heads", a->heads).positive();
  c.add("--layers", a->layers).positive();
  c.flag("--causal", a->causal);
  c.runs_on_ranks();
  c.common(*a, "threads results quiet json");
}

}  // namespace longhand::cli
