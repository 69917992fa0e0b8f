// Blocks are processed in order for the results and in reverse for the gradients; the formulas are
// in delta_blocks.h. One state in four is saved for the gradients; the others are recomputed.
#include "longhand/attention/ops/delta_scan.h"

#include <algorithm>
#include <vector>

#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/scan_step.h"
#include "longhand/attention/ops/tile/channel_pairs.h"
#include "longhand/attention/ops/tile/delta_blocks.h"
#include "longhand/attention/ops/tile/head_pairs.h"
#include "longhand/attention/ops/tile/state_rows.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/subnormals.h"
#include "longhand/core/math.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using namespace tile;

// Data saved for the gradients; undefined if not saved.
struct Kept {
  Tensor states;    // (heads, ., m E): those before blocks 0, 4, 8, …
  Tensor of_block;  // (heads, 1, kept_size() of the only block)
};

// `initial` and `final_states` (heads, 1, m E) may be undefined.
template <class T, class Blocks>
void delta_forward(const DeltaRule& rule, const DeltaTensors& x, Tensor initial, Tensor& out,
                   Kept& kept, Tensor& final_states) {
  constexpr int64_t every = DeltaRule::kept_every;
  const int64_t n = rule.state_size();
  const Heads<T> to(out);
  parallel_for_each(rule.heads(), 1, [&](int64_t head) {
    const kernels::SubnormalsAsZeros zeros;
    const int64_t b = head / rule.H, h = head % rule.H;
    Workspace<Task<T, Blocks>> task(rule, x, TaskSize{1, 1, false});
    Blocks& blocks = task->blocks;
    blocks.start(b, h);
    if (kept.of_block.defined()) blocks.keep_in(row<T>(kept.of_block, head, 0), false);
    T* const s = task->states;
    if (initial.defined())
      std::copy_n(row<T>(initial, head, 0), n, s);
    else if (rule.blocks > 1 || final_states.defined())
      std::fill_n(s, n, T{0});
    blocks.hold(s);
    for (int64_t i = 0; i < rule.blocks; ++i) {
      const T* const before = rule.has_state(i) ? s : nullptr;
      if (kept.states.defined() && i % every == 0 && before)
        std::copy_n(s, n, row<T>(kept.states, head, i / every));
      blocks.use(i);
      blocks.solve(0, before);
      blocks.attend(0, before, to.at(b, rule.first(i) / rule.steps, h), to.token);
      if (i + 1 < rule.blocks || final_states.defined()) blocks.advance(0, s);
    }
    if (final_states.defined()) std::copy_n(s, n, row<T>(final_states, head, 0));
  });
}

// `dfinal` and `dinitial` (heads, 1, m E) may be undefined.
template <class T, class Blocks>
void delta_backward(const DeltaRule& rule, const DeltaTensors& x, Kept& kept, const Tensor& dout,
                    Tensor& dfinal, DeltaGradients& to, Tensor& dinitial) {
  const int64_t every = std::min(DeltaRule::kept_every, rule.blocks), n = rule.state_size();
  const Heads<const T> d(dout);
  parallel_for_each(rule.heads(), 1, [&](int64_t head) {
    const kernels::SubnormalsAsZeros zeros;
    const int64_t b = head / rule.H, h = head % rule.H;
    Workspace<Task<T, Blocks>> task(rule, x, TaskSize{every, every + 1, true});
    Blocks& blocks = task->blocks;
    blocks.start(b, h);
    if (kept.of_block.defined()) blocks.keep_in(row<T>(kept.of_block, head, 0), true);
    T *const states = task->states, *const R = states + every * n;
    if (dfinal.defined())
      std::copy_n(row<T>(dfinal, head, 0), n, R);
    else
      std::fill_n(R, n, T{0});
    for (int64_t stop = rule.blocks, from; stop > 0; stop = from) {
      from = (stop - 1) / every * every;
      const auto before = [&](int64_t i) -> const T* {
        return rule.has_state(i) ? states + (i - from) * n : nullptr;
      };
      if (before(from))
        std::copy_n(row<T>(kept.states, head, from / every), n, states);
      else
        std::fill_n(states, n, T{0});
      blocks.hold(states);
      for (int64_t i = from; i < stop; ++i) {
        const int64_t slot = i - from;
        T* const s = states + slot * n;
        blocks.use(i);
        blocks.solve(slot, before(i));
        if (i + 1 == stop) break;
        blocks.advance(slot, s + n);
      }
      for (int64_t i = stop - 1; i >= from; --i) {
        if (i + 1 < stop) blocks.use(i);
        blocks.gradients(i - from, d, before(i), R, i + 1 < rule.blocks || dfinal.defined(), to);
      }
    }
    if (dinitial.defined()) std::copy_n(R, n, row<T>(dinitial, head, 0));
  });
}

