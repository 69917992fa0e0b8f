// A block of tokens depends on earlier blocks through the state before it and, for the gradients,
// on later blocks through the gradient of the state after it; head_blocks.h and row_blocks.h
// have the formulas. Blocks are processed in order for the results and in reverse for the
// gradients. If there are few heads, groups of blocks are processed in parallel: a first pass
// computes the state that each group gives when started from zeros, and these are joined, in order,
// to the state before each group. One state in four is saved for the gradients; the others are
// recomputed.
#include "longhand/attention/ops/scan.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "longhand/attention/ops/joined.h"
#include "longhand/attention/ops/tile/head_blocks.h"
#include "longhand/attention/ops/tile/row_blocks.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/kernels/subnormals.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

using namespace tile;

// The numbers (head, i, …) of x (heads, ., .).
template <class T>
T* row(Tensor& x, int64_t head, int64_t i) {
  return x.data<T>() + (head * x.size(1) + i) * x.size(2);
}

// Saved states of each head, (heads, ., size): those before blocks 0, every, 2 every, ... A scan of one
// block without an initial state has none.
struct KeptStates {
  Tensor states;
  int64_t every;

  KeptStates(const ScanRule& rule, int64_t every_, DType dtype)
      : states(Tensor::empty(
            {rule.heads(),
             rule.has_state(rule.blocks - 1) ? (rule.blocks + every_ - 1) / every_ : 0,
             rule.state().size()},
            dtype)),
        every(every_) {}
  template <class T>
  T* before(int64_t head, int64_t block_) {
    return row<T>(states, head, block_ / every);
  }
};

// The memory of a task: its blocks, with features of several blocks of keys, and a number of states.
struct TaskSize {
  int slots = 0;
  int64_t states = 0;
  bool gradients = false;
};
template <class T, class Blocks>
struct Task {
  Task(const ScanRule& rule, const ScanTensors& x, const TaskSize& size, Scratch& scratch)
      : blocks(rule, x, size.slots, size.gradients, scratch),
        states(scratch.take<T>(size.states * rule.state().size())) {}
  Blocks blocks;
  T* states;
};

// Blocks [begin, end) of a head, which a task processes.
struct Group {
  int64_t head, index, begin, end;
};

// Calls visit(group, its blocks, states) for groups [first, last) of each head.
template <class T, class Blocks, class F>
void for_groups(const ScanRule& rule, const ScanTensors& x, int64_t first, int64_t last,
                const TaskSize& size, F visit) {
  const int64_t count = last - first;
  parallel_for(rule.heads() * count, 1, [&](int64_t from, int64_t to) {
    const kernels::SubnormalsAsZeros zeros;
    for (int64_t at = from; at < to; ++at) {
      const int64_t head = at / count, index = first + at % count;
      Workspace<Task<T, Blocks>> task(rule, x, size);
      task->blocks.start(head / rule.H, head % rule.H);
      visit(Group{head, index, index * rule.blocks_of_group,
                  std::min(rule.blocks, (index + 1) * rule.blocks_of_group)},
            task->blocks, task->states);
    }
  });
}

// Properties of groups that joins require: the sum of g over each group, (heads, groups, 1 or m),
// and the scale before each group, (heads, groups, 1).
struct Groups {
  Tensor log_decays, scales;
  Groups(const ScanRule& rule, DType dtype)
      : log_decays(Tensor::zeros({rule.heads(), rule.groups, rule.decay_rows()}, dtype)),
        scales(Tensor::zeros({rule.heads(), rule.groups, 1}, dtype)) {}
};

