// Names in files: messages about those that are missing or misspelt.
#pragma once

#include <string>
#include <vector>

namespace longhand::data {

/// Lists what a file has in place of a missing name: "; found a, b; did you mean b?" if the user
/// chose the name, and "; found a, b; rename b to a" if it is fixed.
std::string found_instead(const std::string& name, const std::vector<std::string>& found,
                          bool fixed);

/// Throws DataError, which begins with `where` and names `what` ("the attribute"), for an unknown
/// name that is close to a known one that is missing: its contents would be ignored.
void check_spelling(const std::vector<std::string>& found, const std::vector<std::string>& known,
                    const std::string& where, const std::string& what);

}  // namespace longhand::data
