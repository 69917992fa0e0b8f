// Files that are part of every report; their contents are embedded by embed.cmake.
#pragma once

#include <string_view>

namespace longhand::train {

/// page.js, which makes the tables and what can be clicked.
std::string_view page_js();
/// page.css
std::string_view page_css();

}  // namespace longhand::train
