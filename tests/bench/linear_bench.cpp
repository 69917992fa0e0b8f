// Linear layers of 16,384 tokens: the median rate, and its share of what products of
// matrices reach.
#include <benchmark/benchmark.h>

#include "longhand/autograd/ops.h"
#include "tests/bench/peak.h"

using namespace longhand;
using namespace longhand::bench;

namespace {

constexpr int64_t tokens = 16384;

enum Direction { forward_pass, backward_pass };

void linear_bench(benchmark::State& state, Direction direction, double dropout) {
  const int64_t in = state.range(0), out = state.range(1), times = state.range(2);
  const Variable x(normal({tokens, in}, 1), true), residual(normal({tokens, out}, 2), true);
  const Tensor cotangent = normal({tokens, out}, 3);
  std::vector<Variable> weights, biases;
  for (int64_t i = 0; i < times; ++i) {
    weights.emplace_back(normal({out, in}, 4), true);
    biases.emplace_back(normal({out}, 5), true);
  }
  LinearOptions options;
  if (dropout > 0)
    options = {.gelu = true,
               .input = {dropout, Generator(6)},
               .output = {dropout, Generator(7)},
               .residual = residual};
  Turns turns;
  for (auto _ : state) {
    std::vector<Variable> y(times);
    double time = seconds([&] {
      for (int64_t i = 0; i < times; ++i) y[i] = linear(x, weights[i], biases[i], options);
    });
    if (direction == backward_pass)
      time = seconds([&] {
        for (const Variable& each : y) backward(each, cotangent);
      });
    for (Variable leaf : {x, residual}) leaf.zero_grad();
    for (int64_t i = 0; i < times; ++i) weights[i].zero_grad(), biases[i].zero_grad();
    state.SetIterationTime(time);
    turns.pass(time);
  }
  turns.report(state, (direction == forward_pass ? 2.0 : 4.0) *
                          static_cast<double>(tokens * in * out * times));
}

// The layers of models L and M; (64, 64) three times are query, key and value, to compare with one of
// (64, 192).
void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"in", "out", "times"})->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const auto& [in, out, times] : {std::array{64, 64, 1},
                                       {64, 64, 3},
                                       {64, 192, 1},
                                       {64, 128, 1},
                                       {128, 64, 1},
                                       {256, 256, 1},
                                       {256, 1024, 1},
                                       {1024, 256, 1}})
    b->Args({in, out, times});
}

BENCHMARK_CAPTURE(linear_bench, forward, forward_pass, 0)->Apply(sizes);
BENCHMARK_CAPTURE(linear_bench, backward, backward_pass, 0)->Apply(sizes);
BENCHMARK_CAPTURE(linear_bench, forward_gelu_dropout_residual, forward_pass, 0.1)->Apply(sizes);
BENCHMARK_CAPTURE(linear_bench, backward_gelu_dropout_residual, backward_pass, 0.1)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
