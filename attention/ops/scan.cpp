#include "longhand/attention/ops/scan.h"

#include <limits>
#include <utility>
#include <vector>

#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/tile/scan_passes.h"
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand::attention {
namespace {

using namespace tile;

ScanPasses passes_of(const ScanRule& rule, DType dtype) {
  if (rule.channels) return channel_passes(dtype);
  const bool rows = !rule.features.projection.defined() && !rule.features.exponentials;
  return rows && !rule.reverse ? head_passes(dtype) : feature_passes(dtype);
}

// ---- states as operands: (B, H, size), S followed by z ------------------------------------------

Variable pack(const ScanState& state) {
  const Shape& s = state.S.shape();
  const Variable S = reshape(state.S, {s[0], s[1], s[2] * s[3]});
  return state.z.defined() ? concat({S, state.z}, 2) : S;
}
ScanState unpack(const Variable& states, const StateShape& shape) {
  const int64_t B = states.size(0), H = states.size(1), products = shape.m * shape.E;
  if (!shape.normalizer) return {reshape(states, {B, H, shape.m, shape.E})};
  return {reshape(slice(states, 2, 0, products), {B, H, shape.m, shape.E}),
          slice(states, 2, products, shape.size())};
}

// The scale of a state or a decay, as exponents of Base: (B, H, rows); 0 if undefined.
Tensor exponents(const char* what, const Variable& x, const Shape& S, int64_t rows, DType dtype) {
  const Shape head{S[0], S[1]}, channel{S[0], S[1], S[2]};
  if (!x.defined()) return Tensor::zeros({S[0], S[1], rows}, dtype);
  check<ShapeError>((x.shape() == head || x.shape() == channel) && x.dtype() == dtype,
                    "scan: expected ", what, " of shape ", head, " or ", channel, " and ", dtype,
                    ", got ", x.shape(), " of ", x.dtype());
  const Tensor t = x.rank() == 2 ? x.value().unsqueeze(2) : x.value();
  return ops::pointwise([]<class T>(T y) { return y * static_cast<T>(Base<T>::log_e); },
                        t.expand({S[0], S[1], rows}).contiguous());
}

void check_state(const char* what, const ScanState& state) {
  check<ShapeError>(state.S.defined() && state.S.rank() == 4 && state.S.shape().numel() > 0,
                    "scan: expected ", what, " with S (B, H, m, E), nothing empty, got ",
                    state.S.shape());
  const Shape& s = state.S.shape();
  const Shape of_z{s[0], s[1], s[2]};
  const DType dtype = state.S.dtype();
  check<ShapeError>(is_float(dtype) && (!state.z.defined() ||
                                        (state.z.shape() == of_z && state.z.dtype() == dtype)),
                    "scan: expected ", what, " with S of floats and z ", of_z, " of the same, got ",
                    dtype, " and ", state.z.defined() ? state.z.shape() : of_z, " of ",
                    state.z.defined() ? state.z.dtype() : dtype);
}

// The sizes of a scan. Checks its operands.
ScanRule rule_of(const ScanInputs& inputs, bool initial, const ScanOptions& options) {
  const Shape &qs = inputs.q.shape(), &ks = inputs.k.shape(), &vs = inputs.v.shape();
  check<ShapeError>(qs.rank() == 4 && ks == qs && vs.rank() == 4 && vs[0] == qs[0] &&
                        vs[1] == qs[1] && vs[2] == qs[2] && qs.numel() > 0 && vs.numel() > 0,
                    "scan: expected q and k (B, N, H, D) and v (B, N, H, E), nothing empty, got q ",
                    qs, ", k ", ks, ", v ", vs);
  const DType dtype = inputs.q.dtype();
  check_one_float_dtype("scan", dtype, inputs.k.dtype(), inputs.v.dtype());
  const Variable& g = inputs.log_decay;
  const bool decays = g.defined(), channels = decays && g.rank() == 4;
  check<ShapeError>(
      !decays || (g.dtype() == dtype &&
                  (channels ? g.shape() == qs : g.shape() == Shape{qs[0], qs[1], qs[2]})),
      "scan: expected a log_decay ", Shape{qs[0], qs[1], qs[2]}, " or ", qs, " of ", dtype,
      ", got ", decays ? g.shape() : Shape{}, " of ", g.dtype());
  check<ShapeError>(
      !channels || !options.features.exponentials,
      "scan: expected a log_decay with one value per head for exponentials, got one with "
      "one value per channel");
  check<ShapeError>(!channels || !options.reverse,
                    "scan: expected a log_decay with one value per head for a scan in reverse");
  check<ShapeError>(!options.features.waves, "scan: expected features without waves");
  const FeatureRule features = feature_rule("scan", inputs.q, options.features);
  const int64_t m = features.m, E = vs[3],
                tokens = tokens_of_block("scan", options.block, vs[1], 4 * m + 3 * E, 7 * m * E,
                                         initial);
  return {{vs[0], vs[1], vs[2], m, E, initial, tokens}, features, inputs, options};
}

void check_initial(const ScanRule& rule, const ScanState& initial, DType dtype) {
  check_state("an initial state", initial);
  const Shape expected{rule.B, rule.H, rule.m, rule.E};
  check<ShapeError>(initial.S.shape() == expected && initial.S.dtype() == dtype &&
                        initial.z.defined() == rule.normalizer,
                    "scan: expected an initial state with S ", expected, " of ", dtype,
                    rule.normalizer ? " and z" : " and no z", ", got ", initial.S.shape(), " of ",
                    initial.S.dtype());
  check<ShapeError>(initial.log_scale.defined() == rule.features.exponentials,
                    "scan: expected an initial state ",
                    rule.features.exponentials ? "with" : "without", " a log_scale");
}

}  // namespace

ScanState combine(const ScanState& left, const ScanState& right, const Variable& log_decay) {
  check_state("a left state", left);
  check_state("a right state", right);
  const Shape& S = left.S.shape();
  const DType dtype = left.S.dtype();
  check<ShapeError>(
      right.S.shape() == S && right.S.dtype() == dtype && left.z.defined() == right.z.defined(),
      "scan: expected states of the same shapes and dtype, both with z or both without, got S ", S,
      " and ", right.S.shape());
  bool channels = false;
  for (const Variable* x : {&left.log_scale, &right.log_scale, &log_decay})
    channels = channels || (x->defined() && x->rank() == 3);
  const int64_t rows = channels ? S[2] : 1;
  const Tensor a = exponents("a log_scale", left.log_scale, S, rows, dtype),
               b = exponents("a log_scale", right.log_scale, S, rows, dtype),
               g = exponents("a log_decay", log_decay, S, rows, dtype);
  Tensor scale = Tensor::empty(a.shape(), dtype), left_factors = Tensor::empty(a.shape(), dtype),
         right_factors = Tensor::empty(a.shape(), dtype);
  dispatch_float(dtype, [&]<class T>() {
    for (int64_t i = 0; i < a.numel(); ++i) {
      const JoinFactors<T> join = join_of(a.data<T>()[i] + g.data<T>()[i], b.data<T>()[i]);
      scale.data<T>()[i] = join.scale / static_cast<T>(Base<T>::log_e);
      left_factors.data<T>()[i] = join.left_factor;
      right_factors.data<T>()[i] = join.right_factor;
    }
  });
  Variable from_left(left_factors), from_right(right_factors);  // (B, H, rows)
  if (log_decay.defined()) {
    // A factor of 1 that carries the gradient of the decay; the gradient is 0 where the decay is
    // -inf.
    const Variable x = relu((log_decay.rank() == 2 ? unsqueeze(log_decay, 2) : log_decay) + 1e30);
    from_left = from_left * (x - x.detach() + 1);
  }
  ScanState result;
  result.S = left.S * unsqueeze(from_left, 3) + right.S * unsqueeze(from_right, 3);
  if (left.z.defined()) result.z = left.z * from_left + right.z * from_right;
  if (left.log_scale.defined() || right.log_scale.defined())
    result.log_scale = Variable(channels ? scale : scale.squeeze(2));
  return result;
}

ScanState state_before(const ScanState& own, const Variable& log_decay, const Join& join) {
  const bool has_z = own.z.defined(), has_scale = own.log_scale.defined(),
             decays = log_decay.defined();
  // The tensors of a state, followed by the sum of g.
  Variables states, neutral;
  const auto add = [&](const Variable& x, double otherwise) {
    states.push_back(x);
    neutral.emplace_back(Tensor::full({1}, otherwise, x.dtype()));
  };
  add(own.S, 0);
  if (has_z) add(own.z, 0);
  if (has_scale) add(own.log_scale, -std::numeric_limits<double>::infinity());
  if (decays) add(sum(log_decay, {1}), 0);
  const auto state_of = [&](const Variables& x) -> ScanState {
    const size_t scale = has_z ? 2 : 1;
    return {x[0], has_z ? x[1] : Variable(), has_scale ? x[scale].detach() : Variable()};
  };
  const auto joined = [&](const Variables& left, const Variables& right) {
    const Variable g = decays ? right.back() : Variable();
    const ScanState state = combine(state_of(left), state_of(right), g);
    Variables out{state.S};
    for (const Variable& x : {state.z, state.log_scale, g})
      if (x.defined()) out.push_back(x);
    return out;
  };
  return state_of(state_before(states, neutral, joined, join));
}

namespace {

// ScanResult::out of this part. Parts exchange their states when started from zeros.
Variable joined_scan(const ScanInputs& inputs, const ScanOptions& options) {
  ScanOptions of_part = options;
  of_part.join = nullptr;
  of_part.final_state = true;
  const ScanResult own = scan(inputs, nullptr, of_part);
  const bool has_z = own.state.z.defined(), decays = inputs.log_decay.defined();
  const ScanState before = state_before(own.state, inputs.log_decay, *options.join);
  if (options.features.exponentials) {
    of_part.final_state = false;
    return scan(inputs, &before, of_part).out;
  }
  // Without exponentials, the state before the part adds a product: e^{G_i} q_i S, with G_i the sum
  // of g up to token i. Each factor is at most 1.
  Variable q = transpose(inputs.q, 1, 2);  // (B, H, n, m)
  if (decays) {
    const Variable G = transpose(cumsum(inputs.log_decay, 1), 1, 2);
    q = q * exp(G.rank() == 3 ? unsqueeze(G, 3) : G);
  }
  const Variable S = has_z ? concat({before.S, unsqueeze(before.z, 3)}, 3) : before.S;
  return own.out + transpose(matmul(q, S), 1, 2);
}

}  // namespace

ScanResult scan(const ScanInputs& inputs, const ScanState* initial, const ScanOptions& options) {
  if (options.join) return {joined_scan(inputs, options), {}};
  const ScanRule rule = rule_of(inputs, initial != nullptr, options);
  const DType dtype = inputs.q.dtype();
  const StateShape shape = rule.state();

  Variable start;
  ScanTensors x;
  if (initial) {
    check_initial(rule, *initial, dtype);
    start = pack(*initial);
    if (options.features.exponentials)
      x.initial_scale = exponents("a log_scale", initial->log_scale, initial->S.shape(), 1, dtype);
  }
  const Variable q = with_contiguous_rows(inputs.q), k = with_contiguous_rows(inputs.k),
                 v = with_contiguous_rows(inputs.v),
                 log_decay =
                     rule.channels ? with_contiguous_rows(inputs.log_decay) : inputs.log_decay;
  x.q = q.value(), x.k = k.value(), x.v = v.value(), x.log_decay = log_decay.value();
  if (options.features.exponentials) x.c = Tensor::empty({rule.B, rule.H, rule.N}, dtype);
  std::vector<Variable> operands{q, k, v};
  if (rule.decays) operands.push_back(log_decay);
  if (initial) operands.push_back(start);
  const bool gradients = is_recorded(operands);

  KeptStates kept(rule, gradients ? ScanRule::kept_every : rule.blocks_of_group, dtype);
  Tensor out = Tensor::empty({rule.B, rule.N, rule.H, rule.columns()}, dtype), final_states;
  Tensor log_scales;
  if (options.log_scales && options.features.exponentials)
    log_scales = Tensor::empty({rule.B, rule.H, rule.N}, dtype);
  if (options.final_state) final_states = Tensor::empty({rule.B, rule.H, shape.size()}, dtype);
  const ScanPasses passes = passes_of(rule, dtype);
  if (gradients)
    x.kept =
        kept_memory({rule.heads(), rule.blocks, passes.kept_size(rule)}, dtype, options.most_kept);
  if (rule.has_state(rule.blocks - 1)) {
    Tensor first = kept.states.select(1, 0);  // (heads, size)
    if (initial)
      copy_into(first, start.value().contiguous().reshape(first.shape()));
    else
      first.fill(0);
  }
  passes.forward(rule, x, kept, out, final_states, log_scales);

  ShortVector<Tensor> results{out};
  if (options.final_state) results.push_back(final_states);
  const Variables recorded = record_all(
      "scan", results, operands,
      [rule, passes, x, kept, final_states](std::span<const Tensor> grads_out,
                                            std::span<GradSlot> slots) mutable {
        const Tensor dout = with_contiguous_rows(grads_out[0]),
                     dfinal = grads_out.size() > 1 ? grads_out[1].contiguous() : Tensor();
        x.has_kept = x.kept.defined();
        ScanGradients to{gradient_of(slots[0]), gradient_of(slots[1]), gradient_of(slots[2]), {}};
        if (rule.decays) to.log_decay = gradient_of(slots[3]);
        Tensor dinitial;
        if (rule.initial && slots.back())
          dinitial = Tensor::empty({rule.B, rule.H, rule.state_size()}, x.q.dtype());
        passes.backward(rule, x, kept, dout, final_states, dfinal, to, dinitial);
        if (dinitial.defined()) slots.back().take(dinitial);
      });
  ScanResult result{recorded[0], {}, log_scales};
  if (!options.final_state) return result;
  result.state = unpack(recorded[1], shape);
  if (options.features.exponentials) {
    const Tensor c = x.c.select(2, rule.N - 1).contiguous();
    result.state.log_scale = affine(Variable(c), 1 / log_e_of(dtype));
  }
  return result;
}

}  // namespace longhand::attention
