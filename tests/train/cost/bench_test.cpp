#include "longhand/train/cost/bench.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/train/config/experiment.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;

namespace {

Config bench_config(const std::string& attention, int64_t length) {
  Config config;
  for (const char* assignment :
       {"model.d_model=64", "model.heads=2", "model.layers=2", "model.d_mlp=128",
        "model.vocabulary=10", "model.classes=4", "model.per_token=false"})
    config.assign(assignment);
  config.assign("model", "max_length", length, "test");
  config.assign("attention", "type", attention, "test");
  return config;
}

}  // namespace

TEST_CASE("the work of a step is that of its linear layers and its attention") {
  // Of one layer: q, k, v, output 4 d², feed-forward 2 d h; 6 flops per weight and token.
  const double B = 2, N = 32, d = 64, h = 128, D = 32, heads = 2, layers = 2;
  const double linear = 6 * B * N * layers * (4 * d * d + 2 * d * h);
  const BenchOptions once{.repetitions = 1};
  const auto flops = [&](const std::string& name, const std::vector<std::string>& options = {}) {
    Config config = bench_config(name, 32);
    for (const std::string& option : options) config.assign("attention." + option);
    return bench_step(config, 2, once).work.total().flops - linear;
  };
  const double units = B * heads * layers;
  CHECK(flops("softmax") == units * 14 * N * N * D);
  CHECK(flops("linear") == units * 12 * N * D * D);
  CHECK(flops("linformer") == units * 26 * N * 32 * D);  // k is at most the length
  CHECK(flops("performer") == units * 24 * N * 256 * D);
  const double m = 16;
  CHECK(flops("nystrom", {"landmarks=16"}) == units * (28 * N * m * D + 6 * 24 * m * m * m));
  CHECK(flops("nystrom") == flops("softmax"));  // at most 64 tokens are landmarks
  // Options have an effect.
  CHECK(flops("softmax", {"window=5"}) == units * 14 * N * 9 * D);
  CHECK(flops("linear", {"feature_map=relu"}) == units * 12 * N * D * D);
  const double quadratic = 1 + D + D * (D + 1) / 2;
  CHECK(flops("linear", {"feature_map=taylor2"}) == units * 12 * N * (quadratic * D + quadratic));
  CHECK(flops("nystrom", {"landmarks=16", "pinv=svd"}) ==
        units * (28 * N * m * D + 3 * 26 * m * m * m));
  CHECK(flops("efficient") == flops("linear"));

  const BenchResult softmax = bench_step(bench_config("softmax", 32), 2, once);
  const double bytes = 4 * B * N * layers * (60 * d + 12 * h);
  CHECK(softmax.work.total().bytes == bytes + 28 * static_cast<double>(softmax.parameters));
  CHECK(softmax.work.total().exps == units * 2 * N * N + 2 * B * N * layers * h);  // and of GELU
}

TEST_CASE("the work of linear layers is that of the layers a model has") {
  // Of both layers: q, k, v and output from 64 to 64, two layers between 64 and 128.
  const double tokens = 2 * 32;
  const auto flops = [&](const std::string& attention, const std::string& ranks) {
    Config config = bench_config(attention, 32);
    config.assign("model.low_rank=" + ranks);
    const attention::TransformerConfig shape = read_model(config, nullptr);
    double others = 0;  // of attention
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto variant = attention::make(attention, nn::root(), shape.attention_config(layer));
      const attention::Work work = variant->work(32, 32);
      others += 2 * (work.forward.flops + work.backward.flops);
    }
    return (step_work(shape, 2, 0).total().flops - others) / (6 * tokens);
  };
  const double square = 64 * 64, wide = 64 * 128;
  CHECK(flops("softmax", "0") == 2 * (4 * square + 2 * wide));
  CHECK(flops("softmax", "8") == 2 * 8 * (4 * 128 + 2 * 192));
  CHECK(flops("softmax", "[1,2,3,4,5,6,0,0,0,0,0,0]") ==
        128 * (1 + 2 + 3 + 4) + 192 * (5 + 6) + 4 * square + 2 * wide);
  // Without queries and keys.
  CHECK(flops("mean", "0") == 2 * (2 * square + 2 * wide));

  Config config = bench_config("softmax", 32);
  config.assign("model.low_rank=8");
  const attention::TransformerConfig shape = read_model(config, nullptr);
  const BenchResult result = bench_step(config, 2, {.repetitions = 1});
  CHECK(result.parameters == attention::Transformer(nn::root(), shape).parameter_count());
  CHECK(result.work.total().flops == step_work(shape, 2, 0).total().flops);
}

