// Mamba-3: the state space of mamba2 with a state that rotates, discretised by the trapezoid rule.
// Lahoti et al. 2026 (arXiv 2603.15569), section 3, with one input and one output:
//
//   S_i = e^{g_i} (S_(i-1) + (1 - λ_i) Δ_i k'_(i-1) v_(i-1)ᵀ) + λ_i Δ_i k'_i v_iᵀ,   o_i = S_iᵀ q'_i / sqrt(D) + s v_i
//   g_i = -Δ_i A_i,   A_i = softplus(x_i W_A),   Δ_i = softplus(x_i P + b),   λ_i = sigmoid(x_i W_λ)
//   q'_i = R_i (norm(q_i) + c),   k'_i = R_i (norm(k_i) + d)
//
// where R_i rotates the pair of channels l and l + m of the first 2 m by θ_1l + … + θ_il,
// θ_i = π Δ_i tanh(x_i W_θ); s and b are learned for each head, c and d for each channel, and the
// norms have learned weights. The result is gated by silu(x W). A_i is at least 1e-4.
//
// Each token is written with two coefficients: in o_i, λ_i Δ_i for itself, and
// λ_j Δ_j + (1 - λ_(j+1)) Δ_(j+1) for earlier ones. So one scan over the previous tokens' keys and
// values suffices, and λ_i Δ_i (q'_i·k'_i) v_i is added to its sums:
//
//   T_i = e^{g_i} (T_(i-1) + k'_(i-1) (λ_(i-1) Δ_(i-1) + (1 - λ_i) Δ_i) v_(i-1)ᵀ) = S_i - λ_i Δ_i k'_i v_iᵀ
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>

#include "longhand/attention/bases/blocks.h"
#include "longhand/attention/bases/head_decay.h"
#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/bases/scan_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/mask.h"
#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/position.h"

namespace longhand::attention {
namespace {

struct Mamba3Options {
  std::string rotation = "half", rates = "softplus";
  bool trapezoid = true, bc_norm = true, bc_bias = true, skip = true, norm = false, gate = true;

  void describe(OptionVisitor& v) {
    v.choice("rotation", rotation, {"none", "half", "all"},
             "which channels of queries and keys rotate by angles computed from the tokens");
    v.boolean("trapezoid", trapezoid,
              "whether a token is written in two parts, the second one with the token after it");
    v.choice("rates", rates, {"softplus", "heavy_tail"},
             "rates A of y = x W_A: softplus(y), or 1 + y for y > 0 and 1 / (1 - y) otherwise");
    v.boolean("bc_norm", bc_norm,
              "whether queries and keys (C and B) are divided by their root mean square, with a "
              "learned weight");
    v.boolean("bc_bias", bc_bias,
              "whether a learned bias, initially 1, is added to queries and keys after that");
    v.boolean("skip", skip, "whether s v of the token itself is added, s learned for each head");
    describe_norm(v, norm);
    v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
  }
  ScanOutput output() const { return {.norm = norm, .gate = gate, .weight = true}; }
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
  int64_t angles(int64_t D) const {
    return rotation == "all" ? D / 2 : rotation == "half" ? (D / 2 + 1) / 2 : 0;
  }
};

class Mamba3 final : public ScanAttention {
 public:
  Mamba3(const nn::Scope& scope_, const Config& config, const Mamba3Options& options)
      : ScanAttention(scope_, config, options.output()),
        heavy_tail_(options.rates == "heavy_tail"),
        angles_(options.angles(config.head_dim)),
        step_(scope("step"), config.width(), config.heads, false, init()),
        rate_(scope("rate"), config.width(), config.heads, false, init()),
        step_bias_(scope("step_bias"), {config.heads}, fill_step_bias) {
    const int64_t H = config.heads, D = config.head_dim;
    if (options.trapezoid) blend_.emplace(scope("blend"), config.width(), H, false, init());
    if (angles_ > 0) angle_.emplace(scope("angle"), config.width(), angles_, false, init());
    if (options.bc_norm) {
      query_norm_.emplace(scope("query_norm"), Shape{D}, nn::init::ones());
      key_norm_.emplace(scope("key_norm"), Shape{D}, nn::init::ones());
    }
    if (options.bc_bias) {
      query_bias_.emplace(scope("query_bias"), Shape{H, D}, nn::init::ones());
      key_bias_.emplace(scope("key_bias"), Shape{H, D}, nn::init::ones());
    }
    if (options.skip) skip_.emplace(scope("skip"), Shape{H}, nn::init::ones());
    const auto h = static_cast<double>(H), w = static_cast<double>(config.width()),
               a = static_cast<double>(angles_);
    const double maps = options.trapezoid ? 3 : 2;
    token_ = {2 * w * (maps * h + a), (maps + 1) * h + a + 2 * h * a};
  }

