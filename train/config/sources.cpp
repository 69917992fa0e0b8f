#include "longhand/train/config/sources.h"

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
    v.number("distill_outputs", outputs, {0},
             "weight of the mean squared difference of the attention outputs, mean over layers");
    v.require(outputs == 0 || !recompute, "distill_outputs",
              "blocks that are recomputed do not keep the outputs of their attention; expected "
              "train.recompute = false");
    v.number("distill_weights", weights, {0},
             "weight of the divergence of the attention weights, mean over layers and heads; for "
             "variants with positive weights that sum to 1");
    v.require(weights == 0 || !recompute, "distill_weights",
              "blocks that are recomputed do not keep the inputs of their attention; expected "
              "train.recompute = false");
  });
}

}  // namespace longhand::train
