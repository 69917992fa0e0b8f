// longhand convert: makes the linear layers of a trained model low-rank.
#include "longhand/train/transfer/convert.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::cli {
namespace {

struct ConvertArguments : Common {
  std::string low_rank;
  bool no_evaluate = false;
  double seconds = 1;
};

/// Metrics of the model before and after conversion.
struct Evaluated {
  train::Metrics before, after;
};

Evaluated evaluated_by(const ConvertArguments& a, const train::SavedModel& run,
                       const train::Conversion& conversion) {
  const train::LoadedRun whole = open_run(a, run, a.quiet);
  attention::Transformer converted(nn::root(), conversion.after);
  load_weights(converted, conversion.checkpoint);
  const auto metrics = [&](attention::Transformer& model, const std::string& what) {
    Progress progress(a.quiet, "evaluate", 2);
    return *train::evaluate(train::logits_of(model), *whole.dataset,
                            {.batch_size = whole.experiment->options.eval_batch_size,
                             .on_progress = [&](const train::EvaluationProgress& p) {
                               progress.update(p.examples, p.all_examples, what);
                             }});
  };
  return {metrics(whole.model(), "before"), metrics(converted, "after")};
}

/// Times of both models on training-sized batches.
struct Timed {
  int64_t batch;
  train::ModelSeconds before, after;
};

Timed measure(const ConvertArguments& a, const train::SavedModel& run,
              const train::Conversion& conversion) {
  const Waiting waiting(a.quiet, "timing");
  const int64_t batch = read_options<train::TrainSection>(run.config.train()).loading.batch_size;
  const auto times =
      train::compare_models({conversion.before, conversion.after}, batch, {.seconds = a.seconds});
  return {batch, times[0], times[1]};
}

/// Returns the parameters of a layer with this rank, including its bias; 0: full.
int64_t parameters_of(const attention::LinearLayer& layer, int64_t rank) {
  return layer.weights_of_rank(rank) + layer.out;
}

train::Table table_of(const train::Conversion& conversion) {
  train::Table table{.name = "layers", .title = "Linear layers"};
  for (const train::ConvertedLayer& each : conversion.layers)
    add_row(table, {{"layer", each.layer.name},
                    {"shape", fmt::format("{} x {}", each.layer.out, each.layer.in)},
                    {"rank", each.chosen},
                    {"form", each.is_full() ? "full" : "low rank"},
                    {"energy", each.energy, "energy kept"},
                    {"error", each.error, "relative error"},
                    {"before", parameters_of(each.layer, 0), "parameters before"},
                    {"after", parameters_of(each.layer, each.layer.rank)}});
  return table;
}

int answer(const ConvertArguments& a, const train::SavedModel& run,
           const train::Conversion& conversion, const std::optional<Evaluated>& evaluated,
           const Timed& timed) {
  Answer out(a.json);
  out.add("checkpoint", run.file)
      .add("step", run.checkpoint.training.step)
      .add("out", a.out)
      .add("low_rank", conversion.after.low_rank)
      .add("layers",
           list_of(conversion.layers,
                   [](const train::ConvertedLayer& each) -> Json {
                     return {{"name", each.layer.name},
                             {"shape", {each.layer.out, each.layer.in}},
                             {"rank", each.chosen},
                             {"full", each.is_full()},
                             {"energy", each.energy},
                             {"error", each.error},
                             {"parameters_before", parameters_of(each.layer, 0)},
                             {"parameters_after", parameters_of(each.layer, each.layer.rank)}};
                   }))
      .add("parameters_before", conversion.parameters_before)
      .add("parameters_after", conversion.parameters_after)
      .text("checkpoint     {checkpoint} (step {step})\n\n")
      .table(table_of(conversion));
  if (std::ranges::any_of(conversion.layers, [](const auto& each) { return each.is_full(); }))
    out.text("full: factors of this rank would hold at least as many parameters as the weight\n");
  out.print("\nparameters     {} -> {} ({:.0f} %)\n", with_commas(conversion.parameters_before),
            with_commas(conversion.parameters_after),
            100 * static_cast<double>(conversion.parameters_after) /
                static_cast<double>(conversion.parameters_before));
  if (evaluated) {
    const train::Metrics &before = evaluated->before, &after = evaluated->after;
    out.add("evaluation", Json{{"split", a.split},
                               {"examples", before.examples},
                               {"loss_before", json_number(before.loss())},
                               {"loss_after", json_number(after.loss())},
                               {"accuracy_before", json_number(before.accuracy())},
                               {"accuracy_after", json_number(after.accuracy())}});
    const auto line = [](const char* what, double from, double to) {
      return fmt::format("{:<14} {:.6f} -> {:.6f} ({:+.6f})\n", what, from, to, to - from);
    };
    out.literal(fmt::format("{:<14} {}\n", a.split, counted(before.examples, "example")) +
                line("loss", before.loss(), after.loss()) +
                line("accuracy", before.accuracy(), after.accuracy()));
  }
  out.add("time", Json{{"batch", timed.batch},
                       {"length", conversion.before.max_length},
                       {"forward_seconds_before", timed.before.forward},
                       {"forward_seconds_after", timed.after.forward},
                       {"step_seconds_before", timed.before.step},
                       {"step_seconds_after", timed.after.step}});
  const auto time = [](const char* what, double before, double after) {
    return fmt::format("{:<14} {:.3f} ms -> {:.3f} ms ({:.2f} times as fast)\n", what, 1e3 * before,
                       1e3 * after, before / after);
  };
  out.literal(time("forward pass", timed.before.forward, timed.after.forward) +
              time("training step", timed.before.step, timed.after.step));
  out.print("               medians, in turn, on {} x {} random tokens\n", timed.batch,
            conversion.before.max_length);
  return out.text("written        {out}\n").end();
}

int convert(const ConvertArguments& a) {
  const auto rule = train::LowRankRule::parse(a.low_rank);
  train::check_model_path(a.out);
  if (!a.no_evaluate) data::Splits::only(a.split);
  train::SavedModel run = train::load_model(a.run, a.checkpoint);
  if (!a.no_evaluate && !a.trust_paths) run.check_paths();
  run.accept_data = true;
  const train::Conversion conversion = [&] {
    const Waiting waiting(a.quiet, "factoring weights");
    return train::convert_to_low_rank(run, rule);
  }();
  std::optional<Evaluated> evaluated;
  if (!a.no_evaluate) evaluated = evaluated_by(a, run, conversion);
  const Timed timed = measure(a, run, conversion);
  train::write_model(a.out, conversion.checkpoint);
  return answer(a, run, conversion, evaluated, timed);
}

}  // namespace

void add_convert(Command& program) {
  auto [c, a] = program.command<ConvertArguments>("convert", convert);
  a->split = "validation";
  c.common(*a, "run");
  c.add("--low-rank", a->low_rank).required();
  c.add("--out", a->out).required();
  c.common(*a, "checkpoint");
  c.add("--split", a->split);
  c.common(*a, "trust_paths");
  c.flag("--no-evaluate", a->no_evaluate);
  c.add("--seconds", a->seconds).not_negative();
  c.common(*a, "threads quiet json");
}

}  // namespace longhand::cli
