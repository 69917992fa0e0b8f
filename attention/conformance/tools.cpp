#include "longhand/attention/conformance/tools.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/attention/analysis/weights.h"
#include "longhand/autograd/grad_mode.h"

namespace longhand::attention::conformance {

std::vector<std::string> Findings::failures() const {
  std::vector<std::string> out = failures_;
  if (failed_ > kept) out.push_back(concat_message("and ", failed_ - kept, " more"));
  return out;
}

namespace {

Config config_of(const OptionSet& options, const Made& made) {
  Config config{.heads = made.heads,
                .head_dim = made.dim,
                .kv_heads = made.kv_heads,
                .max_length = made.max_length,
                .causal = made.causal};
  for (const auto& [key, value] : options) config.options.set(key, value);
  return config;
}

thread_local const Substitution* substitution = nullptr;

}  // namespace

Substitution::Substitution(std::string name_, OnMade on_made_, double tolerance_)
    : name(std::move(name_)), on_made(std::move(on_made_)), tolerance(tolerance_) {
  check(!substitution, "conformance: expected one function to check at a time");
  substitution = this;
}
Substitution::~Substitution() { substitution = nullptr; }

std::unique_ptr<Variant> make_variant(const std::string& name, const OptionSet& options,
                                      const Made& made) {
  auto variant = attention::make(name, nn::root(made.dtype, made.seed), config_of(options, made));
  if (substitution && substitution->name == name) substitution->on_made(*variant);
  return variant;
}

Capabilities capabilities_of(const std::string& name, const OptionSet& options) {
  return attention::capabilities(name, config_of(options, {}));
}

Tensor normal(const Shape& shape, uint64_t seed, DType dtype, double std) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, Generator(seed), 0, std);
  return t;
}

Sample sample(const Shape& shape, DType dtype, uint64_t seed, double std) {
  return {normal(shape, seed, dtype, std), normal(shape, seed + 1, dtype, std),
          normal(shape, seed + 2, dtype, 1), normal(shape, seed + 3, dtype, 1)};
}

Mask lengths(const std::vector<int32_t>& values) {
  return {.lengths = Tensor::from(values, {static_cast<int64_t>(values.size())})};
}

attention::Inputs inputs_of(const Variant& variant, const Variable& q, const Variable& k,
                            const Variable& v) {
  if (!variant.capabilities().uses_x) return {q, k, v};
  return {q, k, v, reshape(q, {q.size(0), q.size(1), q.size(2) * q.size(3)})};
}

Token token_of(const Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!variant.capabilities().uses_x) return {q, k, v};
  return {q, k, v, q.contiguous().reshape({q.size(0), q.size(1) * q.size(2)})};
}

Tensor forward(Variant& variant, const Tensor& q, const Tensor& k, const Tensor& v,
               const Mask& mask, const nn::Pass& pass) {
  const NoGrad no_grad;
  return variant.forward(inputs_of(variant, Variable(q), Variable(k), Variable(v)), mask, pass)
      .value();
}

Outcome run(Variant& variant, const Sample& x, const Mask& mask, const nn::Pass& pass) {
  variant.zero_grad();
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out = variant.forward(inputs_of(variant, q, k, v), mask, pass);
  if (out.requires_grad()) backward(out, x.cotangent);
  Outcome o{out.value(), gradient_or_zeros(q), gradient_or_zeros(k), gradient_or_zeros(v)};
  for (auto& [name, parameter] : variant.named_parameters())
    if (parameter.grad().defined()) o.parameters[name] = parameter.grad().clone();
  return o;
}

Tensor weights(Variant& variant, const Tensor& q, const Tensor& k, const nn::Pass& pass) {
  const Variable values(Tensor::zeros(k.shape(), k.dtype()));
  return analysis::weights(variant, inputs_of(variant, Variable(q), Variable(k), values), {}, pass)
      .select(0, 0)
      .select(0, 0);
}

double distance(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double scale = 1, worst = 0;
  for (const double value : y) scale = std::max(scale, 1 + std::abs(value));
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = std::abs(x[i] - y[i]);
    if (!(d <= worst)) worst = d;  // NaN is kept
    if (std::isnan(worst)) break;
  }
  return worst / scale;
}

double near(Findings& f, const std::string& what, const Tensor& a, const Tensor& b,
            double tolerance) {
  if (substitution) tolerance = std::max(tolerance, substitution->tolerance);
  const double d = distance(a, b);
  f.expect(d <= tolerance, what, ": expected a difference of at most ", tolerance, ", got ", d);
  return d;
}

double each_near(Findings& f, const std::string& what, const Outcome& a, const Outcome& b,
                 double tolerance) {
  double worst = 0;
  for (size_t i = 0; i < Outcome::names.size(); ++i)
    worst = std::max(worst, near(f, concat_message(what, ": ", Outcome::names[i]), a.tensors()[i],
                                 b.tensors()[i], tolerance));
  return worst;
}

bool all_zero(const Tensor& t) {
  return std::ranges::all_of(t.to_vector<double>(), [](double x) { return x == 0; });
}

bool all_finite(const Tensor& t) {
  return std::ranges::all_of(t.to_vector<double>(), [](double x) { return std::isfinite(x); });
}

Tensor with_padding(const Tensor& x, const Mask& mask, double value) {
  Tensor out = x.contiguous().clone();
  const auto n = mask.lengths.to_vector<int32_t>();
  for (int64_t b = 0; b < x.size(0); ++b)
    if (n[b] < x.size(1)) out.slice(0, b, b + 1).slice(1, n[b], x.size(1)).fill(value);
  return out;
}

}  // namespace longhand::attention::conformance
