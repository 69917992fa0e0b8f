#include "longhand/data/listops.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "longhand/core/parallel.h"
#include "longhand/data/lines.h"

namespace longhand::data::listops {
namespace {

constexpr std::array<std::string_view, 4> operator_names = {"[MIN", "[MAX", "[MED", "[SM"};

bool is_digit(uint8_t token) { return token >= digit && token < min; }
bool is_operator(uint8_t token) { return token >= min && token < close; }

// Returns the value of an operator; sorts its arguments for the median.
int apply(uint8_t op, std::span<uint8_t> values) {
  const size_t n = values.size();
  switch (op) {
    case min:
      return *std::ranges::min_element(values);
    case max:
      return *std::ranges::max_element(values);
    case med:
      std::ranges::sort(values);
      return (values[(n - 1) / 2] + values[n / 2]) / 2;  // the same value twice if n is odd
    default: {
      int sum = 0;
      for (const uint8_t v : values) sum = (sum + v) % 10;
      return sum;
    }
  }
}

uint8_t token_of(std::string_view word) {
  if (word.size() == 1 && word[0] >= '0' && word[0] <= '9')
    return static_cast<uint8_t>(digit + word[0] - '0');
  if (word == "]") return close;
  const auto op = std::ranges::find(operator_names, word);
  if (op == operator_names.end()) return padding;
  return static_cast<uint8_t>(min + (op - operator_names.begin()));
}

// Parses the words of an expression. In the form with parentheses, an operator of n arguments has
// n + 1 "(" before it, and a ")" after each argument and after its close.
class Parser {
 public:
  explicit Parser(bool parentheses) : parentheses_(parentheses) {}

  void read(std::string_view word) {
    check<DataError>(!done_, "more words after the end of the expression");
    if (word == ")") {
      check<DataError>(awaits_ == Awaits::after_argument || awaits_ == Awaits::after_close,
                       "')' that closes nothing");
      const bool closes_operator = awaits_ == Awaits::after_close;
      awaits_ = Awaits::any;
      if (closes_operator) end_operator();
      return;
    }
    check<DataError>(awaits_ == Awaits::any, "')' is missing before this word");
    if (word == "(") {
      check<DataError>(parentheses_, "parentheses in an expression that does not begin with '('");
      ++pending_;
      return;
    }
    const uint8_t token = token_of(word);
    check<DataError>(token != padding, "not a word of ListOps");
    if (is_operator(token)) {
      check<DataError>(!parentheses_ || pending_ > 0, "operator without '('");
      open_.push_back({pending_, 0});
      pending_ = 0;
    } else {
      check<DataError>(pending_ == 0, "'(' before a word that is not an operator");
      if (token == close) {
        check<DataError>(!open_.empty(), "']' that closes nothing");
        const auto [opened, arguments] = open_.back();
        check<DataError>(arguments > 0, "operator without arguments");
        check<DataError>(!parentheses_ || opened == arguments + 1, "operator with ", arguments,
                         " arguments and ", opened, " '(' before it");
      }
    }
    tokens.push_back(token);
    if (token == close && parentheses_) awaits_ = Awaits::after_close;
    if (token == close && !parentheses_) end_operator();
    if (is_digit(token)) end_argument();
  }

  void finish() const { check<DataError>(done_, "the expression is not complete"); }

  std::vector<uint8_t> tokens;

 private:
  enum class Awaits { any, after_argument, after_close };
  struct Open {
    int64_t parentheses, arguments;
  };

  void end_operator() {
    open_.pop_back();
    end_argument();
  }

  void end_argument() {
    if (open_.empty()) {
      done_ = true;
      return;
    }
    ++open_.back().arguments;
    if (parentheses_) awaits_ = Awaits::after_argument;
  }

  bool parentheses_;
  bool done_ = false;
  int64_t pending_ = 0;  // "(" whose operator has not been read yet
  Awaits awaits_ = Awaits::any;
  std::vector<Open> open_;
};

}  // namespace

int evaluate(std::span<const uint8_t> tokens) {
  struct Open {
    uint8_t op;
    size_t first;  // its first argument among values
  };
  std::vector<Open> open;
  std::vector<uint8_t> values;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint8_t token = tokens[i];
    check<DataError>(i == 0 || !open.empty(), "listops: token ", i,
                     " follows the end of the expression");
    if (is_operator(token)) {
      open.push_back({token, values.size()});
    } else if (token == close) {
      check<DataError>(!open.empty() && open.back().first < values.size(), "listops: token ", i,
                       " closes nothing, or an operator without arguments");
      const auto [op, first] = open.back();
      const int value = apply(op, std::span(values).subspan(first));
      values.resize(first);
      values.push_back(static_cast<uint8_t>(value));
      open.pop_back();
    } else {
      check<DataError>(is_digit(token), "listops: token ", i, " is ", int{token},
                       ", which is not a digit, operator or close");
      values.push_back(static_cast<uint8_t>(token - digit));
    }
  }
  check<DataError>(open.empty() && !values.empty(), "listops: the expression is not complete");
  return values[0];
}

std::string to_text(std::span<const uint8_t> tokens) {
  std::string text;
  for (const uint8_t token : tokens) {
    if (!text.empty()) text += ' ';
    if (is_digit(token))
      text += static_cast<char>('0' + token - digit);
    else if (is_operator(token))
      text += operator_names[token - min];
    else
      text += token == close ? "]" : "?";
  }
  return text;
}

