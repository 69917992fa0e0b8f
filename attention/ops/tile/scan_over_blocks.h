// A block of tokens depends on earlier blocks through the state before it and, for the gradients,
// on later blocks through the gradient of the state after it; head_blocks.h and row_blocks.h have
// the formulas. Blocks are processed in order for the results and in reverse for the gradients. If
// there are few heads, groups of blocks are processed in parallel: a first pass computes the state
// that each group gives when started from zeros, and these are joined, in order, into the state
// before each group. One state in four is saved for the gradients; the others are recomputed.
#pragma once

#include <algorithm>
#include <vector>

#include "longhand/attention/ops/tile/scan_passes.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/kernels/subnormals.h"
#include "longhand/core/parallel.h"

namespace longhand::attention::tile {

// Blocks [begin, end) of a head, processed by one task.
struct Group {
  int64_t head, index, begin, end;
};

// Calls visit(group, its blocks, states) for groups [first, last) of each head.
template <class T, class Blocks, class F>
void for_groups(const ScanRule& rule, const ScanTensors& x, int64_t first, int64_t last,
                const TaskSize& size, F visit) {
  const int64_t count = last - first;
  parallel_for_each(rule.heads() * count, 1, [&](int64_t at) {
    const kernels::SubnormalsAsZeros zeros;
    const int64_t head = at / count, index = first + at % count;
    Workspace<Task<T, Blocks>> task(rule, x, size);
    task->blocks.start(head / rule.H, head % rule.H);
    visit(Group{head, index, index * rule.blocks_of_group,
                std::min(rule.blocks, (index + 1) * rule.blocks_of_group)},
          task->blocks, task->states);
  });
}

// The sum of g over each group, (heads, groups, 1 or m), initially 0.
inline Tensor log_decays_of_groups(const ScanRule& rule, DType dtype) {
  return Tensor::zeros({rule.heads(), rule.groups, rule.decay_rows()}, dtype);
}

// Computes the state before each group, in `kept`, whose first state is the initial one. Returns
// the scales, (heads, groups, 1).
template <class T, class Blocks>
Tensor states_before(const ScanRule& rule, ScanTensors& x, KeptStates& kept) {
  const int64_t n = rule.state_size();
  Tensor log_decays = log_decays_of_groups(rule, x.q.dtype()),
         scales = Tensor::zeros({rule.heads(), rule.groups, 1}, x.q.dtype());
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
      if (rule.decays) blocks.add_log_decay(i, row<T>(log_decays, group.head, group.index));
    }
  };
  for_groups<T, Blocks>(rule, x, 0, rule.groups - 1, {.slots = 1}, sum);
  parallel_for_each(rule.heads(), 1, [&](int64_t head) {
    const kernels::SubnormalsAsZeros zeros;
    std::vector<JoinFactors<T>> joins(rule.decay_rows());
    *row<T>(scales, head, 0) = x.scale_at_start<T>(head);
    for (int64_t group = 1; group < rule.groups; ++group) {
      const int64_t at = group * rule.blocks_of_group;
      const T own = x.c ? x.scales<T>(rule, head)[rule.first(at) - 1] : T{0},
              before = *row<T>(scales, head, group - 1);
      for (size_t l = 0; l < joins.size(); ++l)
        joins[l] = join_of(own, before + row<T>(log_decays, head, group - 1)[l]);
      join_states(rule.state(), kept.before<T>(head, at),
                  kept.before<T>(head, at - rule.blocks_of_group), joins.data(), !rule.channels);
      *row<T>(scales, head, group) = joins[0].scale;
    }
  });
  return scales;
}

// ScanPasses::forward
template <class T, class Blocks>
void scan_forward(const ScanRule& rule, ScanTensors& x, KeptStates& kept, Tensor& out,
                  Tensor& final_states, Tensor& log_scales) {
  const int64_t n = rule.state_size();
  Tensor scales = states_before<T, Blocks>(rule, x, kept);
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
      blocks.load_keys(0, i, i > begin ? blocks.scale_before(i) : *row<T>(scales, head, index),
                       true);
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
  const int64_t n = read ? rule.state_size() : 0;
  Tensor log_decays = log_decays_of_groups(rule, x.q.dtype());
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
      if (rule.decays) blocks.add_log_decay(i, row<T>(log_decays, group.head, group.index));
    }
  };
  for_groups<T, Blocks>(rule, x, 1, rule.groups, {}, sum);
  parallel_for_each(rule.heads(), 1, [&](int64_t head) {
    const kernels::SubnormalsAsZeros zeros;
    std::vector<JoinFactors<T>> joins(rule.decay_rows());
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
        joins[l] = {0, 1, Base<T>::power(rescaling + row<T>(log_decays, head, group)[l])};
      join_states(rule.state(), after(head, group - 1), after(head, group), joins.data(),
                  !rule.channels);
    }
  });
  return states;
}

// ScanPasses::backward
template <class T, class Blocks>
void scan_backward(const ScanRule& rule, ScanTensors& x, KeptStates& kept, const Tensor& dout,
                   const Tensor& final_states, const Tensor& dfinal, ScanGradients& to,
                   Tensor& dinitial) {
  constexpr int64_t every = ScanRule::kept_every;
  const int64_t n = rule.state_size();
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
        const int64_t slot = i - from;
        blocks.load_keys(slot, i, blocks.scale_before(i), false);
        if (i + 1 == stop) break;
        T* const s = states + slot * n;
        std::copy_n(s, n, s + n);
        blocks.advance(slot, i, s + n);
      }
      for (int64_t i = stop - 1; i >= from; --i) {
        if (i + 1 < stop) blocks.use(i, blocks.scale_before(i));
        blocks.load_queries(i);
        blocks.gradients(i - from, i, d, rule.has_state(i) ? states + (i - from) * n : nullptr, R,
                         i + 1 < rule.blocks || dfinal.defined(), to);
      }
    }
    if (index == 0 && dinitial.defined()) std::copy_n(R, n, dinitial.data<T>() + head * n);
  };
  for_groups<T, Blocks>(rule, x, 0, rule.groups,
                        {.slots = std::min(every, rule.blocks),
                         .states = std::min(every, rule.blocks),
                         .gradients = true},
                        retreat);
}

template <template <class> class Blocks>
ScanPasses passes_over(DType dtype) {
  const auto of = []<class T>() -> ScanPasses {
    return {Blocks<T>::kept_size, scan_forward<T, Blocks<T>>, scan_backward<T, Blocks<T>>};
  };
  return dtype == DType::f32 ? of.template operator()<float>() : of.template operator()<double>();
}

}  // namespace longhand::attention::tile
