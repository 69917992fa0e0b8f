// Reads the tables of results.json.
#pragma once

#include <string>
#include <variant>

#include "longhand/train/results/table.h"

namespace longhand::test {

inline double number(const train::Table& of, size_t row, const std::string& column) {
  return std::get<double>(of.rows.at(row).at(of.column(column)));
}
inline std::string text(const train::Table& of, size_t row, const std::string& column) {
  return train::to_text(of.rows.at(row).at(of.column(column)));
}

}  // namespace longhand::test
