#include "longhand/train/step/options.h"

#include <algorithm>

#include "longhand/core/error.h"

namespace longhand::train {

void TrainerOptions::describe(OptionVisitor& v, int64_t batch_size) {
  v.integer("steps", steps, {1}, "total number of optimizer steps");
  v.integer(
      "shards", step.shards, {1},
      "number of parts of a batch that are distributed over ranks, a power of two: any number of "
      "ranks up to it, also a power of two, gives the same bits; at most batch_size");
  v.require((step.shards & (step.shards - 1)) == 0, "shards", "expected a power of two");
  v.require(step.shards <= batch_size, "shards",
            concat_message("expected at most batch_size = ", batch_size));
  v.integer("micro_batches", step.micro_batches, {1},
            "number of micro-batches that each batch, or each shard of it, is split into, to save "
            "memory; at most batch_size / shards");
  v.require(step.micro_batches <= batch_size / step.shards, "micro_batches",
            step.shards == 1 ? concat_message("expected at most batch_size = ", batch_size)
                             : concat_message("expected at most batch_size / shards = ",
                                              batch_size / step.shards));
  v.integer(
      "sequence_ranks", sequence_ranks, {1},
      "number of ranks that each sequence is cut over, to train on longer ones: a divisor of the "
      "number of ranks; the others divide the examples");
  v.boolean(
      "shard_optimizer", shard_optimizer,
      "whether each rank keeps only its part of the optimizer's moving averages (ZeRO-1): less "
      "memory, one more message a step, the same bits");
  v.integer(
      "compare_every", compare_every, {0},
      "steps between comparisons of the parameters of all ranks, which must have the same bits; "
      "0: never");
  v.boolean(
      "recompute", step.recompute,
      "whether to recompute the activations of each block in the backward pass, to save memory");
  v.number("clip_norm", step.clip_norm, {0}, "maximum global gradient norm; 0: no clipping");
  v.number("label_smoothing", label_smoothing, {0, 1},
           "fraction of the target probability spread uniformly over all classes; training only");
  v.number(
      "ema_decay", ema_decay, NumberRange::fraction(),
      "decay of the exponential moving average of the weights, used in evaluation; 0: no average");
  v.integer("log_every", log_every, {1}, "steps between records of training metrics");
  eval_every = std::max<int64_t>(steps / 10, 1);
  v.integer("eval_every", eval_every, {0}, "steps between evaluations; 0: only after the last step",
            "steps / 10");
  eval_batch_size = batch_size;
  v.integer("eval_batch_size", eval_batch_size, {1}, "examples per batch in evaluation",
            "batch_size");
  v.integer("eval_batches", eval_batches, {0},
            "validation batches per evaluation, of each segment of a mixture; 0: all");
  v.choice("best_metric", best_metric, {"loss", "accuracy"},
           "validation metric that selects the best checkpoint");
  v.integer("patience", patience, {0},
            "number of evaluations without improvement after which training stops; 0: never");
  v.number("target_accuracy", target_accuracy, {0, 1},
           "validation accuracy at which training stops; 0: never");
  checkpoint_every = eval_every;
  v.integer("checkpoint_every", checkpoint_every, {0},
            "steps between updates of last.h5; 0: only at the end and when stopped", "eval_every");
  v.integer("keep_every", keep_every, {0},
            "steps between checkpoints that are kept as step-N.h5; 0: none");
  v.integer("hash_every", hash_every, {0},
            "steps between hashes of all parameters in metrics.jsonl, which are equal in runs that "
            "give the same bits; 0: none");
  v.choice(
      "on_io_error", on_io_error, {"warn", "stop"},
      "what happens if metrics or a checkpoint cannot be written: warn, train on and try again "
      "with the next, or save what can be saved and stop");
  step.guard.describe(v);
}

}  // namespace longhand::train
