// Several variants in one layer, each on its own heads, as in Based (Arora et al. 2024, arXiv
// 2402.18668) and other hybrids:
//
//   out = concat over parts p of variant_p(q, k, v of the heads of p)
//
// The parts are declared in one option, "window(window=16) | linear(feature_map=taylor2)".
#include <algorithm>
#include <numeric>
#include <string_view>

#include "longhand/attention/conformance/tools.h"
#include "longhand/attention/decoding/kv_cache.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct Part {
  std::string name;
  Options options{"attention.parts"};
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    out.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

// The value as an integer, a number, a boolean, or otherwise a string.
OptionValue value_of(std::string_view text) {
  if (const auto integer = parse_number<int64_t>(text)) return *integer;
  if (const auto real = parse_number<double>(text)) return *real;
  if (text == "true" || text == "false") return text == "true";
  return std::string(text);
}

// Throws ConfigError for malformed text; variants and their options are not checked.
std::vector<Part> parts_of(std::string_view text) {
  std::vector<Part> parts;
  for (const std::string_view each : split(text, '|')) {
    const size_t open = each.find('(');
    const bool closed = open == std::string_view::npos || each.back() == ')';
    Part& part = parts.emplace_back(Part{std::string(trimmed(each.substr(0, open)))});
    check<ConfigError>(closed && !part.name.empty(), "attention.parts: \"", each,
                       "\": expected a variant, or a variant with options in parentheses, such as "
                       "window(window=16)");
    if (open == std::string_view::npos) continue;
    for (const std::string_view option :
         split(each.substr(open + 1, each.size() - open - 2), ',')) {
      const size_t equals = option.find('=');
      check<ConfigError>(equals != std::string_view::npos && equals > 0, "attention.parts: \"",
                         option, "\": expected an option and its value, such as window=16");
      part.options.set(std::string(trimmed(option.substr(0, equals))),
                       value_of(trimmed(option.substr(equals + 1))));
    }
  }
  return parts;
}

struct ParallelOptions {
  std::string parts = "window|linear";
  std::vector<int64_t> heads{0};
  Config config;  // of the layer

  static ParallelOptions defaults(const Config& config) { return {.config = config}; }
  void describe(OptionVisitor& v) {
    v.text("parts", parts,
           "the variants, separated by |, each with its options in parentheses: "
           "window(window=16) | linear(feature_map=taylor2)");
    v.integers("heads", heads, {0, 1 << 20},
               "number of heads of each variant; 0: equal numbers, the first ones get more if they "
               "cannot be");
  }
  void check(const Config&) const {
    const std::vector<Config> all = configs();
    for (size_t i = 0; i < all.size(); ++i) try {
        check_options(all[i].name, all[i]);
        longhand::check<ConfigError>(
            !attention::capabilities(all[i].name, all[i]).shortens,
            "this variant mixes tokens before they are projected, and the projections are those of "
            "all parts");
      } catch (const ConfigError& error) {
        throw ConfigError(
            concat_message("attention.parts, part ", i, " (", all[i].name, "): ", error.what()));
      }
  }

  /// The configurations of the parts. Outside of a model (Config::layers = 0) there may be fewer
  /// heads than parts: the first parts then have one each, and the others are left out.
  std::vector<Config> configs() const {
    const std::vector<Part> list = parts_of(parts);
    const std::vector<int64_t> counts = heads_of(static_cast<int64_t>(list.size()));
    std::vector<Config> out;
    for (size_t i = 0; i < list.size(); ++i) {
      Config part = config;
      part.name = list[i].name;
      part.heads = part.kv_heads = counts[i];
      part.options = list[i].options;
      part.first = nullptr;
      out.push_back(part);
    }
    return out;
  }

