// longhand analyse attention: the weights of a model on one input, by layer and head.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhand/attention/analysis/weights.h"
#include "longhand/train/cli/analyse.h"
#include "longhand/train/cli/output.h"

namespace longhand::cli {
namespace {

namespace analysis = attention::analysis;
using train::Table;

struct Arguments : SourceArguments {
  int64_t index = 0, size = 64;
  bool all = false;
};

/// A map in five shades, from 0 to its largest weight.
std::string shaded(const Tensor& map) {
  static constexpr const char* shades[] = {" ", "░", "▒", "▓", "█"};
  const auto w = map.to_vector<double>();
  const double most = *std::max_element(w.begin(), w.end());
  std::string out;
  for (int64_t i = 0; i < map.size(0); ++i) {
    out += "  ";
    for (int64_t j = 0; j < map.size(1); ++j) {
      const double share = most > 0 ? w[i * map.size(1) + j] / most : 0;
      out += shades[std::clamp(static_cast<int>(std::ceil(4 * share - 0.05)), 0, 4)];
    }
    out += "\n";
  }
  return out;
}

int analyse(const Arguments& a) {
  const LoadedRun run = load_run(a);
  check<ConfigError>(a.index < run.dataset->size(), "--index ", a.index, ": the split has ",
                     run.dataset->size(), " sequences");
  const data::Batch batch = run.dataset->collate({{a.index}});
  int64_t length = run.dataset->length(a.index);
  if (!a.length.empty()) length = std::min(length, a.length[0]);
  attention::Transformer& model = run.model();
  Table shapes{
      "shapes",
      "Properties of the maps, means over queries",
      "entropy: of the weights of one query, in nats, and e to that power: the number of keys "
      "that share its attention. largest, self, first: the largest weight, that of the token "
      "itself and that of the first token. distance: in tokens, weighted. negative: the "
      "fraction of weights below 0, which only some approximations have.",
      {{"layer", ""}, {"head", ""}, {"variant", ""}}};
  for (const auto& [name, heading] : {std::pair("entropy", "entropy"),
                                      {"effective_keys", "effective keys"},
                                      {"largest", "largest"},
                                      {"self", "self"},
                                      {"first", "first"},
                                      {"distance", "distance"},
                                      {"negative", "negative"}})
    shapes.columns.push_back({name, heading, 3});
  Table maps{"maps",
             "Attention weights by layer, head, query and key",
             fmt::format("Of sequence {} of the {} split, {} tokens. Long ones are averaged over "
                         "blocks, to at most {} queries and keys.",
                         a.index, a.split, length, a.size),
             {{"layer", ""}, {"head", ""}, {"query", ""}, {"key", ""}, {"weight", "", 4}}};
  maps.charts.push_back({.title = maps.title,
                         .x = "key",
                         .y = "query",
                         .series = {"layer", "head"},
                         .colour = "weight"});
  std::string drawn;
  const auto layers = [&] {
    const Waiting waiting(a.progress(), "analyse attention");
    return analysis::probe(model, batch.tokens.slice(1, 0, length).contiguous(), {});
  }();
  Progress progress(a.progress(), "analyse attention", 2);
  for (const analysis::LayerInputs& layer : layers) {
    progress.update(layer.layer, static_cast<int64_t>(layers.size()), "");
    const auto variable = [](const Tensor& t) { return t.defined() ? Variable(t) : Variable(); };
    const attention::Inputs in{variable(layer.q), variable(layer.k), variable(layer.v),
                               variable(layer.x)};
    const Tensor all = analysis::weights(model.kernel(layer.layer), in).select(0, 0);
    for (int64_t h = 0; h < all.size(0); ++h) {
      const Tensor map = all.select(0, h);
      const analysis::MapShape s = analysis::map_shape(map);
      shapes.rows.push_back({layer.layer, h, layer.variant, s.entropy, s.effective_keys, s.largest,
                             s.self, s.first, s.distance, s.negative});
      const Tensor small = analysis::pooled_map(map, a.size);
      for (int64_t i = 0; i < small.size(0); ++i)
        for (int64_t j = 0; j < small.size(1); ++j)
          maps.rows.push_back({layer.layer, h, i * map.size(0) / small.size(0),
                               j * map.size(1) / small.size(1), small.at({i, j})});
      drawn += fmt::format("layer {}, head {}\n{}\n", layer.layer, h,
                           shaded(analysis::pooled_map(map, std::min<int64_t>(a.size, 48))));
    }
  }
  progress.clear();
  const auto most =
      std::max_element(shapes.rows.begin(), shapes.rows.end(), [&](const auto& x, const auto& y) {
        return std::get<double>(x[shapes.column("largest")]) <
               std::get<double>(y[shapes.column("largest")]);
      });
  if (!a.json && !a.quiet) print_stdout("{}", drawn);
  train::Results results = new_results(
      "Attention maps of " + run.file,
      fmt::format("Layer {}, head {} attends most sharply: {} of its weight is on one key.",
                  std::get<int64_t>((*most)[0]), std::get<int64_t>((*most)[1]),
                  short_text(std::get<double>((*most)[shapes.column("largest")]))));
  results.tables = {shapes, maps};
  return finish(a, results, {.hidden = {"maps"}});
}

}  // namespace

void add_analyse_attention(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command("attention", "Attention maps of a run on one input, by layer and head",
                            [a] { return analyse(*a); });
  c.add("run", a->run, "DIR", "Run directory or checkpoint file").required();
  c.add("--checkpoint", a->checkpoint, "NAME", "best, last or another one of the run [best]");
  c.add("--split", a->split, "SPLIT", "train, validation or test [test]");
  c.add("--index", a->index, "I", "The sequence, from 0 [0]").not_negative();
  c.add("--length", a->length, "N", "Its first N tokens [all]").positive();
  c.add("--size", a->size, "N", "Average longer maps to N queries and keys [64]").positive();
  add_common(c, *a);
}

}  // namespace longhand::cli
