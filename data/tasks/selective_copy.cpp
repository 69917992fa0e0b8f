// selective_copy: copy, with the symbols scattered among blanks (Gu & Dao 2023, "Mamba",
// arXiv 2312.00752), so that which positions to read depends on their contents.
#include "longhand/data/copying.h"
#include "longhand/data/registry.h"

namespace longhand::data {

TaskSpec register_selective_copy() {
  return make_spec<CopyOptions>(
      "symbols scattered among blanks, to be written in order after a delimiter", copying_info,
      make_copying, CopyOptions{.length = {256}, .count = {16}, .symbols = 16, .scattered = true});
}

}  // namespace longhand::data