template <class F>
void dispatch_delta(const DeltaRule& rule, const DeltaTensors& x, F f) {
  const bool channels = x.log_decay.defined() && x.log_decay.size(3) == rule.m && rule.m > 1;
  dispatch_float(x.q.dtype(), [&]<class T>() {
    if (channels)
      f.template operator()<T, DeltaBlocks<T, ChannelPairs<T>>>();
    else
      f.template operator()<T, DeltaBlocks<T, HeadPairs<T>>>();
  });
}

// Checks, and names in errors, an operand that may have one of two shapes.
void check_operand(const char* name, const Variable& x, const Shape& shape, const Shape& other,
                   DType dtype) {
  check<ShapeError>(
      !x.defined() || ((x.shape() == shape || x.shape() == other) && x.dtype() == dtype),
      "delta_scan: expected ", name, " of shape ", shape,
      shape == other ? "" : concat_message(" or ", other), " and ", dtype, ", got ", x.shape(),
      " of ", x.dtype());
}

// The sizes of a delta scan. Checks its operands.
DeltaRule rule_of(const DeltaInputs& in, const Variable& initial, const DeltaOptions& options) {
  check<ShapeError>(in.q.defined() && in.k.defined() && in.v.defined(),
                    "delta_scan: expected q, k and v to be defined");
  const Shape &qs = in.q.shape(), &ks = in.k.shape(), &vs = in.v.shape();
  check<ShapeError>(
      qs.rank() == 4 && ks.rank() == 4 && ks.without_axis(1) == qs.without_axis(1) &&
          qs.numel() > 0 && ks[1] % qs[1] == 0 && vs.rank() == 4 && vs.numel() > 0 &&
          vs.without_axis(3) == ks.without_axis(3),
      "delta_scan: expected q (B, N, H, m), k (B, n N, H, m) and v (B, n N, H, E), nothing empty, "
      "got q ",
      qs, ", k ", ks, ", v ", vs);
  const DType dtype = in.q.dtype();
  check_one_float_dtype("delta_scan", dtype, in.k.dtype(), in.v.dtype());
  const Shape head = ks.without_axis(3), decay = qs.without_axis(3);
  const int64_t steps = ks[1] / qs[1];
  check_operand("beta", in.beta, head, head, dtype);
  check_operand("log_decay", in.log_decay, decay, steps == 1 ? qs : decay, dtype);
  check_operand("read", in.read, ks, ks, dtype);
  check_operand("write", in.write, ks, ks, dtype);
  const Shape state{qs[0], qs[2], qs[3], vs[3]};
  check_operand("an initial state", initial, state, state, dtype);
  const int64_t m = qs[3], E = vs[3], sources = in.write.defined() ? 2 : 1;
  int64_t tokens = tokens_of_block("delta_scan", options.block, ks[1], sources * (7 * m + 8 * E),
                                   (7 + 4 * sources) * m * E, initial.defined());
  // Whole tokens, which fill the lanes if possible.
  const int64_t lanes = options.block || steps * lane_multiple > max_scan_block ? 1 : lane_multiple,
                unit = steps * lanes;
  if (tokens < ks[1]) tokens = std::max<int64_t>(1, tokens / unit) * unit;
  return {{ks[0], ks[1], ks[2], m, E, initial.defined(), tokens}, steps};
}

