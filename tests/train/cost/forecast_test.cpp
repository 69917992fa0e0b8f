// Forecasts of training on several ranks, against cases computed by hand.
#include "longhand/train/cost/forecast.h"

#include <cmath>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;

namespace {

/// Two layers of softmax attention, four sequences of 1,024 tokens; a machine that does 1e9 of everything a
/// second, and a network of 1 ms and 1e9 bytes a second.
ForecastRequest request() {
  ForecastRequest out;
  attention::TransformerConfig& c = out.memory.model;
  c.vocabulary = c.classes = 16, c.max_length = 1024, c.d_model = 32, c.heads = 4, c.layers = 2;
  c.d_mlp = 64;
  out.memory.train.loading.batch_size = 4;
  out.memory.train.trainer.eval_batch_size = 0;
  out.compute.machine = {1e9, 1e9, 1e9};
  out.network = Rates::assumed(1e-3, 1e9);
  out.limit = {1e12, "a machine"};
  return out;
}

double parameters_of(const ForecastRequest& r) { return estimate_memory(r.memory).parameter_count; }

}  // namespace

TEST_CASE("forecast: rates of computation are found from steps that follow them") {
  const Machine machine{2e9, 1e9, 4e9};
  const Work rest{4e9, 0, 4e9}, attention{2e9, 1e9, 0};  // limits of 3 s and 2 s
  std::vector<StepSample> samples;
  for (const double length : {1.0, 4.0})
    samples.push_back(
        {length * rest, length * length * attention, length * 3 * 1.5 + length * length * 2 * 0.5});
  const ComputeRates both = fit_compute(samples, machine);
  CHECK(both.rest == Approx(1.5).epsilon(0.02));
  CHECK(both.attention == Approx(0.5).epsilon(0.02));
  CHECK(both.seconds(rest, attention) == Approx(3 * both.rest + 2 * both.attention));

  // One step cannot tell them apart; steps that ask for less than nothing of one part do not get it.
  const ComputeRates one = fit_compute({{rest, attention, 10}}, machine);
  CHECK(one.rest == Approx(2));
  CHECK(one.attention == Approx(2));
  samples[1].seconds = 4 * samples[0].seconds * 0.2;
  const ComputeRates noise = fit_compute(samples, machine);
  CHECK(noise.rest > 0);
  CHECK(noise.attention > 0);
}

TEST_CASE("forecast: one rank computes what a step is, and sends nothing") {
  const ForecastRequest r = request();
  const Forecast f = forecast(r, {1, 1});
  const Work work = step_work(r.memory.model, 4, parameters_of(r)).total();
  CHECK(f.seconds() == Approx(limit(work, r.compute.machine)));
  CHECK(f.optimizer == Approx(28 * parameters_of(r) / 1e9));
  CHECK(f.sent == 0);
  CHECK(f.communication() == 0);
  CHECK(f.memory == estimate_memory(r.memory).total() + program_memory);
}

TEST_CASE("forecast: data parallelism distributes sequences and sums gradients") {
  const ForecastRequest r = request();
  const double P = parameters_of(r), one = forecast(r, {1, 1}).compute;
  REQUIRE(4 * P < (1 << 20));  // one bucket
  const Forecast f = forecast(r, {4, 1});
  CHECK(f.compute == Approx(one / 4));
  // The tensors: tokens, positions, two for the last norm and the head; in each layer, two for each of
  // six products and for each of two norms.
  const double tensors = 2 + 2 + 2 + 2 * (2 * 6 + 2 * 2);
  // Losses and correct predictions, which gradients there are, and twice whether to stop or save.
  const double small = 8 + 8 + 8 * tensors + 2 * 8;
  CHECK(f.sent == Approx(2 * 3 * 4 * std::ceil(P / 4) + 3 * small));
  // A message is 1 ms, and two rounds of it reach four ranks. The sum: an exchange of quarters, as pairs or in
  // rounds, and a gathering; six small sums, each a gathering.
  const double quarter = P / 4 * 4;
  const double sum = std::min(3 * (1e-3 + quarter / 1e9), 2 * (1e-3 + 2 * quarter / 1e9)) + 2e-3 +
                     3 * quarter / 1e9;
  CHECK(f.gradients == Approx(sum + 5 * 2e-3 + 3 * small / 1e9).epsilon(1e-3));
  // The only bucket is complete when the backward pass is.
  CHECK(f.hidden == 0);
  CHECK(f.seconds() == Approx(f.compute + f.optimizer + f.gradients));
}

