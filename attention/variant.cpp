#include "longhand/attention/variant.h"

#include <deque>
#include <utility>

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {

#define VARIANT(name) Registration name##_variant();
#include "longhand/attention/variants.def"
#undef VARIANT

namespace {

struct Entry {
  std::string name;
  Registration registration;
};

// A deque, so that a variant added later does not move the traits somebody holds. A function calls
// those of variants.def by name: a registration by static objects would be lost when an object file
// of a static library is not linked because nobody calls it.
std::deque<Entry>& registry() {
  static std::deque<Entry> entries{
#define VARIANT(name) {#name, name##_variant()},
#include "longhand/attention/variants.def"
#undef VARIANT
  };
  return entries;
}

// (B, M, G, D) to (B, M, H, D): each head for its group.
Variable for_all_heads(const Variable& x, int64_t heads) {
  const int64_t B = x.size(0), M = x.size(1), G = x.size(2), D = x.size(3);
  if (G == heads) return x;
  return reshape(broadcast_to(reshape(x, {B, M, G, 1, D}), {B, M, G, heads / G, D}),
                 {B, M, heads, D});
}

const Registration& find(std::string_view name) {
  for (const Entry& entry : registry())
    if (entry.name == name) return entry.registration;
  std::string known;
  for (const std::string& each : names()) known += (known.empty() ? "" : ", ") + each;
  const std::string near = nearest(name, names());
  throw ConfigError(concat_message("attention: no variant is called \"", name, "\"; ",
                                   near.empty() ? "" : "did you mean \"" + near + "\"? ",
                                   "known are ", known));
}

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Entry& entry : registry()) list.push_back(entry.name);
  return list;
}

const Traits& traits(std::string_view name) { return find(name).traits; }

const std::vector<OptionSet>& checked_options(std::string_view name) { return find(name).checked; }

std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config) {
  const Registration& registration = find(name);
  check<ConfigError>(config.heads >= 1 && config.head_dim >= 1 && config.max_length >= 1, name,
                     ": heads ", config.heads, ", head_dim ", config.head_dim, " and max_length ",
                     config.max_length, " must all be at least 1");
  check<ConfigError>(!config.causal || registration.traits.causal, name,
                     ": causal attention is impossible: ", registration.traits.causal_reason);
  check<ConfigError>(
      config.kv_heads >= 0 && (!config.kv_heads || config.heads % config.kv_heads == 0), name,
      ": kv_heads ", config.kv_heads, " must divide heads ", config.heads);
  Config named = config;
  named.name = name;
  if (!named.kv_heads) named.kv_heads = named.heads;
  return registration.make(scope, named);
}

void add(const std::string& name, const Registration& registration) {
  for (const Entry& entry : registry())
    check<ConfigError>(entry.name != name, "attention: a variant called \"", name,
                       "\" exists already");
  registry().push_back({name, registration});
}

Variant::Variant(const nn::Scope& scope, const Config& config)
    : Module(scope), config_(config), traits_(find(config.name).traits) {}

Sources Variant::sources(const Variable& x, const Mask&) { return {x, x}; }

std::unique_ptr<Decoder> Variant::decoder(int64_t batch) const {
  check<ConfigError>(traits_.decodes, config_.name, ": it has no form that goes token by token");
  check<ConfigError>(config_.causal, config_.name, ": only causal attention goes token by token");
  return make_decoder(batch);
}

std::unique_ptr<Decoder> Variant::make_decoder(int64_t) const {
  throw Error(config_.name + ": it says that it decodes, and does not say how");
}

Cost Variant::cost(int64_t, int64_t) const { return {}; }

std::optional<int64_t> Variant::rank(int64_t) const { return {}; }

std::string Variant::algorithm(int64_t) const { return {}; }