  // Adds the operands and their inputs: keys before and after norm and rotation, shares of values.
  Work work(int64_t queries, int64_t keys) const override {
    const auto [N, M, H, D, bytes] = sizes(queries, keys);
    const double numbers = (query_norm_ ? 2 : 0) + (angles_ ? 2 : 0) + (blend_ ? 3 : 0);
    return ScanAttention::work(queries, keys) + Work{{}, {}, numbers * N * H * D * bytes};
  }

  std::unique_ptr<Decoder> make_decoder(int64_t batch) const override;

  /// What each token passes on to the next: its key, value and λ Δ.
  using Written = std::array<Variable, 3>;
  /// The context of a sequence: x of the token before each token, for x entry i of Written of all
  /// tokens; and the angles before its first token, (B, 1, H, m) f64, undefined for 0.
  struct Before {
    std::function<Variable(size_t i, const Variable& x)> token;
    std::function<Variable(const Variable& turned)> angle;
  };
  /// The operands of the scan, and the terms added to its sums (undefined: none). For the next
  /// token: what tokens write, and the angles up to each token (undefined: none).
  struct Sequence {
    ScanInputs scan;
    Variable added{}, turned{};
    Written written{};
  };
  Sequence sequence(const Inputs& in, const Before& before) const {
    Sequence out;
    const auto operand = [](Variable x, const auto& weight, const auto& bias) {
      if (weight) x = rms_norm(x, *weight, 1e-5);
      return bias ? x + *bias : x;
    };
    Variable q = operand(in.q, query_norm_, query_bias_), k = operand(in.k, key_norm_, key_bias_);
    const Variable step = softplus(step_.forward(in.x) + step_bias_),  // (B, N, H)
        log_decay = -(step * rates(rate_.forward(in.x)));
    if (angle_) {
      // Sums over tokens, in f64 for every dtype: a long sequence rotates many times.
      const Variable turn = unsqueeze(tanh(angle_->forward(in.x)) * std::numbers::pi, 2);
      out.turned = cumsum(cast(turn * unsqueeze(step, 3), DType::f64), 1);  // (B, N, H, m)
      if (const Variable start = before.angle(out.turned); start.defined())
        out.turned = out.turned + start;
      const Variable turns = cast(cos_sin(out.turned), in.q.dtype());
      q = rotate_pairs(q, turns);
      k = rotate_pairs(k, turns);
    }
    if (!blend_) {
      out.scan = {q, k, in.v * unsqueeze(step, 3), log_decay};
      return out;
    }
    const Variable own = sigmoid(blend_->forward(in.x)) * step;  // λ Δ
    out.written = {k, in.v, own};
    Written last;
    for (size_t i = 0; i < last.size(); ++i) last[i] = before.token(i, out.written[i]);
    const Variable share = exp(log_decay) * (last[2] + step - own);
    out.scan = {q, last[0], last[1] * unsqueeze(share, 3), log_decay};
    out.added = in.v * (unsqueeze(own, 3) * sum(q * k, {3}, true));
    return out;
  }

  ScanInputs operands(const Inputs& in) const override { return sequence(in, first_of({})).scan; }
  ScanInputs padded_operands(const Inputs& in, const Tensor& lengths) const override {
    return without_padding(operands(in), lengths);
  }

 private:
  // PyTorch's default initialisation, which the authors' code uses.
  nn::Init init() const {
    return nn::init::uniform(1 / std::sqrt(static_cast<double>(config().width())));
  }
  // Not below 1e-4, so that the state forgets.
  Variable rates(const Variable& y) const {
    constexpr double least = 1e-4;
    const Variable one(Tensor::full({1}, 1, y.dtype()));
    const Variable rate = heavy_tail_ ? relu(y) + one / (1 + relu(-y)) : softplus(y);
    return relu(rate - least) + least;
  }
  // The context of parts of sequences; null: of whole sequences.
  static Before first_of(const std::shared_ptr<const Join>& join) {
    return {[join](size_t, const Variable& x) {
              const int64_t N = x.size(1);
              return join ? slice(join->with_neighbours(x, 1, 0), 1, 0, N)
                          : padded(slice(x, 1, 0, N - 1), 1, 0);
            },
            [join](const Variable& turned) {
              const int64_t N = turned.size(1);
              return join ? sum_before(slice(turned, 1, N - 1, N), *join) : Variable();
            }};
  }