// DeltaResult::out of this part. The state after a part is A S + B, with S the state before it;
// parts exchange A and B, which a single scan computes.
Variable joined_delta_scan(const DeltaInputs& inputs, const Join& join) {
  const int64_t B = inputs.k.size(0), n = inputs.k.size(1), H = inputs.k.size(2),
                m = inputs.k.size(3), E = inputs.v.size(3);
  const DType dtype = inputs.v.dtype();
  // With values [v, 0] and initial state [0, I] the states are [B_i, A_i]: S_i = A_i S + B_i.
  Tensor unit = Tensor::zeros({1, 1, m, E + m}, dtype);
  for (int64_t l = 0; l < m; ++l) unit.select(3, E + l).select(2, l).fill(1);
  DeltaInputs both = inputs;
  both.v = concat({inputs.v, Variable(Tensor::zeros({B, n, H, m}, dtype))}, 3);
  const DeltaResult own = delta_scan(both, Variable(unit.expand({B, H, m, E + m}).contiguous()));
  const auto joined = [&](const Variables& left, const Variables& right) -> Variables {
    return {matmul(slice(right[0], 3, E, E + m), slice(left[0], 3, 0, E)) +
            slice(right[0], 3, 0, E)};
  };
  const Variable before =
      slice(state_before({own.state}, {Variable(unit)}, joined, join)[0], 3, 0, E);
  // S_iᵀ q_i = Sᵀ (A_iᵀ q_i) + B_iᵀ q_i
  const Variable of_initial = transpose(slice(own.out, 3, E, E + m), 1, 2);  // (B, H, n, m)
  return slice(own.out, 3, 0, E) + transpose(matmul(of_initial, before), 1, 2);
}

}  // namespace

DeltaResult delta_scan(const DeltaInputs& inputs, const Variable& initial,
                       const DeltaOptions& options) {
  if (options.join) return {joined_delta_scan(inputs, *options.join)};
  const DeltaRule rule = rule_of(inputs, initial, options);
  const DType dtype = inputs.q.dtype();
  const int64_t heads = rule.heads(), n = rule.state_size();

  // Operands with contiguous rows, and the index of each among the recorded ones.
  const DeltaInputs in = inputs.each(
      [](const Variable& y) { return y.defined() && y.rank() == 4 ? with_contiguous_rows(y) : y; });
  std::vector<Variable> operands;
  const auto add = [&](const Variable& y) -> int {
    if (!y.defined()) return -1;
    operands.push_back(y);
    return static_cast<int>(operands.size()) - 1;
  };
  const auto places = in.each(add);
  const int of_initial = add(initial);
  const auto numbers = [](const Tensor& t) {  // (B, N, H, .)
    return t.defined() && t.rank() == 3 ? t.unsqueeze(3) : t;
  };
  const DeltaTensors x = in.each([&](const Variable& y) { return numbers(y.value()); });

  const bool gradients = is_recorded(operands);
  constexpr int64_t every = DeltaRule::kept_every;
  Tensor out = Tensor::empty({rule.B, inputs.q.size(1), rule.H, rule.E}, dtype), final_states;
  Kept kept;
  if (options.final_state) final_states = Tensor::empty({heads, 1, n}, dtype);
  const Tensor start =
      initial.defined() ? initial.value().contiguous().reshape({heads, 1, n}) : Tensor();
  dispatch_delta(rule, x, [&]<class T, class Blocks>() {
    if (gradients && rule.has_state(rule.blocks - 1))
      kept.states = Tensor::empty({heads, (rule.blocks + every - 1) / every, n}, dtype);
    if (gradients && rule.blocks == 1)
      kept.of_block = kept_memory({heads, 1, Blocks::kept_size(rule, x.write.defined())}, dtype,
                                  options.most_kept);
    delta_forward<T, Blocks>(rule, x, start, out, kept, final_states);
  });

  const Shape state{rule.B, rule.H, rule.m, rule.E};
  ShortVector<Tensor> results{out};
  if (options.final_state) results.push_back(final_states.reshape(state));
  const Variables recorded =
      record_all("delta_scan", results, operands,
                 [=](std::span<const Tensor> grads_out, std::span<GradSlot> slots) mutable {
                   DeltaGradients to = places.each([&](int i) {
                     const Gradient of = i < 0 ? Gradient() : gradient_of(slots[i]);
                     return Gradient{numbers(of.to), of.beta};
                   });
                   const Tensor dout = with_contiguous_rows(grads_out[0]);
                   Tensor dfinal, dinitial;
                   if (grads_out.size() > 1)
                     dfinal = grads_out[1].contiguous().reshape({heads, 1, n});
                   const bool initial_gradient = of_initial >= 0 && slots[of_initial];
                   if (initial_gradient) dinitial = Tensor::empty({heads, 1, n}, dtype);
                   dispatch_delta(rule, x, [&]<class T, class Blocks>() {
                     delta_backward<T, Blocks>(rule, x, kept, dout, dfinal, to, dinitial);
                   });
                   if (initial_gradient) slots[of_initial].take(dinitial.reshape(state));
                 });
  return {recorded[0], options.final_state ? recorded[1] : Variable()};
}

