// mqar_stacked: groups of pairs and queries, one after the other, as in a conversation: a memory must
// keep all pairs while it is read and written. With one group it is mqar. `passes` repeats the pairs
// before they are queried (Arora et al. 2024, "Just read twice", arXiv 2407.05483).
#include "longhand/data/registry.h"
#include "longhand/data/tasks/recall.h"

namespace longhand::data {

TaskSpec register_mqar_stacked() {
  return make_spec<RecallOptions>(
      "associative recall in groups: new pairs, then queries of any key so far, again and again",
      recall_info, make_recall, RecallOptions{.groups = 2, .kind = RecallOptions::Kind::stacked});
}

}  // namespace longhand::data