  // Padding leaves the state unchanged: it has no decay and does not write the token before it.
  static ScanInputs without_padding(ScanInputs of, const Tensor& lengths) {
    of.log_decay = without_decay_of_padding(of.log_decay, lengths);
    if (lengths.defined()) of.v = where(real_tokens(lengths, of.v.size(1)), of.v, 0.0);
    return of;
  }

  Variable attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) override {
    Sequence of = sequence(in, first_of(pass.join));
    of.scan = without_padding(of.scan, lengths_from(mask.lengths, pass.tokens.first, in.q.size(1)));
    const ScanOptions options{.normalizer = false, .final_state = false, .join = pass.join};
    const Variable sums = scan(of.scan, nullptr, options).out;
    return finished(of.added.defined() ? sums + of.added : sums, in);
  }

  bool heavy_tail_;
  int64_t angles_;                                      // m
  nn::Linear step_, rate_;                              // P, W_A
  nn::Parameter step_bias_;                             // b (H)
  std::optional<nn::Linear> blend_, angle_;             // W_λ, W_θ
  std::optional<nn::Parameter> query_norm_, key_norm_;  // (D)
  std::optional<nn::Parameter> query_bias_, key_bias_;  // c, d (H, D)
};

// Decodes one token at a time.
class Mamba3Decoder final : public Decoder {
 public:
  Mamba3Decoder(const Mamba3& of, int64_t batch) : of_(of), batch_(batch) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const Inputs in = sequences_of(token, batch_, of_.config().heads);
    const Mamba3::Sequence of = of_.sequence(
        in,
        {[this](size_t i, const Variable& x) {
           return written_[i].defined() ? Variable(written_[i])
                                        : Variable(Tensor::zeros(x.shape(), x.dtype()));
         },
         [this](const Variable&) { return turned_.defined() ? Variable(turned_) : Variable(); }});
    const auto now = [](const Variable& x) { return x.value().squeeze(1); };
    const ScanInputs& s = of.scan;
    const Tensor sums =
        scan_step(state_, {now(s.q), now(s.k), now(s.v), now(s.log_decay)}, Normalizer::none);
    for (size_t i = 0; i < written_.size(); ++i)
      if (of.written[i].defined()) written_[i] = of.written[i].value();
    if (of.turned.defined()) turned_ = of.turned.value();
    const Variable read(sums.unsqueeze(1));
    return of_.finished(of.added.defined() ? read + of.added : read, in).value().squeeze(1);
  }
  int64_t bytes() const override {
    int64_t total = state_.S.value().bytes() + turned_.bytes();
    for (const Tensor& x : written_) total += x.bytes();
    return total;
  }

 private:
  const Mamba3& of_;
  int64_t batch_;
  ScanState state_;
  Tensor turned_;                    // of the last token
  std::array<Tensor, 3> written_{};  // by it
};

std::unique_ptr<Decoder> Mamba3::make_decoder(int64_t batch) const {
  return std::make_unique<Mamba3Decoder>(*this, batch);
}

using namespace conformance;

const OptionSet plain_mamba3{
    {"bc_norm", false}, {"bc_bias", false}, {"skip", false}, {"gate", false}};

void mamba3_limits(Findings& f) {
  const auto variant = make_variant("mamba3",
                                    {{"rotation", "none"},
                                     {"trapezoid", false},
                                     {"bc_norm", false},
                                     {"bc_bias", false}},
                                    made(true)),
             mamba2 = make_variant("mamba2", {{"norm", false}}, made(true));
  // softplus(0) = log 2.
  set(*mamba2, {{"log_rate", Tensor::full({H}, std::log(std::numbers::ln2), DType::f64)}});
  nn::StateDict values = mamba2->state_dict();
  values.erase("log_rate");
  values["rate.weight"] = Tensor::zeros({H, H * D}, DType::f64);
  set(*variant, values);
  equal(f, "without rotation and trapezoid, and mamba2", *variant, *mamba2, 1e-12);
}