TEST_CASE("forecast: all but the last bucket are hidden behind a long backward pass") {
  ForecastRequest r = request();
  r.memory.model.d_model = 512, r.memory.model.d_mlp = 2048;
  const double P = parameters_of(r);
  const Forecast slow = forecast(r, {4, 1});
  r.network = Rates::assumed(1e-9, 1e9);
  const Forecast f = forecast(r, {4, 1});
  const double sums = f.gradients, buckets = sums / (sums - f.hidden);
  CHECK(sums == Approx(2 * 3 * P / 1e9).epsilon(1e-3));
  CHECK(buckets > 4);
  CHECK(buckets < 4 * P / (1 << 20));
  CHECK(slow.gradients > f.gradients);
  r.has_free_cores = false;
  CHECK(forecast(r, {4, 1}).hidden == 0);
  // No more than the backward pass can be hidden.
  r = request();
  r.memory.model.d_model = 512, r.memory.model.d_mlp = 2048;
  r.network = Rates::assumed(1e-9, 1e3);
  const Forecast network = forecast(r, {4, 1});
  CHECK(network.hidden < network.compute);
  CHECK(network.hidden > 0.5 * network.compute);
}

TEST_CASE("forecast: sharded optimizer states are less memory and work, and one more message") {
  ForecastRequest r = request();
  r.memory.model.d_model = 512, r.memory.model.d_mlp = 2048;
  r.memory.saves = false;
  const double P = parameters_of(r);
  const Forecast whole = forecast(r, {4, 1});
  r.memory.train.trainer.shard_optimizer = true;
  const Forecast shared = forecast(r, {4, 1});
  CHECK(shared.sent - whole.sent == Approx(3 * 4 * std::ceil(P / 4)));
  const double gather = 2e-3 + 3 * P / 1e9;
  CHECK(shared.optimizer == Approx(whole.optimizer / 4 + gather).epsilon(1e-6));
  // Three quarters of two moments, less what gathering the parameters takes.
  CHECK(whole.memory - shared.memory > 0.5 * 0.75 * 2 * 4 * P);
}