// Computes the state before each group, in `kept`, whose first state is the initial one. Returns
// the scales.
template <class T, class Blocks>
Groups states_before(const ScanRule& rule, ScanTensors& x, KeptStates& kept) {
  const int64_t n = rule.state().size();
  Groups groups(rule, x.q.dtype());
  const auto sum = [&](const Group& group, Blocks& blocks, T*) {
    T* const s = kept.before<T>(group.head, group.end);
    std::fill_n(s, n, T{0});
    for (int64_t i = group.begin; i < group.end; ++i) {
      blocks.load_keys(0, i,
                       i > group.begin ? blocks.scale_before(i)
                       : x.c           ? -infinity<T>
                                       : T{0},
                       true);
      blocks.advance(0, i, s);
      if (rule.decays) blocks.add_log_decay(i, row<T>(groups.log_decays, group.head, group.index));
    }
  };
  for_groups<T, Blocks>(rule, x, 0, rule.groups - 1, {.slots = 1}, sum);
  parallel_for(rule.heads(), 1, [&](int64_t from, int64_t to) {
    const kernels::SubnormalsAsZeros zeros;
    std::vector<JoinFactors<T>> joins(rule.decay_rows());
    for (int64_t head = from; head < to; ++head) {
      *row<T>(groups.scales, head, 0) = x.scale_at_start<T>(head);
      for (int64_t group = 1; group < rule.groups; ++group) {
        const int64_t at = group * rule.blocks_of_group;
        const T own = x.c ? x.scales<T>(rule, head)[rule.first(at) - 1] : T{0},
                before = *row<T>(groups.scales, head, group - 1);
        for (size_t l = 0; l < joins.size(); ++l)
          joins[l] = join_of(own, before + row<T>(groups.log_decays, head, group - 1)[l]);
        join_states(rule.state(), kept.before<T>(head, at),
                    kept.before<T>(head, at - rule.blocks_of_group), joins.data(), !rule.channels);
        *row<T>(groups.scales, head, group) = joins[0].scale;
      }
    }
  });
  return groups;
}

// Computes the sums and, if they are defined, the final states (heads, size) and the log scales of
// the sums.
template <class T, class Blocks>
void scan_forward(const ScanRule& rule, ScanTensors& x, KeptStates& kept, Tensor& out,
                  Tensor& final_states, Tensor& log_scales) {
  const int64_t n = rule.state().size();
  Groups groups = states_before<T, Blocks>(rule, x, kept);
  const Heads<T> to = rule.heads<T>(out);
  const auto attend = [&](const Group& group, Blocks& blocks, T* s) {
    const auto [head, index, begin, end] = group;
    if (rule.has_state(rule.blocks - 1))
      std::copy_n(kept.before<T>(head, begin), n, s);
    else if (final_states.defined())
      std::fill_n(s, n, T{0});
    const bool returns_state = index + 1 == rule.groups && final_states.defined();
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin && i % kept.every == 0) std::copy_n(s, n, kept.before<T>(head, i));
      blocks.load_keys(
          0, i, i > begin ? blocks.scale_before(i) : *row<T>(groups.scales, head, index), true);
      blocks.load_queries(i);
      if (log_scales.defined()) blocks.put_log_scales(i, log_scales);
      blocks.attend(0, i, rule.has_state(i) ? s : nullptr,
                    to.at(head / rule.H, rule.first(i), head % rule.H), to.token);
      if (i + 1 < end || returns_state) blocks.advance(0, i, s);
    }
    if (returns_state) std::copy_n(s, n, final_states.data<T>() + head * n);
  };
  for_groups<T, Blocks>(rule, x, 0, rule.groups, {.slots = 1, .states = 1}, attend);
}

// The gradient of the state after each group: (heads, groups, size); size is 0 if nothing reads it.
template <class T, class Blocks>
Tensor states_after(const ScanRule& rule, ScanTensors& x, const Tensor& dout,
                    const Tensor& dfinal) {
  const bool read = rule.has_state(rule.blocks - 1) || dfinal.defined();
  const int64_t n = read ? rule.state().size() : 0;
  Groups groups(rule, x.q.dtype());
  Tensor states = Tensor::empty({rule.heads(), rule.groups, n}, x.q.dtype());
  const auto after = [&](int64_t head, int64_t group) { return row<T>(states, head, group); };
  const Heads<const T> d = rule.heads<const T>(dout);
  const auto sum = [&](const Group& group, Blocks& blocks, T*) {
    T* const r = after(group.head, group.index - 1);
    std::fill_n(r, n, T{0});
    for (int64_t i = group.end - 1; i >= group.begin; --i) {
      blocks.use(i, blocks.scale_before(i));
      blocks.load_queries(i);
      blocks.retreat(i, d, r);
      if (rule.decays) blocks.add_log_decay(i, row<T>(groups.log_decays, group.head, group.index));
    }
  };
  for_groups<T, Blocks>(rule, x, 1, rule.groups, {}, sum);
  parallel_for(rule.heads(), 1, [&](int64_t from, int64_t to) {
    const kernels::SubnormalsAsZeros zeros;
    std::vector<JoinFactors<T>> joins(rule.decay_rows());
    for (int64_t head = from; head < to; ++head) {
      T* const last = after(head, rule.groups - 1);
      if (dfinal.defined())
        std::copy_n(dfinal.data<T>() + head * n, n, last);
      else
        std::fill_n(last, n, T{0});
      const T* const c = x.scales<T>(rule, head);
      for (int64_t group = rule.groups - 1; group > 0; --group) {
        const int64_t first = rule.first(group * rule.blocks_of_group),
                      end = std::min(rule.N, rule.first((group + 1) * rule.blocks_of_group));
        const T rescaling = c ? c[first - 1] - c[end - 1] : T{0};
        for (size_t l = 0; l < joins.size(); ++l)
          joins[l] = {0, 1, Base<T>::power(rescaling + row<T>(groups.log_decays, head, group)[l])};
        join_states(rule.state(), after(head, group - 1), after(head, group), joins.data(),
                    !rule.channels);
      }
    }
  });
  return states;
}

