// mamba3; the suite of conformance/ tests what holds for every variant.
#include <numbers>

#include "longhand/autograd/ops.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

using State = nn::StateDict;

double sigmoid_of(double y) { return 1 / (1 + std::exp(-y)); }

// The recurrence at the top of the variant's file, token by token, for one sequence and head 0 of 1 head: before norm
// and gate.
Tensor recurrence(const State& p, const ScanCase& c, bool trapezoid, bool heavy_tail) {
  const int64_t N = c.q.size(1), D = c.q.size(3),
                m = p.count("angle.weight") ? p.at("angle.weight").size(0) : 0;
  Tensor out = Tensor::zeros(c.q.shape(), DType::f64);
  std::vector<double> S(D * D), k0(D), v0(D), turned(m);
  const auto map = [&](const char* name, int64_t row, int64_t i) {
    double sum = 0;
    for (int64_t l = 0; l < D; ++l) sum += p.at(name).at({row, l}) * c.x.at({0, i, l});
    return sum;
  };
  for (int64_t i = 0; i < N; ++i) {
    const double step = std::log1p(std::exp(map("step.weight", 0, i) + p.at("step_bias").at({0}))),
                 y = map("rate.weight", 0, i);
    const double rate = heavy_tail ? (y > 0 ? 1 + y : 1 / (1 - y)) : std::log1p(std::exp(y));
    const double decay = std::exp(-step * std::max(rate, 1e-4)),
                 blend = trapezoid ? sigmoid_of(map("blend.weight", 0, i)) : 1;
    for (int64_t l = 0; l < m; ++l)
      turned[l] += std::numbers::pi * step * std::tanh(map("angle.weight", l, i));
    const auto operand = [&](const Tensor& t, const char* weight, const char* bias) {
      std::vector<double> z(D);
      double square = 0;
      for (int64_t l = 0; l < D; ++l)
        square += std::pow(t.at({0, i, 0, l}), 2) / static_cast<double>(D);
      for (int64_t l = 0; l < D; ++l)
        z[l] = t.at({0, i, 0, l}) / std::sqrt(square + 1e-5) * p.at(weight).at({l}) +
               p.at(bias).at({0, l});
      for (int64_t l = 0; l < m; ++l) {
        const double a = z[l], b = z[l + m];
        z[l] = a * std::cos(turned[l]) - b * std::sin(turned[l]);
        z[l + m] = a * std::sin(turned[l]) + b * std::cos(turned[l]);
      }
      return z;
    };
    const auto q = operand(c.q, "query_norm", "query_bias"),
               k = operand(c.k, "key_norm", "key_bias");
    for (int64_t e = 0; e < D; ++e) {
      const double v = c.v.at({0, i, 0, e});
      double sum = 0;
      for (int64_t l = 0; l < D; ++l) {
        double& s = S[l * D + e];
        s = decay * (s + (1 - blend) * step * k0[l] * v0[e]) + blend * step * k[l] * v;
        sum += s * q[l];
      }
      out.data<double>()[i * D + e] =
          sum / std::sqrt(static_cast<double>(D)) + p.at("skip").at({0}) * v;
    }
    k0 = k;
    for (int64_t e = 0; e < D; ++e) v0[e] = c.v.at({0, i, 0, e});
  }
  return out;
}

Options mamba3(const Settings& settings) { return options_of(settings); }

}  // namespace

TEST_CASE("mamba3 equals its recurrence") {
  const std::string rotation = GENERATE("none", "half", "all"),
                    rates = GENERATE("softplus", "heavy_tail");
  const bool trapezoid = GENERATE(false, true);
  INFO(rotation << " " << rates << " trapezoid " << trapezoid);
  const int64_t N = 140;
  const auto variant = make_variant(
      "mamba3", {.heads = 1, .dim = 6, .max_length = N, .causal = true},
      mamba3(
          {{"rotation", rotation}, {"rates", rates}, {"trapezoid", trapezoid}, {"gate", false}}));
  auto state = variant->state_dict();
  uint64_t seed = 10;
  for (const char* name : {"query_norm", "key_norm", "query_bias", "key_bias", "skip", "step_bias"})
    copy_into(state.at(name), normal(state.at(name).shape(), ++seed));
  for (const int64_t n : {1, 7, 48, 49, 140}) {
    const ScanCase c(1, n, 1, 6);
    const Tensor expected = recurrence(state, c, trapezoid, rates == "heavy_tail");
    CHECK(near(variant->forward(c.inputs(), {}, {}).value(), expected, 1e-12));
  }
}

