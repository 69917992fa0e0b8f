// The version of the library.
#pragma once

namespace longhand {

/// Returns the semantic version of the linked library, such as "0.1.0".
const char* version();

}  // namespace longhand
