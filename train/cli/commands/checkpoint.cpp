// longhand checkpoint inspect and verify: lists the contents of checkpoints and verifies them.
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/run_record.h"

namespace longhand::cli {

int64_t numbers(const nn::StateDict& state) {
  int64_t sum = 0;
  for (const auto& [name, tensor] : state) sum += tensor.numel();
  return sum;
}

Json json_of_type(const Tensor& tensor) {
  return {{"dtype", std::string(name_of(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
}

namespace {

struct CheckpointArguments : Common {
  std::string file, all;
  std::vector<std::string> files;
};

/// Adds a field with the contents of a state, and its text.
void add(Answer& out, const std::string& name, const nn::StateDict& state) {
  out.add(name, list_of(state, [](const auto& each) -> Json {
            Json named = {{"name", each.first}};
            named.update(json_of_type(each.second));
            return named;
          }));
  if (state.empty()) return;
  out.print("\n{}: {} tensors, {} numbers\n", name == "ema" ? "averaged weights" : name,
            state.size(), with_commas(numbers(state)));
  for (const auto& [tensor_name, tensor] : state)
    out.print("  {:<48} {:<4} {}\n", tensor_name, name_of(tensor.dtype()),
              concat_message(tensor.shape()));
}

int inspect(const CheckpointArguments& a) {
  // load() verifies the digest before anything else.
  const train::Checkpoint checkpoint = train::load(a.file);
  const train::TrainingState& state = checkpoint.training;
  Answer out(a.json);
  out.add("file", a.file)
      .add("digest", "ok")
      .add("written_by", Json{{"version", checkpoint.version}, {"machine", checkpoint.machine}})
      .add("step", state.step)
      .add("seed", state.seed)
      .add("epoch", state.cursor.epoch)
      .add("batch", state.cursor.batch)
      .text("file     {file}\ndigest   ok\n")
      .print("version  {}\nmachine  {}\n", checkpoint.version, checkpoint.machine)
      .text("step     {step}\nseed     {seed}\nnext     batch {batch} of epoch {epoch}\n");
  if (state.best) out.print("best     {} after step {}\n", *state.best, state.best_step);
  add(out, "model", checkpoint.model);
  add(out, "optimizer", checkpoint.optimizer);
  add(out, "ema", checkpoint.ema);
  out.add("config", checkpoint.config).add("best", state.best);
  if (state.best) out.add("best_step", state.best_step);
  return out.text("\nconfiguration:\n{config}").end();
}

int verify(const CheckpointArguments& a) {
  check<ConfigError>(a.files.empty() != a.all.empty(),
                     "checkpoint verify: expected FILE... or --all DIR");
  for (const std::string& file : a.files)
    check<ConfigError>(!fs::is_directory(file), file,
                       ": expected a checkpoint file, got a folder; for all checkpoints in it: "
                       "longhand checkpoint verify --all ",
                       shell_word(file));
  const std::vector<std::string> files = a.all.empty() ? a.files : train::checkpoints_below(a.all);
  Answer out(a.json);
  Json found = Json::array();
  int64_t invalid = 0;
  for (const std::string& file : files) {
    Json& each = found.emplace_back(Json{{"file", file}, {"valid", true}});
    try {
      each["step"] = train::load(file).training.step;
      out.literal(
          one_line(fmt::format("ok       {} (step {})", file, each["step"].get<int64_t>())) + "\n");
    } catch (const DataError& error) {
      each["valid"] = false;
      each["reason"] = error.what();
      out.literal(one_line("invalid  " + bounded(error.what(), 1000)) + "\n");
      ++invalid;
    }
  }
  out.add("files", found).add("invalid", invalid).end();
  check<DataError>(invalid == 0, invalid, " of ", counted(std::ssize(files), "checkpoint"),
                   invalid == 1 ? " is invalid" : " are invalid");
  return success;
}

}  // namespace

void add_checkpoint(Command& program) {
  auto [c, a] = program.command<CheckpointArguments>("checkpoint inspect", inspect);
  c.add("file", a->file).required();
  c.common(*a, "json");
  auto [verify_all, v] = program.command<CheckpointArguments>("checkpoint verify", verify);
  verify_all.add("files", v->files);
  verify_all.add("--all", v->all);
  verify_all.common(*v, "json");
}

}  // namespace longhand::cli
