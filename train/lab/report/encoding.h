// Bytes in the forms that pages and figures contain them in.
#pragma once

#include <string>
#include <string_view>

namespace longhand::train {

/// Bytes as zlib compresses them (RFC 1950). Throws Error if memory is short.
std::string compressed(std::string_view bytes);
/// RFC 4648, with padding.
std::string base64(std::string_view bytes);

}  // namespace longhand::train
