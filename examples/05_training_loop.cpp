// Lesson 5: a training loop, by hand.
//
// `longhand train` does this with evaluation, checkpoints and resumption; this program has only the
// essential lines: batch, forward, backward, clip, step, as Step in train/step/step.cpp has them. The
// task is associative recall (MQAR): pairs of keys and values, then some of the keys again, whose
// values must be remembered.
#include <iostream>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/data/loader.h"
#include "longhand/train/step/evaluation.h"
#include "longhand/train/step/optimizers.h"
#include "longhand/train/step/schedule.h"

using namespace longhand;

int main() {
  // Data: 32 tokens that hold 4 pairs of keys and values.
  Options options("data");
  options.set("task", "mqar");
  options.set("length", int64_t{32});
  options.set("pairs", int64_t{4});
  options.set("vocabulary", int64_t{1024});
  const data::Task task = data::make_task(options, /*seed=*/1);
  data::Loader loader(*task.train, {.batch_size = 128}, Generator(1));

  // Model: a Transformer of two blocks, with any variant of `longhand variants`.
  attention::TransformerConfig config;
  config.vocabulary = task.info.vocabulary;
  config.classes = task.info.classes;
  config.per_token = task.info.per_token;
  config.max_length = task.info.max_length;
  config.d_model = 64;
  config.heads = 1;
  config.d_mlp = 0;  // recall needs only attention
  config.attention = "softmax";
  attention::Transformer model(nn::root(DType::f32, /*seed=*/1), config);

  const auto optimizer = train::make_adam(model.named_parameters(), {.weight_decay = 0.1});
  const int64_t steps = 600;
  const train::Schedule schedule{
      .kind = train::Schedule::Kind::cosine, .lr = 3e-3, .warmup_steps = 20, .total_steps = steps};

  for (int64_t step = 0; step < steps; ++step) {
    const data::Batch batch = loader.next();
    const nn::Pass pass = nn::Pass::train(Generator(1).fork(static_cast<uint64_t>(step)));
    // Most tokens have no target, so the head of the model can skip them.
    const Tensor places = train::counted_places(batch.targets);
    const Variable loss = cross_entropy(model.forward(batch.tokens, batch.lengths, pass, places),
                                        train::targets_at(batch.targets, places));
    backward(loss);
    const train::Gradients gradients = train::take_gradients(model.named_parameters());
    const double norm = train::global_norm(gradients);
    optimizer->step(schedule.at(step), gradients, train::clip_scale(norm, 1.0));
    model.after_step();  // a Performer redraws its features here
    if (step % 100 == 0)
      std::cout << "step " << step << "  loss " << loss.value().item() << "  |g| " << norm << '\n';
  }

  const auto metrics = train::evaluate(
      [&](const data::Batch& b, const nn::Pass& pass) {
        return train::Prediction{model.forward(b.tokens, b.lengths, pass), b.targets};
      },
      *task.test, {.batch_size = 64, .limit = 256});
  std::cout << "accuracy on the test split: " << metrics->accuracy() << '\n';
  return metrics->accuracy() > 0.9 ? 0 : 1;
}
