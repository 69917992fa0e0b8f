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

std::unique_ptr<Variant> make(std::string_view name, const nn::Scope& scope, const Config& config) {
  const Registration& registration = find(name);
  check<ConfigError>(config.heads >= 1 && config.head_dim >= 1 && config.max_length >= 1, name,
                     ": heads ", config.heads, ", head_dim ", config.head_dim, " and max_length ",
                     config.max_length, " must all be at least 1");
  check<ConfigError>(!config.causal || registration.traits.causal, name,
                     ": causal attention is impossible: ", registration.traits.causal_reason);
  return registration.make(scope, config);
}

void add(const std::string& name, const Registration& registration) {
  for (const Entry& entry : registry())
    check<ConfigError>(entry.name != name, "attention: a variant called \"", name,
                       "\" exists already");
  registry().push_back({name, registration});
}

Variant::Variant(const nn::Scope& scope, const Config& config) : Module(scope), config_(config) {}

Variable Variant::forward(const Variable& q, const Variable& k, const Variable& v, const Mask& mask,
                          const nn::Pass& pass) {
  const Shape &qs = q.shape(), &ks = k.shape();
  check<ShapeError>(
      qs.rank() == 4 && ks.rank() == 4 && ks == v.shape() && qs[0] == ks[0] && qs[2] == ks[2] &&
          qs[3] == ks[3] && qs[2] == config_.heads && qs[3] == config_.head_dim,
      "attention: q (B, N, H, D), k and v (B, M, H, D) are wanted with H = ", config_.heads,
      " and D = ", config_.head_dim, ", not q ", qs, ", k ", ks, ", v ", v.shape());
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
    check<ShapeError>(N == M, "attention: lengths are for self-attention, not ", N, " queries and ",
                      M, " keys");
    check<ShapeError>(mask.lengths.dtype() == DType::i32 && mask.lengths.shape() == Shape{B},
                      "attention: lengths must be i32 of shape ", Shape{B}, ", not ",
                      mask.lengths.dtype(), " of shape ", mask.lengths.shape());
    for (const int32_t length : mask.lengths.to_vector<int32_t>()) {
      check<ShapeError>(length >= 0 && length <= N, "attention: length ", length,
                        " is not within 0 and ", N);
      padded = padded || length < N;
    }
  }
  Variable out;
  if (padded) {
    const Tensor real = real_tokens(mask.lengths, N);
    // A selection, not a product: padding may hold NaN. Its gradient is a selection too.
    out = attend(where(real, q, 0.0), where(real, k, 0.0), where(real, v, 0.0), mask, pass);
    out = where(real, out, 0.0);
  } else {
    out = attend(q, k, v, {}, pass);
  }
  check<ShapeError>(out.shape() == qs, "attention: ", full_name(), " returned ", out.shape(),
                    ", not ", qs);
  // Flattening copies what is not dense in this order.
  return out.value().is_contiguous() ? out : reshape(reshape(out, {qs.numel()}), qs);
}

}  // namespace longhand::attention
