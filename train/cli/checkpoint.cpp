// longhand checkpoint inspect: verifies a checkpoint and lists its contents.
#include "longhand/train/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"

namespace longhand::cli {
namespace {

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
                {"version", checkpoint.version},
                {"machine", checkpoint.machine},
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

}  // namespace

void add_checkpoint(Command& program) {
  struct Arguments {
    std::string file;
    bool json = false;
  };
  const auto a = std::make_shared<Arguments>();
  Command group = program.group("checkpoint", "Inspect checkpoints");
  Command c = group.command("inspect", "Verify a checkpoint and list its contents",
                            [a] { return inspect(a->file, a->json); });
  c.add("file", a->file, "FILE.h5", "A checkpoint").required();
  c.json(a->json);
}

}  // namespace longhand::cli
