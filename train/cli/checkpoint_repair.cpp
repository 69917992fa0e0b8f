// longhand checkpoint repair: puts the files of a run in order.
#include <memory>
#include <nlohmann/json.hpp>

#include "longhand/train/cli/checkpoint.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output.h"
#include "longhand/train/run/repair.h"

namespace longhand::cli {
namespace {

struct Arguments {
  std::string run;
  bool json = false;
};

int repair(const Arguments& a) {
  const train::Repair done = train::repair(a.run);
  if (a.json) {
    Json out = {{"run", a.run}, {"changed", done.changed()}};
    if (done.step) out["step"] = *done.step;
    if (!done.last_from.empty()) out["last_from"] = done.last_from.string();
    if (!done.best_from.empty()) out["best_from"] = done.best_from.string();
    out["set_aside"] = Json::array();
    for (const train::SetAside& each : done.set_aside)
      out["set_aside"].push_back({{"file", each.file.string()},
                                  {"reason", each.reason},
                                  {"kept_as", each.kept_as.string()}});
    out["notes"] = done.notes;
    print_json(out);
    return success;
  }
  for (const train::SetAside& each : done.set_aside)
    print_stdout("kept      {} as {}: {}\n", each.file.string(), each.kept_as.filename().string(),
                 bounded(each.reason, 1000));
  if (!done.last_from.empty())
    print_stdout("restored  last.h5 from {}, after step {}\n", done.last_from.string(), *done.step);
  if (!done.best_from.empty()) print_stdout("restored  best.h5 from {}\n", done.best_from.string());
  for (const std::string& note : done.notes) print_stdout("note      {}\n", note);
  const std::string state = done.step ? fmt::format("last.h5 is of step {}", *done.step)
                                      : "it has saved no checkpoint yet, and begins anew";
  print_stdout("{} {}; continue with longhand train --resume {}\n",
               done.changed() ? "repaired:" : "in order:", state, shell_word(a.run));
  return success;
}

}  // namespace

void add_checkpoint_repair(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c =
      group.command("repair", "Put a run with damaged files in order", [a] { return repair(*a); });
  c.add("run", a->run, "DIR", "Run directory").required();
  c.json(a->json);
  c.footer(
      "last.h5 becomes the valid checkpoint after the most steps, best.h5 is restored if another "
      "checkpoint is of its step, and metrics.jsonl ends where last.h5 does. Nothing is deleted:\n"
      "damaged files are kept as NAME.damaged, others as NAME.before-repair. A run that is in "
      "order is not changed. Exits with 3, and changes nothing, if no checkpoint is valid.");
}

}  // namespace longhand::cli
