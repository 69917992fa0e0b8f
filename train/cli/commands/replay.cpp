// longhand replay: repeats a training step and names the operation that went wrong.
#include "longhand/train/evaluate/replay.h"
#include "longhand/train/cli/commands/commands.h"

namespace longhand::train {

void fields(Is<ValueRange> auto& r, auto& f) {
  f("shape", std::vector<int64_t>(r.shape.begin(), r.shape.end()));
  f("dtype", std::string(name_of(r.dtype)));
  f("least", r.least);
  f("greatest", r.greatest);
  f("nan", r.nan);
  f("inf", r.positive_infinity);
  f("minus_inf", r.negative_infinity);
  f.filled("name", r.name);
}

void fields(Is<BadOperation> auto& b, auto& f) {
  f("operation", b.operation);
  f("layer", b.layer);
  f("pass", b.backward ? "backward" : "forward");
  f("inputs", b.inputs);
  f(b.backward ? "gradients_of_inputs" : "results", b.results);
  f("gradient_of_result", b.gradient);
}

void fields(Is<GradientNorm> auto& g, auto& f) {
  f("parameter", g.parameter);
  f("norm", g.norm);
}

}  // namespace longhand::train

namespace longhand::cli {
namespace {

constexpr size_t most_gradients = 8;  // printed at most

/// Prints an operation.
void print(Answer& out, const train::BadOperation& bad) {
  out.print("first value that is not finite: {} pass, {} in {}\n",
            bad.backward ? "backward" : "forward", bad.operation, bad.layer);
  const auto print = [&](const std::string& title, const std::vector<train::ValueRange>& ranges) {
    for (size_t i = 0; i < ranges.size(); ++i)
      out.print("  {:<24} {}\n", ranges.size() > 1 ? fmt::format("{} {}", title, i + 1) : title,
                to_text(ranges[i]));
  };
  print("input", bad.inputs);
  if (bad.gradient) print("gradient of its result", {*bad.gradient});
  print(bad.backward ? "gradient of input" : "result", bad.results);
}

int answer(const Common& arguments, const std::string& file, const train::ReplayedStep& step) {
  Answer out(arguments.json);
  out.add("snapshot", file)
      .add("step", step.step)
      .add("learning_rate", step.learning_rate)
      .add("good", step.good())
      .add("not_finite_before", step.state)
      .add("first", step.first)
      .text("{snapshot}: step {step}, learning rate {learning_rate:.6g}\n");
  if (!step.state.empty()) out.literal("not finite before the step:\n");
  for (const train::ValueRange& range : step.state) out.literal("  " + to_text(range) + "\n");
  if (step.first) print(out, *step.first);
  if (!step.error.empty())
    out.add("error", step.error).text("the step ended with an error: {error}\n");
  out.add("loss", step.loss).add("gradient_norm", step.gradient_norm);
  if (step.loss && !step.gradients.empty()) out.add("gradients", step.gradients);
  if (!step.defect.empty()) out.add("defect", step.defect);
  if (!step.loss) return out.end(step.good() ? success : diverged);
  out.text("loss {loss:.6g}, gradient norm {gradient_norm:.6g}: ")
      .literal(step.defect.empty() ? "every value is finite\n" : step.defect + "\n");
  for (size_t i = 0; i < std::min(step.gradients.size(), most_gradients); ++i)
    out.print("  {:<48} gradient norm {:.4g}\n", step.gradients[i].parameter,
              step.gradients[i].norm);
  return out.end(step.good() ? success : diverged);
}

int replay(const Common& arguments) {
  const bool is_run = fs::is_directory(arguments.run);
  train::SavedModel snapshot =
      train::load_model(arguments.run, is_run ? train::last_snapshot(arguments.run) : "");
  if (!arguments.trust_paths) snapshot.check_paths({"data.path", "train.distill_from"});
  snapshot.accept_data = arguments.accept_data;
  const std::string warning = train::resume_warning(snapshot.checkpoint);
  if (!warning.empty() && !arguments.quiet) print_stderr("longhand: {}\n", warning);
  const train::ReplayedStep step = [&] {
    const Waiting wait(arguments.quiet, "repeating the step");
    return train::replay(snapshot);
  }();
  return answer(arguments, snapshot.file, step);
}

}  // namespace

void add_replay(Command& program) {
  auto [c, a] = program.command<Common>("replay", replay);
  c.add("file", a->run).required();
  c.common(*a, "trust_paths accept_data threads quiet json");
}

}  // namespace longhand::cli
