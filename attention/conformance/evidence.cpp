#include "longhand/attention/conformance/evidence.h"

namespace longhand::attention::conformance {

void equal(Findings& f, const std::string& what, Variant& a, Variant& b, double tolerance,
           const Sample& x, const Mask& mask) {
  f.measured(what, " to ", each_near(f, what, run(a, x, mask), run(b, x, mask), tolerance));
}

void equal(Findings& f, const std::string& what, const Tensor& found, const Tensor& expected,
           double tolerance) {
  f.measured(what, " to ", near(f, what, found, expected, tolerance));
}

void set(Variant& variant, const nn::StateDict& values) {
  nn::StateDict state = variant.state_dict();
  for (const auto& [name, tensor] : values) {
    check(state.count(name) == 1, "conformance: ", name, " is not in the state");
    state[name] = tensor;
  }
  variant.load_state_dict(state);
}

Tensor identity(int64_t n) {
  Tensor out = Tensor::zeros({n, n}, DType::f64);
  for (int64_t i = 0; i < n; ++i) out.slice(0, i, i + 1).slice(1, i, i + 1).fill(1);
  return out;
}

OptionSet extended(OptionSet options, const OptionSet& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

void has_weights(Findings& f, const std::string& what, const std::string& name,
                 const OptionSet& options, const Formula& formula, double tolerance) {
  const Sample x;
  for (const bool causal : {false, true}) {
    const auto variant = make_variant(name, options, made(causal));
    const Variable expected =
        formula(Variable(x.q), Variable(x.k), definitions::visible(N, N, {.causal = causal}));
    equal(f, concat_message(what, causal ? " causal" : ""),
          weights(*variant, one(x.q, 0, N), one(x.k, 0, N)),
          expected.value().select(0, 0).select(0, 0), tolerance);
  }
}

void follows_parity(Findings& f, const std::string& name, const OptionSet& options,
                    const nn::StateDict& parameters) {
  constexpr int64_t N = 24;
  const auto variant =
      make_variant(name, options, {.heads = 1, .dim = 2, .max_length = N, .causal = true});
  set(*variant, parameters);
  Tensor x = Tensor::zeros({1, N, 2}, DType::f64), k = Tensor::zeros({1, N, 1, 2}, DType::f64),
         v = k.clone();
  const auto bit = [](int64_t i) { return i % 3 == 0 || i % 7 == 2; };
  for (int64_t i = 0; i < N; ++i) {
    x.data<double>()[2 * i + !bit(i)] = 1;
    k.data<double>()[2 * i] = 1e6;
  }
  v.data<double>()[0] = 1;
  const Tensor out =
      variant->forward({Variable(k), Variable(k), Variable(v), Variable(x)}, {}, {}).value();
  const double first = out.at({0, 0, 0, 0});
  double sign = 1, worst = 0;
  for (int64_t i = 1; i < N; ++i) {
    if (bit(i)) sign = -sign;
    worst = std::max(worst, std::abs(out.at({0, i, 0, 0}) / first - sign));
  }
  f.expect(worst <= 1e-9, "reads differ from the parity of the bits by ", worst);
  f.measured("parity to ", worst);
}

void definition(const Subject& s, Findings& f) {
  constexpr int64_t B = 2, H = 2, D = 4;
  for (const auto& lengths_of_batch :
       {std::vector<int32_t>{1, 1}, std::vector<int32_t>{13, 13}, std::vector<int32_t>{13, 8}}) {
    const int64_t N = lengths_of_batch[0];
    const auto variant = s.make();
    const Mask mask = lengths(lengths_of_batch);
    const Sample x = sample({B, N, H, D});
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    f.context(concat_message(lengths_of_batch[0], " and ", lengths_of_batch[1], " tokens"));
    const Variable weights = spec(s.name).weights(
        {.config = variant->config(),
         .q = q,
         .k = k,
         .x = inputs_of(*variant, q, k, v).x,
         .visible = definitions::visible(N, N, {.causal = s.causal, .lengths = mask.lengths}),
         .state = variant->state_dict()});
    const Variable out = definitions::apply(broadcast_to(weights, {B, H, N, N}), v);
    backward(out, x.cotangent);
    each_near(f, "compared with the definition", run(*variant, x, mask),
              {out.value(), gradient_or_zeros(q), gradient_or_zeros(k), gradient_or_zeros(v)},
              1e-11);
  }
}

Case small_case(double std, uint64_t seed, int64_t N, int64_t D) {
  const Shape shape{1, N, 1, D};
  Case c{normal(shape, seed, DType::f64, std),
         normal(shape, seed + 1, DType::f64, std),
         normal(shape, seed + 2, DType::f64, 1),
         {},
         {}};
  const Made made{.heads = 1, .dim = D, .max_length = N};
  c.exact = forward(*make_variant("softmax", {}, made), c.q, c.k, c.v);
  c.uniform = broadcast_to(mean(Variable(c.v), {1}, true), shape).value();
  return c;
}

double attention_error(const std::string& name, OptionSet options, int64_t m, const Case& c) {
  options.emplace_back("features", m);
  double squares = 0;
  constexpr int draws = 12;
  for (int i = 0; i < draws; ++i) {
    const auto variant = make_variant(name, options,
                                      {.heads = 1,
                                       .dim = c.q.size(3),
                                       .max_length = c.q.size(1),
                                       .seed = 100 + static_cast<uint64_t>(i)});
    squares += std::pow(relative_error(forward(*variant, c.q, c.k, c.v), c.exact), 2) / draws;
  }
  return std::sqrt(squares);
}

void rate(Findings& f, const Case& c, const Row& sizes, const std::string& what, double tolerance,
          const std::function<double(int64_t)>& error) {
  Row errors;
  for (const double m : sizes) errors.push_back(error(static_cast<int64_t>(m)));
  const double found = fit_power(sizes, errors).slope;
  f.measured("slope ", found, ", error ", errors.front(), " at ", sizes.front(), " ", what, ", ",
             errors.back(), " at ", sizes.back(), ", of uniform attention ",
             relative_error(c.uniform, c.exact));
  f.expect(std::abs(found + 0.5) <= tolerance, "expected the error to decrease as ", what,
           "^-0.5, got ^", found);
}

void rate(Findings& f, const std::string& name, const OptionSet& options) {
  const Case c = small_case(0.25, 21);
  rate(f, c, {16, 64, 256, 1024, 4096}, "features", 0.05,
       [&](int64_t m) { return attention_error(name, options, m, c); });
}

}  // namespace longhand::attention::conformance
