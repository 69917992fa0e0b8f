// longhand checkpoint: verifies checkpoints and lists their contents; other files add its other commands.
#include "longhand/train/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/core/error.h"
#include "longhand/train/cli/checkpoint.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"

namespace longhand::cli {
namespace {

namespace fs = std::filesystem;

std::string text_of(const Shape& shape) { return concat_message(shape); }

int64_t numbers(const nn::StateDict& state) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : state) sum += tensor.numel();
  return sum;
}

Json to_json(const nn::StateDict& state) {
  Json out = Json::array();
  for (const auto& [name, tensor] : state)
    out.push_back({{"name", name},
                   {"dtype", std::string(name_of(tensor.dtype()))},
                   {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  return out;
}

void print_state(const std::string& title, const nn::StateDict& state) {
  if (state.empty()) return;
  print_stdout("\n{}: {} tensors, {} numbers\n", title, state.size(), with_commas(numbers(state)));
  for (const auto& [name, tensor] : state)
    print_stdout("  {:<48} {:<4} {}\n", name, name_of(tensor.dtype()), text_of(tensor.shape()));
}

int inspect(const std::string& file, bool json) {
  // load() verifies the digest before anything else.
  const train::Checkpoint checkpoint = train::load(file);
  const train::TrainingState& state = checkpoint.training;
  if (json) {
    Json out = {{"file", file},
                {"digest", "ok"},
                {"written_by", {{"version", checkpoint.version}, {"machine", checkpoint.machine}}},
                {"step", state.step},
                {"seed", state.seed},
                {"epoch", state.cursor.epoch},
                {"batch", state.cursor.batch},
                {"model", to_json(checkpoint.model)},
                {"optimizer", to_json(checkpoint.optimizer)},
                {"ema", to_json(checkpoint.ema)},
                {"config", checkpoint.config}};
    if (state.best) {
      out["best"] = json_number(*state.best);
      out["best_step"] = state.best_step;
    }
    print_json(out);
    return success;
  }
  print_stdout("file     {}\ndigest   ok\nversion  {}\nmachine  {}\n", file, checkpoint.version,
               checkpoint.machine);
  print_stdout("step     {}\nseed     {}\nnext     batch {} of epoch {}\n", state.step, state.seed,
               state.cursor.batch, state.cursor.epoch);
  if (state.best) print_stdout("best     {} after step {}\n", *state.best, state.best_step);
  print_state("model", checkpoint.model);
  print_state("optimizer", checkpoint.optimizer);
  print_state("averaged weights", checkpoint.ema);
  print_stdout("\nconfiguration:\n{}", checkpoint.config);
  return success;
}

/// The checkpoints in folders named `checkpoints`: a directory, or any below it.
std::vector<std::string> checkpoints_below(const std::string& all) {
  const fs::path directory = (fs::path(all) / "").parent_path();  // without a slash at its end
  check<ConfigError>(fs::is_directory(directory), "--all ", directory.string(),
                     ": expected a directory");
  const bool is_folder = fs::canonical(directory).filename() == "checkpoints";
  std::vector<std::string> out;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(directory, options), end; entry != end; ++entry) {
    const fs::path& path = entry->path();
    // A hidden folder may be an incomplete copy.
    if (path.filename().string().starts_with('.')) entry.disable_recursion_pending();
    const fs::path folder = path.parent_path();
    const bool is_checkpoint =
        folder.filename() == "checkpoints" || (is_folder && folder == directory);
    if (is_checkpoint && path.extension() == ".h5" && !path.filename().string().starts_with('.'))
      out.push_back(path.string());
  }
  check<ConfigError>(!out.empty(), "--all ", directory.string(),
                     ": no folder named checkpoints with files *.h5 in it or below it");
  std::sort(out.begin(), out.end());
  return out;
}

int verify(std::vector<std::string> files, const std::string& all, bool json) {
  check<ConfigError>(files.empty() != all.empty(),
                     "checkpoint verify: expected FILE... or --all DIR");
  if (!all.empty()) files = checkpoints_below(all);
  Json out = Json::array();
  int64_t invalid = 0;
  for (const std::string& file : files) {
    std::string reason;
    int64_t step = 0;
    try {
      step = train::load(file).training.step;
    } catch (const DataError& error) {
      reason = error.what();
      ++invalid;
    }
    if (!json)
      print_stdout("{}\n",
                   one_line(reason.empty() ? fmt::format("ok       {} (step {})", file, step)
                                           : "invalid  " + bounded(reason, 1000)));
    out.push_back({{"file", file}, {"valid", reason.empty()}});
    if (reason.empty())
      out.back()["step"] = step;
    else
      out.back()["reason"] = reason;
  }
  if (json) print_json({{"files", out}, {"invalid", invalid}});
  check<DataError>(invalid == 0, invalid, " of ", files.size(), " checkpoints are invalid");
  return success;
}

}  // namespace

void add_checkpoint(Command& program) {
  struct Arguments {
    std::string file, all;
    std::vector<std::string> files;
    bool json = false;
  };
  const auto a = std::make_shared<Arguments>();
  Command group =
      program.group("checkpoint", "Inspect, verify, compare, exchange and repair checkpoints");
  Command c = group.command("inspect", "Verify a checkpoint and list its contents",
                            [a] { return inspect(a->file, a->json); });
  c.add("file", a->file, "FILE.h5", "A checkpoint").required();
  c.json(a->json);
  Command v = group.command("verify", "Verify checkpoints; exits with 3 if any is invalid",
                            [a] { return verify(a->files, a->all, a->json); });
  v.add("files", a->files, "FILE.h5", "Checkpoints");
  v.add(
      "--all", a->all, "DIR",
      "Every checkpoint of the runs and sweeps below a directory: the files *.h5 in folders named "
      "checkpoints");
  v.json(a->json);
  v.footer(
      "Every byte is compared with the digest, then everything is read, as to load it. Where "
      "last.h5 is invalid, longhand train --resume DIR continues from the newest valid "
      "checkpoint, and longhand checkpoint repair DIR makes it last.h5.");
  add_checkpoint_diff(group);
  add_checkpoint_export(group);
  add_checkpoint_import(group);
  add_checkpoint_repair(group);
}

}  // namespace longhand::cli