Tensor delta_step(Tensor& state, const DeltaOperands<Tensor>& in) {
  const Shape &ks = in.k.shape(), &vs = in.v.shape();
  check<ShapeError>(
      ks.rank() == 3 && in.q.shape() == ks && vs.rank() == 3 && vs[0] == ks[0] && vs[1] == ks[1],
      "delta_step: expected q and k (B, H, m) and v (B, H, E), got q ", in.q.shape(), ", k ", ks,
      ", v ", vs);
  const int64_t B = ks[0], H = ks[1], m = ks[2], E = vs[2];
  const Shape expected{B, H, m, E}, head{B, H};
  if (!state.defined()) state = Tensor::zeros(expected, DType::f64);
  check<ShapeError>(state.shape() == expected, "delta_step: expected a state of shape ", expected,
                    ", got ", state.shape());
  check<ShapeError>(
      (!in.beta.defined() || in.beta.shape() == head) &&
          (!in.log_decay.defined() || in.log_decay.shape() == head || in.log_decay.shape() == ks) &&
          (!in.read.defined() || in.read.shape() == ks) &&
          (!in.write.defined() || in.write.shape() == ks),
      "delta_step: expected beta ", head, ", log_decay ", head, " or ", ks, ", read and write ",
      ks);
  const DeltaOperands<Tensor> x = in.each([](const Tensor& t) { return t.contiguous(); });
  const Tensor &q = x.q, &k = x.k, &v = x.v, &beta = x.beta, &g = x.log_decay,
               &r = x.read.defined() ? x.read : k;
  const bool each = g.defined() && g.rank() == 3;
  Tensor out = Tensor::empty({B, H, E}, q.dtype()),
         memory = Tensor::empty({B, H, 2, E}, DType::f64);  // errors and sums
  dispatch_float(q.dtype(), [&]<class T>() {
    const T *const queries = q.data<T>(), *const keys = k.data<T>(), *const values = v.data<T>(),
                   *const reads = r.data<T>(), *const betas = data_or_null<T>(beta),
                   *const decays = data_or_null<T>(g), *const writes = data_or_null<T>(x.write);
    parallel_for_each(B * H, heads_of_task(m * E), [&](int64_t i) {
      simd([&, S = state.data<double>() + i * m * E, e = memory.data<double>() + 2 * i * E,
            outs = out.data<T>() + i * E] {
        double* const to = e + E;
        double decay[state_rows], key[state_rows], query[state_rows], write[state_rows];
        const double of_head = decays && !each ? math::exp(static_cast<double>(decays[i])) : 1,
                     strength = betas ? static_cast<double>(betas[i]) : 1;
        // Calls f(first, n, at) for rows of S after loading their decays; few rows still have them.
        const auto for_rows = [&](bool again, auto f) {
          for (int64_t first = 0; first < m; first += state_rows) {
            const int64_t n = std::min(state_rows, m - first), at = i * m + first;
            if (again && m <= state_rows) return f(first, n, at);
            if (each)
              for (int64_t l = 0; l < n; ++l)
                decay[l] = math::exp(static_cast<double>(decays[at + l]));
            else
              std::fill(decay, decay + n, of_head);
            f(first, n, at);
          }
        };
        for (int64_t c = 0; c < E; ++c)
          e[c] = writes ? 0 : static_cast<double>(values[i * E + c]), to[c] = 0;
        for_rows(false, [&](int64_t first, int64_t n, int64_t at) {
          for (int64_t l = 0; l < n; ++l) key[l] = -decay[l] * static_cast<double>(reads[at + l]);
          add_rows(S + first * E, n, E, key, e);
        });
        for_rows(true, [&](int64_t first, int64_t n, int64_t at) {
          for (int64_t l = 0; l < n; ++l) {
            key[l] = strength * static_cast<double>(keys[at + l]);
            query[l] = static_cast<double>(queries[at + l]);
          }
          double* const rows = S + first * E;
          if (!writes) return update_rows(rows, n, E, decay, key, e, query, to);
          std::copy_n(writes + at, n, write);
          update_rows<true>(rows, n, E, decay, key, e, query, to, write, values + i * E);
        });
        std::copy_n(to, E, outs);
      });
    });
  });
  return out;
}

}  // namespace longhand::attention