Variable Variant::forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                          const nn::Pass& pass) {
  const Shape &qs = q.shape(), &ks = k.shape();
  check<ShapeError>(qs.rank() == 4 && ks.rank() == 4 && ks == v.shape() && qs[0] == ks[0] &&
                        ks[2] == config_.kv_heads && qs[3] == ks[3] && qs[2] == config_.heads &&
                        qs[3] == config_.head_dim,
                    "attention: q (B, N, H, D), k and v (B, M, G, D) are wanted with H = ",
                    config_.heads, ", G = ", config_.kv_heads, " and D = ", config_.head_dim,
                    ", not q ", qs, ", k ", ks, ", v ", v.shape());
  check<ShapeError>(is_float(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(),
                    "attention: one float dtype is wanted, not q ", q.dtype(), ", k ", k.dtype(),
                    ", v ", v.dtype());
  const int64_t B = qs[0], N = qs[1], M = ks[1];
  check<ShapeError>(B >= 1 && N >= 1 && M >= 1, "attention: nothing to attend to: q ", qs, ", k ",
                    ks);
  check<ShapeError>(!config_.causal || N == M,
                    "attention: causal attention wants as many queries as keys, not ", N, " and ",
                    M);
  bool padded = false;
  if (mask.lengths.defined()) {
    check<ShapeError>(N == M || traits_.shortens, "attention: lengths are for self-attention, not ",
                      N, " queries and ", M, " keys");
    check<ShapeError>(mask.lengths.dtype() == DType::i32 && mask.lengths.shape() == Shape{B},
                      "attention: lengths must be i32 of shape ", Shape{B}, ", not ",
                      mask.lengths.dtype(), " of shape ", mask.lengths.shape());
    for (const int32_t length : mask.lengths.to_vector<int32_t>()) {
      check<ShapeError>(length >= 0 && length <= N, "attention: length ", length,
                        " is not within 0 and ", N);
      padded = padded || length < N;
    }
  }
  check<ConfigError>(traits_.any_mask || (!mask.keep.defined() && !mask.bias.defined()),
                     config_.name,
                     ": it forms no scores of single pairs that a keep or a bias could change; it "
                     "knows lengths",
                     traits_.causal ? " and causal" : "");
  if (mask.keep.defined())
    check<ShapeError>(
        mask.keep.dtype() == DType::u8 &&
            broadcast_shape(mask.keep.shape(), {B, qs[2], N, M}) == Shape{B, qs[2], N, M},
        "attention: keep must be u8 and broadcast to ", Shape{B, qs[2], N, M}, ", not ",
        mask.keep.dtype(), " of shape ", mask.keep.shape());
  if (mask.bias.defined())
    check<ShapeError>(
        mask.bias.dtype() == q.dtype() &&
            broadcast_shape(mask.bias.shape(), {B, qs[2], N, M}) == Shape{B, qs[2], N, M},
        "attention: bias must be ", q.dtype(), " and broadcast to ", Shape{B, qs[2], N, M},
        ", not ", mask.bias.dtype(), " of shape ", mask.bias.shape());
  Mask known = mask;
  if (!padded) known.lengths = {};
  if (takes_all(mask)) return attend(q, k, v, known, pass);
  Variable out;
  const Variable ke = for_all_heads(k, qs[2]), ve = for_all_heads(v, qs[2]);
  if (padded) {
    const Tensor real = real_tokens(mask.lengths, N);
    // A selection, not a product: padding may hold NaN. Its gradient is a selection too.
    const auto zeroed = [&](const Variable& x) { return where(real, x, 0.0); };
    out = traits_.shortens ? attend(zeroed(q), ke, ve, known, pass)
                           : attend(zeroed(q), zeroed(ke), zeroed(ve), known, pass);
    out = where(real, out, 0.0);
  } else {
    out = attend(q, ke, ve, known, pass);
  }
  check<ShapeError>(out.shape() == qs, "attention: ", full_name(), " returned ", out.shape(),
                    ", not ", qs);
  // Flattening copies what is not dense in this order.
  return out.value().is_contiguous() ? out : reshape(reshape(out, {qs.numel()}), qs);
}

}  // namespace longhand::attention
