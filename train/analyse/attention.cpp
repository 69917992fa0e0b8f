// What longhand analyse attention computes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhand/attention/analysis/weights.h"
#include "longhand/train/analyse/analyse.h"
#include "longhand/train/results/rows.h"

namespace longhand::train::analyse {
namespace {

namespace analysis = longhand::attention::analysis;

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

}  // namespace

AttentionMaps attention(const AttentionOptions& a, const LoadedRun& run,
                        const OnProgress& on_progress) {
  check<ConfigError>(a.index < run.dataset->size(), "--index ", a.index, ": the split has ",
                     run.dataset->size(), " sequences");
  const data::Batch batch = run.dataset->collate({{a.index}});
  int64_t length = run.dataset->length(a.index);
  if (a.length > 0) length = std::min(length, a.length);
  longhand::attention::Transformer& model = run.model();
  Table shapes{
      "shapes",
      "Properties of the maps, means over queries",
      "entropy: of the weights of one query, in nats, and e to that power: the number of keys "
      "that share its attention. largest, self, first: the largest weight, that of the token "
      "itself and that of the first token. distance: in tokens, weighted. negative: the "
      "fraction of weights below 0, which only some approximations have.",
      {}};
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
  std::string drawn, summary;
  double sharpest = -1;
  const auto layers = analysis::probe(model, batch.tokens.slice(1, 0, length).contiguous(), {});
  for (const analysis::LayerInputs& layer : layers) {
    on_progress(layer.layer, static_cast<int64_t>(layers.size()), "");
    const Tensor all = analysis::weights(model.kernel(layer.layer), layer.in).select(0, 0);
    for (int64_t h = 0; h < all.size(0); ++h) {
      const Tensor map = all.select(0, h);
      const analysis::MapShape s = analysis::map_shape(map);
      add_row(shapes, {},
              {{"layer", layer.layer},
               {"head", h},
               {"variant", layer.variant},
               {"entropy", s.entropy, "entropy", 3},
               {"effective_keys", s.effective_keys, "effective keys", 3},
               {"largest", s.largest, "largest", 3},
               {"self", s.self, "self", 3},
               {"first", s.first, "first", 3},
               {"distance", s.distance, "distance", 3},
               {"negative", s.negative, "negative", 3}});
      if (s.largest > sharpest) {
        sharpest = s.largest;
        summary =
            fmt::format("Layer {}, head {} attends most sharply: {} of its weight is on one key.",
                        layer.layer, h, to_text(s.largest, 3));
      }
      const Tensor small = analysis::pooled_map(map, a.size);
      for (int64_t i = 0; i < small.size(0); ++i)
        for (int64_t j = 0; j < small.size(1); ++j)
          maps.rows.push_back({layer.layer, h, i * map.size(0) / small.size(0),
                               j * map.size(1) / small.size(1), small.at({i, j})});
      drawn += fmt::format("layer {}, head {}\n{}\n", layer.layer, h,
                           shaded(analysis::pooled_map(map, std::min<int64_t>(a.size, 48))));
    }
  }
  Results results{.title = "Attention maps of " + run.source.checkpoint, .summary = summary};
  results.tables = {shapes, maps};
  return {std::move(results), std::move(drawn)};
}

}  // namespace longhand::train::analyse
