#include "longhand/train/run/repair.h"

#include <algorithm>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

SetAside set_aside(const fs::path& file, const std::string& word, std::string reason) {
  const fs::path to = unused_path(file.string() + "." + word);
  std::error_code error;
  fs::rename(file, to, error);
  check<DataError>(!error, "cannot rename ", file.string(), " to ", to.string(), ": ",
                   data::system_reason(error.value()));
  data::sync_file(to);
  return {file, std::move(reason), to};
}

/// Returns the message of the Error that `read` throws; empty if it does not throw.
template <class F>
std::string defect(F&& read) {
  try {
    read();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Repair repair(const fs::path& path) {
  const RunRecord run = RunRecord::open(path);
  const VerifiedCheckpoints found = run.verified_checkpoints();
  Repair out;
  if (found.valid.empty()) {
    std::string reasons;
    for (const auto& [file, reason] : found.bad) reasons += "\n" + reason;
    check<DataError>(found.bad.empty(), run.path().string(),
                     ": no checkpoint is valid, and nothing was changed:", reasons);
  }
  const fs::path best = run.checkpoints() / "best.h5";
  const fs::path metrics = run.path() / "metrics.jsonl", summary = run.path() / "summary.json";
  const auto* const last = found.find(run.last());
  const auto* const newest = last || found.valid.empty() ? last : &found.valid.front();
  if (newest) out.step = newest->training.step;

  for (const auto& [file, reason] : found.bad)
    out.set_aside.push_back(set_aside(file, "damaged", reason));
  std::optional<int64_t> summarised;  // the step of summary.json
  if (fs::exists(summary))
    if (const std::string reason = defect([&] { summarised = read_summary(summary).step; });
        !reason.empty())
      out.set_aside.push_back(set_aside(summary, "damaged", reason));
  if (!newest) run.check_never_saved();
  if (newest && !last) {
    data::write_file_durably(run.last(), data::read_file(newest->file));
    out.last_from = newest->file;
    if (summarised && *summarised > *out.step)
      out.set_aside.push_back(set_aside(
          summary, "before-repair",
          concat_message("is of step ", *summarised, ", and last.h5 now of step ", *out.step)));
  }
  // Without a checkpoint, the run and its metrics start over.
  const TrainingState state = newest ? newest->training : TrainingState{};
  const bool has_metrics = fs::exists(metrics);
  const std::string reason = has_metrics ? defect([&] { read_run(run.path()); }) : "";
  if (has_metrics && (!reason.empty() || !out.last_from.empty())) {
    const std::string before = data::read_text_file(metrics);
    const fs::path kept =
        unused_path(metrics.string() + (reason.empty() ? ".before-repair" : ".damaged"));
    data::write_file_durably(kept, before);
    run.cut_metrics(run.earlier_metrics(state));
    if (data::read_text_file(metrics) == before)
      fs::remove(kept);
    else
      out.set_aside.push_back(
          {metrics, reason.empty() ? concat_message("has metrics after step ", state.step) : reason,
           kept});
  }
  if (newest && state.best && !found.find(best)) {
    const auto same = std::ranges::find_if(
        found.valid, [&](const auto& each) { return each.training.step == state.best_step; });
    if (same != found.valid.end()) {
      data::write_file_durably(best, data::read_file(same->file));
      out.best_from = same->file;
    } else {
      out.notes.push_back(concat_message(
          "best.h5, of step ", state.best_step,
          ", cannot be restored: no other checkpoint is of that step. Commands use last.h5 in its "
          "place until an evaluation is better than ",
          *state.best));
    }
  }
  return out;
}

}  // namespace longhand::train
