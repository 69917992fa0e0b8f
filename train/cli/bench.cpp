// longhand bench: the cost of training steps and of attention, next to what the hardware could do.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "longhand/attention/model/transformer.h"
#include "longhand/attention/registry.h"
#include "longhand/core/parallel.h"
#include "longhand/core/utf8.h"
#include "longhand/train/cli/bench_comm.h"
#include "longhand/train/cli/bench_ranks.h"
#include "longhand/train/cli/bench_sequence.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::cli {
namespace {

struct BenchArguments : Common {
  std::string what;  // "step" or "attention"
  std::string model = "L";
  std::vector<std::string> attention;  // empty: all that support the other flags
  std::vector<int64_t> length;         // empty: those of the model
  std::optional<int64_t> d_model, heads, layers, d_mlp;
  std::optional<double> dropout;
  bool causal = false, recompute = false;
  int64_t tokens = 16384;
  int64_t repetitions = 0;
  double seconds = 1;
};

struct Cell {
  std::string attention;  // a variant, or one for each layer: "window+linear"
  int64_t length;
};

std::vector<std::string> variants_of(const std::string& attention) {
  std::vector<std::string> variants;
  std::istringstream words(attention);
  for (std::string variant; std::getline(words, variant, '+');) variants.push_back(variant);
  return variants;
}

void set_cell(const Cell& cell, train::Config& config) {
  config.assign("attention", "type", variants_of(cell.attention), "--attention");
  config.assign("model", "max_length", cell.length, "--length");
}

// The usual models: L encodes and classifies a long sequence, M is a byte-level language model.
void set_model(const std::string& name, train::Config& config) {
  struct Preset {
    int64_t layers, d_model, heads, d_mlp, classes;
    bool is_language_model;
  };
  static const std::map<std::string, Preset> presets = {{"L", {2, 64, 2, 128, 10, false}},
                                                        {"M", {4, 256, 8, 1024, 256, true}}};
  const auto found = presets.find(name);
  check<ConfigError>(found != presets.end(), "--model ", name, ": expected L or M");
  const Preset& p = found->second;
  const auto set = [&](const char* key, OptionValue value) {
    config.assign("model", key, std::move(value), "--model");
  };
  set("layers", p.layers);
  set("d_model", p.d_model);
  set("heads", p.heads);
  set("d_mlp", p.d_mlp);
  set("vocabulary", int64_t{256});
  set("classes", p.classes);
  set("per_token", p.is_language_model);
  set("causal", p.is_language_model);
}

train::Config without_variant(const BenchArguments& a) {
  train::Config config;
  set_model(a.model, config);
  const auto set = [&](const char* flag, const char* key, const std::optional<int64_t>& value) {
    if (value) config.assign("model", key, *value, flag);
  };
  set("--d-model", "d_model", a.d_model);
  set("--heads", "heads", a.heads);
  set("--layers", "layers", a.layers);
  set("--d-mlp", "d_mlp", a.d_mlp);
  if (a.causal) config.assign("model", "causal", true, "--causal");
  if (a.dropout) config.assign("model", "dropout", *a.dropout, "--dropout");
  apply(a, config);
  config.erase("train", "seed");  // BenchOptions::seed
  check<ConfigError>(!config.attention().has("type") && !config.model().has("max_length"),
                     "bench: set the variant with --attention and the length with --length");
  return config;
}

/// The options of [model].
attention::TransformerConfig model_of(const train::Config& config) {
  return read_options<attention::TransformerConfig>(config.model());
}

/// The options of [attention] that the variants declare; a single variant is that of all layers.
std::set<std::string> options_of(std::vector<std::string> variants, int64_t layers) {
  if (variants.size() == 1) variants.resize(static_cast<size_t>(layers), variants.front());
  std::set<std::string> names{"type"};
  for (size_t layer = 0; layer < variants.size(); ++layer)
    for (const Field& field : attention::spec(variants[layer]).options)
      names.insert({field.name, fmt::format("{}.{}", layer, field.name)});
  return names;
}

/// The configuration of a cell, without the options that only other variants declare.
train::Config config_of(const BenchArguments& a, const Cell& cell) {
  train::Config config = without_variant(a);
  set_cell(cell, config);
  const auto known = options_of(variants_of(cell.attention), model_of(config).layers);
  for (const std::string& key : config.attention().keys())
    if (!known.contains(key)) config.erase("attention", key);
  return config;
}

/// Throws ConfigError for options of [attention] that none of the variants declares.
void check_declared(const BenchArguments& a, const std::vector<Cell>& cells) {
  const train::Config config = without_variant(a);
  const int64_t layers = model_of(config).layers;
  std::set<std::string> known;
  for (const Cell& cell : cells) known.merge(options_of(variants_of(cell.attention), layers));
  for (const std::string& key : config.attention().keys())
    check<ConfigError>(known.contains(key), "attention.", key,
                       ": none of the variants has this option");
}

/// Whether attention.dropout, if it were given, would apply to every layer whose variant declares it,
/// and to at least one that sets none of its own.
bool drops_probabilities(const train::Config& config) {
  EffectiveSections values;
  const attention::TransformerConfig model = train::read_model(config, nullptr, &values);
  const EffectiveValues& read = values.at("attention");
  bool any = false;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    if (!options_of({model.attention_of(layer)}, 1).contains("dropout")) continue;
    const auto dropout =
        read.find(model.layer_attention.empty() ? "dropout" : fmt::format("{}.dropout", layer));
    if (dropout == read.end()) return false;
    any = any || !dropout->second.given;
  }
  return any;
}

