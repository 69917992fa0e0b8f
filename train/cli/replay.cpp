// longhand replay: repeats a training step and names the operation that went wrong.
#include "longhand/train/evaluate/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/cli/progress.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_gradients = 8;  // that are printed

struct Arguments : Common {
  std::string file;
};

/// The name of a snapshot of a run: the last before-step-N.h5.
std::string last_snapshot(const fs::path& run) {
  std::string last;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("before-step-") && name.ends_with(".h5")) last = std::max(last, name);
  }
  check<ConfigError>(
      !last.empty(), run.string(),
      " has no checkpoints/before-step-N.h5, which training saves when a step is not "
      "finite or an outlier; name another checkpoint to repeat the step after it");
  return last;
}

std::string text_of(const train::ValueRange& range) {
  std::string out = concat_message(range.shape, " ", range.dtype);
  if (!std::isnan(range.least))
    out += fmt::format(", {:.4g} to {:.4g}", range.least, range.greatest);
  for (const auto& [count, what] : {std::pair{range.nan, "NaN"},
                                    {range.positive_infinity, "Inf"},
                                    {range.negative_infinity, "-Inf"}})
    if (count > 0) out += fmt::format(", {} {}", with_commas(count), what);
  if (!range.name.empty()) out += ": " + range.name;
  return out;
}

Json json_of(const train::ValueRange& range) {
  Json out = {{"shape", std::vector<int64_t>(range.shape.begin(), range.shape.end())},
              {"dtype", std::string(name_of(range.dtype))},
              {"least", json_number(range.least)},
              {"greatest", json_number(range.greatest)},
              {"nan", range.nan},
              {"inf", range.positive_infinity},
              {"minus_inf", range.negative_infinity}};
  if (!range.name.empty()) out["name"] = range.name;
  return out;
}

Json json_of(const std::vector<train::ValueRange>& ranges) {
  Json out = Json::array();
  for (const auto& range : ranges) out.push_back(json_of(range));
  return out;
}

Json json_of(const train::BadOperation& bad) {
  Json out = {{"operation", bad.operation},
              {"layer", bad.layer},
              {"pass", bad.backward ? "backward" : "forward"},
              {"inputs", json_of(bad.inputs)},
              {bad.backward ? "gradients_of_inputs" : "results", json_of(bad.results)}};
  if (bad.gradient) out["gradient_of_result"] = json_of(*bad.gradient);
  return out;
}

void print(const std::string& title, const std::vector<train::ValueRange>& ranges) {
  for (size_t i = 0; i < ranges.size(); ++i)
    print_stdout("  {:<24} {}\n", ranges.size() > 1 ? fmt::format("{} {}", title, i + 1) : title,
                 text_of(ranges[i]));
}

void print(const train::BadOperation& bad) {
  print_stdout("first value that is not finite: {} pass, {} in {}\n",
               bad.backward ? "backward" : "forward", bad.operation, bad.layer);
  print("input", bad.inputs);
  if (bad.gradient) print("gradient of its result", {*bad.gradient});
  print(bad.backward ? "gradient of input" : "result", bad.results);
}

void print(const train::ReplayedStep& step) {
  if (!step.state.empty()) print_stdout("not finite before the step:\n");
  for (const train::ValueRange& range : step.state) print_stdout("  {}\n", text_of(range));
  if (step.first) print(*step.first);
  if (!step.error.empty()) print_stdout("the step ended with an error: {}\n", step.error);
  if (!step.loss) return;
  print_stdout("loss {:.6g}, gradient norm {:.6g}: {}\n", *step.loss, *step.gradient_norm,
               step.defect.empty() ? "every value is finite" : step.defect);
  for (size_t i = 0; i < std::min(step.gradients.size(), most_gradients); ++i)
    print_stdout("  {:<48} gradient norm {:.4g}\n", step.gradients[i].parameter,
                 step.gradients[i].norm);
}

int replay(const Arguments& arguments) {
  const bool is_run = fs::is_directory(arguments.file);
  train::SavedModel snapshot =
      train::load_model(arguments.file, is_run ? last_snapshot(arguments.file) : "");
  if (!arguments.trust_paths) snapshot.check_paths({"data.path", "train.distill_from"});
  snapshot.accept_data = arguments.accept_data;
  const std::string warning = train::resume_warning(snapshot.checkpoint);
  if (!warning.empty() && !arguments.quiet) print_stderr("longhand: {}\n", warning);
  train::ReplayedStep step;
  {
    const Waiting wait(Progress::mode_for_stderr(arguments.quiet), "repeating the step");
    step = train::replay(snapshot);
  }
  if (arguments.json) {
    Json out = {{"snapshot", snapshot.file},
                {"step", step.step},
                {"learning_rate", json_number(step.learning_rate)},
                {"good", step.good()},
                {"not_finite_before", json_of(step.state)}};
    if (step.first) out["first"] = json_of(*step.first);
    if (!step.error.empty()) out["error"] = step.error;
    if (step.loss) {
      out["loss"] = json_number(*step.loss);
      out["gradient_norm"] = json_number(*step.gradient_norm);
      for (const auto& [parameter, norm] : step.gradients)
        out["gradients"].push_back({{"parameter", parameter}, {"norm", json_number(norm)}});
    }
    if (!step.defect.empty()) out["defect"] = step.defect;
    print_json(out);
  } else {
    print_stdout("{}: step {}, learning rate {:.6g}\n", snapshot.file, step.step,
                 step.learning_rate);
    print(step);
  }
  return step.good() ? success : diverged;
}

}  // namespace

void add_replay(Command& program) {
  const auto a = std::make_shared<Arguments>();
  Command c = program.command(
      "replay", "Repeat a training step with every operation checked, to find the first bad value",
      [a] { return replay(*a); });
  c.add("file", a->file, "FILE.h5",
        "Snapshot that training saved before a bad step, or another checkpoint; or a run "
        "directory, whose last snapshot is taken")
      .required();
  c.trust_paths(*a);
  c.accept_data(*a);
  c.threads();
  c.quiet(*a);
  c.json(a->json);
  c.footer(
      "Names the operation, its layer, the pass, and the ranges of its inputs and results. Nothing "
      "is written. Exit codes: 0 if every value of the step is finite and it is no outlier, 4 "
      "otherwise. Example:\n"
      "  longhand replay runs/mqar/checkpoints/before-step-00000120.h5");
}

}  // namespace longhand::cli
