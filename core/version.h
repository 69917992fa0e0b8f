// Which Longhand this is.
#pragma once

namespace longhand {

/// "0.1.0": semantic version of the library that is linked.
const char* version();

}  // namespace longhand