/// The assignments for each variant: --set, without options that only other variants declare.
/// Throws ConfigError for options that no variant declares, and for invalid values.
std::map<std::string, std::vector<std::string>> assignments(const BenchArguments& a,
                                                            const std::vector<Cell>& cells) {
  check_declared(a, cells);
  std::map<std::string, std::vector<std::string>> out;
  for (const Cell& cell : cells) {
    if (out.contains(cell.attention)) continue;
    auto& set = out[cell.attention];
    const train::Config config = config_of(a, cell);
    for (const auto& [name, value] : config.given())
      if (name != "attention.type" && name != "model.max_length")
        set.push_back(name + "=" + to_string(value));
    if (a.dropout && *a.dropout > 0 && drops_probabilities(config))
      set.push_back("attention.dropout=" + to_string(OptionValue(*a.dropout)));
  }
  return out;
}

/// The dropout of attention probabilities, the largest of all layers.
double attention_dropout(const train::Config& config) {
  EffectiveSections values;
  train::read_model(config, nullptr, &values);
  double most = 0;
  for (const auto& [key, option] : values.at("attention"))
    if (key == "dropout" || key.ends_with(".dropout"))
      most = std::max(most, std::get<double>(option.value));
  return most;
}

Json to_json(const Cell& cell, const train::Config& config, int64_t batch,
             const train::BenchResult& result) {
  const train::Machine& machine = result.machine;
  const double limit = train::limit(result.work, machine);
  const double gflops = result.work.flops / result.seconds * 1e-9;
  const double tokens = static_cast<double>(batch * cell.length);
  return {{"attention", cell.attention},
          {"length", cell.length},
          {"batch", batch},
          {"dropout", model_of(config).dropout},
          {"attention_dropout", attention_dropout(config)},
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

/// The configuration of a cell, from the assignments() for its variant.
train::Config config_with(const Cell& cell, const std::vector<std::string>& set) {
  train::Config config;
  for (const std::string& assignment : set) config.assign(assignment);
  set_cell(cell, config);
  return config;
}

/// Measures a cell in this process.
Json measure(const BenchArguments& a, const Cell& cell, const std::vector<std::string>& set) {
  const train::Config config = config_with(cell, set);
  const int64_t batch = std::max<int64_t>(1, a.tokens / cell.length);
  Progress progress(Progress::mode_for_stderr(a.quiet), "bench");
  train::BenchOptions options;
  options.repetitions = a.repetitions;
  options.seconds = a.seconds;
  options.seed = seed_or_default(a);
  options.recompute = a.recompute;
  options.on_progress = [&](int64_t done, int64_t all) {
    progress.update(done, all, fmt::format("{} {}", cell.attention, cell.length));
  };
  const auto bench = a.what == "step" ? train::bench_step : train::bench_attention;
  return to_json(cell, config, batch, bench(config, batch, options));
}

/// Measures a cell in a process of its own, so that the peak of memory is that of this cell alone.
/// Returns nothing if the process failed; the reason is then on stderr.
std::optional<Json> measure_elsewhere(const BenchArguments& a, const Cell& cell,
                                      const std::vector<std::string>& set, int& code) {
  std::vector<std::string> words = {"bench", a.what, "--quiet", "--json"};
  const auto add = [&](const char* name, const std::string& value) {
    words.insert(words.end(), {name, value});
  };
  add("--attention", cell.attention);
  add("--length", std::to_string(cell.length));
  add("--tokens", std::to_string(a.tokens));
  add("--threads", std::to_string(threads()));
  add("--seconds", fmt::format("{}", a.seconds));
  if (a.repetitions) add("--repetitions", std::to_string(a.repetitions));
  if (a.seed) add("--seed", std::to_string(*a.seed));
  if (a.recompute) words.emplace_back("--recompute");
  for (const std::string& assignment : set) add("--set", assignment);
  const std::optional<std::string> text =
      run_program_with(words, fmt::format("{} {}", cell.attention, cell.length), code);
  return text ? std::optional(Json::parse(*text).at("cells").at(0)) : std::nullopt;
}

double number(const Json& json, const char* key) {
  return json[key].is_number() ? json[key].get<double>() : std::nan("");
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.0f} %", 100 * share) : "-";
}

/// Rows of at most 100 columns, printed one at a time. A longer name of a variant has a line of its own.
void print_row(const std::vector<std::string>& cells) {
  constexpr size_t widths[] = {14, 7, 9, 10, 9, 8, 8, 9, 7, 8};
  std::string line = fmt::format("{:<{}}", cells[0], widths[0]);
  if (line.size() > widths[0]) line = wrapped_lines(line, 100) + "\n" + std::string(widths[0], ' ');
  for (size_t i = 1; i < cells.size(); ++i) line += fmt::format(" {:>{}}", cells[i], widths[i]);
  print_stdout("{}\n", line);
  flush_stdout();
}

void print_cell(const Json& json) {
  const double gflops = number(json, "gflops");
  print_row({json["attention"], json["length"].dump(),
             fmt::format("{:.4f}", number(json, "seconds")),
             fmt::format("{:.4f}", number(json, "seconds_forward")),
             short_number(number(json, "tokens_per_second")),
             std::isfinite(gflops) ? fmt::format("{:.1f}", gflops) : "-",
             percent(number(json, "share_of_peak")), percent(number(json, "share_of_limit")),
             fmt::format("{:.0f}", number(json, "peak_memory_bytes") / (1 << 20)),
             fmt::format("{:.0f}", number(json, "page_faults"))});
}

void print_crossovers(const std::vector<Json>& done) {
  std::map<std::string, std::map<double, double>> times;
  for (const Json& json : done)
    times[json["attention"]][json["length"].get<double>()] = number(json, "seconds");
  if (!times.contains("softmax") || times.size() < 2) return;
  print_stdout("\nAgainst exact attention (softmax):\n");
  for (const auto& [name, of_length] : times)
    if (name != "softmax") {
      const std::string text =
          train::to_text(train::crossover(times.at("softmax"), of_length), "faster");
      if (!text.empty()) print_stdout("  {:<12} {}\n", name, text);
    }
}

std::vector<Cell> cells_of(const BenchArguments& a) {
  const bool causal = model_of(without_variant(a)).causal;
  std::vector<std::string> variants = a.attention;
  if (variants.empty())
    for (const std::string& name : attention::names()) {
      const attention::Capabilities can = attention::capabilities(name);
      if (causal ? can.causal : !can.causal_only) variants.push_back(name);
    }
  std::vector<int64_t> lengths = a.length;
  if (lengths.empty())
    lengths = a.model == "M" ? std::vector<int64_t>{2048, 8192}
                             : std::vector<int64_t>{1024, 2048, 4096, 8192, 16384};
  std::vector<Cell> cells;
  for (const std::string& name : variants) {
    for (const std::string& variant : variants_of(name)) attention::spec(variant);  // throws
    for (const int64_t length : lengths) cells.push_back({name, length});
  }
  return cells;
}

int bench(const BenchArguments& arguments) {
  const std::vector<Cell> cells = cells_of(arguments);
  const auto set = assignments(arguments, cells);
  // Check all before measuring the first, while errors can still refer to the command line.
  for (const Cell& cell : cells)
    train::check_bench(config_of(arguments, cell), arguments.what == "attention");
  Progress progress(Progress::mode_for_stderr(arguments.quiet || cells.size() == 1), "bench");
  std::vector<Json> done;
  int worst = success;
  for (size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = cells[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(cells.size()),
                    fmt::format("{} {}", cell.attention, cell.length));
    int code = success;
    const std::optional<Json> result =
        cells.size() == 1 ? measure(arguments, cell, set.at(cell.attention))
                          : measure_elsewhere(arguments, cell, set.at(cell.attention), code);
    progress.clear();
    if (code == usage_error) return code;
    if (!result) {
      worst = failure;
      continue;
    }
    if (done.empty() && !arguments.json)
      print_row({"attention", "length", arguments.what == "step" ? "step s" : "both s", "forward s",
                 "tokens/s", "GFLOP/s", "of peak", "of limit", "MiB", "faults"});
    done.push_back(*result);
    if (!arguments.json) print_cell(*result);
  }
  if (arguments.json) {
    print_json({{"cells", done}});
  } else {
    print_crossovers(done);
    if (!done.empty())
      print_stdout(
          "\nThis machine, {} threads, in the last cell: {:.0f} GFLOP/s, {:.1f} G exp/s, "
          "{:.0f} GB/s\n",
          threads(), number(done.back(), "machine_gflops"),
          number(done.back(), "machine_exps_per_second") * 1e-9,
          number(done.back(), "machine_bytes_per_second") * 1e-9);
  }
  return worst;
}

void add_one_bench(Command& group, const std::string& what, const std::string& text) {
  const auto a = std::make_shared<BenchArguments>();
  a->what = what;
  Command c = group.command(what, text, [a] { return bench(*a); });
  c.add(
      "--model", a->model, "L|M",
      "The model that is measured. L classifies long sequences: an encoder of 2 layers, d_model "
      "64, 2 heads, d_mlp 128, 10 classes, lengths from 1024 to 16384. M predicts the next byte of "
      "text: causal, 4 layers, d_model 256, 8 heads, d_mlp 1024, 256 tokens, lengths 2048 and 8192 "
      "[L]");
  c.add("--attention", a->attention, "NAME,...",
        "The attention variants to compare, one row of results for each and for each length; "
        "window+linear has another variant in each layer [all that the model can use]")
      .separated_by_commas();
  c.add("--length", a->length, "N,...", "The lengths of sequences, in tokens [those of the model]")
      .separated_by_commas()
      .positive();
  c.add("--tokens", a->tokens, "N",
        "Tokens in one step: the batch has as many sequences as fit into this number, and at least "
        "one, so that rows of different lengths do comparable work [16384]")
      .positive();
  c.add("--dropout", a->dropout, "P",
        "Dropout probability of the model, and of attention weights where the variant has them [0]")
      .not_negative();
  c.add("--d-model", a->d_model, "N", "Size of each token's vector in the model").positive();
  c.add("--heads", a->heads, "N", "Number of attention heads of each layer").positive();
  c.add("--layers", a->layers, "N", "Number of layers of the model").positive();
  c.add("--d-mlp", a->d_mlp, "N", "Size of the hidden layer of the feed-forward part; 0: none")
      .not_negative();
  c.flag("--causal", a->causal, "Let tokens attend only to themselves and to earlier tokens");
  if (what == "step")
    c.flag("--recompute", a->recompute,
           "Keep only the input of each block and compute the rest again in the backward pass, "
           "which needs less memory and more time (train.recompute)");
  c.add("--seconds", a->seconds, "S",
        "Repeat each measurement for S seconds, and at least three times [1]")
      .not_negative();
  c.add("--repetitions", a->repetitions, "N", "Repeat each measurement N times instead").positive();
  c.set(*a);
  c.seed(*a);
  c.threads();
  c.quiet(*a);
  c.json(a->json);
  c.footer(
      std::string(
          what == "step"
              ? "Measures what one training step costs: a forward pass, a backward pass and "
                "Adam, on a\nbatch of random tokens."
              : "Measures what attention costs without the rest of the model: queries, keys "
                "and values of\none layer, forward and backward, with random numbers.") +
      "\nEach row of the table is measured in a process of its own:\n"
      "  step s, both s  seconds of one step, or of both passes: the median of all repetitions\n"
      "  forward s       the part of it that the forward pass takes\n"
      "  tokens/s        tokens that are processed in a second; higher is better\n"
      "  GFLOP/s         necessary floating-point operations in a second, in billions\n"
      "  of peak         GFLOP/s as a fraction of what this machine does in matrix products\n"
      "  of limit        the least time that the work can take on this machine, as a fraction of "
      "the\n"
      "                  time measured: 100 % means that the code can hardly be faster\n"
      "  MiB             largest memory of the process\n"
      "  faults          page faults of one step: many mean that memory is taken anew in each "
      "step\n"
      "The least time is flops / peak + exponentials / rate + bytes / bandwidth. These rates are\n"
      "measured between the repetitions, by a matrix product, by Longhand's exp and by y <- a x + "
      "y on\n"
      "large vectors. The formulas for flops and bytes are in train/README.md, section bench.\n"
      "An option that only some variants have, such as --set attention.k=128, applies to those.\n"
      "Examples:\n" +
      (what == "step" ? "  longhand bench step --attention softmax,linear --length 1024,4096\n"
                        "  longhand bench step --model M --attention softmax --recompute"
                      : "  longhand bench attention --attention softmax,linear --length 1024,4096\n"
                        "  longhand bench attention --attention nystrom --set "
                        "attention.landmarks=32"));
}

}  // namespace

void add_bench(Command& program) {
  Command group = program.group(
      "bench", "Measure time and memory of training steps and of attention, and communication");
  add_one_bench(group, "step", "Measure whole training steps: forward, backward and optimizer");
  add_one_bench(group, "attention",
                "Measure the attention of one layer alone, forward and backward");
  add_bench_ranks(group);
  add_bench_sequence(group);
  add_bench_comm(group);
}

}  // namespace longhand::cli
