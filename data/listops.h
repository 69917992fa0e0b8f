// ListOps: nested operations on lists of digits, as the Long Range Arena defines them
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
#include "longhand/data/dataset.h"
#include "longhand/data/in_memory.h"

/// An expression is a digit, or an operator with one or more expressions as arguments, written in
/// front of them and ended by a close: "[MAX 2 [SM 7 8 ] 0 ]" is 5. Values are 0 … 9:
/// MIN and MAX; MED, the median, where an even count gives the mean of the two middle values
/// without its fraction; SM, the sum modulo 10.
namespace longhand::data::listops {

/// The tokens. 0 is padding; digit d is digit + d.
enum Token : uint8_t { padding = 0, digit = 1, min = 11, max = 12, med = 13, sm = 14, close = 15 };
inline constexpr int64_t vocabulary = 16;

/// What generate() keeps. The defaults are those of the Long Range Arena.
struct Limits {
  int64_t min_length = 500;   // tokens, with closes; this many are too few
  int64_t max_length = 2000;  // this many are too many
  int64_t max_depth = 10;     // of nodes, the root has depth 1
  int64_t max_args = 10;      // an operator has 2 … max_args arguments
};

/// The value 0 … 9 of an expression. Throws DataError if the tokens are not exactly one expression.
int evaluate(std::span<const uint8_t> tokens);

/// The operator at the root: min, max, med or sm; padding if the expression is a digit alone.
Token root_operator(std::span<const uint8_t> tokens);

/// "[MAX 2 9 ]".
std::string to_text(std::span<const uint8_t> tokens);

/// The tokens of "[MAX 2 9 ]", or of the form that the Long Range Arena's files have, where every
/// operator takes its arguments and its close one by one: "( ( ( [MAX 2 ) 9 ) ] )". Throws
/// DataError for anything else, naming the word.
std::vector<uint8_t> parse(std::string_view text);

/// Draws one candidate: a node above max_depth is an operator with probability 1/4, each operator
/// and number of arguments being equally likely, and else a digit, each equally likely. False if
/// its length is outside the limits; its tokens are then unspecified.
bool draw_candidate(const Limits& limits, RandomStream& random, std::vector<uint8_t>& tokens);

/// The first `count` different expressions that are within the limits, with their values, among
/// candidates 0, 1, 2 …, candidate i being drawn from generator.fork(i). Throws ConfigError if the
/// limits allow too few.
Sequences generate(const Limits& limits, int64_t count, const Generator& generator);

/// Calls visit(line, tokens, target) for every line of a file of the Long Range Arena: columns
/// Source and Target, separated by a tab, after a header. Throws DataError, with file and line, for
/// whatever is not an expression and a digit; a target need not be the expression's value.
void read_tsv(
    const std::filesystem::path& path,
    const std::function<void(int64_t line, std::span<const uint8_t> tokens, int target)>& visit);

/// How the targets of such a file agree with evaluate().
struct TsvReport {
  struct Disagreement {
    int64_t line;
    int target, value;
  };
  int64_t expressions = 0, agreeing = 0;
  std::vector<Disagreement> first;  // at most as many as asked for
};

/// Throws as read_tsv() does.
TsvReport check_tsv(const std::filesystem::path& path, int64_t most_disagreements = 10);

/// The accuracy on `test` of two guesses learned from `train`: the most frequent class, and the
/// most frequent class of examples with the same root operator. Only a model that is above the
/// second, 36 % by default, has seen more than the first token.
struct Heuristics {
  double majority, root_operator;
};
Heuristics heuristics(const Dataset& train, const Dataset& test);

}  // namespace longhand::data::listops
