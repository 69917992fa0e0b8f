// mqar_overwrite: mqar in which keys are written again with new values, of which the latest counts, so
// that a memory must forget the earlier ones (cf. Schlag et al. 2021, arXiv 2102.11174, section 6.1).
#include "longhand/data/registry.h"
#include "longhand/data/tasks/recall.h"

namespace longhand::data {

TaskSpec register_mqar_overwrite() {
  return make_spec<RecallOptions>(
      "associative recall of the latest values: keys are written again with new values",
      recall_info, make_recall,
      RecallOptions{.overwrites = {4}, .groups = 2, .kind = RecallOptions::Kind::overwrite});
}

}  // namespace longhand::data
