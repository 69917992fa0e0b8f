#include "longhand/train/report/reader.h"

#include <cmath>
#include <utility>

namespace longhand::train {

std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& paths) {
  std::vector<RecordedRun> runs;
  for (const auto& path : paths) runs.push_back(read_run(path));
  return runs;
}

std::vector<Curve> curves_of(const std::vector<RecordedRun>& runs, double Record::*quantity) {
  std::vector<Curve> out;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const bool training : {true, false}) {
      Curve curve{.points = {}, .colour = i, .thin = training};
      for (const Record& record : runs[i].metrics)
        if (record.split == (training ? "train" : "validation") && std::isfinite(record.*quantity))
          curve.points.push_back({static_cast<double>(record.step), record.*quantity});
      if (!curve.points.empty()) out.push_back(std::move(curve));
    }
  return out;
}

}  // namespace longhand::train
