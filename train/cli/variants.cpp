// longhand variants: what each attention variant can do.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "longhand/attention/variant.h"
#include "longhand/train/cli/common.h"

namespace longhand::cli {
namespace {

Json to_json(const std::string& name, const attention::Traits& t) {
  return {{"name", name},
          {"summary", t.summary},
          {"exact", t.exact},
          {"causal", t.causal},
          {"causal_reason", t.causal_reason},
          {"cross_lengths", t.cross_lengths},
          {"fixed_length", t.fixed_length},
          {"time", t.time},
          {"memory", t.memory},
          {"state", t.state},
          {"paper", t.paper}};
}

/// Columns as wide as their widest cell.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}", row[i], widths[i] + 2);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

}  // namespace

int variants(bool json) {
  if (json) {
    Json out = Json::array();
    for (const std::string& name : attention::names())
      out.push_back(to_json(name, attention::traits(name)));
    print_json(out);
    return success;
  }
  const auto yes = [](bool value) { return value ? std::string("yes") : std::string("-"); };
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "EXACT", "CAUSAL", "CROSS", "FIXED LENGTH", "TIME", "MEMORY", "STATE"}};
  for (const std::string& name : attention::names()) {
    const attention::Traits& t = attention::traits(name);
    rows.push_back({name, yes(t.exact), yes(t.causal), yes(t.cross_lengths), yes(t.fixed_length),
                    t.time, t.memory, t.state.empty() ? "-" : t.state});
  }
  print_table(rows);
  fmt::print(
      "\nTime and memory are per head: N tokens, D width of a head, m features or landmarks.\n"
      "Cross: keys may be of another number than queries. Fixed length: parameters are tied to\n"
      "model.max_length.\n\n");
  for (const std::string& name : attention::names()) {
    const attention::Traits& t = attention::traits(name);
    fmt::print("{}: {} ({}){}\n", name, t.summary, t.paper,
               t.causal || t.causal_reason.empty() ? "" : "; not causal: " + t.causal_reason);
  }
  return success;
}

}  // namespace longhand::cli
