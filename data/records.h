// Text files of records: CSV, TSV and JSON Lines, with errors that name file, line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "longhand/core/error.h"

namespace longhand::data {

/// CSV: RFC 4180, with commas; fields in double quotes may hold commas, line breaks and doubled
/// quotes. TSV: columns separated by tabs, without quoting. JSON Lines: one object per line.
enum class RecordFormat : uint8_t { tsv, csv, jsonl };

/// The format of a file by its extension: .csv is CSV; .jsonl, .ndjson and .json are JSON Lines;
/// anything else is TSV.
RecordFormat record_format(const std::filesystem::path& path);

/// A field to read: by its name in the header line, or its key in JSON Lines; if that is empty, by
/// its column, counted from 0.
struct FieldChoice {
  std::string name{};
  int64_t column = 0;
  bool fixed = false;  // the user cannot choose another name
};

/// One record: the chosen fields, in the order of the choices.
struct Record {
  /// Text, a number or a truth value as written, or a list of numbers, as text separated by blanks.
  /// CSV and TSV have text only.
  enum class Kind : uint8_t { text, number, truth, list };
  struct Field {
    std::string text{};
    Kind kind = Kind::text;
    int64_t line = 0, column = 0;  // where it (in JSON its key) begins, from 1, in bytes
  };

  std::string file;
  std::vector<Field> fields;

  int64_t line() const { return fields.front().line; }
  /// Throws DataError "FILE:LINE:COLUMN: MESSAGE" about a field unless ok.
  template <class... Parts>
  void require(bool ok, size_t field, const Parts&... parts) const {
    if (!ok) [[unlikely]]
      throw DataError(
          concat_message(file, ":", fields[field].line, ":", fields[field].column, ": ", parts...));
  }
};

struct RecordOptions {
  RecordFormat format = RecordFormat::tsv;
  bool header = false;                 // of CSV and TSV: the first record holds names
  std::vector<FieldChoice> choices{};  // at least one
};

/// Calls visit(record) for each record of a regular file. All records of CSV and TSV must have the
/// same number of columns. Returns the header's chosen fields; no fields without one. Throws
/// DataError that names file, line and column for anything else, for missing fields (listing those
/// that exist), and beyond limits: 64 MiB per record, 10,000 columns, values nested 64 deep.
Record for_each_record(const std::filesystem::path& path, const RecordOptions& options,
                       const std::function<void(const Record& record)>& visit);

}  // namespace longhand::data
