#include "longhand/train/cost/decode.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "longhand/attention/decoding/decoder.h"
#include "longhand/attention/registry.h"
#include "longhand/core/measure/clock.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/statistics.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/memory.h"
#include "longhand/train/cost/bench.h"

namespace longhand::train {
namespace {

constexpr int64_t settled = 1024;  // tokens after which a state grows forever, or not at all
constexpr int64_t warm_up = 2;     // uncounted steps
constexpr double rate_seconds = 0.01;
constexpr int64_t most_memory = int64_t{256}
                                << 20;  // in which rates are measured: exceeds all caches

/// Returns the steps measured after a context: few, so that its length stays about the same.
int64_t most_steps(int64_t context) { return std::max<int64_t>(4, context / 8); }

/// Returns random tokens of a batch, which are reused.
std::vector<attention::Token> random_tokens(const attention::TransformerConfig& model, bool uses_x,
                                            const DecodeOptions& options) {
  const int64_t B = options.batch, H = model.heads, G = model.kv_heads ? model.kv_heads : H,
                D = model.d_model / H;
  const Generator random = Generator(options.seed).fork("decode");
  std::vector<attention::Token> out(16);
  for (uint64_t i = 0; attention::Token & token : out) {
    const auto draw = [&](const Shape& shape) {
      Tensor t = Tensor::empty(shape);
      fill_normal(t, random.fork(i++));
      return t;
    };
    token = {draw({B, H, D}), draw({B, G, D}), draw({B, G, D})};
    if (uses_x) token.x = draw({B, H * D});
  }
  return out;
}

/// Returns this machine's best rate of passing over elements, since other load is not part of a
/// limit: bytes read per second; or, with `writes`, read and written, each counted once.
double memory_rate(Tensor& numbers, bool writes) {
  constexpr double turn = rate_seconds / 10;
  constexpr int64_t lanes = 64, block = int64_t{1} << 15;  // elements
  std::atomic<float> sink = 0;                             // forces the sums to be computed
  const auto pass = [&](int64_t begin, int64_t end) {
    simd([&, x = numbers.data<float>()] {
      float sums[lanes] = {};
      for (int64_t i = begin; i + lanes <= end; i += lanes)
        if (writes)
          for (int64_t l = 0; l < lanes; ++l) x[i + l] *= 0.999F;
        else
          for (int64_t l = 0; l < lanes; ++l) sums[l] += x[i + l];
      if (!writes) sink = *std::max_element(sums, sums + lanes);
    });
  };
  double best = 0;
  const double begin = clock_seconds();
  for (int64_t i = 0; i < 3 || clock_seconds() - begin < rate_seconds; ++i) {
    int64_t passes = 0;
    const double start = clock_seconds();
    for (; passes == 0 || clock_seconds() - start < turn; ++passes)
      parallel_for(numbers.numel(), block, pass);
    const double bytes = static_cast<double>(passes * numbers.numel()) * sizeof(float);
    best = std::max(best, bytes / (clock_seconds() - start));
  }
  return best;
}

/// Returns the best of three measurements of a rate.
double best_of(double (&rate)(double at_least)) {
  return std::max({rate(rate_seconds), rate(rate_seconds), rate(rate_seconds)});
}

/// Returns the cost of one more token in forward(), by its formula. Formulas of causal attention
/// are at most quadratic in the tokens, apart from blocks, over which the difference is a mean.
attention::Work::Counts work_of_token(const attention::Variant& variant, int64_t context) {
  const int64_t low = context - context / 2, high = context + context / 2 + 1;
  const auto after = variant.work(high, high).forward, before = variant.work(low, low).forward;
  const auto tokens = static_cast<double>(high - low);
  return {(after.flops - before.flops) / tokens,
          (after.exponentials - before.exponentials) / tokens};
}

/// Returns the variant, if it can be measured.
std::unique_ptr<attention::Variant> checked(const Config& config, const DecodeOptions& options) {
  check_bench(config, true);
  const attention::TransformerConfig model = read_model(config, nullptr);
  check<ConfigError>(
      std::ranges::adjacent_find(options.contexts, std::greater_equal()) == options.contexts.end(),
      "--context: expected lengths in increasing order");
  auto variant = attention::make(model.attention, nn::root(DType::f32, options.seed),
                                 model.attention_config(0));
  check<ConfigError>(
      variant->capabilities().decodes, model.attention,
      ": this variant has no decoder; `longhand variants` prints those that have one");
  check<ConfigError>(variant->config().causal, "bench decode: expected a causal model");
  // A growing cache is copied, keys and values one after the other.
  const double bytes =
      1.25 * static_cast<double>(options.batch * variant->state_bytes(decode_length(options)));
  const MemoryLimit limit = machine_memory();
  check<ConfigError>(bytes <= limit.bytes, model.attention, ": ", options.batch, " sequences of ",
                     options.contexts.back(), " tokens need ", bytes_text(bytes), ", but ",
                     limit.what, " has ", bytes_text(limit.bytes), "; reduce --batch or --context");
  return variant;
}

}  // namespace

int64_t decode_length(const DecodeOptions& options) {
  return options.contexts.back() + most_steps(options.contexts.back()) + warm_up;
}

void check_decode(const Config& config, const DecodeOptions& options) { checked(config, options); }

std::vector<DecodeCost> bench_decode(const Config& config, const DecodeOptions& options) {
  const auto variant = checked(config, options);
  const attention::TransformerConfig model = read_model(config, nullptr);
  const int64_t batch = options.batch, constant = variant->state_bytes(settled);
  const auto tokens = random_tokens(model, variant->capabilities().uses_x, options);
  const double products = best_of(products_per_second), exps = best_of(exps_per_second);
  // Read once for all sequences. Of parameters that belong to positions, a token needs only a row.
  const int64_t weights =
      variant->capabilities().fixed_length
          ? 0
          : variant->parameter_count() * static_cast<int64_t>(size_of(variant->parameter_dtype()));
  std::vector<DecodeCost> out;
  for (const int64_t context : options.contexts) {
    if (options.on_context) options.on_context(context);
    DecodeCost cost{.context = context, .state_bytes = variant->state_bytes(context)};
    const int64_t before = cost.state_bytes == constant ? std::min(context, settled) : context;
    std::vector<double> seconds;
    double total = 0;
    attention::Decoder::Traffic traffic;
    do {  // repeated from the start if steps are too short
      const auto decoder = variant->decoder(batch);
      const double filling = clock_seconds();
      for (int64_t i = 0; i < before; ++i) {
        if (clock_seconds() - filling > options.fill_seconds) return out;
        decoder->append(tokens[i % tokens.size()]);
      }
      for (int64_t i = -warm_up; i < most_steps(context); ++i) {
        const double start = clock_seconds();
        decoder->step(tokens[(i + warm_up) % tokens.size()]);
        const double taken = clock_seconds() - start;
        if (i < 0) continue;
        seconds.push_back(taken);
        total += taken;
        if (total >= options.seconds && seconds.size() >= 3) break;
      }
      traffic = decoder->traffic();
    } while (total < options.seconds && context <= 4 * settled);
    cost.seconds = quantile(seconds, 0.5);
    cost.seconds_low = quantile(seconds, 0.25);
    cost.seconds_high = quantile(seconds, 0.75);

    traffic.read += weights;
    const int64_t state = std::clamp<int64_t>(traffic.read + traffic.updated, 4096, most_memory);
    Tensor same_size = Tensor::full({state / 4}, 1);
    const auto work = work_of_token(*variant, context);
    const double bytes = static_cast<double>(traffic.read) / memory_rate(same_size, false) +
                         static_cast<double>(traffic.updated) / memory_rate(same_size, true);
    const double operations =
        static_cast<double>(batch) * (work.flops / products + work.exponentials / exps);
    cost.memory_bound = bytes > operations;
    cost.limit = std::max(bytes, operations);
    out.push_back(cost);
  }
  return out;
}

}  // namespace longhand::train