TEST_CASE("forecast: ranks of a sequence divide its tokens, and exchange heads or states") {
  ForecastRequest r = request();
  const double N = 1024, d = 32;
  const Forecast one = forecast(r, {1, 1});
  // Heads: queries, keys, values and results of a quarter of the tokens go to three other ranks of four, and
  // come back as gradients.
  const Forecast heads = forecast(r, {1, 4});
  CHECK(heads.compute == Approx(one.compute / 4));
  const double sums = forecast(r, {4, 1}).sent;
  const double pooled = 2 * 2 * 3 * 4 * d;  // a sequence, forward and backward, by its small sums
  CHECK(heads.sent - sums ==
        Approx(2 * 4 * 2 * 4 * 4 * (N / 4) * d * 3 / 4 + 4 * pooled).epsilon(0.01));
  CHECK(heads.sequence > 2 * 4 * 2e-3);  // four exchanges a layer, of at least two messages
  // Without heads for all ranks, keys and values are passed around, forward and backward, and their gradients all the
  // way; or each rank gathers those of all tokens; or all tokens, and then computes all of the attention.
  r.memory.model.heads = 2;
  const Forecast ring = forecast(r, {1, 4});
  CHECK(ring.compute == Approx(forecast(r, {1, 1}).compute / 4));
  CHECK(ring.sent - sums ==
        Approx(2 * 4 * (3 + 3 + 4) * 4 * (N / 4) * d * 2 + 4 * pooled).epsilon(0.01));
  r.memory.model.attention = "gaussian";
  const Forecast keys = forecast(r, {1, 4});
  CHECK(keys.compute == Approx(forecast(r, {1, 1}).compute / 4));
  CHECK(keys.sent - sums == Approx(2 * 4 * 2 * 3 * 4 * (N / 4) * d * 2 + 4 * pooled).epsilon(0.01));
  r.memory.model.attention = "svd";
  CHECK(forecast(r, {1, 4}).compute > 0.8 * forecast(r, {1, 1}).compute);
  // Without attention nothing is exchanged but the sum for pooling.
  r.memory.model.attention = "none";
  CHECK(forecast(r, {1, 4}).sent < sums + 4 * pooled + 1);
  // Recomputation sends again what the forward pass of the blocks sends: half.
  r = request();
  r.memory.train.trainer.step.recompute = true;
  const double recomputed = forecast(r, {1, 4}).sent - sums, kept = heads.sent - sums;
  CHECK(recomputed == Approx(1.5 * kept).epsilon(0.01));
  // It computes a third more, as far as products are concerned.
  const double more = forecast(r, {1, 1}).compute / one.compute;
  CHECK(more > 1.25);
  CHECK(more < 1.45);
}

TEST_CASE("forecast: ranks of a sequence need less memory the more they are") {
  for (const char* const variant : {"softmax", "linear", "window", "none"}) {
    ForecastRequest r = request();
    r.memory.model.max_length = 1 << 16;
    r.memory.model.attention = variant;
    double before = forecast(r, {1, 1}).memory;
    for (int64_t ranks = 2; ranks <= 4; ranks *= 2) {
      CAPTURE(variant, ranks);
      const double memory = forecast(r, {1, ranks}).memory;
      CHECK(memory < 0.85 * before);
      before = memory;
    }
  }
}

TEST_CASE("forecast: more ranks do not take longer to compute, and a slower network nothing less") {
  for (const std::string& variant : attention::names()) {
    ForecastRequest r = request();
    r.memory.train.loading.batch_size = 16;
    r.memory.model.attention = variant;
    r.memory.model.causal = attention::capabilities(variant).causal_only;
    r.memory.model.max_length = variant == "svd" ? 128 : 512;
    double before = forecast(r, {1, 1}).compute;
    for (const Split split : {Split{2, 1}, Split{4, 1}, Split{4, 2}, Split{8, 2}, Split{16, 4}}) {
      CAPTURE(variant, to_text(split));
      r.network = Rates::assumed(1e-6, 1e10);
      const Forecast f = forecast(r, split);
      CHECK(std::isfinite(f.seconds()));
      CHECK(f.compute <= before * (1 + 1e-9));
      before = f.compute;
      CHECK(f.sent > 0);
      CHECK(f.hidden <= f.gradients);
      r.network = Rates::assumed(1e-4, 1e9);
      CHECK(forecast(r, split).seconds() > f.seconds());
    }
  }
}

TEST_CASE("forecast: the splits of a number of ranks") {
  ForecastRequest r = request();
  const auto splits = [&](int64_t ranks) {
    std::string out;
    for (const Split& split : possible_splits(r, ranks)) out += to_text(split) + " ";
    return out;
  };
  CHECK(splits(1) == "1 x 1 ");
  CHECK(splits(8) == "1 x 8 2 x 4 4 x 2 ");  // four sequences
  CHECK(splits(6) == "1 x 6 2 x 3 ");
  r.memory.model.pooling = "cls";  // belongs to no part
  CHECK(splits(4) == "4 x 1 ");
  CHECK(splits(8) == "");
  r.memory.model.pooling = "mean";
  r.memory.model.max_length = 2;
  CHECK(splits(16) == "");
}

