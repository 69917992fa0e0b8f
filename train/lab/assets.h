// Files that are part of every report; their contents are embedded by embed.cmake.
#pragma once

#include <string_view>

namespace longhand::train {

/// Chart.js, as installed on the machine that built Longhand.
std::string_view chart_js();
/// page.js, which draws the charts.
std::string_view page_js();
/// page.css
std::string_view page_css();

}  // namespace longhand::train