  Capabilities capabilities() const {
    Capabilities all{.exact = true,
                     .averages = true,
                     .any_mask = false,
                     .causal = true,
                     .decodes = true,
                     .uses_queries_and_keys = false,
                     .uses_keys = false,
                     .needs = Needs::parts,
                     .time = "sum of the parts",
                     .memory = "sum of the parts"};
    for (const Config& part : configs()) {
      const Capabilities can = attention::capabilities(part.name, part);
      if (all.causal && !can.causal) all.causal_reason = part.name + ": " + can.causal_reason;
      using C = Capabilities;
      for (bool C::*const of_all : {&C::exact, &C::averages, &C::linear, &C::separate_queries,
                                    &C::causal, &C::decodes, &C::cross_lengths})
        all.*of_all = all.*of_all && can.*of_all;
      for (bool C::*const of_any :
           {&C::random, &C::positional, &C::signed_weights, &C::causal_only,
            &C::uses_queries_and_keys, &C::uses_keys, &C::fixed_length, &C::uses_x})
        all.*of_any = all.*of_any || can.*of_any;
      if (can.state != "-") all.state = can.state;
    }
    return all;
  }

 private:
  std::vector<int64_t> heads_of(int64_t count) const {
    const int64_t H = config.heads;
    if (heads.size() == 1 && heads[0] == 0) {
      longhand::check<ConfigError>(config.layers == 0 || H >= count, "attention.parts: ", count,
                                   " variants, but the layers have model.heads = ", H);
      std::vector<int64_t> out;
      for (int64_t i = 0; i < count; ++i)
        out.push_back(std::max<int64_t>(1, H / count + (i < H % count)));
      return out;
    }
    longhand::check<ConfigError>(
        static_cast<int64_t>(heads.size()) == count &&
            std::find(heads.begin(), heads.end(), 0) == heads.end(),
        "attention.heads: expected a positive number of heads for each of the ", count,
        " variants of attention.parts");
    const int64_t sum = std::accumulate(heads.begin(), heads.end(), int64_t{0});
    longhand::check<ConfigError>(config.layers == 0 || sum == H, "attention.heads: expected ", H,
                                 " heads in total, as model.heads, got ", sum);
    return heads;
  }
};

class ParallelDecoder final : public Decoder {
 public:
  ParallelDecoder(int64_t heads, const std::vector<std::unique_ptr<Variant>>& variants,
                  int64_t batch)
      : heads_(heads) {
    for (const auto& variant : variants)
      parts_.push_back({variant->config().heads, variant->decoder(batch)});
  }

  Tensor step(const Token& token) override {
    Tensor out = Tensor::empty({token.v.size(0), heads_, token.v.size(2)}, token.v.dtype());
    for_parts(token, [&](Decoder& part, int64_t begin, int64_t end, const Token& own) {
      copy_into(out.slice(1, begin, end), part.step(own));
    });
    return out;
  }
  void append(const Token& token) override {
    for_parts(token, [](Decoder& part, int64_t, int64_t, const Token& own) { part.append(own); });
  }
  int64_t bytes() const override {
    int64_t sum = 0;
    for (const auto& part : parts_) sum += part.decoder->bytes();
    return sum;
  }
  int64_t bytes_after(int64_t tokens) const override {
    int64_t sum = 0;
    for (const auto& part : parts_) sum += part.decoder->bytes_after(tokens);
    return sum;
  }
  Traffic traffic() const override {
    Traffic sum;
    for (const auto& part : parts_) {
      const Traffic own = part.decoder->traffic();
      sum = {sum.read + own.read, sum.updated + own.updated};
    }
    return sum;
  }

 private:
  struct OfPart {
    int64_t heads;
    std::unique_ptr<Decoder> decoder;
  };

  // Calls f with each part, the range [first, end) of its heads, and their slice of a token.
  template <class F>
  void for_parts(const Token& token, F f) {
    const Token all{token.q, token.k.defined() ? repeat_groups(token.k, heads_) : token.k,
                    repeat_groups(token.v, heads_), token.x};
    const int64_t D = all.v.size(2);
    int64_t first = 0;
    for (const auto& [heads, decoder] : parts_) {
      const int64_t end = first + heads;
      const auto take = [&](const Tensor& x, int64_t unit) {
        return x.defined() ? x.slice(1, first * unit, end * unit) : x;
      };
      f(*decoder, first, end, {take(all.q, 1), take(all.k, 1), take(all.v, 1), take(all.x, D)});
      first = end;
    }
  }

