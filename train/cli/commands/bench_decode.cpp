// longhand bench decode: the cost of decoding one token as a function of the number of tokens so
// far, compared with a key-value cache.
#include <map>

#include "longhand/attention/registry.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cost/decode.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::cli {
namespace {

struct BenchDecodeArguments : Common {
  train::BenchGrid grid;
  std::vector<int64_t> batch{1, 32};
  train::DecodeOptions options;
};

/// By variant and batch size, in the order of measurement.
struct Decoded {
  std::string attention;
  int64_t batch;
  std::vector<train::DecodeCost> costs;
};

/// Names the contexts that were left out.
std::string left_out(const Decoded& decoded, const train::DecodeOptions& options) {
  if (decoded.costs.size() == options.contexts.size()) return "";
  return fmt::format(
      " {}, batch {}: contexts from {} tokens on are left out, since the state takes "
      "longer than {} s to fill (--fill-seconds).",
      decoded.attention, decoded.batch, options.contexts[decoded.costs.size()],
      options.fill_seconds);
}

train::Table costs_table(const std::vector<Decoded>& all, const train::DecodeOptions& options) {
  train::Table out{
      .name = "decode",
      .title = "Decoding by the attention of one layer",
      .note = fmt::format(
          "A step gives one token to each sequence of the batch: medians, {}. The limit is "
          "the least time that this machine needs, to read the parameters and the state and, where "
          "each token changes it, to write it (memory), or for the operations (products), "
          "whichever "
          "takes longer.",
          counted(threads(), "thread"))};
  for (const Decoded& decoded : all) {
    out.note += left_out(decoded, options);
    for (const train::DecodeCost& c : decoded.costs)
      add_row(out,
              {{"attention", decoded.attention},
               {"batch", decoded.batch},
               {"context", c.context},
               {"tokens_per_second", static_cast<double>(decoded.batch) / c.seconds, "tokens/s"},
               {"step_us", 1e6 * c.seconds, "step (us)"},
               {"step_us_quartile_1", 1e6 * c.seconds_low, "25 %"},
               {"step_us_quartile_3", 1e6 * c.seconds_high, "75 %"},
               {"state_bytes", c.state_bytes, "state of a sequence (bytes)", 12},
               {"limit_us", 1e6 * c.limit, "limit (us)"},
               {"share_of_limit", c.limit / c.seconds, "of limit", 3},
               {"bound", std::string(c.memory_bound ? "memory" : "products"), "limit by"}});
  }
  const std::vector<std::string> series{"attention", "batch"};
  add_chart(out, "Tokens a second against context", "context", "tokens_per_second", series, true,
            true);
  add_chart(out, "State against context", "context", "state_bytes", series, true, true);
  return out;
}

train::Table crossings_table(const std::vector<Decoded>& all) {
  train::Table out{.name = "crossings",
                   .title = "Against softmax attention with a cache of keys and values",
                   .note =
                       "The context from which a variant takes less time, and from which it keeps "
                       "fewer bytes, interpolated between logarithms of the measurements: the "
                       "shortest one if it always does, - if it does not even at the longest."};
  for (const Decoded& decoded : all) {
    if (decoded.attention == "softmax") continue;
    const auto exact = std::ranges::find_if(all, [&](const Decoded& other) {
      return other.attention == "softmax" && other.batch == decoded.batch;
    });
    const auto from = [&](const auto& cost_of) -> train::Cell {
      std::map<double, double> costs[2];
      for (const train::DecodeCost& c : exact->costs) costs[0][double(c.context)] = cost_of(c);
      for (const train::DecodeCost& c : decoded.costs) costs[1][double(c.context)] = cost_of(c);
      const train::Crossover found = train::crossover(costs[0], costs[1]);
      using enum train::Crossover::Kind;
      return found.kind == never || found.kind == unknown ? train::Cell() : found.length;
    };
    add_row(out, {{"attention", decoded.attention},
                  {"batch", decoded.batch},
                  {"faster_from", from([](const auto& c) { return c.seconds; }), "faster from"},
                  {"smaller_from", from([](const auto& c) { return double(c.state_bytes); }),
                   "smaller from"}});
  }
  return out;
}

/// Returns the variants to measure: softmax first, and by default all that can decode.
std::vector<train::BenchCell> compared_cells(const train::BenchGrid& grid) {
  std::vector<train::BenchCell> cells = train::cells_of(grid);
  std::erase_if(cells, [&](const train::BenchCell& cell) {
    return cell.attention == "softmax" ||
           (grid.attention.empty() && !attention::capabilities(cell.attention).decodes);
  });
  cells.insert(cells.begin(), {"softmax", grid.length.front()});
  return cells;
}

int bench_decode(const BenchDecodeArguments& a) {
  train::DecodeOptions options = a.options;
  options.seed = seed_or_default(a);
  train::BenchGrid grid = a.grid;
  grid.set = a.set;
  grid.causal = true;
  grid.length = {train::decode_length(options)};
  const std::vector<train::BenchCell> cells = compared_cells(grid);
  // Check all before measuring the first.
  for (const train::BenchCell& cell : cells)
    for (const int64_t batch : a.batch) {
      options.batch = batch;
      train::check_decode(train::config_of(grid, cell), options);
    }
  Progress progress(a.quiet, "bench decode");
  const int64_t contexts = std::ssize(options.contexts),
                all = std::ssize(cells) * std::ssize(a.batch) * contexts;
  std::vector<Decoded> decoded;
  for (const train::BenchCell& cell : cells)
    for (const int64_t batch : a.batch) {
      options.batch = batch;
      options.on_context = [&, done = std::ssize(decoded) * contexts](int64_t context) mutable {
        progress.update(done++, all,
                        fmt::format("{}, batch {}, {} tokens", cell.attention, batch, context));
      };
      decoded.push_back(
          {cell.attention, batch, train::bench_decode(train::config_of(grid, cell), options)});
    }
  progress.clear();
  check<ConfigError>(
      std::ranges::any_of(decoded, [](const Decoded& each) { return !each.costs.empty(); }),
      "bench decode: filling a state with ", options.contexts.front(),
      " tokens takes longer than --fill-seconds ", options.fill_seconds,
      "; increase it, or reduce --context");
  std::vector<train::Table> tables{costs_table(decoded, options)};
  if (cells.size() > 1) tables.push_back(crossings_table(decoded));
  const auto readable = [](const train::Table& table) {
    return train::without_columns(table, [&](size_t column) {
      const std::string& name = table.columns[column].name;
      return name.starts_with("step_us_quartile") || name == "limit_us";
    });
  };
  return finish(a, {.title = "Decoding token by token", .tables = std::move(tables)},
                {.readable = readable});
}

}  // namespace

void add_bench_decode(Command& program) {
  auto [c, a] = program.command<BenchDecodeArguments>("bench decode", bench_decode);
  a->grid.model = "M";
  c.add("--model", a->grid.model);
  c.add("--attention", a->grid.attention);
  c.add("--context", a->options.contexts).positive();
  c.add("--batch", a->batch).positive();
  c.add("--d-model", a->grid.d_model).positive();
  c.add("--heads", a->grid.heads).positive();
  c.add("--seconds", a->options.seconds).not_negative();
  c.add("--fill-seconds", a->options.fill_seconds).not_negative();
  c.common(*a, "table set seed threads results quiet json");
}

}  // namespace longhand::cli
