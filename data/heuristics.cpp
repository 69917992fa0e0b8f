#include "longhand/data/heuristics.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "longhand/core/error.h"
#include "longhand/data/listops.h"

namespace longhand::data {
namespace {

/// Calls visit(batch) for the first `limit` examples of a dataset, in order.
template <class F>
void for_batches(const Dataset& dataset, int64_t limit, F visit) {
  constexpr int64_t piece = 256;
  const int64_t size = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  for (int64_t begin = 0; begin < size; begin += piece)
    visit(dataset.collate(indices_from(begin, std::min(begin + piece, size))));
}

/// "64 to 127": ranges double.
std::string range_of(int64_t value) {
  int64_t low = 1;
  while (2 * low <= value) low *= 2;
  if (value <= 1) return std::to_string(value);
  return std::to_string(low) + " to " + std::to_string(2 * low - 1);
}

std::string root_name(int32_t token) {
  const uint8_t first = static_cast<uint8_t>(token);
  const std::string word = listops::to_text({&first, 1});  // "[MAX"
  return word.starts_with('[') ? word.substr(1) : "digit";
}

/// What the tokens before a query of associative recall show about its key.
struct Shown {
  int64_t latest = 0;           // the place where the key was last written
  std::vector<int32_t> values;  // its values, one for each time it was written
  std::vector<int32_t> all;     // the values of all keys, without duplicates
};

/// Not for mqar, whose random tokens may be values.
Shown shown_before(const TaskInfo& task, const ExampleView& example, size_t place) {
  const auto& tokens = example.tokens;
  const int64_t half = task.vocabulary / 2;
  Shown shown;
  for (size_t i = 1; i < place; ++i) {
    if (tokens[i] < half) continue;
    shown.all.push_back(tokens[i]);
    if (tokens[i - 1] != tokens[place]) continue;
    shown.latest = static_cast<int64_t>(i) - 1;
    shown.values.push_back(tokens[i]);
  }
  std::ranges::sort(shown.all);
  shown.all.erase(std::unique(shown.all.begin(), shown.all.end()), shown.all.end());
  check(!shown.values.empty(), "heuristics: the target at place ", place,
        " has no value before it");
  return shown;
}

using Groups = std::vector<std::pair<std::string, std::string>>;

/// The groups of the target at `place` (0 for a single target) of an example.
Groups groups_of(const TaskInfo& task, const ExampleView& example, size_t place) {
  const auto& tokens = example.tokens;
  if (task.name == "listops")
    return {{"root operator", root_name(tokens[0])},
            {"length", range_of(static_cast<int64_t>(tokens.size()))}};
  if (!task.per_token) return {{"length", range_of(static_cast<int64_t>(tokens.size()))}};
  const auto distance_from = [&](int64_t from) {
    return std::pair<std::string, std::string>{"distance",
                                               range_of(static_cast<int64_t>(place) - from)};
  };
  const auto first = std::ranges::find(tokens, tokens[place]) - tokens.begin();
  const auto targets =
      std::ranges::count_if(example.targets, [](int32_t t) { return t != ignore_index; });
  if (task.name == "mqar") return {distance_from(first), {"pairs", std::to_string(targets)}};
  if (task.name == "induction") return {distance_from(first)};
  if (task.name == "mqar_stacked" || task.name == "mqar_overwrite") {
    const Shown shown = shown_before(task, example, place);
    Groups groups{distance_from(shown.latest)};
    if (task.name == "mqar_stacked")
      groups.emplace_back("pairs so far", range_of(static_cast<int64_t>(shown.all.size())));
    else
      groups.emplace_back("values of the key", std::to_string(shown.values.size()));
    return groups;
  }
  return {{"position", range_of(static_cast<int64_t>(place))}};
}

/// Calls visit(example, place) for every target that is not ignored.
template <class F>
void for_targets(const Batch& batch, F visit) {
  for (const ExampleView& example : examples_of(batch))
    for (size_t place = 0; place < example.targets.size(); ++place)
      if (example.targets[place] != ignore_index) visit(example, place);
}

/// Returns score(example, place) for every target that is not ignored.
template <class F>
Scores for_each_target(F score) {
  return [score](const Batch& batch) {
    std::vector<double> out;
    for_targets(batch, [&](const ExampleView& example, size_t place) {
      out.push_back(score(example, place));
    });
    return out;
  };
}

using Counts = std::map<int32_t, int64_t>;

int32_t most_frequent(const Counts& counts) {
  return std::ranges::max_element(counts,
                                  [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

/// The most frequent class among training targets with the same clue, and overall for new clues.
template <class Clue>
Scores most_frequent_after(const Dataset& train, int64_t limit, Clue clue) {
  std::map<int64_t, Counts> counts;
  Counts all;
  for_batches(train, limit, [&](const Batch& batch) {
    for_targets(batch, [&](const ExampleView& example, size_t place) {
      ++counts[clue(example, place)][example.targets[place]];
      ++all[example.targets[place]];
    });
  });
  std::map<int64_t, int32_t> best;
  for (const auto& [key, classes] : counts) best[key] = most_frequent(classes);
  check(!all.empty(), "heuristics: the training split has no targets");
  return for_each_target(
      [best, fallback = most_frequent(all), clue](const ExampleView& example, size_t place) {
        const auto found = best.find(clue(example, place));
        return (found == best.end() ? fallback : found->second) == example.targets[place];
      });
}

/// Multinomial naive Bayes: the class with the largest ln p(class) + Σ ln p(token | class), with
/// one added to the count of each token.
Scores bag_of_tokens(const TaskInfo& task, const Dataset& train, int64_t limit) {
  const int64_t V = task.vocabulary, C = task.classes;
  std::vector<double> tokens(C * V, 1.0), sums(C, static_cast<double>(V)), classes(C, 1.0);
  for_batches(train, limit, [&](const Batch& batch) {
    for_targets(batch, [&](const ExampleView& example, size_t) {
      const int32_t c = example.targets[0];
      ++classes[c];
      sums[c] += static_cast<double>(example.tokens.size());
      for (const int32_t token : example.tokens) ++tokens[c * V + token];
    });
  });
  double all = 0;
  for (const double n : classes) all += n;
  for (int64_t c = 0; c < C; ++c) {
    for (int64_t t = 0; t < V; ++t) tokens[c * V + t] = std::log(tokens[c * V + t] / sums[c]);
    classes[c] = std::log(classes[c] / all);
  }
  return for_each_target([tokens = std::move(tokens), classes = std::move(classes), V, C](
                             const ExampleView& example, size_t) {
    std::vector<double> scores = classes;
    for (int64_t c = 0; c < C; ++c)
      for (const int32_t token : example.tokens) scores[c] += tokens[c * V + token];
    return std::ranges::max_element(scores) - scores.begin() == example.targets[0];
  });
}

/// A random one of the different values shown: the example's targets, whatever their keys.
std::vector<double> values_shown(const Batch& batch) {
  std::vector<double> out;
  for (const ExampleView& example : examples_of(batch)) {
    std::set<int32_t> values(example.targets.begin(), example.targets.end());
    values.erase(ignore_index);
    for (const int32_t target : example.targets)
      if (target != ignore_index) out.push_back(1 / static_cast<double>(values.size()));
  }
  return out;
}

/// Scores from what is shown before each query: score(shown, target).
template <class Score>
Scores from_shown(const TaskInfo& task, Score score) {
  return for_each_target([task, score](const ExampleView& example, size_t place) {
    return score(shown_before(task, example, place), example.targets[place]);
  });
}

double share_of(const std::vector<int32_t>& values, int32_t target) {
  return static_cast<double>(std::ranges::count(values, target)) /
         static_cast<double>(values.size());
}

/// A random token before the target, among those that differ from the token at its place.
double tokens_shown(const ExampleView& example, size_t place) {
  std::vector<int32_t> before(example.tokens.begin(),
                              example.tokens.begin() + static_cast<std::ptrdiff_t>(place));
  std::erase(before, example.tokens[place]);
  return before.empty() ? 0 : share_of(before, example.targets[place]);
}

/// The bits at a place and up to 7 before it, preceded by the number of earlier bits, at most 8.
int64_t last_bits(const ExampleView& example, size_t place) {
  int64_t clue = static_cast<int64_t>(std::min<size_t>(place, 8));
  for (size_t i = place - std::min<size_t>(place, 7); i <= place; ++i)
    clue = 2 * clue + example.tokens[i];
  return clue;
}

}  // namespace

Accuracies accuracies(const TaskInfo& task, const Dataset& dataset, const Scores& scores,
                      int64_t limit) {
  Accuracies out;
  for_batches(dataset, limit, [&](const Batch& batch) {
    const std::vector<double> probabilities = scores(batch);
    size_t i = 0;
    for_targets(batch, [&](const ExampleView& example, size_t place) {
      check(i < probabilities.size(), "accuracies: expected a score for every target, got ",
            probabilities.size());
      const double p = probabilities[i++];
      out.all.add(p);
      for (const auto& [by, value] : groups_of(task, example, place))
        out.by_group[by][value].add(p);
    });
  });
  return out;
}

std::vector<Heuristic> heuristics(const Task& task, const HeuristicOptions& options) {
  const Dataset &train = task.split("train"), &test = task.split(options.split);
  const TaskInfo& info = task.info;
  check<ConfigError>(info.targets == TargetKind::classes,
                     "heuristics predict classes, but the targets of ", info.name, " are ",
                     name_of(info.targets),
                     "; longhand evaluate compares with a constant prediction");
  struct Planned {
    std::string name, reads;
    std::function<Scores()> learn;
  };
  const auto after = [&](auto clue) {
    return [&train, limit = options.train_limit, clue] {
      return most_frequent_after(train, limit, clue);
    };
  };
  std::vector<Planned> planned{
      {"majority", "nothing", after([](const ExampleView&, size_t) { return int64_t{0}; })}};
  if (info.per_token) {
    planned.push_back(
        {"current token", "the token at the target's place",
         after([](const ExampleView& e, size_t place) { return int64_t{e.tokens[place]}; })});
    if (info.name == "mqar")
      planned.push_back(
          {"values shown", "the values, but not their keys", [] { return Scores(values_shown); }});
    if (info.name == "mqar_stacked" || info.name == "mqar_overwrite")
      planned.push_back({"values shown", "the values so far, but not their keys", [&] {
                           return from_shown(info, [](const Shown& shown, int32_t) {
                             return 1 / static_cast<double>(shown.all.size());
                           });
                         }});
    if (info.name == "mqar_overwrite") {
      planned.push_back({"first value", "the first value of the key", [&] {
                           return from_shown(info, [](const Shown& shown, int32_t target) {
                             return shown.values.front() == target ? 1.0 : 0.0;
                           });
                         }});
      planned.push_back({"any value", "the values of the key, but not their order", [&] {
                           return from_shown(info, [](const Shown& shown, int32_t target) {
                             return share_of(shown.values, target);
                           });
                         }});
    }
    if (info.name == "copy" || info.name == "selective_copy" || info.name == "induction")
      planned.push_back({"tokens shown", "the tokens before, but not their order",
                         [] { return for_each_target(tokens_shown); }});
    if (info.name == "parity")
      planned.push_back({"last bits", "the bit and the 7 before it", after(last_bits)});
  } else {
    // Eight classes of lengths per doubling.
    planned.push_back({"length", "the number of tokens", after([](const ExampleView& e, size_t) {
                         return static_cast<int64_t>(
                             8 * std::log2(static_cast<double>(e.tokens.size())));
                       })});
    planned.push_back({info.name == "listops" ? "root operator" : "first token", "the first token",
                       after([](const ExampleView& e, size_t) { return int64_t{e.tokens[0]}; })});
    planned.push_back({info.bytes ? "bag of bytes" : "bag of tokens", "counts, but not the order",
                       [&] { return bag_of_tokens(info, train, options.train_limit); }});
  }
  std::vector<Heuristic> out;
  for (const Planned& each : planned) {
    out.push_back({each.name, each.reads, accuracies(info, test, each.learn(), options.limit)});
    if (options.on_progress)
      options.on_progress(static_cast<int64_t>(out.size()), static_cast<int64_t>(planned.size()));
  }
  return out;
}

}  // namespace longhand::data
