// Implements longhand analyse attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhand/attention/analysis/weights.h"
#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {
namespace {

namespace analysis = longhand::attention::analysis;

/// A map in five shades, from 0 to its largest weight.
std::string shaded(const Tensor& map) {
  static constexpr const char* shades[] = {" ", "░", "▒", "▓", "█"};
  const auto w = map.to_vector<double>();
  const double most = *std::ranges::max_element(w);
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

/// The weights of one head.
struct Mapped {
  std::string variant;
  Tensor map;
  int64_t layer = -1, head = 0;  // of a run
};

std::vector<Mapped> maps_of_run(const AttentionOptions& a, const LoadedRun& run, int64_t length,
                                const OnProgress& on_progress) {
  const data::Batch batch = run.dataset->collate({{a.index}});
  longhand::attention::Transformer& model = run.model();
  std::vector<Mapped> out;
  const auto layers = analysis::probe(model, batch.tokens.slice(1, 0, length).contiguous(), {});
  for (const analysis::LayerInputs& layer : layers) {
    on_progress(layer.layer, static_cast<int64_t>(layers.size()), "");
    const Tensor all = analysis::weights(model.kernel(layer.layer), layer.in).select(0, 0);
    for (int64_t h = 0; h < all.size(0); ++h)
      out.push_back({layer.variant, all.select(0, h), layer.layer, h});
  }
  return out;
}

/// What the state of a recurrence holds of each token after the last one (D, N): the weights of a
/// last query that reads one channel of keys.
Tensor state_map(longhand::attention::Variant& variant, longhand::attention::Inputs in) {
  const int64_t N = in.q.size(1), D = in.q.size(3);
  Tensor out = Tensor::zeros({D, N}, DType::f64);
  for (int64_t d = 0; d < D; ++d) {
    Tensor q = in.q.value().clone();
    Tensor last = q.select(1, N - 1);
    last.fill(0);
    last.select(2, d).fill(std::sqrt(static_cast<double>(D)));
    in.q = Variable(q);
    copy_into(out.select(0, d),
              analysis::weights(variant, in).select(0, 0).select(0, 0).select(0, N - 1));
  }
  return out;
}

std::vector<Mapped> maps_of_variants(const AttentionOptions& a, int64_t length) {
  analysis::RandomInputs inputs = a.inputs;
  inputs.length = length;
  const analysis::HeadInputs in = analysis::random_head(inputs, Generator(a.seed));
  std::vector<Mapped> out;
  for (const std::string& text : a.attention) {
    const auto variant = analysis::make_candidate(candidate_of(text), in, a.causal, a.seed);
    longhand::attention::Inputs given{Variable(in.q), Variable(in.k), Variable(in.v)};
    if (variant->capabilities().uses_x)
      given.x = Variable(in.q.reshape({1, in.length(), in.dim()}));
    out.push_back({text, a.state ? state_map(*variant, given)
                                 : analysis::weights(*variant, given).select(0, 0).select(0, 0)});
  }
  return out;
}

}  // namespace

AttentionMaps attention(const AttentionOptions& a, const LoadedRun* run,
                        const OnProgress& on_progress) {
  check<ConfigError>(!a.state || (a.causal && !run),
                     "--state: expected --attention and --causal: only recurrences have a state");
  const char *const x = a.state ? "token" : "key", *const y = a.state ? "channel" : "query";
  int64_t length = a.length > 0 ? a.length : 48;
  if (run) {
    check<ConfigError>(a.index < run->dataset->size(), "--index ", a.index, ": the split has ",
                       run->dataset->size(), " sequences");
    const int64_t all = run->dataset->length(a.index);
    length = a.length > 0 ? std::min(all, a.length) : all;
  }
  const std::vector<Mapped> found =
      run ? maps_of_run(a, *run, length, on_progress) : maps_of_variants(a, length);
  Table shapes{
      "shapes", "Properties of the maps, means over queries",
      "entropy: of the weights of one query, in nats, and e to that power: the number of keys "
      "that share its attention. largest, self, first: the largest weight, that of the token "
      "itself and that of the first token. distance: in tokens, weighted. negative: the "
      "fraction of weights below 0, which only some approximations have."};
  Table maps{
      "maps",
      run       ? "Attention weights by layer, head, query and key"
      : a.state ? "What the state holds after the last token, by variant, channel of keys and token"
                : "Attention weights by variant, query and key",
      (run ? fmt::format("Of sequence {} of the {} split, {} tokens.", a.index, a.split, length)
           : fmt::format("Of {} random tokens.", length)) +
          fmt::format(" Long ones are averaged over blocks, to at most {} queries and keys.",
                      a.size)};
  std::string drawn, summary;
  double sharpest = -1;
  for (const Mapped& each : found) {
    const RowField place = run ? RowField{{{"layer", ""}, {"head", ""}}, {each.layer, each.head}}
                               : RowField{"variant", each.variant};
    const std::string name =
        run ? fmt::format("layer {}, head {}", each.layer, each.head) : each.variant;
    const analysis::MapShape s = analysis::map_shape(each.map);
    add_row(shapes, {place,
                     run ? RowField{"variant", each.variant} : RowField{},
                     {"entropy", s.entropy, "entropy", 3},
                     {"effective_keys", s.effective_keys, "effective keys", 3},
                     {"largest", s.largest, "largest", 3},
                     {"self", s.self, "self", 3},
                     {"first", s.first, "first", 3},
                     {"distance", s.distance, "distance", 3},
                     {"negative", s.negative, "negative", 3}});
    if (s.largest > sharpest) {
      sharpest = s.largest;
      summary = fmt::format("{} attends most sharply: {} of its weight is on one key.",
                            run ? "L" + name.substr(1) : name, to_text(s.largest, 3));
    }
    const Tensor small = analysis::pooled_map(each.map, a.size);
    for (int64_t i = 0; i < small.size(0); ++i)
      for (int64_t j = 0; j < small.size(1); ++j)
        add_row(maps, {place,
                       {y, i * each.map.size(0) / small.size(0)},
                       {x, j * each.map.size(1) / small.size(1)},
                       {"weight", small.at({i, j}), "", 4}});
    drawn += fmt::format("{}\n{}\n", name,
                         shaded(analysis::pooled_map(each.map, std::min<int64_t>(a.size, 48))));
  }
  maps.charts.push_back({.title = maps.title,
                         .x = x,
                         .y = y,
                         .series = run ? std::vector<std::string>{"layer", "head"}
                                       : std::vector<std::string>{"variant"},
                         .colour = "weight"});
  if (a.state) return {{.title = "States of variants", .tables = {maps}}, drawn};
  return {
      {.title = run ? "Attention maps of " + run->source.checkpoint : "Attention maps of variants",
       .summary = summary,
       .tables = {shapes, maps}},
      drawn};
}

}  // namespace longhand::train::analyse
