// longhand bench step and attention: the cost of training steps and of attention, compared with the
// hardware's limits and with another build.
#include <unistd.h>

#include <csignal>
#include <map>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/statistics.h"
#include "longhand/core/version.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/cost/efficiency.h"
#include "longhand/train/run/child.h"

namespace longhand::cli {
namespace {

struct BenchArguments : Common {
  std::string what;  // "step" or "attention"
  train::BenchGrid grid;
  int64_t tokens = 16384;
  train::BenchOptions options;
  std::string against;  // another build's program; empty: none
  std::optional<int64_t> rounds;
  std::optional<double> row_timeout;
};

/// Time limit for a row's process. A table of all variants ends, however long a step takes.
double most_seconds(const BenchArguments& a) {
  return a.row_timeout.value_or(a.grid.attention.empty() ? 120
                                                         : std::numeric_limits<double>::infinity());
}

Json to_json(const train::BenchCell& cell, const train::Config& config, int64_t batch,
             const train::BenchResult& result) {
  const train::Machine& machine = result.machine;
  const double limit = train::limit(result.work.total(), machine);
  const double gflops = result.work.total().flops / result.seconds * 1e-9;
  const double tokens = static_cast<double>(batch * cell.length);
  return {{"attention", cell.attention},
          {"length", cell.length},
          {"batch", batch},
          {"dropout", read_options<attention::TransformerConfig>(config.model()).dropout},
          {"attention_dropout", train::attention_dropout(config)},
          {"threads", threads()},
          {"parameters", result.parameters},
          {"repetitions", result.repetitions},
          {"seconds", result.seconds},
          {"seconds_low", result.seconds_low},
          {"seconds_high", result.seconds_high},
          {"seconds_forward", result.seconds_forward},
          {"tokens_per_second", tokens / result.seconds},
          {"gflops", json_number(gflops)},
          {"share_of_peak", json_number(gflops * 1e9 / machine.flops)},
          {"limit_seconds", json_number(limit)},
          {"share_of_limit", json_number(limit / result.seconds)},
          {"peak_memory_bytes", result.peak_memory},
          {"allocated_bytes", result.allocated},
          {"page_faults", result.page_faults},
          {"machine_gflops", machine.flops * 1e-9},
          {"machine_exps_per_second", machine.exps},
          {"machine_bytes_per_second", machine.bytes}};
}

/// Measures a cell in this process.
Json measure(const BenchArguments& a, const train::BenchCell& cell, const train::Config& config) {
  const int64_t batch = std::max<int64_t>(1, a.tokens / cell.length);
  Progress progress(a.quiet, "bench");
  train::BenchOptions options = a.options;
  options.seed = seed_or_default(a);
  options.on_progress = [&](int64_t done, int64_t all) {
    progress.update(done, all, fmt::format("{} {}", cell.attention, cell.length));
  };
  const auto bench = a.what == "step" ? train::bench_step : train::bench_attention;
  return to_json(cell, config, batch, bench(config, batch, options));
}

/// Returns the flags of bench_in_child() for a cell.
std::vector<std::string> more_flags(const BenchArguments& a, const train::Config& config) {
  std::vector<std::string> more;
  if (a.options.repetitions)
    more.insert(more.end(), {"--repetitions", std::to_string(a.options.repetitions)});
  if (a.seed) more.insert(more.end(), {"--seed", std::to_string(*a.seed)});
  if (a.options.recompute) more.emplace_back("--recompute");
  for (const std::string& assignment : train::assignments(config))
    more.insert(more.end(), {"--set", assignment});
  return more;
}

/// Runs a build of this program with these arguments and returns its stdout; nothing if it failed,
/// with its exit code in `code` and the reason on stderr. `what` names it in messages. It is
/// killed, which counts as a failure, if it runs longer than `most_seconds`.
std::optional<std::string> run_program_with(const std::vector<std::string>& arguments,
                                            const std::string& what, int& code,
                                            const fs::path& program, double most_seconds) {
  train::Child child(
      {.program = program, .arguments = arguments, .capture = true, .most_seconds = most_seconds});
  std::string text = child.output();
  const train::Ended ended = child.wait();
  code = ended.signal == 0 ? ended.code : failure;
  if (ended.timed_out)
    print_stderr("longhand: {}: ended after {:.0f} s\n", what, most_seconds);
  else if (ended.signal != 0)
    print_stderr("longhand: {}: ended by signal {}{}\n", what, ended.signal,
                 ended.signal == SIGKILL ? " (memory?)" : "");
  if (code != success) return std::nullopt;
  return text;
}

std::vector<std::string> words_of(const std::string& what, const train::BenchCell& cell,
                                  int64_t tokens, double seconds,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench",       what,
                                    "--quiet",     "--json",
                                    "--attention", cell.attention,
                                    "--length",    std::to_string(cell.length),
                                    "--tokens",    std::to_string(tokens),
                                    "--threads",   std::to_string(threads()),
                                    "--seconds",   fmt::format("{}", seconds)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// ---- against another build, in turns

constexpr double mib = 1 << 20;

/// Returns another build's version. Throws ConfigError for any other file.
std::string version_of(const fs::path& program) {
  check<ConfigError>(fs::is_regular_file(program) && access(program.c_str(), X_OK) == 0,
                     "--against ", program.string(),
                     ": expected the program longhand of another build, got ",
                     fs::exists(program) ? "a file that cannot be executed" : "no such file");
  train::Child child({.program = program,
                      .arguments = {"--version", "--json"},
                      .err = "/dev/null",
                      .capture = true,
                      .most_seconds = 60});
  const Json answer = train::try_parse_json(child.output());
  child.wait();
  check<ConfigError>(answer.is_object() && answer.value("micro_kernels", Json()).is_object() &&
                         answer.value("version", Json()).is_string(),
                     "--against ", program.string(),
                     ": expected the program longhand of another build, got one whose --version "
                     "--json does not describe longhand");
  return answer["version"];
}

struct Measured {
  double seconds, memory;
};

/// Measures a cell with a program; nothing on failure, with the reason on stderr.
std::optional<Measured> measure_by(const fs::path& program, const train::BenchCell& cell,
                                   const std::vector<std::string>& words, double most_seconds) {
  const std::string what = fmt::format("{}: {} {}", program.string(), cell.attention, cell.length);
  int code = success;
  const auto text = run_program_with(words, what, code, program, most_seconds);
  if (!text) {
    print_stderr("longhand: {}: not measured (exit code {})\n", what, code);
    return std::nullopt;
  }
  const Json answer = train::try_parse_json(*text);
  const auto positive = [&](const std::string& key) {
    const Json found =
        answer.is_object() ? answer.value(Json::json_pointer("/cells/0/" + key), Json()) : Json();
    const double value = found.is_number() ? found.get<double>() : 0;
    check<ConfigError>(value > 0, what, ": expected a number \"", key,
                       "\" in the JSON of bench step, got none; use a build whose bench step "
                       "gives it");
    return value;
  };
  return Measured{positive("seconds"), positive("peak_memory_bytes")};
}

/// Quantities of both builds, by round.
struct Rounds {
  std::vector<double> seconds, other_seconds, ratios, memory, more_memory;
};

/// All rounds of a cell. The builds take turns going first, so that neither always runs second.
std::optional<Rounds> measure_rounds(const fs::path& other, const train::BenchCell& cell,
                                     const std::vector<std::string>& words, double most_seconds,
                                     int64_t rounds,
                                     const std::function<void(int64_t round)>& before) {
  Rounds out;
  for (int64_t round = 0; round < rounds; ++round) {
    before(round);
    std::optional<Measured> own, their;
    const auto by = [&](const fs::path& program) {
      return measure_by(program, cell, words, most_seconds);
    };
    if (round % 2 == 0) own = by(train::own_program());
    their = by(other);
    if (round % 2 != 0) own = by(train::own_program());
    if (!own || !their) return std::nullopt;
    out.seconds.push_back(own->seconds);
    out.other_seconds.push_back(their->seconds);
    out.ratios.push_back(own->seconds / their->seconds);
    out.memory.push_back(own->memory / mib);
    out.more_memory.push_back((own->memory - their->memory) / mib);
  }
  return out;
}

/// Measures the cells alternately with this program and another build's, and prints the ratios of
/// their times.
int compare(const BenchArguments& a, const std::vector<train::BenchCell>& cells,
            const std::vector<train::Config>& configs) {
  const fs::path other = fs::absolute(a.against).lexically_normal();
  const int64_t rounds = a.rounds.value_or(7);
  const std::string other_version = version_of(other);
  train::Table table{
      .name = "against",
      .title = fmt::format("Steps of this build ({}) against {} ({})", version(), other.string(),
                           other_version),
      .note =
          "Medians of rounds in which both builds alternate. A ratio below 1 means that this "
          "build is faster; its 95 % interval is between order statistics, which takes six "
          "rounds."};
  Progress progress(a.quiet, "bench");
  int64_t faster = 0, slower = 0;
  int worst = success;
  for (size_t i = 0; i < cells.size(); ++i) {
    const train::BenchCell& cell = cells[i];
    const auto words =
        words_of(a.what, cell, a.tokens, a.options.seconds, more_flags(a, configs[i]));
    const auto found =
        measure_rounds(other, cell, words, most_seconds(a), rounds, [&](int64_t round) {
          progress.update(static_cast<int64_t>(i) * rounds + round, std::ssize(cells) * rounds,
                          fmt::format("{} {}", cell.attention, cell.length));
        });
    progress.clear();
    if (!found) {
      worst = failure;
      continue;
    }
    const auto median = [](const std::vector<double>& values) { return quantile(values, 0.5); };
    const Estimate ratio = median_of(found->ratios);
    faster += ratio.high < 1;
    slower += ratio.low > 1;
    add_row(table, {{"attention", cell.attention},
                    {"length", cell.length},
                    {"seconds", median(found->seconds), "step s"},
                    {"other_seconds", median(found->other_seconds), "other s"},
                    {"ratio", ratio, "ratio"},
                    {"peak_memory_mib", median(found->memory), "MiB"},
                    {"more_memory_mib", median(found->more_memory), "more than other"},
                    {"rounds", rounds}});
  }
  if (table.rows.empty()) return worst;
  const std::string summary =
      fmt::format("By their intervals, {} of {} cells are faster than the other build, {} slower.",
                  faster, table.rows.size(), slower);
  finish(a, {.title = table.title, .summary = summary, .tables = {table}});
  return worst;
}

// ---- this build

double number(const Json& json, const char* key) {
  return json[key].is_number() ? json[key].get<double>() : std::nan("");
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.0f} %", 100 * share) : "-";
}

/// Formats a line of at most 100 columns; longer variant names get their own line.
std::string row_of(const std::vector<std::string>& cells) {
  constexpr size_t widths[] = {14, 7, 9, 10, 9, 8, 8, 9, 7, 8};
  std::string line = fmt::format("{:<{}}", cells[0], widths[0]);
  if (line.size() > widths[0]) line = wrapped_lines(line, 100) + "\n" + std::string(widths[0], ' ');
  for (size_t i = 1; i < cells.size(); ++i) line += fmt::format(" {:>{}}", cells[i], widths[i]);
  return line + "\n";
}

std::string row_of_cell(const Json& json) {
  const auto fixed = [&](const char* key, int digits, double unit = 1) {
    const double value = number(json, key) / unit;
    return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : "-";
  };
  return row_of({json["attention"], json["length"].dump(), fixed("seconds", 4),
                 fixed("seconds_forward", 4), short_number(number(json, "tokens_per_second")),
                 fixed("gflops", 1), percent(number(json, "share_of_peak")),
                 percent(number(json, "share_of_limit")), fixed("peak_memory_bytes", 0, 1 << 20),
                 fixed("page_faults", 0)});
}

std::string crossovers_text(const std::vector<Json>& done) {
  std::map<std::string, std::map<double, double>> times;
  for (const Json& json : done)
    times[json["attention"]][json["length"].get<double>()] = number(json, "seconds");
  if (!times.contains("softmax") || times.size() < 2) return "";
  std::string out = "\nAgainst exact attention (softmax):\n";
  for (const auto& [name, of_length] : times)
    if (name != "softmax")
      if (const std::string text =
              train::to_text(train::crossover(times.at("softmax"), of_length), "faster");
          !text.empty())
        out += fmt::format("  {:<12} {}\n", name, text);
  return out;
}

int bench(const BenchArguments& arguments) {
  seed_or_default(arguments);  // throws
  check<ConfigError>(
      !arguments.against.empty() ||
          (!arguments.rounds && arguments.table.empty() && arguments.style.columns.empty()),
      "bench step: --rounds, --table and --columns apply only to comparisons; add --against");
  train::BenchGrid grid = arguments.grid;
  grid.set = arguments.set;
  const std::vector<train::BenchCell> cells = train::cells_of(grid);
  // Check all before measuring the first, while errors can still refer to the command line.
  std::vector<train::Config> configs;
  for (const train::BenchCell& cell : cells) {
    configs.push_back(train::config_of(grid, cell));
    train::check_bench(configs.back(), arguments.what == "attention");
  }
  if (!arguments.against.empty()) return compare(arguments, cells, configs);
  Progress progress(arguments.quiet || cells.size() == 1, "bench");
  Answer out(arguments.json);
  std::vector<Json> done;
  int worst = success;
  for (size_t i = 0; i < cells.size(); ++i) {
    const train::BenchCell& cell = cells[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(cells.size()),
                    fmt::format("{} {}", cell.attention, cell.length));
    int code = success;
    const std::optional<Json> result =
        cells.size() == 1 && !arguments.row_timeout
            ? measure(arguments, cell, configs[i])
            : bench_in_child(arguments.what, cell, arguments.tokens, arguments.options.seconds,
                             more_flags(arguments, configs[i]), code, most_seconds(arguments));
    progress.clear();
    if (code == usage_error) return code;
    if (!result) {
      worst = failure;
      continue;
    }
    if (done.empty())
      out.literal(
          row_of({"attention", "length", arguments.what == "step" ? "step s" : "both s",
                  "forward s", "tokens/s", "GFLOP/s", "of peak", "of limit", "MiB", "faults"}));
    done.push_back(*result);
    out.literal(row_of_cell(*result));
    flush_stdout();
  }
  if (!done.empty())
    out.literal(crossovers_text(done))
        .print(
            "\nThis machine, {}, in the last cell: {:.0f} GFLOP/s, {:.1f} G exp/s, "
            "{:.0f} GB/s\n",
            counted(threads(), "thread"), number(done.back(), "machine_gflops"),
            number(done.back(), "machine_exps_per_second") * 1e-9,
            number(done.back(), "machine_bytes_per_second") * 1e-9);
  return out.add("cells", done).end(worst);
}

void add_one_bench(Command& program, const std::string& what) {
  auto [c, a] = program.command<BenchArguments>("bench " + what, bench);
  a->what = what;
  c.add("--model", a->grid.model);
  c.add("--attention", a->grid.attention);
  c.add("--length", a->grid.length).positive();
  c.add("--tokens", a->tokens).positive();
  c.add("--dropout", a->grid.dropout).not_negative();
  c.add("--d-model", a->grid.d_model).positive();
  c.add("--heads", a->grid.heads).positive();
  c.add("--layers", a->grid.layers).positive();
  c.add("--d-mlp", a->grid.d_mlp).not_negative();
  c.flag("--causal", a->grid.causal);
  if (what == "step") {
    c.flag("--recompute", a->options.recompute);
    c.add("--against", a->against);
    c.add("--rounds", a->rounds).positive();
    c.common(*a, "table");
  }
  c.add("--seconds", a->options.seconds).not_negative();
  c.add("--repetitions", a->options.repetitions).positive();
  c.add("--row-timeout", a->row_timeout).positive();
  c.common(*a, "set seed threads quiet json");
}

}  // namespace

std::optional<Json> bench_in_child(const std::string& what, const train::BenchCell& cell,
                                   int64_t tokens, double seconds,
                                   const std::vector<std::string>& more, int& code,
                                   double most_seconds) {
  const auto text = run_program_with(words_of(what, cell, tokens, seconds, more),
                                     fmt::format("{} {}", cell.attention, cell.length), code,
                                     train::own_program(), most_seconds);
  return text ? std::optional(Json::parse(*text).at("cells").at(0)) : std::nullopt;
}

void add_bench(Command& program) {
  add_one_bench(program, "step");
  add_one_bench(program, "attention");
}

}  // namespace longhand::cli
