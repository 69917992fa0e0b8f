// Trains a small Performer to copy symbols. README.md shows this file verbatim.
#include <iostream>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/data/loader.h"
#include "longhand/train/step/optimizers.h"

using namespace longhand;

int main() {
  Options options("data");
  options.set("task", "copy");
  options.set("length", int64_t{32});
  options.set("count", int64_t{4});
  const data::Task task = data::make_task(options, /*seed=*/1);
  data::Loader loader(*task.train, {.batch_size = 8}, Generator(1));

  attention::Transformer model(nn::root(DType::f32, /*seed=*/1),
                               {.vocabulary = task.info.vocabulary,
                                .classes = task.info.classes,
                                .per_token = task.info.per_token,
                                .max_length = task.info.max_length,
                                .d_model = 32,
                                .dropout = 0.1,
                                .attention = "performer"});
  const auto optimizer = train::make_adam(model.named_parameters());

  for (uint64_t step = 0; step < 50; ++step) {
    const data::Batch batch = loader.next();
    const nn::Pass pass = nn::Pass::train(Generator(1).fork(step));  // new masks at every step
    const Variable logits = model.forward(batch.tokens, batch.lengths, pass);
    const Variable loss = cross_entropy(logits, batch.targets);
    backward(loss);
    optimizer->step(/*lr=*/3e-3);
    model.after_step();  // a Performer redraws its random features here
    if (step % 10 == 9)
      std::cout << "step " << step + 1 << "  loss " << loss.value().item() << '\n';
  }
}