TEST_CASE("mamba3: a sample of a batch gives what it gives alone") {
  const auto variant = make_variant("mamba3", {.max_length = 60, .causal = true});
  check_samples(*variant, Operands({3, 60, 2, 4}), {60, 17, 1}, 1e-12, 1e-11);
}

TEST_CASE("mamba3: half of the channels rotate, or all") {
  for (const auto& [D, half, all] :
       {std::array<int64_t, 3>{1, 0, 0}, {2, 1, 1}, {4, 1, 2}, {8, 2, 4}, {128, 32, 64}}) {
    const auto angles = [&, D = D](const char* rotation) {
      const auto state = make_variant("mamba3", {.dim = D, .causal = true},
                                      mamba3({{"rotation", std::string(rotation)}}))
                             ->state_dict();
      return state.count("angle.weight") ? state.at("angle.weight").size(0) : 0;
    };
    CHECK(angles("none") == 0);
    CHECK(angles("half") == half);
    CHECK(angles("all") == all);
  }
}

TEST_CASE("mamba3: rates are at least 1e-4") {
  const auto variant = make_variant("mamba3", {.heads = 1, .dim = 2, .causal = true}, mamba3({}));
  auto state = variant->state_dict();
  state.at("rate.weight").fill(-800);
  state.at("step.weight").fill(0);
  state.at("step_bias").fill(std::log(std::expm1(1.0)));
  ScanCase c(1, 4, 1, 2);
  c.x.fill(1);
  const Tensor g =
      dynamic_cast<attention::ScanAttention&>(*variant).operands(c.inputs()).log_decay.value();
  CHECK(near(g, Tensor::full({1, 4, 1}, -1e-4, DType::f64), 1e-15));
}

TEST_CASE("mamba3: f32 over 65,536 tokens is near f64, for decays near 0 and near 1") {
  const double bias = GENERATE(-12.0, -4.0, 2.0);
  const auto of = [&](DType dtype) {
    return make_variant("mamba3", {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        mamba3({{"rotation", std::string("all")}, {"gate", false}}));
  };
  const auto narrow = of(DType::f32), wide = of(DType::f64);
  narrow->state_dict().at("step_bias").fill(bias);
  const LongErrors e = long_errors(*narrow, *wide, 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-5);
  // The gradient of an angle is a sum over all later tokens, of which large steps leave next to nothing but the
  // rounding errors.
  CHECK(e.gradients < (bias > 0 ? 5e-3 : 1e-4));
}

TEST_CASE("mamba3: decoding gives the rows of the whole sequence, and its state stays small") {
  const DType dtype = GENERATE(DType::f64, DType::f32);
  const std::string rotation = GENERATE("none", "half");
  const bool trapezoid = GENERATE(false, true);
  const int64_t B = 2, N = 140, H = 4, G = 2, D = 4, m = rotation == "none" ? 0 : 1;
  const auto variant = make_variant(
      "mamba3", {.heads = H, .max_length = N, .kv_heads = G, .causal = true, .dtype = dtype},
      mamba3({{"rotation", rotation}, {"trapezoid", trapezoid}, {"norm", true}}));
  const Tensor q = normal({B, N, H, D}, 1, dtype), k = normal({B, N, G, D}, 2, dtype),
               v = normal({B, N, G, D}, 3, dtype), x = normal({B, N, H * D}, 4, dtype);
  const Tensor expected =
      variant->forward({Variable(q), Variable(k), Variable(v), Variable(x)}, {}, {}).value();
  const auto decoder = variant->decoder(B);
  Tensor out = Tensor::empty(q.shape(), dtype);
  for (int64_t t = 0; t < N; ++t)
    copy_into(out.select(1, t),
              decoder->step({q.select(1, t), k.select(1, t), v.select(1, t), x.select(1, t)}));
  CHECK(near(out, expected, dtype == DType::f64 ? 1e-11 : 1e-4));
  const int64_t row = trapezoid ? (2 * D + 1) * static_cast<int64_t>(size_of(dtype)) : 0;
  CHECK(decoder->bytes() == B * H * ((D * D + m) * 8 + row));
}
