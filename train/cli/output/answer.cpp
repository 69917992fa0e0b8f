#include "longhand/train/cli/output/answer.h"

#include <algorithm>

#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/output.h"

namespace longhand::cli {
namespace {

std::string shown(const Json& value, const std::string& spec) {
  if (spec == ",") return with_commas(value.get<int64_t>());
  if (spec == "MiB") return std::to_string(value.get<int64_t>() >> 20);
  const std::string format = "{:" + spec + "}";
  const auto as = [&](const auto& x) { return fmt::vformat(format, fmt::make_format_args(x)); };
  if (value.is_number_integer()) return as(value.get<int64_t>());
  const bool is_number = value.is_number() || spec.ends_with('f') || spec.ends_with('g');
  if (const auto number = train::number_in(value); is_number && number) return as(*number);
  return as(value.get<std::string>());
}

/// The format with the fields of an object, or with a value that is none, in place of braces.
std::string filled_in(std::string_view format, const Json& value) {
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const size_t begin = std::min(format.find('{', at), format.size());
    out.append(format.substr(at, begin - at));
    if (begin == format.size()) break;
    const size_t end = format.find('}', begin), colon = std::min(format.find(':', begin), end);
    const std::string name(format.substr(begin + 1, colon - begin - 1));
    const std::string spec(colon < end ? format.substr(colon + 1, end - colon - 1) : "");
    out += shown(name.empty() ? value : value.at(name), spec);
    at = end + 1;
  }
  return out;
}

}  // namespace

Answer& Answer::text(std::string_view format, const Json& fields) {
  return json_ ? *this : literal(filled_in(format, fields));
}

Answer& Answer::literal(std::string_view text) {
  if (!json_) print_stdout("{}", text);
  return *this;
}

Answer& Answer::each(const std::string& list, std::string_view format) {
  if (fields_.contains(list))
    for (const Json& value : fields_.at(list)) text(format, value);
  return *this;
}

Answer& Answer::table(const train::Table& table) { return literal(train::to_text(table)); }

Json json_of_type(const Tensor& tensor) {
  return {{"dtype", std::string(name_of(tensor.dtype()))},
          {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())}};
}

int Answer::end(int code) const {
  if (json_) print_json(fields_);
  return code;
}

}  // namespace longhand::cli
