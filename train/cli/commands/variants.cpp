// longhand variants: the capabilities and costs of each attention variant.
#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/registry.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/plugin/load_plugin.h"

namespace longhand::cli {
namespace {

struct VariantsArguments : Common {
  int64_t length = 1024, heads = 2, head_dim = 32;
};

struct Row {
  std::string name;
  attention::Capabilities can;
  attention::Work work;
  std::string algorithm;
};

// With default options.
Row look_at(const std::string& name, const VariantsArguments& a) {
  attention::Config config;
  config.heads = a.heads;
  config.head_dim = a.head_dim;
  config.max_length = a.length;
  config.causal = attention::capabilities(name, config).causal_only;
  const auto variant = attention::make(name, nn::root(DType::f32, 0), config);
  return {name, variant->capabilities(), variant->work(a.length, a.length),
          variant->algorithm(a.length)};
}

Json to_json(const Row& row) {
  const attention::Capabilities& t = row.can;
  const attention::Spec& spec = attention::spec(row.name);
  return {{"name", row.name},
          {"summary", spec.summary},
          {"exact", t.exact},
          {"random", t.random},
          {"averages", t.averages},
          {"causal", t.causal},
          {"causal_reason", t.causal_reason},
          {"decodes", t.decodes},
          {"any_mask", t.any_mask},
          {"uses_queries_and_keys", t.uses_queries_and_keys},
          {"uses_keys", t.uses_keys},
          {"cross_lengths", t.cross_lengths},
          {"fixed_length", t.fixed_length},
          {"time", t.time},
          {"memory", t.memory},
          {"flops", row.work.forward.flops},
          {"exponentials", row.work.forward.exponentials},
          {"backward_flops", row.work.backward.flops},
          {"backward_exponentials", row.work.backward.exponentials},
          {"bytes", row.work.bytes},
          {"algorithm", row.algorithm},
          {"state", t.state},
          {"ranks", attention::name_of(attention::sequence_path(t.needs, false))},
          {"paper", spec.paper}};
}

/// "plugin NAME VERSION" if a plugin has defined this variant, otherwise empty.
std::string plugin_of_variant(const std::string& variant) {
  for (const train::Plugin& plugin : train::plugins())
    if (std::ranges::find(plugin.variants, variant) != plugin.variants.end())
      return concat_message("plugin ", plugin.name, ' ', plugin.version);
  return {};
}

int variants(const VariantsArguments& arguments) {
  std::vector<Row> rows;
  for (const std::string& name : attention::names()) rows.push_back(look_at(name, arguments));
  Answer out(arguments.json);
  out.add("length", arguments.length)
      .add("heads", arguments.heads)
      .add("head_dim", arguments.head_dim)
      .add("variants", list_of(rows, to_json));
  train::Table table{.name = "variants"};
  for (const Row& row : rows) {
    const attention::Capabilities& t = row.can;
    const std::string lengths =
        std::string(t.fixed_length ? "up to max" : "any") + (t.cross_lengths ? ", cross" : "");
    const std::string causal = !t.causal ? "-" : t.decodes ? "decodes" : "yes";
    add_row(table, {{"NAME", row.name},
                    {"EXACT", t.exact ? "yes" : "-"},
                    {"CAUSAL", causal},
                    {"MASKS", t.any_mask ? "any, bias" : "lengths"},
                    {"LENGTHS", lengths},
                    {"TIME", t.time},
                    {"MEMORY", t.memory},
                    {"FLOP", short_number(row.work.forward.flops)},
                    {"BYTES", short_number(row.work.bytes)}});
  }
  out.table(table).literal(
      "\n" +
      wrapped_lines(
          fmt::format(
              "Time and memory: growth per head, for N tokens, head dimension D, and m features, "
              "landmarks or slots. FLOP and bytes: a forward pass of one sequence of {} tokens "
              "with {} heads of dimension {} and default options (bytes besides q, k, v and the "
              "result). Decodes: causal, and generates token by token. Cross: the number of keys "
              "may differ from that of queries. Over ranks: what ranks that share a sequence "
              "exchange (attention/README.md). State: contents of checkpoints besides trained "
              "parameters.",
              arguments.length, arguments.heads, arguments.head_dim),
          100) +
      "\n\n");
  for (const Row& row : rows) {
    const attention::Capabilities& t = row.can;
    const attention::Spec& spec = attention::spec(row.name);
    std::string text = fmt::format("{}: {} ({})", row.name, spec.summary, spec.paper);
    if (!t.causal && !t.causal_reason.empty()) text += "; not causal: " + t.causal_reason;
    if (!row.algorithm.empty()) text += "; here: " + row.algorithm;
    text += fmt::format("; over ranks: {}",
                        attention::name_of(attention::sequence_path(t.needs, false)));
    if (!t.state.empty() && t.state != "-") text += "; state: " + t.state;
    if (const std::string plugin = plugin_of_variant(row.name); !plugin.empty())
      text += "; " + plugin;
    out.literal(wrapped_lines(text, 100) + "\n");
  }
  return out.end();
}

}  // namespace

void add_variants(Command& program) {
  auto [c, a] = program.command<VariantsArguments>("variants", variants);
  c.add("--length", a->length).positive();
  c.add("--heads", a->heads).positive();
  c.add("--head-dim", a->head_dim).positive();
  c.common(*a, "json");
}

}  // namespace longhand::cli
