// longhand plan: the cost of a training step on any number of ranks, and how to divide them.
#include "longhand/train/cost/plan.h"
#include "longhand/train/cli/commands/commands.h"

namespace longhand::cli {
namespace {

struct PlanArguments : Common {
  std::string config, bench;
  std::vector<int64_t> ranks{1, 2, 4, 8}, length;  // length: empty: the configuration's
  std::vector<std::string> rates;
  std::optional<double> latency, bandwidth;  // us, GB/s
  std::optional<double> memory;              // GiB
  double seconds = 0.5;
  bool here = false;
};

train::Rates network_of(const PlanArguments& a) {
  check<ConfigError>(a.rates.empty() || (!a.latency && !a.bandwidth),
                     "plan: --rates are measured, --latency and --bandwidth assumed; expected one "
                     "or the other");
  if (a.rates.empty())
    return train::Rates::assumed(1e-6 * a.latency.value_or(50), 1e9 * a.bandwidth.value_or(1));
  std::vector<train::CollectiveRate> rates;
  for (const std::string& file : a.rates) {
    const auto more =
        train::rates_in(train::results_of_json(data::read_text_file(file), file), file);
    rates.insert(rates.end(), more.begin(), more.end());
  }
  return {std::move(rates), comma_list(a.rates)};
}

int plan(const PlanArguments& a) {
  for (const auto& [flag, value, unit] : {std::tuple("--memory", a.memory, ", in GiB"),
                                          {"--latency", a.latency, ""},
                                          {"--bandwidth", a.bandwidth, ""}})
    check<ConfigError>(!value || (*value > 0 && std::isfinite(*value)), flag, " ",
                       value.value_or(0), ": expected a number above 0", unit);
  train::Config config = train::Config::load(a.config);
  apply(a, config);
  train::ForecastRequest request;
  request.network = network_of(a);
  {
    const Waiting waiting(a.quiet || a.json, "plan: reading the data");
    request.memory = train::memory_request(config);
  }
  train::MemoryLimit machine = train::memory_limit(request.memory);
  if (a.memory) machine = {*a.memory * (1 << 30), "--memory"};
  request.limit = machine;

  const attention::TransformerConfig model = request.memory.model;
  std::vector<int64_t> lengths = a.length;
  if (lengths.empty()) lengths = {model.max_length};
  // Report errors for any length before measuring.
  std::vector<attention::TransformerConfig> models;
  for (const int64_t length : lengths)
    models.push_back(train::read_model(train::model_config(config, model, length), nullptr));
  if (!a.bench.empty()) {
    request.compute =
        train::compute_of_bench(data::read_text_file(a.bench), model.attention_name(), a.bench);
  } else {
    Progress progress(a.quiet || a.json, "plan: measuring steps", 2);
    train::BenchOptions options{.seconds = a.seconds,
                                .seed = seed_or_default(a),
                                .recompute = request.memory.train.trainer.step.recompute};
    options.on_progress = [&](int64_t done, int64_t all) { progress.update(done, all, ""); };
    request.compute = train::measure_compute(
        train::model_config(config, model, *std::ranges::max_element(lengths)),
        request.memory.micro_batch_size(), options);
  }
  const train::Results results = [&] {
    const Waiting waiting(a.quiet || a.json, "plan: computing");
    return train::plan(request, models, {.ranks = a.ranks, .here = a.here});
  }();
  return finish(a, results);
}

}  // namespace

void add_plan(Command& program) {
  auto [c, a] = program.command<PlanArguments>("plan", plan);
  c.add("config", a->config).required();
  c.add("--ranks", a->ranks).positive(20);
  c.add("--length", a->length).positive();
  c.add("--rates", a->rates).repeated();
  c.add("--latency", a->latency);
  c.add("--bandwidth", a->bandwidth);
  c.add("--bench", a->bench);
  c.add("--seconds", a->seconds).not_negative();
  c.add("--memory", a->memory);
  c.flag("--here", a->here);
  c.common(*a, "table results set seed threads quiet json words");
}

}  // namespace longhand::cli
