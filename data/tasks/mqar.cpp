// mqar: multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927). Pairs of a
// key and a value, then each key once more, where its value is the target.
#include "longhand/data/registry.h"
#include "longhand/data/tasks/recall.h"

namespace longhand::data {

TaskSpec register_mqar() {
  return make_spec<RecallOptions>(
      "associative recall: pairs of a key and a value, then the keys again, whose values are to be "
      "recalled",
      recall_info, make_recall);
}

}  // namespace longhand::data
