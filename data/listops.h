// ListOps: nested operations on lists of digits, as defined by the Long Range Arena
// (Nangia & Bowman 2018, arXiv 1804.06028; Tay et al. 2020, arXiv 2011.04006).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/data/in_memory.h"

/// An expression is a digit, or an operator followed by one or more expressions, its arguments, and
/// a close: "[MAX 2 [SM 7 8 ] 0 ]" is 5. Values are 0 … 9. The operators are MIN and MAX; MED, the
/// median, which for an even count is the mean of the two middle values, rounded down; and SM, the
/// sum modulo 10.
namespace longhand::data::listops {

/// The tokens. 0 is padding; digit d is digit + d.
enum Token : uint8_t { padding = 0, digit = 1, min = 11, max = 12, med = 13, sm = 14, close = 15 };
inline constexpr int64_t vocabulary = 16;

/// Limits on the expressions of generate(). The defaults are those of the Long Range Arena.
struct Limits {
  int64_t min_length = 500;   // tokens, including closes; exclusive
  int64_t max_length = 2000;  // exclusive
  int64_t max_depth = 10;     // of nodes; the root has depth 1
  int64_t max_args = 10;      // an operator has 2 … max_args arguments
};

/// Returns the value 0 … 9 of an expression. Throws DataError unless the tokens are exactly one.
int evaluate(std::span<const uint8_t> tokens);

/// Returns an expression in the form "[MAX 2 9 ]".
std::string to_text(std::span<const uint8_t> tokens);

/// Returns the tokens of "[MAX 2 9 ]", or of the form in the files of the Long Range Arena, in
/// which every operator takes its arguments and its close one at a time: "( ( ( [MAX 2 ) 9 ) ] )".
/// Throws DataError, naming the word, for anything else.
std::vector<uint8_t> parse(std::string_view text);

/// Draws one candidate. A node above max_depth is an operator with probability 1/4, otherwise a
/// digit; all operators, numbers of arguments and digits are equally likely. Returns false if the
/// length is outside the limits; the tokens are then unspecified.
bool draw_candidate(const Limits& limits, RandomStream& random, std::vector<uint8_t>& tokens);

/// Returns the first `count` different expressions within the limits, with their values, among
/// candidates 0, 1, 2, …; candidate i is drawn from generator.fork(i). Throws ConfigError if the
/// limits allow too few.
Sequences generate(const Limits& limits, int64_t count, const Generator& generator);

/// Calls visit(line, tokens, target) for each line of a file of the Long Range Arena: columns
/// Source and Target, separated by a tab, after a header. Throws DataError, with file and line, for
/// a line that is not an expression and a digit. A target need not be the expression's value.
void read_tsv(
    const std::filesystem::path& path,
    const std::function<void(int64_t line, std::span<const uint8_t> tokens, int target)>& visit);

/// How many targets of such a file agree with evaluate().
struct TsvReport {
  struct Disagreement {
    int64_t line;
    int target, value;
  };
  int64_t expressions = 0, agreeing = 0;
  std::vector<Disagreement> first;  // at most most_disagreements
};

/// Compares the targets of a file with evaluate(). Throws as read_tsv() does.
TsvReport check_tsv(const std::filesystem::path& path, int64_t most_disagreements = 10);

}  // namespace longhand::data::listops
