// From its third step on, training requests no memory from the system.
#include <sys/resource.h>

#include <vector>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/trainer.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_kept = false;
#else
constexpr bool memory_is_kept = true;
#endif

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

/// Random tokens of one length, as batches of any task with static shapes.
class RandomTokens : public data::Dataset {
 public:
  RandomTokens(int64_t length, bool per_token) : length_(length), per_token_(per_token) {}
  int64_t size() const override { return 64; }
  int64_t length(int64_t) const override { return length_; }
  data::Batch collate(std::span<const int64_t> indices) const override {
    const int64_t B = std::ssize(indices);
    Tensor tokens = Tensor::empty({B, length_}, DType::i32);
    Tensor targets = Tensor::empty(per_token_ ? Shape{B, length_} : Shape{B}, DType::i32);
    RandomStream random{Generator(static_cast<uint64_t>(indices[0]))};
    for (Tensor* t : {&tokens, &targets})
      for (int64_t i = 0; i < t->numel(); ++i)
        t->data<int32_t>()[i] = static_cast<int32_t>(random.below(16));
    return {tokens, targets, {}};
  }

 private:
  int64_t length_;
  bool per_token_;
};

struct Step {
  int64_t faults;
  size_t reserved;
};

/// The memory obtained after each of six steps.
std::vector<Step> train_some_steps(attention::TransformerConfig config, TrainerOptions options) {
  config.vocabulary = config.classes = 16;
  config.max_length = 256;
  config.dropout = 0.1;
  data::Task task;
  task.train = std::make_unique<RandomTokens>(config.max_length, config.per_token);
  data::Loader loader(*task.train, {.batch_size = 8}, Generator(1));
  attention::Transformer model(nn::root(), config);
  const auto optimizer = make_adam(model.named_parameters(), {});
  // The graph's small blocks come from malloc, whose fragments occasionally reach a new page.
  { const std::vector<char> touched(size_t{8} << 20, 1); }
  std::vector<Step> steps;
  steps.reserve(6);
  options.steps = 6;
  options.step.clip_norm = 1;
  options.ema_decay = 0.9;
  options.log_every = 1;
  Trainer trainer(model, logits_of(model), *optimizer, {}, loader, task, options,
                  {.on_progress = [&](const train::Progress&) {
                    steps.push_back({page_faults(), memory_stats().reserved});
                  }});
  trainer.run();
  return steps;
}

}  // namespace

TEST_CASE("from the third step on, training requests no memory from the system") {
  if (!memory_is_kept) return;
  attention::TransformerConfig config;
  config.attention =
      GENERATE("softmax", "linformer", "performer", "nystrom", "linear", "window", "none");
  config.causal = config.per_token = GENERATE(false, true);
  if (config.causal && config.attention == "linformer") return;
  if (config.causal && config.attention == "nystrom") return;
  const bool recompute = GENERATE(false, true);
  if (recompute && config.attention != "performer") return;
  CAPTURE(config.attention, config.causal, recompute);
  if (config.attention == "performer") config.attention_options.set("redraw_interval", int64_t{1});

  // The assignment of work to threads varies, and so does the step at which each thread's stack
  // reaches its full size.
  const int before = threads();
  set_threads(1);
  release_free_memory();
  const auto steps = train_some_steps(
      config, {.step = {.micro_batches = recompute ? 2 : 1, .recompute = recompute}});
  set_threads(before);
  REQUIRE(steps.size() == 6);
  for (size_t i = 2; i < steps.size(); ++i) {
    CAPTURE(i);
    // One page in total may have another cause, such as a thread of oneTBB that ends; memory
    // requested by steps would be at least one page per step.
    CHECK(steps[i].faults <= steps[1].faults + 1);
    CHECK(steps[i].reserved == steps[1].reserved);
  }
}

TEST_CASE("a training step on several threads needs no more memory later on") {
  if (!memory_is_kept) return;
  attention::TransformerConfig config;
  config.attention = GENERATE("softmax", "performer");
  const int before = threads();
  set_threads(3);
  const auto steps = train_some_steps(config, {});
  set_threads(before);
  REQUIRE(steps.size() == 6);
  CHECK(steps[5].reserved <= steps[2].reserved + (size_t{2} << 20));
}
