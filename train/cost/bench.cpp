#include "longhand/train/cost/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/gemm.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/math.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/statistics.h"
#include "longhand/core/storage.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/memory.h"

namespace longhand::train {

double limit(const Work& work, const Machine& machine) {
  return work.flops / machine.flops + work.exps / machine.exps + work.bytes / machine.bytes;
}

Work operator*(double factor, const Work& w) {
  return {factor * w.flops, factor * w.exps, factor * w.bytes};
}
Work operator+(const Work& a, const Work& b) {
  return {a.flops + b.flops, a.exps + b.exps, a.bytes + b.bytes};
}

Tensor random_ids(const Shape& shape, int64_t below, const Generator& generator) {
  Tensor out = Tensor::empty(shape, DType::i32);
  auto* const ids = out.data<int32_t>();
  for (int64_t i = 0; i < out.numel(); ++i)
    ids[i] = static_cast<int32_t>(generator.bits(static_cast<uint64_t>(i)) %
                                  static_cast<uint64_t>(below));
  return out;
}

namespace {

/// Returns the mean seconds per call, over as many calls as fit into the given time, at least one.
template <class F>
double mean_seconds(double at_least, F f) {
  const double start = clock_seconds();
  for (int64_t calls = 1;; ++calls) {
    f();
    const double seconds = clock_seconds() - start;
    if (seconds >= at_least) return seconds / static_cast<double>(calls);
  }
}

}  // namespace

double products_per_second(double at_least) {
  constexpr int64_t n = 1024, block = 128, blocks = 16;
  const Tensor a = Tensor::full({block * blocks, n}, 1), b = Tensor::full({n, n}, 1);
  Tensor c = Tensor::zeros({block * blocks, n});
  const auto by_blas = [&] {
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        gemm<float>(Trans::no, Trans::no, 1, {a.data<float>() + i * block * n, block, n, n},
                    {b.data<float>(), n, n, n}, 0, {c.data<float>() + i * block * n, block, n, n});
    });
  };
  const auto by_panels = [&] { matmul_into(c, a, b); };
  return 2.0 * block * blocks * n * n /
         std::min(mean_seconds(at_least / 2, by_blas), mean_seconds(at_least / 2, by_panels));
}

double exps_per_second(double at_least) {
  static constexpr int64_t n = 4096, rounds = 64, tasks = 64;  // 4,096 floats are 16 KiB
  return n * rounds * tasks / mean_seconds(at_least, [&] {
           parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
             std::vector<float> x(n), y(n);
             for (int64_t i = 0; i < n; ++i) x[i] = -static_cast<float>(i) / 256;
             for (int64_t task = begin; task < end; ++task)
               for (int64_t round = 0; round < rounds; ++round)
                 simd([from = x.data(), to = y.data()] {
                   for (int64_t i = 0; i < n; ++i) to[i] = math::exp(from[i]);
                 });
           });
         });
}

namespace {

double bytes_per_second(double at_least) {
  constexpr int64_t n = int64_t{1} << 24;  // 64 MiB each
  const Tensor x = Tensor::full({n}, 1);
  Tensor y = Tensor::zeros({n});
  return 3 * sizeof(float) * n / mean_seconds(at_least, [&] {
           kernels::elementwise<float>(
               y, [](float a, float b) { return 0.5F * a + b; }, kernels::in<float>(x),
               kernels::in<float>(y));
         });
}

double median(const std::vector<double>& x) { return quantile(x, 0.5); }

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

constexpr int64_t warm_up = 2, fewest = 3;  // repetitions

/// Returns whether `done` repetitions in `seconds` are enough.
bool are_enough(const BenchOptions& options, int64_t done, double seconds) {
  return options.repetitions ? done >= options.repetitions
                             : done >= fewest && seconds >= options.seconds;
}

/// Repeats `once`, which returns the seconds of its forward pass.
template <class F>
BenchResult repeat(const BenchOptions& options, F once) {
  constexpr double turn = 0.25, longest = 0.5;  // seconds
  std::vector<double> all, forward, products, exps;
  double total = 0, since = 0;  // `since`: since the machine was last measured
  BenchResult result;
  int64_t faults = 0, expected = std::max<int64_t>(options.repetitions, fewest);
  const auto enough = [&](int64_t done) { return are_enough(options, done, total); };
  for (int64_t i = -warm_up; !enough(i); ++i) {
    const int64_t faults_before = page_faults();
    const double start = clock_seconds();
    const double seconds_forward = once(i + warm_up);
    const double seconds = clock_seconds() - start;
    if (!options.repetitions)
      expected = std::max(fewest, static_cast<int64_t>(std::ceil(options.seconds / seconds)));
    if (options.on_progress) options.on_progress(i + 1 + warm_up, expected + warm_up);
    if (i < 0) {
      // Before the machine is measured, because that allocates too.
      result.allocated = static_cast<int64_t>(memory_stats().peak);
      continue;
    }
    all.push_back(seconds);
    forward.push_back(seconds_forward);
    faults += page_faults() - faults_before;
    total += seconds;
    since += seconds;
    if (since < turn && !enough(i + 1)) continue;
    products.push_back(products_per_second(std::min(longest, since / 8)));
    exps.push_back(exps_per_second(std::min(longest, since / 32)));
    since = 0;
  }
  result.seconds = median(all);
  result.seconds_low = quantile(all, 0.25);
  result.seconds_high = quantile(all, 0.75);
  result.seconds_forward = median(forward);
  result.repetitions = static_cast<int64_t>(all.size());
  result.page_faults = static_cast<double>(faults) / static_cast<double>(all.size());
  result.peak_memory = peak_resident_memory();
  result.machine = {median(products), median(exps), bytes_per_second(std::min(0.1, total / 8))};
  return result;
}

/// The section [optimizer] as read by bench.
struct BenchOptimizer {
  OptimizerOptions optimizer{.type = "adam"};
  double lr = 1e-3;

