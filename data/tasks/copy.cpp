// copy: symbols, a pause, a delimiter, and then the symbols must be reproduced (Hochreiter &
// Schmidhuber 1997; as a test of long memory, Arjovsky et al. 2016, arXiv 1511.06464).
#include "longhand/data/copying.h"
#include "longhand/data/registry.h"

namespace longhand::data {

TaskSpec register_copy() {
  return make_spec<CopyOptions>("symbols at the start, to be written in order after a delimiter",
                                copying_info, make_copying);
}

}  // namespace longhand::data
