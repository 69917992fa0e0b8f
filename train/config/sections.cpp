#include "longhand/train/config/sections.h"

namespace longhand::train {

void InitOptions::describe(OptionVisitor& v) {
  v.text(
      "init_from", from,
      "run directory or checkpoint file whose weights the model starts from, as far as they fit; "
      "empty: none");
  v.when(!from.empty(), "init_from", [&] {
    v.text("init_checkpoint", checkpoint,
           "checkpoint of that run: best, last or the name of another");
  });
}

void DistillOptions::describe(OptionVisitor& v, bool recompute) {
  v.text("distill_from", from,
         "run directory or checkpoint file of a teacher that the model also learns from; empty: "
         "none");
  v.when(!from.empty(), "distill_from", [&] {
    v.text("distill_checkpoint", checkpoint,
           "checkpoint of that run: best, last or the name of another");
    v.number("distill_logits", logits, {0, 1},
             "weight alpha of t^2 KL(teacher || student) of the predictions; the cross entropy has "
             "the weight 1 - alpha");
    v.number("distill_temperature", temperature, NumberRange::above(0),
             "temperature t of the predictions in that divergence");
    v.number(
        "distill_outputs", outputs, {0},
        "weight of the mean squared difference of the attention outputs, averaged over layers");
    v.require(outputs == 0 || !recompute, "distill_outputs",
              "recomputed blocks do not keep the outputs of their attention; expected "
              "train.recompute = false");
    v.number("distill_weights", weights, {0},
             "weight of the divergence of the attention weights, averaged over layers and heads; "
             "for variants with positive weights that sum to 1");
    v.require(weights == 0 || !recompute, "distill_weights",
              "recomputed blocks do not keep the inputs of their attention; expected "
              "train.recompute = false");
  });
}

void TrainSection::describe(OptionVisitor& v) {
  auto seed = static_cast<int64_t>(trainer.step.seed);
  v.integer("seed", seed, {0},
            "seed of the weights, the order of the examples, dropout and random features; "
            "generated data use data.seed");
  trainer.step.seed = static_cast<uint64_t>(seed);
  loading.describe(v);
  trainer.describe(v, loading.batch_size);
  init.describe(v);
  distill.describe(v, trainer.step.recompute);
  v.require(trainer.sequence_ranks == 1 || distill.from.empty(), "sequence_ranks",
            "a teacher compares whole sequences: expected 1 with distill_from");
  v.boolean("tensorboard", tensorboard,
            "whether to also write the metrics as TensorBoard events, to the folder tensorboard of "
            "the run");
  v.number("memory_limit", memory_limit, {0},
           "GiB of memory that the run may use; a run whose estimate exceeds it is refused before "
           "it begins; 0: what the machine has");
}

void OptimizerSection::describe(OptionVisitor& v) {
  optimizer.describe(v);
  schedule.describe(v);
}

}  // namespace longhand::train
