// Exact attention, tile by tile: the median rate, and its share of what products of
// matrices reach. Operations are those of the full N x N scores, causal or not: a causal pass at
// full speed would have twice the rate.
#include <benchmark/benchmark.h>

#include "longhand/attention/ops/softmax_attention.h"
#include "tests/bench/peak.h"

using namespace longhand;
using namespace longhand::bench;

namespace {

enum Direction { forward_pass, backward_pass };

void attention_bench(benchmark::State& state, Direction direction, bool causal, double dropout) {
  const int64_t N = state.range(0), D = state.range(1);
  const int64_t heads = std::max<int64_t>(2, 16384 / N);  // 16384 tokens and two heads, as trained
  const Tensor qkv = normal({1, N, 3, heads, D}, 1), cotangent = normal({1, N, heads, D}, 2);
  const Variable q(qkv.select(2, 0), true), k(qkv.select(2, 1), true), v(qkv.select(2, 2), true);
  const attention::SoftmaxAttentionOptions options{.causal = causal, .dropout = dropout};
  Turns turns;
  for (auto _ : state) {
    Variable out;
    double time = seconds([&] { out = attention::softmax_attention(q, k, v, options); });
    if (direction == backward_pass) time = seconds([&] { backward(out, cotangent); });
    for (Variable x : {q, k, v}) x.zero_grad();
    state.SetIterationTime(time);
    turns.pass(time);
  }
  const double n = static_cast<double>(N);
  turns.report(state, (direction == forward_pass ? 4 : 10) * static_cast<double>(heads) * n * n *
                          static_cast<double>(D));
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"N", "D"})->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const int64_t D : {32, 64})
    for (const int64_t N : {1024, 2048, 4096, 8192, 16384}) b->Args({N, D});
}

BENCHMARK_CAPTURE(attention_bench, forward, forward_pass, false, 0)->Apply(sizes);
BENCHMARK_CAPTURE(attention_bench, backward, backward_pass, false, 0)->Apply(sizes);
BENCHMARK_CAPTURE(attention_bench, forward_causal, forward_pass, true, 0)->Apply(sizes);
BENCHMARK_CAPTURE(attention_bench, backward_causal, backward_pass, true, 0)->Apply(sizes);
BENCHMARK_CAPTURE(attention_bench, forward_dropout, forward_pass, false, 0.1)->Apply(sizes);
BENCHMARK_CAPTURE(attention_bench, backward_dropout, backward_pass, false, 0.1)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
