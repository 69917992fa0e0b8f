// longhand checkpoint repair: repairs the files of a run.
#include "longhand/train/cli/commands/commands.h"
#include "longhand/train/run/repair.h"

namespace longhand::cli {
namespace {

int repair(const Common& a) {
  const train::Repair done = train::repair(a.run);
  const auto name = [](const fs::path& file) {
    return file.empty() ? std::nullopt : std::optional(file.string());
  };
  // Other models, such as those longhand convert writes, have no optimizer state.
  const fs::path folder = a.run;
  const bool is_trained =
      !done.step || fs::exists(folder / "metrics.jsonl") || fs::exists(folder / "summary.json");
  const std::string run = shell_word(a.run);
  Answer out(a.json);
  out.add("run", a.run)
      .add("changed", done.changed())
      .add("step", done.step)
      .add("last_from", name(done.last_from))
      .add("best_from", name(done.best_from))
      .add("set_aside", list_of(done.set_aside,
                                [](const train::SetAside& each) -> Json {
                                  return {{"file", each.file.string()},
                                          {"reason", each.reason},
                                          {"kept_as", each.kept_as.string()}};
                                }))
      .add("notes", done.notes);
  for (const train::SetAside& each : done.set_aside)
    out.print("kept      {} as {}: {}\n", each.file.string(), each.kept_as.filename().string(),
              bounded(each.reason, 1000));
  if (!done.last_from.empty()) out.text("restored  last.h5 from {last_from}, after step {step}\n");
  if (!done.best_from.empty()) out.text("restored  best.h5 from {best_from}\n");
  out.each("notes", "note      {}\n")
      .literal(done.changed() ? "repaired: " : "in order: ")
      .text(done.step ? "last.h5 is of step {step}"
                      : "it has not saved a checkpoint yet, and starts from the beginning")
      .literal("; continue with longhand train " +
               (is_trained ? "--resume " + run
                           : shell_word(folder / "config.toml") + " --init-from " + run) +
               "\n");
  return out.end();
}

}  // namespace

void add_checkpoint_repair(Command& program) {
  auto [c, a] = program.command<Common>("checkpoint repair", repair);
  c.add("run", a->run).required();
  c.common(*a, "json");
}

}  // namespace longhand::cli
