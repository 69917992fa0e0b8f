// The one place that knows which Catch2 this is: 2 (Debian 12) or 3 (Debian 13). Tests are written
// in the names of 2.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)

#include <catch2/catch_all.hpp>
#include <string>

namespace Catch {
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
using Matchers::EndsWith;
using Matchers::StartsWith;
}  // namespace Catch
using Catch::Approx;

#else

#include <catch2/catch.hpp>

#endif
