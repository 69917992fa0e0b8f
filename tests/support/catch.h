// The only file that depends on the version of Catch2: 2 (Debian 12) or 3 (Debian 13). Tests use
// the names of version 2.
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