  void describe(OptionVisitor& v) {
    optimizer.describe(v);
    v.number("lr", lr, {0}, "learning rate");
  }
};

/// A model with an optimizer, and random tokens and targets for training.
class StepBench {
 public:
  StepBench(const attention::TransformerConfig& shape, const BenchOptimizer& optimization,
            int64_t batch, const BenchOptions& options)
      : model(nn::root(DType::f32, options.seed), shape),
        optimizer_(make_optimizer(optimization.optimizer, model.named_parameters())),
        lr_(optimization.lr),
        recompute_(options.recompute),
        random_(Generator(options.seed).fork("bench")),
        tokens_(random_ids({batch, shape.max_length}, shape.vocabulary, random_.fork("tokens"))),
        targets_(random_ids(shape.per_token ? Shape{batch, shape.max_length} : Shape{batch},
                            shape.classes, random_.fork("targets"))) {}

  /// Performs step i and returns the seconds of its forward pass.
  double step(int64_t i) {
    const double start = clock_seconds();
    nn::Pass pass = nn::Pass::train(random_.fork(static_cast<uint64_t>(i)));
    pass.recompute = recompute_;
    const Variable loss = cross_entropy(model.forward(tokens_, {}, pass), targets_);
    const double forward = clock_seconds() - start;
    backward(loss);
    optimizer_->step(lr_);
    model.after_step();
    return forward;
  }
  /// Computes the logits in evaluation mode, without gradients.
  void predict() {
    const NoGrad no_grad;
    model.forward(tokens_, {}, nn::Pass::evaluate());
  }

  attention::Transformer model;

 private:
  std::unique_ptr<Optimizer> optimizer_;
  double lr_;
  bool recompute_;
  Generator random_;
  Tensor tokens_, targets_;
};

/// Returns the request of a run with only training steps.
MemoryRequest steps_alone(const attention::TransformerConfig& model, int64_t batch) {
  MemoryRequest out;
  out.model = model;
  out.train.loading.batch_size = batch;
  out.train.trainer.eval_batch_size = 0;
  out.saves = false;
  return out;
}

// Values of width d, and h for the feed-forward part, read or written per token and layer, where
// everything that can share a pass over memory does:
//
//   forward    norm 2d, q k v 4d, attention 4d, output 2d, residual 3d, norm 2d, feed-forward
//              2d + 4h, residual 3d
//   backward   feed-forward 5d + 8h, norm 3d, residual 3d, output 4d, attention 8d, q k v 9d,
//              norm 3d, residual 3d
//
// so 22d + 4h, and 38d + 8h. Between its two products, a low-rank layer stays in the cache. The
// optimizer reads and writes 28 bytes per parameter.
StepWork model_work(const attention::TransformerConfig& c, double tokens, double parameters) {
  const auto d = static_cast<double>(c.d_model), h = static_cast<double>(c.d_mlp);
  const double n = tokens, layers = static_cast<double>(c.layers);
  double weights = 0;
  for (const attention::LinearLayer& linear : c.linear_layers())
    weights += static_cast<double>(linear.weights());
  if (c.per_token) weights += d * static_cast<double>(c.classes);
  // What surrounds the variants: per channel, 2 values read and written by short convolutions; for
  // a gate, its product, and g and the product with the result; for norms, their rows. The
  // feed-forward part adds one exponential per hidden element, unless its activation is relu.
  double channels = 0, around = 0, exps = 0;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    if (c.mlp != nn::FeedForward::Kind::relu) exps += h;
    if (c.around.short_conv > 0) {
      const auto width = static_cast<double>(c.projected_width(layer));
      channels += width;
      exps += width;
    }
    if (c.around.output_gate != "none") weights += d * d, around += 5 * d, exps += d;
    if (c.around.qk_norm != "none") around += 4 * d;
    if (c.around.head_norm != "none") around += 2 * d;
  }
  around += 4 * channels;
  const double taps = channels * static_cast<double>(c.around.short_conv);
  const Work forward{2 * n * (weights + taps), n * exps,
                     sizeof(float) * n * (layers * (22 * d + 4 * h) + around)};
  const Work backward{4 * n * (weights + taps), n * exps,
                      sizeof(float) * n * (layers * (38 * d + 8 * h) + 2 * around)};
  return {forward, backward, {}, {}, {0, 0, 28 * parameters}};
}

