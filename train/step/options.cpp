#include "longhand/train/step/options.h"

#include <algorithm>

#include "longhand/core/error.h"

namespace longhand::train {

void TrainerOptions::describe(OptionVisitor& v, int64_t batch_size) {
  v.integer("steps", steps, {1}, "total number of optimizer steps");
  v.integer("shards", step.shards, {1},
            "number of parts of a batch that are distributed over ranks, a power of two; any "
            "number of ranks up to it that is also a power of two gives bitwise identical results; "
            "at most batch_size");
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
  v.integer("sequence_ranks", sequence_ranks, {1},
            "number of ranks that share each sequence (sequence parallelism), to train on longer "
            "ones: a divisor of the number of ranks; such groups divide the examples");
  v.boolean("shard_optimizer", shard_optimizer,
            "whether each rank keeps only its part of the optimizer's moving averages (ZeRO-1): "
            "less memory, one more message per step, bitwise identical results");
  v.integer("compare_every", compare_every, {0},
            "steps between comparisons of the parameters of all ranks, which must be bitwise "
            "identical; 0: never");
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
            "steps between hashes of all parameters in metrics.jsonl, which are equal if runs are "
            "bitwise identical; 0: none");
  v.choice("on_io_error", on_io_error, {"warn", "stop"},
           "what happens if metrics or a checkpoint cannot be written: warn, continue and try "
           "again at the next one, or save what can be saved and stop");
  step.guard.describe(v);
}

void GuardOptions::describe(OptionVisitor& v) {
  v.choice(
      "on_bad_step", on_bad_step, {{"stop", Action::stop}, {"skip", Action::skip}},
      "what happens if the loss or the gradient of a step is not finite or an outlier: training "
      "stops, or the update of that step is skipped; a snapshot for longhand replay is kept");
  v.when(on_bad_step == Action::skip, "on_bad_step = \"skip\"", [&] {
    v.integer("max_skips", max_skips, {1},
              "number of consecutive steps that may be skipped; the next bad step stops training");
  });
  v.number("outlier_limit", outlier_limit, {0},
           "a step is an outlier if its loss or gradient norm is more than this number of standard "
           "deviations above its running mean; 0: no limit");
  v.when(outlier_limit > 0, "outlier_limit above 0", [&] {
    v.integer("outlier_window", outlier_window, {2},
              "window of the running mean and standard deviation, in steps; checks begin after it");
  });
}

void Schedule::describe(OptionVisitor& v) {
  v.choice("schedule", kind,
           {{"constant", Kind::constant},
            {"linear", Kind::linear},
            {"cosine", Kind::cosine},
            {"inverse_sqrt", Kind::inverse_sqrt},
            {"one_cycle", Kind::one_cycle}},
           "learning rate schedule");
  v.number("lr", lr, {0}, "peak learning rate of the schedule");
  warmup_steps = kind == Kind::one_cycle ? total_steps * 3 / 10 : 0;
  v.integer("warmup_steps", warmup_steps, {0}, "number of linear warm-up steps",
            "0; 3/10 of train.steps with one_cycle");
  v.when(kind == Kind::linear || kind == Kind::cosine, "schedule = \"linear\" or \"cosine\"", [&] {
    v.number("final_lr", final_lr, {0}, "final learning rate, at most lr");
    v.require(final_lr <= lr, "final_lr", concat_message("expected at most lr = ", lr));
  });
}

}  // namespace longhand::train
