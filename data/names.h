// Names in files: messages about those that are missing or misspelt.
#pragma once

#include <string>
#include <vector>

namespace longhand::data {

/// What a file has in place of a missing name: "; found a, b; did you mean b?" if the user chose the name, and
/// "; found a, b; rename b to a" if it is fixed.
std::string found_instead(const std::string& name, const std::vector<std::string>& found,
                          bool fixed);

/// Throws DataError, which begins with `where` and names `what` ("the attribute"), for a name that is not
/// known but differs little from a known one that is missing: what it holds would be ignored.
void check_spelling(const std::vector<std::string>& found, const std::vector<std::string>& known,
                    const std::string& where, const std::string& what);

}  // namespace longhand::data