TEST_CASE("models are timed in turn, as often as requested") {
  const auto shape = read_model(bench_config("linear", 16), nullptr);
  attention::TransformerConfig low = shape;
  low.low_rank = {4};
  const auto times = compare_models({shape, low}, 2, {.repetitions = 2});
  REQUIRE(times.size() == 2);
  for (const ModelSeconds& each : times) {
    CHECK(each.forward > 0);
    CHECK(each.step > 0);
  }
  // As often as fits into the time.
  CHECK(compare_models({shape}, 1, {.seconds = 0.01})[0].step > 0);
}

TEST_CASE("causal attention is half the work of exact attention") {
  const BenchOptions once{.repetitions = 1};
  Config causal = bench_config("softmax", 16);
  causal.assign("model.causal=true");
  const BenchResult half = bench_attention(causal, 1, once);
  const BenchResult full = bench_attention(bench_config("softmax", 16), 1, once);
  CHECK(2 * half.work.total().flops == full.work.total().flops);
  CHECK(half.work.total().bytes == full.work.total().bytes);
  CHECK(half.work.attention_forward.flops > 0);
  CHECK(2 * half.work.attention_forward.flops == full.work.attention_forward.flops);
  CHECK(full.work.attention_forward.flops < full.work.total().flops);
  CHECK(half.parameters == 0);
}

TEST_CASE("the limit is the sum of its terms") {
  const Machine machine{.flops = 100, .exps = 10, .bytes = 5};
  CHECK(limit({.flops = 50, .exps = 20, .bytes = 5}, machine) == 3.5);
}

TEST_CASE("hardware rates are those of a processor") {
  const Machine machine =
      bench_attention(bench_config("softmax", 8), 1, {.repetitions = 1}).machine;
  // Less than any processor has.
  CHECK(machine.flops > 1e7);
  CHECK(machine.exps > 1e6);
  CHECK(machine.bytes > 1e7);
}

TEST_CASE("a bench repeats as often as requested, and reports its progress") {
  int64_t calls = 0, last = 0;
  BenchOptions options{.repetitions = 4};
  options.on_progress = [&](int64_t done, int64_t all) {
    ++calls;
    last = all - done;
  };
  const double start = clock_seconds();
  const BenchResult result = bench_attention(bench_config("softmax", 8), 1, options);
  const double elapsed = clock_seconds() - start;
  CHECK(result.repetitions == 4);
  CHECK(calls == 6);  // two of them not counted
  CHECK(last == 0);
  CHECK(result.seconds_forward > 0);
  CHECK(result.seconds_forward < result.seconds_high);
  CHECK(result.seconds_low > 0);
  CHECK(result.seconds_low <= result.seconds);
  CHECK(result.seconds <= result.seconds_high);
  CHECK(result.seconds_high < elapsed);

  // Page faults of each repetition; this callback belongs to them.
  options.on_progress = [](int64_t, int64_t) {
    constexpr size_t pages = 100, page = 4096;
    void* const memory =
        mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    madvise(memory, pages * page, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; ++i) static_cast<volatile char*>(memory)[i * page] = 1;
    munmap(memory, pages * page);
  };
  const auto counted = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto before = counted();
  options.on_progress(0, 0);
  if (counted() - before < 100) return;  // this system does not count them
  const double faults = bench_attention(bench_config("softmax", 8), 1, options).page_faults;
  CHECK(faults >= 100);
  CHECK(faults < 10'000);
}

TEST_CASE("bench refuses unknown options") {
  Config config = bench_config("softmax", 8);
  config.assign("attention.features=3");
  CHECK_THROWS_AS(bench_step(config, 1, {}), ConfigError);
  CHECK_THROWS_AS(bench_attention(config, 1, {}), ConfigError);
}