// Computes all gradients; that of the initial state only if `dinitial` (heads, size) is defined.
// `final_states` are read only if their gradient is defined.
template <class T, class Blocks>
void scan_backward(const ScanRule& rule, ScanTensors& x, KeptStates& kept, const Tensor& dout,
                   const Tensor& final_states, const Tensor& dfinal, ScanGradients& to,
                   Tensor& dinitial) {
  constexpr int64_t every = ScanRule::kept_every;
  const int64_t n = rule.state().size();
  Tensor after = states_after<T, Blocks>(rule, x, dout, dfinal);
  const Heads<const T> d = rule.heads<const T>(dout);
  const auto retreat = [&](const Group& group, Blocks& blocks, T* states) {
    const auto [head, index, begin, end] = group;
    T* const R = row<T>(after, head, index);
    if (to.log_decay.to.defined())
      blocks.end_decay(end < rule.blocks  ? kept.before<T>(head, end)
                       : dfinal.defined() ? final_states.data<T>() + head * n
                                          : nullptr,
                       R);
    for (int64_t stop = end, from; stop > begin; stop = from) {
      from = (stop - 1) / every * every;
      if (rule.has_state(rule.blocks - 1)) std::copy_n(kept.before<T>(head, from), n, states);
      for (int64_t i = from; i < stop; ++i) {
        const auto slot = static_cast<int>(i - from);
        blocks.load_keys(slot, i, blocks.scale_before(i), false);
        if (i + 1 == stop) break;
        T* const s = states + slot * n;
        std::copy_n(s, n, s + n);
        blocks.advance(slot, i, s + n);
      }
      for (int64_t i = stop - 1; i >= from; --i) {
        if (i + 1 < stop) blocks.use(i, blocks.scale_before(i));
        blocks.load_queries(i);
        blocks.gradients(static_cast<int>(i - from), i, d,
                         rule.has_state(i) ? states + (i - from) * n : nullptr, R,
                         i + 1 < rule.blocks || dfinal.defined(), to);
      }
    }
    if (index == 0 && dinitial.defined()) std::copy_n(R, n, dinitial.data<T>() + head * n);
  };
  for_groups<T, Blocks>(rule, x, 0, rule.groups,
                        {.slots = static_cast<int>(std::min(every, rule.blocks)),
                         .states = std::min(every, rule.blocks),
                         .gradients = true},
                        retreat);
}

// Memory for what blocks keep for the gradients, if it takes at most `most` bytes.
template <class Blocks>
Tensor kept_memory(const ScanRule& rule, DType dtype, int64_t most) {
  const Shape shape{rule.heads(), rule.blocks, Blocks::kept_size(rule)};
  const int64_t bytes = shape.numel() * static_cast<int64_t>(size_of(dtype));
  return 0 < bytes && bytes <= most ? Tensor::empty(shape, dtype) : Tensor();
}

template <class F>
void dispatch_scan(const ScanRule& rule, DType dtype, F f) {
  dispatch_float(dtype, [&]<class T>() {
    const bool rows = !rule.features.projection.defined() && !rule.features.exponentials;
    if (rule.channels)
      f.template operator()<T, RowBlocks<T, ChannelPairs<T>>>();
    else if (rows && !rule.reverse)
      f.template operator()<T, RowBlocks<T, HeadPairs<T>>>();
    else
      f.template operator()<T, HeadBlocks<T>>();
  });
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
  Tensor out = t.expand({S[0], S[1], rows}).contiguous().clone();
  dispatch_float(dtype, [&]<class T>() {
    T* const p = out.data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) p[i] *= static_cast<T>(Base<T>::log_e);
  });
  return out;
}

