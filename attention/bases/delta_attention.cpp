#include "longhand/attention/bases/delta_attention.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/mask.h"
#include "longhand/autograd/fixed_weights.h"

namespace longhand::attention {
namespace {

class DeltaDecoder final : public Decoder {
 public:
  DeltaDecoder(const DeltaAttention& of, int64_t batch) : of_(of), batch_(batch) {}

  Tensor step(const Token& token) override {
    const NoGrad no_grad;
    const FixedWeights::Use use(weights_);
    const Inputs in = sequences_of(token, batch_, of_.config().heads);
    const DeltaInputs of = of_.operands(in);
    Tensor reads;
    for (int64_t step = 0; step < of.k.size(1); ++step) {
      DeltaOperands<Tensor> one = of.each([&](const Variable& x) {
        return x.defined() ? x.value().select(1, x.size(1) == 1 ? 0 : step) : Tensor();
      });
      if (step > 0) one.log_decay = {};  // it belongs to the token
      reads = of_.advance(state_, one);
    }
    return of_.finished(Variable(reads.unsqueeze(1)), of, in).value().squeeze(1);
  }
  int64_t bytes() const override { return state_[0].bytes() + state_[1].bytes(); }

 private:
  const DeltaAttention& of_;
  int64_t batch_;
  DeltaAttention::State state_;
  FixedWeights weights_;
};

}  // namespace

void describe_negative(OptionVisitor& v, bool& negative) {
  v.boolean("negative", negative,
            "whether eigenvalues of transitions may be as low as -1, so that a token may reverse "
            "what its "
            "key holds");
}

void DeltaRuleOptions::describe(OptionVisitor& v) {
  v.boolean("silu", silu, "whether queries and keys pass through silu before they are normalised");
  describe_negative(v, negative);
  describe_norm(v, norm);
}

void GatedDeltaOptions::describe(OptionVisitor& v) {
  DeltaRuleOptions::describe(v);
  v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
}

ChannelDeltaOptions ChannelDeltaOptions::defaults(const Config& config) {
  ChannelDeltaOptions options;
  options.rank = config.head_dim;
  return options;
}

void ChannelDeltaOptions::describe(OptionVisitor& v) {
  DeltaRuleOptions::describe(v);
  v.boolean("gate", gate, "whether the result is gated by a sigmoid of the tokens");
  v.integer("rank", rank, {1, 1 << 20}, "rank r of the maps from tokens to decays and gates",
            "the dimension of a head");
}

DeltaInputs DeltaAttention::padded_operands(const Inputs& in, const Tensor& lengths) const {
  DeltaInputs of = operands(in);
  of.log_decay = without_decay_of_padding(of.log_decay, lengths);
  return of;
}

Tensor DeltaAttention::advance(State& state, const DeltaOperands<Tensor>& of) const {
  return delta_step(state[0], of);
}

Variable DeltaAttention::attend(const Inputs& in, const Mask& mask, const nn::Pass& pass) {
  const int64_t N = in.q.size(1);
  const DeltaInputs of = padded_operands(in, lengths_from(mask.lengths, pass.tokens.first, N));
  return finished(delta_scan(of, {}, {.final_state = false, .join = pass.join}).out, of, in);
}

UnitDeltaAttention::UnitDeltaAttention(const nn::Scope& scope_, const Config& config,
                                       const DeltaRuleOptions& options, const DeltaRuleKind& kind)
    : DeltaAttention(scope_, config), options_(options), steps_(kind.steps) {
  const int64_t H = config.heads, D = config.head_dim;
  if (kind.beta) {
    beta_.emplace(scope("beta"), H * D, H, false);
    add_work({static_cast<double>(2 * H * D * H), static_cast<double>(kind.steps * H)});
  }
  if (options.norm) norm_.emplace(scope("norm"), Shape{D}, nn::init::ones());
  const auto d = static_cast<double>(D);
  unit_ = Variable(Tensor::full({D}, 1 / std::sqrt(d), parameter_dtype()));
  unit_scaled_ = Variable(Tensor::full({D}, 1 / d, parameter_dtype()));
}

void UnitDeltaAttention::add_work(const Work::Counts& token) {
  token_.flops += token.flops;
  token_.exponentials += token.exponentials;
}

Variable UnitDeltaAttention::log_decay(const Variable&) const { return {}; }
UnitDeltaAttention::Gate UnitDeltaAttention::gate(const Variable& x) const {
  return {gate_ ? gate_->forward(x).eval() : Variable()};
}
void UnitDeltaAttention::add_gate() {
  const int64_t width = config().width();
  gate_.emplace(scope("gate"), width, width, false);
  const auto w = static_cast<double>(width);
  add_work({2 * w * w, w});
}

Variable UnitDeltaAttention::unit(const Variable& x, const Variable& factor) const {
  const double eps = eps_of_length / static_cast<double>(x.size(3));
  return options_.silu ? silu_rms_norm(x, factor, eps) : rms_norm(x, factor, eps);
}
Variable UnitDeltaAttention::unit_keys(const Variable& k) const { return unit(k, unit_); }

Variable UnitDeltaAttention::strengths(const Variable& logits) const {
  const Variable beta = sigmoid(logits);
  return options_.negative ? 2 * beta : beta;
}

DeltaInputs UnitDeltaAttention::operands(const Inputs& in) const {
  DeltaInputs out{unit(in.q, unit_scaled_), unit(in.k, unit_), in.v};
  if (beta_) out.beta = strengths(beta_->forward(in.x));  // (B, N, H)
  out.log_decay = log_decay(in.x);
  return out;
}

Variable UnitDeltaAttention::finished(const Variable& reads, const DeltaInputs&,
                                      const Inputs& in) const {
  const auto [logits, function] = gate(in.x);
  GatedOptions options{.function = function};
  if (norm_) options.norm = {.weight = *norm_, .centred = false};
  return gated(reads, logits.defined() ? reshape(logits, reads.shape()) : logits, options);
}

GatedDeltaAttention::GatedDeltaAttention(const nn::Scope& scope_, const Config& config,
                                         const GatedDeltaOptions& options, int64_t steps)
    : UnitDeltaAttention(scope_, config, options, {.steps = steps}),
      decay_(scope("step"), scope("step_bias"), scope("log_rate"), config) {
  add_work(HeadDecay::work(config));
  if (options.gate) add_gate();
}

ChannelDeltaAttention::ChannelDeltaAttention(const nn::Scope& scope_, const Config& config,
                                             const ChannelDeltaOptions& options,
                                             const DeltaRuleKind& kind)
    : UnitDeltaAttention(scope_, config, options, kind),
      decay_down_(scope("decay_down"), config.width(), options.rank, false),
      decay_up_(scope("decay_up"), options.rank, config.width(), false),
      step_bias_(scope("step_bias"), {config.heads, config.head_dim}, fill_step_bias),
      log_rate_(scope("log_rate"), {config.heads, 1}, fill_log_rate) {
  const int64_t width = config.width();
  if (options.gate) {
    gate_down_.emplace(scope("gate_down"), width, options.rank, false);
    gate_up_.emplace(scope("gate_up"), options.rank, width);
  }
  const double w = static_cast<double>(width), maps = options.gate ? 2 : 1;
  add_work({maps * low_rank_flops(w, static_cast<double>(options.rank)), (2 + maps) * w});
}

Variable ChannelDeltaAttention::log_decay(const Variable& x) const {
  const Variable steps = low_rank_map(x, decay_down_.weight, decay_up_.weight, step_bias_);
  const Shape heads{x.size(0), x.size(1), step_bias_.size(0), step_bias_.size(1)};
  return softplus(reshape(steps, heads)) * -exp(log_rate_);  // (B, N, H, D)
}

UnitDeltaAttention::Gate ChannelDeltaAttention::gate(const Variable& x) const {
  return {gate_up_ ? low_rank_map(x, gate_down_->weight, gate_up_->weight, *gate_up_->bias)
                   : Variable(),
          GateFunction::sigmoid};
}

Variable low_rank_map(const Variable& x, const Variable& down, const Variable& up,
                      const Variable& bias) {
  const int64_t tokens = x.size(0) * x.size(1), in = down.size(1), r = down.size(0),
                out = up.size(0);
  const Variable b = bias.defined() ? reshape(bias, {out}) : bias;
  if ((tokens + r) * in * out < tokens * r * (in + out)) return linear(x, matmul(up, down), b);
  return linear(linear(x, down), up, b);
}
double low_rank_flops(double width, double rank) { return 2 * width * std::min(2 * rank, width); }

std::unique_ptr<Decoder> DeltaAttention::make_decoder(int64_t batch) const {
  return std::make_unique<DeltaDecoder>(*this, batch);
}

// Per token: three products with the state and, for blocks of C tokens, products of C / 2 queries
// or keys with keys and of as many weights with values, for reads and for writes. Gradients solve
// the blocks again and take two products for each of these; one in four states between blocks is
// kept. Or one block without a state, whose weights and errors are kept, if that is less. Separate
// keys for values add a product with the state and double those of pairs. Queries are per token.
Work delta_work(int64_t tokens, int64_t dim, DType dtype, bool write, int64_t steps) {
  const auto N = static_cast<double>(steps * tokens), D = static_cast<double>(dim),
             C = static_cast<double>(delta_block), bytes = static_cast<double>(size_of(dtype));
  const double sources = write ? 2 : 1, q = 1 / static_cast<double>(steps);  // queries per step
  const Work blocks{{N * D * ((2 + 2 * sources + 2 * q) * D + (2 + 2 * q) * sources * C)},
                    {N * D * ((6 + 6 * sources + 4 * q) * D + (6 + 5 * q) * sources * C)},
                    std::ceil(N / (4 * C)) * D * D * bytes},
      one{{N * D * (2 + 2 * q) * sources * N},
          {N * D * (4 + 4 * q) * sources * N},
          N * ((1 + q) * sources * N + D) * bytes};
  const auto flops = [](const Work& x) { return x.forward.flops + x.backward.flops; };
  return flops(one) < flops(blocks) ? one : blocks;
}

Work UnitDeltaAttention::rule_work(int64_t tokens) const {
  return delta_work(tokens, config().head_dim, parameter_dtype(), false, steps_);
}

// The rule, with queries and keys scaled to unit norm.
Work UnitDeltaAttention::work(int64_t queries, int64_t keys) const {
  const auto [N, M, H, D, bytes] = sizes(queries, keys);
  const double width = H * D, rows = 1 + static_cast<double>(steps_);  // queries and keys
  const double units = N * width * rows;
  const double exponentials = token_.exponentials + (options_.silu ? rows * width : 0);
  return H * rule_work(queries) + Work{{N * token_.flops, N * exponentials},
                                       {2 * N * token_.flops, N * exponentials},
                                       units * bytes};
}

}  // namespace longhand::attention