std::vector<uint8_t> parse(std::string_view text) {
  const auto next = [&](size_t from) {
    return std::min(text.find_first_not_of(' ', from), text.size());
  };
  size_t begin = next(0);
  Parser parser(begin < text.size() && text[begin] == '(');
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    try {
      parser.read(word);
    } catch (const DataError& error) {
      throw DataError(
          concat_message("word ", number, ", '", word.substr(0, 20), "': ", error.what()));
    }
    begin = next(end);
  }
  parser.finish();
  return std::move(parser.tokens);
}

bool draw_candidate(const Limits& limits, RandomStream& random, std::vector<uint8_t>& tokens) {
  std::vector<int64_t> missing;  // arguments of the open operators
  tokens.clear();
  for (;;) {
    // One number in 0 … 39 selects operator (30 … 39, a quarter of all) or digit, and which digit.
    const bool deepest = static_cast<int64_t>(missing.size()) + 1 >= limits.max_depth;
    const uint64_t drawn = random.below(deepest ? 10 : 40);
    if (drawn >= 30) {
      const uint64_t kind = random.below(4 * static_cast<uint64_t>(limits.max_args - 1));
      tokens.push_back(static_cast<uint8_t>(min + kind % 4));
      missing.push_back(2 + static_cast<int64_t>(kind / 4));
    } else {
      tokens.push_back(static_cast<uint8_t>(digit + drawn % 10));
      while (!missing.empty() && --missing.back() == 0) {
        tokens.push_back(close);
        missing.pop_back();
      }
    }
    const int64_t length = static_cast<int64_t>(tokens.size() + missing.size());
    if (length >= limits.max_length) return false;
    if (missing.empty()) return length > limits.min_length;
  }
}

Sequences generate(const Limits& limits, int64_t count, const Generator& generator) {
  constexpr int64_t block = 64, round = 128 * block;  // candidates
  constexpr int64_t patience = 1'000'000;             // most candidates without a new expression
  Sequences kept;
  // Candidates with equal hashes are compared token by token, so that the hash function does not
  // affect which are kept.
  const auto hash = [&](int64_t i) { return std::hash<std::string_view>()(kept.content(i)); };
  const auto equal = [&](int64_t i, int64_t j) { return kept.content(i) == kept.content(j); };
  std::unordered_set<int64_t, decltype(hash), decltype(equal)> seen(0, hash, equal);

  std::array<Sequences, round / block> found;
  int64_t last = 0;  // candidates drawn up to the latest new expression
  for (int64_t begin = 0; kept.size() < count; begin += round) {
    check<ConfigError>(begin - last <= patience, "listops: only ", kept.size(), " of ", count,
                       " different expressions were found with min_length ", limits.min_length,
                       ", max_length ", limits.max_length, ", max_depth ", limits.max_depth,
                       " and max_args ", limits.max_args, "; widen these limits");
    parallel_for(round, block, [&](int64_t from, int64_t to) {
      std::vector<uint8_t> tokens;
      Sequences& mine = found[from / block] = {};
      for (int64_t i = from; i < to; ++i) {
        RandomStream random(generator.fork(static_cast<uint64_t>(begin + i)));
        if (draw_candidate(limits, random, tokens)) mine.add(tokens, evaluate(tokens));
      }
    });
    for (const Sequences& part : found) {
      for (int64_t i = 0; i < part.size() && kept.size() < count; ++i) {
        kept.add(part.tokens(i), part.targets(i));
        if (seen.insert(kept.size() - 1).second)
          last = begin + round;
        else
          kept.remove_last();
      }
    }
  }
  return kept;
}

void read_tsv(
    const std::filesystem::path& path,
    const std::function<void(int64_t line, std::span<const uint8_t> tokens, int target)>& visit) {
  LineReader reader(path);
  for (std::string_view line; reader.next(line);) {
    try {
      if (reader.number() == 1) {
        check<DataError>(line == "Source\tTarget", "expected the header 'Source<TAB>Target', got '",
                         line.substr(0, 40), "'");
        continue;
      }
      const auto columns = std::ranges::count(line, '\t') + 1;
      check<DataError>(columns == 2, "expected 2 columns, got ", columns);
      const size_t tab = line.find('\t');
      const auto tokens = parse(line.substr(0, tab));
      const std::string_view word = line.substr(tab + 1);
      const uint8_t target = token_of(word);
      check<DataError>(is_digit(target), "target '", word.substr(0, 20), "' is not a digit");
      visit(reader.number(), tokens, target - digit);
    } catch (const DataError& error) {
      throw DataError(concat_message(path.string(), ":", reader.number(), ": ", error.what()));
    }
  }
  check<DataError>(reader.number() > 0, path.string(), ": the file is empty");
}

TsvReport check_tsv(const std::filesystem::path& path, int64_t most_disagreements) {
  TsvReport report;
  read_tsv(path, [&](int64_t line, std::span<const uint8_t> tokens, int target) {
    ++report.expressions;
    const int value = evaluate(tokens);
    if (value == target)
      ++report.agreeing;
    else if (static_cast<int64_t>(report.first.size()) < most_disagreements)
      report.first.push_back({line, target, value});
  });
  return report;
}

}  // namespace longhand::data::listops
