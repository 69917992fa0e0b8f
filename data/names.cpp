#include "longhand/data/names.h"

#include <algorithm>

#include "longhand/core/error.h"
#include "longhand/core/options.h"

namespace longhand::data {

std::string found_instead(const std::string& name, const std::vector<std::string>& found,
                          bool fixed) {
  constexpr size_t most = 20, longest = 40;
  std::string out = found.empty() ? "; found nothing" : "; found ";
  for (size_t i = 0; i < std::min(found.size(), most); ++i)
    out += (i == 0 ? "" : ", ") + found[i].substr(0, longest);
  if (found.size() > most) out += ", ...";
  const std::string near = fixed ? nearest(name, found) : "";
  return out + (near.empty() ? suggestion(name, found) : "; rename " + near + " to " + name);
}

void check_spelling(const std::vector<std::string>& found, const std::vector<std::string>& known,
                    const std::string& where, const std::string& what) {
  std::vector<std::string> missing;
  for (const std::string& name : known)
    if (!std::ranges::count(found, name)) missing.push_back(name);
  for (const std::string& name : found) {
    if (std::ranges::count(known, name)) continue;
    const std::string near = nearest(name, missing);
    check<DataError>(near.empty(), where, what, " \"", name, "\" would be ignored; did you mean \"",
                     near, "\"? Rename it");
  }
}

}  // namespace longhand::data