void mamba3_weights(Findings& f) {
  const auto variant = make_variant("mamba3", plain_mamba3, made(true));
  const Sample x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const auto state = variant->state_dict();
  const Variable tokens(q.contiguous().reshape({1, N, H * D}));
  const auto of = [&](const char* name) { return linear(tokens, Variable(state.at(name))); };
  const Variable steps = softplus(of("step.weight") + Variable(state.at("step_bias")));
  const Variable expected = definitions::mamba3(
      Variable(q) / 2, Variable(k), steps, sigmoid(of("blend.weight")),
      -(steps * softplus(of("rate.weight"))),
      unsqueeze(steps, 3) * unsqueeze(std::numbers::pi * tanh(of("angle.weight")), 2));
  equal(f, "weights", weights(*variant, q, k), expected.value().select(0, 0).select(0, 0), 1e-13);
}

// Steps of 1, and angles 10000^(-2 l / D): those of rotary positions.
void mamba3_rotary(Findings& f) {
  const auto turning =
                 make_variant("mamba3", extended(plain_mamba3, {{"rotation", "all"}}), made(true)),
             still =
                 make_variant("mamba3", extended(plain_mamba3, {{"rotation", "none"}}), made(true));
  nn::StateDict values = still->state_dict();
  values["step.weight"] = Tensor::zeros({H, H * D}, DType::f64);
  values["step_bias"] = Tensor::full({H}, std::log(std::expm1(1.0)), DType::f64);
  set(*still, values);
  Tensor angles = Tensor::zeros({D / 2, H * D}, DType::f64);
  for (int64_t l = 0; l < D / 2; ++l)
    angles.data<double>()[l * H * D] = std::atanh(
        std::pow(10000, -2.0 * static_cast<double>(l) / static_cast<double>(D)) / std::numbers::pi);
  values["angle.weight"] = angles;
  set(*turning, values);
  const Sample s;
  const Variable q(s.q), k(s.k), v(s.v), turns = nn::turns_of_positions(0, N, D, DType::f64);
  // The same token everywhere, with first channel 1.
  Tensor first = Tensor::zeros({2, N, H * D}, DType::f64);
  first.select(2, 0).fill(1);
  const Variable one_token(first);
  equal(f, "constant angles and rotary positions",
        turning->forward({q, k, v, one_token}, {}, {}).value(),
        still->forward({rotate_pairs(q, turns), rotate_pairs(k, turns), v, one_token}, {}, {})
            .value(),
        1e-12);
}

// A step of 1 and an angle of π at bit 1, and no angle at bit 0. The state decays at the lowest
// rate, which the norm of the result cancels.
void mamba3_parity(Findings& f) {
  const OptionSet options =
      extended(plain_mamba3, {{"rotation", "all"}, {"trapezoid", false}, {"norm", true}});
  follows_parity(f, "mamba3", options,
                 {{"step.weight", Tensor::zeros({1, 2}, DType::f64)},
                  {"step_bias", Tensor::full({1}, std::log(std::expm1(1.0)), DType::f64)},
                  {"rate.weight", Tensor::full({1, 2}, -800, DType::f64)},
                  {"angle.weight", Tensor::from<double>({400, 0}, {1, 2})}});
}

}  // namespace

Spec mamba3_variant() {
  return make_spec<Mamba3Options, Mamba3>(
      {.summary = "mamba2 with a state that rotates, discretised by the trapezoid rule",
       .paper = "Lahoti et al. 2026, arXiv 2603.15569",
       .cases = {{},
                 {{"rotation", "all"}, {"rates", "heavy_tail"}, {"norm", true}, {"gate", false}},
                 {{"rotation", "none"}, {"bc_norm", false}, {"skip", false}},
                 {{"trapezoid", false}, {"bc_bias", false}}},
       .evidence = {
           {"mamba2", "without rotation, trapezoid, norm and biases it is mamba2", mamba3_limits},
           {"trapezoid-weights",
            "rotated keys, each with its own share and that of the token behind it",
            mamba3_weights},
           {"rotary", "with constant angles it has rotary positions", mamba3_rotary},
           {"parity", "rotations by π follow the parity of bits", mamba3_parity}}});
}

}  // namespace longhand::attention
