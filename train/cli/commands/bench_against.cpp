// longhand bench step --against: the steps of two builds, in turns.
#include <unistd.h>

#include "longhand/core/statistics.h"
#include "longhand/core/version.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/child.h"

namespace longhand::cli {
namespace {

constexpr double mib = 1 << 20;

/// The version of another build. Throws ConfigError for a file that is none.
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

/// Measures a cell by a program; nothing if that fails, with the reason on stderr.
std::optional<Measured> measure(const fs::path& program, const BenchRun& run) {
  const std::string what =
      fmt::format("{}: {} {}", program.string(), run.cell.attention, run.cell.length);
  int code = success;
  const auto text = run_program_with(run.arguments, what, code, program);
  if (!text) {
    print_stderr("longhand: {}: not measured (exit code {})\n", what, code);
    return std::nullopt;
  }
  const Json answer = train::try_parse_json(*text);
  const Json cells = answer.is_object() ? answer.value("cells", Json()) : Json();
  const Json cell =
      cells.is_array() && cells.size() == 1 && cells[0].is_object() ? cells[0] : Json();
  const auto positive = [&](const char* key) {
    const double value = cell.is_object() && cell.contains(key) && cell[key].is_number()
                             ? cell[key].get<double>()
                             : 0;
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

  void add(const Measured& own, const Measured& other) {
    seconds.push_back(own.seconds);
    other_seconds.push_back(other.seconds);
    ratios.push_back(own.seconds / other.seconds);
    memory.push_back(own.memory / mib);
    more_memory.push_back((own.memory - other.memory) / mib);
  }
};

/// All rounds of a cell. The build that begins alternates, so that neither always runs after the other.
std::optional<Rounds> measure_rounds(const fs::path& other, const BenchRun& run, int64_t rounds,
                                     const std::function<void(int64_t round)>& before) {
  Rounds out;
  for (int64_t round = 0; round < rounds; ++round) {
    before(round);
    std::optional<Measured> own, their;
    if (round % 2 == 0) own = measure(train::own_program(), run);
    their = measure(other, run);
    if (round % 2 != 0) own = measure(train::own_program(), run);
    if (!own || !their) return std::nullopt;
    out.add(*own, *their);
  }
  return out;
}

}  // namespace

int bench_against(const Common& a, const std::string& program, int64_t rounds,
                  const std::vector<BenchRun>& runs) {
  const fs::path other = fs::absolute(program).lexically_normal();
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
  for (size_t i = 0; i < runs.size(); ++i) {
    const train::BenchCell& cell = runs[i].cell;
    const auto found = measure_rounds(other, runs[i], rounds, [&](int64_t round) {
      progress.update(static_cast<int64_t>(i) * rounds + round, std::ssize(runs) * rounds,
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

}  // namespace longhand::cli