  int64_t heads_;
  std::vector<OfPart> parts_;
};

class Parallel final : public Variant {
 public:
  Parallel(const nn::Scope& scope_, const Config& config, const ParallelOptions& options)
      : Variant(scope_, config) {
    const auto* const first = dynamic_cast<const Parallel*>(config.first);
    int64_t heads = 0;
    for (Config& part : options.configs()) {
      const size_t i = parts_.size();
      if (heads == config.heads) break;
      if (first && i < first->parts_.size() && first->parts_[i]->config().name == part.name)
        part.first = first->parts_[i].get();
      heads += part.heads;
      parts_.push_back(make(part.name, scope(std::to_string(i)), part));
    }
    check<ConfigError>(heads == config.heads, "parallel: the parts have ", heads,
                       " heads in total, the layer ", config.heads);
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override {
    return std::make_unique<ParallelDecoder>(config().heads, parts_, batch);
  }
  Work work(int64_t queries, int64_t keys) const override {
    Work sum;
    for (const auto& part : parts_) sum = sum + part->work(queries, keys);
    return sum;
  }
  std::string algorithm(int64_t tokens) const override {
    return joined([&](const Variant& part) { return part.algorithm(tokens); });
  }
  std::string advice(int64_t tokens) const override {
    return joined([&](const Variant& part) { return part.advice(tokens); });
  }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass& pass) override {
    const int64_t D = config().head_dim;
    Variables results;
    int64_t first = 0;
    for (const auto& variant : parts_) {
      const int64_t last = first + variant->config().heads;
      const auto take = [&](const Variable& x) { return slice(x, 2, first, last); };
      Inputs part{take(inputs.q), take(inputs.k), take(inputs.v)};
      if (variant->capabilities().uses_x) part.x = slice(inputs.x, 2, first * D, last * D);
      results.push_back(variant->forward(part, {.lengths = mask.lengths}, pass));
      first = last;
    }
    return results.size() == 1 ? results[0] : concat(results, 2);
  }

  template <class Text>
  std::string joined(Text text_of) const {
    std::string out;
    for (const auto& part : parts_)
      if (const std::string text = text_of(*part); !text.empty())
        out += concat_message(out.empty() ? "" : "; ", part->config().name, ": ", text);
    return out;
  }

  std::vector<std::unique_ptr<Variant>> parts_;
};

using namespace conformance;

// Parts that are all one variant equal that variant.
void same_parts(Findings& f) {
  for (const bool causal : {false, true})
    for (const char* const name : {"softmax", "linear", "none"}) {
      const Made made{.heads = 4, .causal = causal};
      const auto one = make_variant(name, {}, made);
      const auto parts = make_variant(
          "parallel",
          {{"parts", concat_message(name, "|", name)}, {"heads", std::vector<int64_t>{3, 1}}},
          made);
      const Tensor q = normal({2, 13, 4, 4}, 1), k = normal({2, 13, 4, 4}, 2),
                   v = normal({2, 13, 4, 4}, 3);
      const Mask mask = lengths({13, 8});
      near(f, name, forward(*parts, q, k, v, mask), forward(*one, q, k, v, mask), 1e-13);
    }
}

}  // namespace

Spec parallel_variant() {
  return make_spec<ParallelOptions, Parallel>(
      {.summary = "several variants in one layer, each in heads of its own",
       .paper = "Arora et al. 2024, arXiv 2402.18668",
       .cases = {{{"parts", "window(window=3)|linear(feature_map=taylor2)"}},
                 {{"parts", "conv | softmax"}}},
       .evidence = {{"same-parts", "parts of one variant are that variant", same_parts}}});
}

}  // namespace longhand::attention