/// Returns the share of attention's work on one of `ranks` ranks that share each sequence.
double share_of_rank(const attention::Variant& variant, bool causal, int64_t ranks) {
  using attention::SequencePath;
  const auto P = static_cast<double>(ranks);
  switch (attention::sequence_path(variant, static_cast<int>(ranks))) {
    case SequencePath::gathered:
      return 1;
    case SequencePath::keys:
    case SequencePath::ring:
      // With causal attention, the last rank's queries see most of the keys: 1 - (1 - 1 / P)².
      return (causal ? 2 - 1 / P : 1) / P;
    default:
      return 1 / P;
  }
}

/// Adds `times` the work of a variant on a sequence with `tokens` tokens.
void add_attention(StepWork& to, const attention::Variant& variant, int64_t tokens, double times) {
  const attention::Work work = variant.work(tokens, tokens);
  const auto of = [&](const attention::Work::Counts& counts) {
    return times * Work{counts.flops, counts.exponentials, 0};
  };
  to.attention_forward = to.attention_forward + of(work.forward);
  to.attention_backward = to.attention_backward + of(work.backward);
}

/// Calls `with` for each layer's variant, constructed without the rest of the model.
void for_variants(const attention::TransformerConfig& model,
                  const std::function<void(const attention::Variant&)>& with) {
  const DryRun dry(double{int64_t{1} << 45});                        // large enough for any sizes
  std::map<std::string, std::unique_ptr<attention::Variant>> first;  // by type; owns shared ones
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    attention::Config config = model.attention_config(layer);
    const std::string& type = model.attention_of(layer);
    const nn::Scope scope = nn::root(DType::f32, 0);
    auto& owner = first[type];
    if (!owner) {
      owner = attention::make(type, scope, config);
      with(*owner);
    } else {
      config.first = owner.get();
      with(*attention::make(type, scope, config));
    }
  }
}

}  // namespace

StepWork step_work(const attention::TransformerConfig& model, double batch, double parameters,
                   int64_t sequence_ranks) {
  const int64_t N = model.max_length;
  const double tokens = batch * static_cast<double>(N) / static_cast<double>(sequence_ranks);
  StepWork out = model_work(model, tokens, parameters);
  for_variants(model, [&](const attention::Variant& variant) {
    add_attention(out, variant, N, batch * share_of_rank(variant, model.causal, sequence_ranks));
  });
  return out;
}

int64_t decoding_bytes(const attention::TransformerConfig& model) {
  int64_t total = 0;
  bool all = model.causal;
  for_variants(model, [&](const attention::Variant& variant) {
    all = all && variant.capabilities().decodes;
    if (all) total += variant.state_bytes(model.max_length);
  });
  if (model.around.short_conv > 0)
    for (int64_t layer = 0; layer < model.layers; ++layer)
      total += (model.around.short_conv - 1) * model.projected_width(layer) * model.element_bytes();
  return all ? total : 0;
}

void check_bench(const Config& config, bool attention_alone) {
  const attention::TransformerConfig model = read_model(config, nullptr);
  check<ConfigError>(model.dtype == "f32", "model.dtype = \"", model.dtype,
                     "\": benchmarks and the peak that they are compared with are of f32");
  check<ConfigError>(
      !attention_alone || model.layer_attention.empty(),
      "bench attention measures one layer, but the layers differ in their variant or its options (",
      model.attention_name(), "); expected one attention.type and no options of single layers");
  config.data().check_known({});
  config.train().check_known({});
  if (attention_alone)
    config.optimizer().check_known({});
  else
    read_section<BenchOptimizer>(config.optimizer());
}

