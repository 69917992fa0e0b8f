#include "longhand/core/version.h"

namespace longhand {

const char* version() { return LONGHAND_VERSION; }

}  // namespace longhand