TEST_CASE("forecast: what fits comes first, then what is fastest") {
  const MemoryLimit limit{100 << 20, "a machine"};
  const auto of = [&](int64_t data, int64_t sequence, double seconds, double mib) {
    return Forecast{.split = {data, sequence},
                    .compute = seconds,
                    .memory = mib * (1 << 20),
                    .fits = mib <= 100};
  };
  const std::vector<Forecast> some = {of(1, 8, 3, 50), of(2, 4, 2, 90), of(4, 2, 1, 300)};
  const Choice second = choose(some, limit);
  CHECK(second.index == 1);
  CHECK(second.why ==
        "2 s a step, of those that fit the least; 1 x 8 takes 3 s; 4 x 2 needs 300 MiB a rank, a "
        "machine has 100 MiB");
  CHECK(choose({some[2], some[0]}, limit).why ==
        "3 s a step, and alone fits; 4 x 2 needs 300 MiB a rank, a machine has 100 MiB");
  CHECK(choose({some[0]}, limit).why == "3 s a step, and there is no other split");
  // If none fits, the smallest.
  const Choice none = choose({of(4, 1, 1, 400), of(2, 2, 2, 300)}, limit);
  CHECK(none.index == 1);
  CHECK(none.why == "does not fit: 2 x 2 needs 300 MiB a rank, a machine has 100 MiB");
  // One that does not fit is no choice, however fast it is.
  CHECK(choose({some[2], some[1]}, limit).index == 1);
  // Of equally fast ones, the one with fewer ranks to a sequence.
  CHECK(choose({of(1, 4, 0.99, 50), of(4, 1, 1, 50)}, limit).index == 1);
  CHECK(choose({of(4, 1, 1, 50), of(1, 4, 0.99, 50)}, limit).index == 0);
}

TEST_CASE("forecast: durations as text") {
  CHECK(seconds_text(0.0031) == "3.1 ms");
  CHECK(seconds_text(0.42) == "420 ms");
  CHECK(seconds_text(1.5) == "1.5 s");
  CHECK(seconds_text(119) == "119 s");
  CHECK(seconds_text(600) == "10 min");
  CHECK(seconds_text(3600 * 3) == "3 h");
  CHECK(seconds_text(86400 * 30) == "30 days");
  CHECK(seconds_text(86400.0 * 365.25 * 12) == "12 years");
}

TEST_CASE("forecast: rates of computation from the output of bench step") {
  const std::string text =
      R"({"kind": "bench step", "cells": [
        {"attention": "softmax", "length": 1024, "share_of_limit": 0.25, "machine_gflops": 3,
         "machine_exps_per_second": 4e9, "machine_bytes_per_second": 5e9},
        {"attention": "softmax", "length": 4096, "share_of_limit": 0.5, "machine_gflops": 30,
         "machine_exps_per_second": 40e9, "machine_bytes_per_second": 50e9},
        {"attention": "linear", "length": 8192, "share_of_limit": "NaN"}]})";
  const ComputeRates rates = compute_of_bench(text, "softmax", "step.json");
  CHECK(rates.rest == 2);
  CHECK(rates.attention == 2);
  CHECK(rates.machine.flops == 30e9);
  CHECK(rates.machine.exps == 40e9);
  CHECK(rates.machine.bytes == 50e9);
  CHECK_THAT(rates.source, Contains("step.json, 4096 tokens"));
  CHECK_THROWS_WITH(compute_of_bench(text, "performer", "step.json"),
                    "step.json: has no cell of performer, but of softmax, linear");
  CHECK_THROWS_WITH(compute_of_bench(text, "linear", "step.json"), Contains("share_of_limit"));
  for (const char* const wrong : {"", "[1]", "{}", R"({"kind": "bench attention", "cells": []})",
                                  R"({"kind": "bench step", "cells": [1]})"})
    CHECK_THROWS_AS(compute_of_bench(wrong, "softmax", "step.json"), DataError);
}