void check_state(const char* what, const ScanState& state) {
  check<ShapeError>(state.S.defined() && state.S.rank() == 4 && state.S.shape().numel() > 0,
                    "scan: expected ", what, " with S (B, H, m, E), nothing empty, got ",
                    state.S.defined() ? state.S.shape() : Shape{});
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
  check<ShapeError>(is_float(dtype) && inputs.k.dtype() == dtype && inputs.v.dtype() == dtype,
                    "scan: expected one float dtype, got q ", dtype, ", k ", inputs.k.dtype(),
                    ", v ", inputs.v.dtype());
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
  check<ShapeError>(0 <= options.block && options.block <= max_scan_block,
                    "scan: expected blocks of 1 to ", max_scan_block, " tokens, or 0, got ",
                    options.block);
  return {feature_rule("scan", inputs.q, options.features), inputs, initial, options};
}

void check_initial(const ScanRule& rule, const ScanState& initial, DType dtype) {
  check_state("an initial state", initial);
  const Shape expected{rule.B, rule.H, rule.features.m, rule.E};
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
  // The tensors of a state, and at the end the sum of g.
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

// ScanResult::out of this part. Parts exchange the states that they give when started from zeros.
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
  // Without exponentials, what the state before the part adds is a product: e^{G_i} q_i S, G_i the sum
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
  x.q = q.value(), x.k = k.value(), x.v = v.value();
  if (rule.decays) x.log_decay = log_decay.value();
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
  dispatch_scan(rule, dtype, [&]<class T, class Blocks>() {
    if (gradients) x.kept = kept_memory<Blocks>(rule, dtype, options.most_kept);
    const Tensor states = initial ? start.value().contiguous() : Tensor();
    for (int64_t head = 0; !is_dry() && rule.has_state(rule.blocks - 1) && head < rule.heads();
         ++head) {
      T* const s = kept.before<T>(head, 0);
      if (initial)
        std::copy_n(states.data<T>() + head * shape.size(), shape.size(), s);
      else
        std::fill_n(s, shape.size(), T{0});
    }
    scan_forward<T, Blocks>(rule, x, kept, out, final_states, log_scales);
  });

  // The gradient of the final states, whose rule is recorded later and runs first.
  const auto dfinal = std::make_shared<Tensor>();
  ScanResult result;
  result.log_scales = log_scales;
  auto of_sums = [rule, x, kept, final_states, dfinal](const Tensor& grad_out,
                                                       std::span<GradSlot> slots) mutable {
    const Tensor dout = with_contiguous_rows(grad_out);
    x.has_kept = x.kept.defined();
    ScanGradients to{gradient_of(slots[0]), gradient_of(slots[1]), gradient_of(slots[2]), {}};
    if (rule.decays) to.log_decay = gradient_of(slots[3]);
    const size_t last = rule.decays ? 4 : 3;
    Tensor dinitial;
    if (last < slots.size() && slots[last])
      dinitial = Tensor::empty({rule.B, rule.H, rule.state().size()}, x.q.dtype());
    dispatch_scan(rule, x.q.dtype(), [&]<class T, class Blocks>() {
      scan_backward<T, Blocks>(rule, x, kept, dout, final_states, *dfinal, to, dinitial);
    });
    if (dinitial.defined()) slots[last].take(dinitial);
    *dfinal = {};
  };
  result.out = record("scan", out, operands, std::move(of_sums));
  if (!options.final_state) return result;
  const Variable states = record("scan_state", final_states, {result.out},
                                 [dfinal](const Tensor& grad_out, std::span<GradSlot> slots) {
                                   *dfinal = grad_out.contiguous();
                                   GradSlot::Accumulator to = slots[0].accumulate();
                                   if (to.beta == 0) to.grad.fill(0);
                                 });
  result.state = unpack(states, shape);
  if (options.features.exponentials) {
    const Tensor c = x.c.select(2, rule.N - 1).contiguous();
    result.state.log_scale = affine(Variable(c), dtype == DType::f32 ? 1 / Base<float>::log_e : 1);
  }
  return result;
}

}  // namespace longhand::attention
