// The version of the library.
#pragma once

/// The version that a program or plugin is compiled with. CMakeLists.txt reads it from this line.
#define LONGHAND_VERSION "0.1.0"

namespace longhand {

/// Returns the semantic version of the linked library, such as "0.1.0".
const char* version();

}  // namespace longhand
