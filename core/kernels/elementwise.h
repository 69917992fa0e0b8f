// The one loop behind every element-by-element operation: any strides, any number of inputs.
#pragma once

#include <array>
#include <tuple>

#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/tensor.h"

namespace longhand::kernels {

/// An input of elementwise(): a tensor and the type its elements are read as.
template <class T>
struct In {
  const Tensor& tensor;
};
template <class T>
In<T> in(const Tensor& tensor) {
  return {tensor};
}

/// Elements a task should have: some 20 µs of work.
inline constexpr int64_t elements_per_task = 1 << 15;

namespace detail {

/// The axes of equally shaped operands, merged where all of them allow it, the output's innermost
/// axis last.
template <size_t N>
struct Loop {
  Shape shape;
  std::array<Strides, N> strides;
};

template <size_t N>
Loop<N> plan(const std::array<const Tensor*, N>& operands) {
  const Tensor& out = *operands[0];
  // Axes in the order of the output's memory; sizes of 1 do not matter.
  std::array<int, Shape::max_rank> order{};
  int rank = 0;
  for (int i = 0; i < out.rank(); ++i) {
    if (out.size(i) == 1) continue;
    int at = rank++;
    for (; at > 0 && out.strides()[order[at - 1]] < out.strides()[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  Loop<N> loop;
  for (int k = 0; k < rank; ++k) {
    const int axis = order[k], last = loop.shape.rank() - 1;
    bool merge = last >= 0;
    for (size_t n = 0; merge && n < N; ++n)
      merge = loop.strides[n][last] == operands[n]->strides()[axis] * out.size(axis);
    if (merge) {
      loop.shape[last] *= out.size(axis);
      for (size_t n = 0; n < N; ++n) loop.strides[n][last] = operands[n]->strides()[axis];
    } else {
      loop.shape.push_back(out.size(axis));
      for (size_t n = 0; n < N; ++n) loop.strides[n].push_back(operands[n]->strides()[axis]);
    }
  }
  if (loop.shape.rank() == 0) {
    loop.shape.push_back(1);
    for (auto& s : loop.strides) s.push_back(1);
  }
  return loop;
}

struct Unit {
  static constexpr int64_t of(int64_t i, int64_t) { return i; }
};
struct Fixed {
  static constexpr int64_t of(int64_t, int64_t) { return 0; }
};
struct Any {
  static constexpr int64_t of(int64_t i, int64_t step) { return i * step; }
};

/// Calls f with a list of step kinds that the steps allow: known kinds let the compiler vectorise.
template <class F>
void with_steps(const int64_t* steps, size_t count, F&& f) {
  bool unit = true;
  for (size_t i = 0; i < count; ++i) unit = unit && steps[i] == 1;
  if (unit) return f.template operator()<Unit, Unit>();
  // One broadcast input among unit ones is common: x * rstd[row].
  bool last_fixed = count >= 2 && steps[count - 1] == 0;
  for (size_t i = 0; i + 1 < count; ++i) last_fixed = last_fixed && steps[i] == 1;
  if (last_fixed) return f.template operator()<Unit, Fixed>();
  f.template operator()<Any, Any>();
}

}  // namespace detail

/// out = beta * out + f(in...), element by element; beta = 0 never reads out. All operands have the
/// shape of out (expand() broadcasts). T is the element type of out, f's arguments are those of the
/// inputs. out must not overlap the inputs, except for being one of them.
template <class T, class F, class... Ts>
void elementwise_accumulate(Tensor& out, double beta, F f, const In<Ts>... inputs) {
  constexpr size_t N = 1 + sizeof...(Ts);
  (check<ShapeError>(inputs.tensor.shape() == out.shape(), "elementwise: shapes ",
                     inputs.tensor.shape(), " and ", out.shape(), " must be equal"),
   ...);
  if (out.numel() == 0) return;
  const auto loop = detail::plan<N>({&out, &inputs.tensor...});
  const int64_t inner = loop.shape[-1], outer = loop.shape.numel() / inner;
  T* const out_data = out.data<T>();
  const std::tuple<const Ts*...> in_data{inputs.tensor.template data<Ts>()...};

  const auto run = [&](const std::array<int64_t, N>& offset, int64_t n) {
    std::array<int64_t, N> step;
    for (size_t i = 0; i < N; ++i) step[i] = loop.strides[i][-1];
    detail::with_steps(step.data(), N, [&]<class Step, class LastStep>() {
      [&]<size_t... I>(std::index_sequence<I...>) {
        T* const y = out_data + offset[0];
        const std::tuple<const Ts*...> x{(std::get<I>(in_data) + offset[I + 1])...};
        const auto input = [&]<size_t K>(int64_t i) {
          using S = std::conditional_t<K + 2 == N, LastStep, Step>;
          return std::get<K>(x)[S::of(i, step[K + 1])];
        };
        using OutStep = std::conditional_t<N == 1, LastStep, Step>;
        const int64_t out_step = step[0];
        simd([&] {
          if (beta == 0) {
            for (int64_t i = 0; i < n; ++i)
              y[OutStep::of(i, out_step)] = f(input.template operator()<I>(i)...);
          } else {
            const T b = static_cast<T>(beta);
            for (int64_t i = 0; i < n; ++i) {
              T& to = y[OutStep::of(i, out_step)];
              to = static_cast<T>(b * to + f(input.template operator()<I>(i)...));
            }
          }
        });
      }(std::index_sequence_for<Ts...>{});
    });
  };

  if (outer == 1) {
    parallel_for(inner, elements_per_task, [&](int64_t begin, int64_t end) {
      std::array<int64_t, N> offset;
      for (size_t i = 0; i < N; ++i) offset[i] = begin * loop.strides[i][-1];
      run(offset, end - begin);
    });
    return;
  }
  parallel_for(outer, std::max<int64_t>(1, elements_per_task / inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::array<int64_t, N> offset{};
      int64_t rest = row;
      for (int axis = loop.shape.rank() - 2; axis >= 0; --axis) {
        const int64_t index = rest % loop.shape[axis];
        rest /= loop.shape[axis];
        for (size_t i = 0; i < N; ++i) offset[i] += index * loop.strides[i][axis];
      }
      run(offset, inner);
    }
  });
}

/// out = f(in...); see elementwise_accumulate.
template <class T, class F, class... Ts>
void elementwise(Tensor& out, F f, const In<Ts>... inputs) {
  elementwise_accumulate<T>(out, 0.0, f, inputs...);
}

}  // namespace longhand::kernels