BenchResult bench_step(const Config& config, int64_t batch, const BenchOptions& options) {
  check_bench(config, false);
  EffectiveSections values;
  const attention::TransformerConfig shape = read_model(config, nullptr, &values);
  const auto optimization = read_section<BenchOptimizer>(config.optimizer());
  MemoryRequest memory = steps_alone(shape, batch);
  memory.train.trainer.step.recompute = options.recompute;
  memory.optimizer.optimizer = optimization.optimizer;
  memory.effective = values;
  check_memory(memory);
  StepBench bench(shape, optimization, batch, options);
  BenchResult result = repeat(options, [&](int64_t i) { return bench.step(i); });
  result.parameters = bench.model.parameter_count();
  result.work =
      step_work(shape, static_cast<double>(batch), static_cast<double>(result.parameters));
  return result;
}

std::vector<ModelSeconds> compare_models(const std::vector<attention::TransformerConfig>& models,
                                         int64_t batch, const BenchOptions& options) {
  std::vector<std::unique_ptr<StepBench>> benches;
  for (const attention::TransformerConfig& model : models)
    benches.push_back(std::make_unique<StepBench>(model, BenchOptimizer(), batch, options));
  std::vector<std::vector<double>> forward(models.size()), step(models.size());
  double total = 0;
  for (int64_t i = -warm_up; !are_enough(options, i, total / static_cast<double>(models.size()));
       ++i)
    for (size_t m = 0; m < models.size(); ++m) {
      const double predicted = mean_seconds(0, [&] { benches[m]->predict(); });
      const double stepped = mean_seconds(0, [&] { benches[m]->step(i + warm_up); });
      if (i < 0) continue;
      forward[m].push_back(predicted);
      step[m].push_back(stepped);
      total += predicted + stepped;
    }
  std::vector<ModelSeconds> out;
  for (size_t m = 0; m < models.size(); ++m) out.push_back({median(forward[m]), median(step[m])});
  return out;
}

BenchResult bench_attention(const Config& config, int64_t batch, const BenchOptions& options) {
  check_bench(config, true);
  const attention::TransformerConfig shape = read_model(config, nullptr);
  attention::TransformerConfig alone = shape;
  alone.layers = alone.vocabulary = alone.classes = 1;
  alone.d_mlp = 0;
  alone.positions = "none";
  alone.tied_embeddings = false;
  MemoryRequest memory = steps_alone(alone, batch);
  memory.optimizer.optimizer.type = "sgd";
  check_memory(memory);
  const int64_t N = shape.max_length, H = shape.heads, D = shape.d_model / H;
  const auto variant = attention::make(shape.attention, nn::root(DType::f32, options.seed),
                                       shape.attention_config(0));

  const Generator random = Generator(options.seed).fork("bench");
  const auto leaf = [&](const char* name, int64_t heads) {
    Tensor t = Tensor::empty({batch, N, heads, D});
    fill_normal(t, random.fork(name));
    return Variable(t, true);
  };
  const int64_t kv_heads = shape.kv_heads ? shape.kv_heads : H;
  Variable q = leaf("q", H), k = leaf("k", kv_heads), v = leaf("v", kv_heads), x;
  if (variant->capabilities().uses_x)
    x = Variable(leaf("x", H).value().reshape({batch, N, H * D}), true);
  const Tensor seed = leaf("gradient", H).value();
  BenchResult result = repeat(options, [&](int64_t i) {
    const double start = clock_seconds();
    const nn::Pass pass = nn::Pass::train(random.fork(static_cast<uint64_t>(i)));
    const Variable out = variant->forward({q, k, v, x}, {}, pass);
    const double forward = clock_seconds() - start;
    backward(out, seed);
    for (Variable* input : {&q, &k, &v, &x})
      if (input->defined()) input->zero_grad();
    variant->zero_grad();
    return forward;
  });
  result.parameters = variant->parameter_count();
  add_attention(result.work, *variant, N, static_cast<double>(batch));
  // Bytes of q, k, v and the result: part of model_work(), but counted here for attention alone.
  const Work tensor{0, 0, sizeof(float) * static_cast<double>(batch * N * H * D)};
  result.work.forward = 4 * tensor;
  result.work.backward = 8 * tensor;
  return result;
}

}  // namespace longhand::train
