#include "longhand/train/lab/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "longhand/train/lab/headline.h"

namespace longhand::train {
namespace {

/// A trial's validation metric and loss, means over its cells; a failed trial has none.
struct Quality {
  double metric = 0, loss = 0;
};

/// Returns a cell's best evaluation up to a step; for an ended cell, that of its best checkpoint.
const Score* best_score(const Sweep& sweep, const CellState& state, std::optional<int64_t> step) {
  if (state.has_failed()) return nullptr;
  if (!step) return state.is_trained() && state.validation ? &*state.validation : nullptr;
  const Score* best = nullptr;
  for (const auto& [after, score] : state.evaluations)
    if (after <= *step && std::isfinite(metric_of(sweep, score)) &&
        (!best || Metric{sweep.metric}.better(metric_of(sweep, score), metric_of(sweep, *best))))
      best = &score;
  return best;
}

/// With `rung`, considers the cells' training only up to that step.
std::optional<Quality> quality(const Sweep& sweep, std::span<const SweepCell> cells,
                               const CellStates& states, std::optional<size_t> rung = {}) {
  Quality sum;
  for (const SweepCell& cell : cells) {
    const auto step = rung ? std::optional(cell.rungs[*rung]) : std::nullopt;
    const Score* const score = best_score(sweep, states.at(cell.hash), step);
    if (!score || !std::isfinite(metric_of(sweep, *score))) return std::nullopt;
    sum.metric += metric_of(sweep, *score) / static_cast<double>(cells.size());
    sum.loss += score->loss / static_cast<double>(cells.size());
  }
  return sum;
}

bool is_better(const Sweep& sweep, const std::optional<Quality>& a,
               const std::optional<Quality>& b) {
  if (!a || !b) return a.has_value();
  return a->metric != b->metric ? Metric{sweep.metric}.better(a->metric, b->metric)
                                : a->loss < b->loss;
}

/// Returns whether all these trials have reached a rung or their end; adds tasks for the others.
bool all_reach(const Grid& grid, size_t variant, const std::vector<size_t>& trials,
               const CellStates& states, std::optional<size_t> rung, std::vector<CellTask>& tasks) {
  for (const size_t trial : trials)
    for (const SweepCell& cell : grid.searches(variant, trial)) {
      const int64_t until = rung ? cell.rungs[*rung] : 0;
      if (!has_reached(states.at(cell.hash), until)) tasks.push_back({&cell, until});
    }
  return tasks.empty();
}

bool has_failed(const Grid& grid, size_t variant, size_t trial, const CellStates& states) {
  return std::ranges::any_of(grid.searches(variant, trial), [&](const SweepCell& cell) {
    return states.at(cell.hash).has_failed();
  });
}

/// Returns the trials at most `distance` away from one.
std::vector<size_t> trials_around(const Grid& grid, size_t trial, int64_t distance) {
  std::vector<size_t> out;
  const auto far = static_cast<size_t>(distance);
  for (size_t t = trial - std::min(trial, far); t <= trial + far; ++t)
    if (t == trial || t < grid.trials.size()) out.push_back(t);
  return out;
}

/// Returns the trial with the best final cells; nothing until all of them have been trained.
std::optional<size_t> best_of_finals(const Grid& grid, size_t variant,
                                     const std::set<size_t>& trials, const CellStates& states) {
  std::optional<size_t> best;
  std::optional<Quality> highest;
  for (const size_t trial : trials) {
    const std::span<const SweepCell> cells = grid.finals(variant, trial);
    for (const SweepCell& cell : cells)
      if (!has_reached(states.at(cell.hash), 0)) return std::nullopt;
    const auto found = quality(grid.sweep, cells, states);
    if (!is_better(grid.sweep, found, highest)) continue;
    best = trial;
    highest = found;
  }
  return best;
}

/// Derives what follows from the best trial and the final cells.
void choose_finals(const Grid& grid, size_t variant, const CellStates& states, SearchState& out) {
  if (!out.best) return;
  std::set<size_t> finals;
  std::optional<size_t> centre = out.best;
  for (size_t before = 1; centre && finals.size() != before;) {
    before = finals.size();
    for (const size_t trial : trials_around(grid, *centre, grid.sweep.search->around))
      if (!has_failed(grid, variant, trial, states)) finals.insert(trial);
    centre = best_of_finals(grid, variant, finals, states);
  }
  out.finals.assign(finals.begin(), finals.end());
  out.reported = centre ? centre : out.best;
}

}  // namespace

bool has_reached(const CellState& state, int64_t until) {
  return state.is_trained() || state.has_failed() ||
         (until > 0 && !state.evaluations.empty() && state.evaluations.rbegin()->first >= until);
}

SearchState search_state(const Grid& grid, size_t variant, const CellStates& states) {
  SearchState out;
  if (grid.trials.empty()) {
    out.best = out.reported = 0;
    out.finals = {0};
    return out;
  }
  const size_t count = grid.trials.size(), more = static_cast<size_t>(grid.sweep.search->extend);
  out.trials.resize(count);
  size_t first = more, last = count - 1 - more;
  std::vector<size_t> going;
  for (size_t trial = first; trial <= last; ++trial) going.push_back(trial);
  for (const size_t trial : going) out.trials[trial].needed = true;
  for (size_t rung = 0; rung < grid.sweep.search->halving.size(); ++rung) {
    if (!all_reach(grid, variant, going, states, rung, out.tasks)) return out;
    std::map<size_t, std::optional<Quality>> found;
    std::ranges::sort(going);
    for (const size_t trial : going)
      found[trial] = quality(grid.sweep, grid.searches(variant, trial), states, rung);
    std::ranges::stable_sort(
        going, [&](size_t a, size_t b) { return is_better(grid.sweep, found[a], found[b]); });
    for (const size_t kept = (going.size() + 1) / 2; going.size() > kept; going.pop_back())
      if (const size_t ended = going.back(); found[ended])  // a failed one has not been compared
        out.trials[ended].ended = grid.searches(variant, ended).front().rungs[rung];
  }
  std::map<size_t, std::optional<Quality>> found;
  while (all_reach(grid, variant, going, states, {}, out.tasks)) {
    std::ranges::sort(going);
    out.best.reset();
    for (const size_t trial : going) {
      found[trial] = quality(grid.sweep, grid.searches(variant, trial), states);
      if (found[trial] && (!out.best || is_better(grid.sweep, found[trial], found[*out.best])))
        out.best = trial;
    }
    if (!out.best) break;
    const size_t best = *out.best;
    const auto beats = [&](size_t beside) {
      const auto other = found.find(beside);
      return other == found.end() || !other->second ||
             Metric{grid.sweep.metric}.better(found[best]->metric, other->second->metric);
    };
    if (best == first && first > 0 && (first == last || beats(first + 1)))
      going.push_back(--first);
    else if (best == last && last + 1 < count && (first == last || beats(last - 1)))
      going.push_back(++last);
    else
      break;
    out.trials[going.back()].needed = true;
  }
  if (!out.tasks.empty()) out.best.reset();
  // Including ended trials that are trained as final cells.
  for (size_t trial = 0; trial < count; ++trial)
    if (const auto each = quality(grid.sweep, grid.searches(variant, trial), states))
      out.trials[trial].metric = each->metric;
  choose_finals(grid, variant, states, out);
  return out;
}

std::optional<int64_t> window_of(const Sweep& sweep, const SearchState& search) {
  constexpr double share = 0.9;
  if (!search.best || search.trials.empty()) return std::nullopt;
  const double best = *search.trials[*search.best].metric;
  return std::ranges::count_if(search.trials, [&](const SearchState::Trial& trial) {
    if (!trial.metric) return false;
    return sweep.metric == "loss" ? *trial.metric * share <= best : *trial.metric >= share * best;
  });
}

std::vector<SearchState> search_states(const Grid& grid, const CellStates& states) {
  std::vector<SearchState> out;
  for (size_t v = 0; v < grid.variants.size(); ++v) out.push_back(search_state(grid, v, states));
  return out;
}

namespace {

/// runs_of() given the findings of the searches.
CellRefs runs_of(const Grid& grid, const CellStates& states, const Shard& shard,
                 const std::vector<SearchState>& searches) {
  const std::vector<std::vector<bool>> ours = cells_of_shard(grid, shard);
  CellRefs out;
  std::set<std::string> seen;
  const auto add = [&](std::span<const SweepCell> cells) {
    for (const SweepCell& cell : cells)
      if (ours[cell.variant][cell.nth_seed] && seen.insert(cell.hash).second)
        out.emplace_back(cell);
  };
  const auto add_searches = [&](size_t variant, const SearchState& search) {
    for (size_t trial = 0; trial < search.trials.size(); ++trial)
      if (search.trials[trial].needed) add(grid.searches(variant, trial));
  };
  for (size_t v = 0; v < grid.variants.size(); ++v) {
    const SearchState& search = searches[v];
    if (search.best) {
      for (const size_t trial : search.finals) add(grid.finals(v, trial));
      continue;
    }
    add_searches(v, search);  // which are not final yet
    const int64_t around = grid.sweep.search->around;
    auto trial = static_cast<size_t>(grid.sweep.search->extend + around);
    trial = std::min(trial, grid.trials.size() - 1);
    while (trial + 1 < grid.trials.size() && has_failed(grid, v, trial, states)) ++trial;
    for (const size_t each : trials_around(grid, trial, around)) add(grid.finals(v, each));
  }
  for (size_t v = 0; v < grid.variants.size(); ++v) add_searches(v, searches[v]);
  return out;
}

}  // namespace

CellRefs runs_of(const Grid& grid, const CellStates& states, const Shard& shard) {
  return runs_of(grid, states, shard, search_states(grid, states));
}

CellCounts count_cells(const Grid& grid, const CellStates& states, const Shard& shard,
                       const std::function<bool(const SweepCell&)>& is_open) {
  const std::vector<SearchState> searches = search_states(grid, states);
  // The outcome of final cells for variants whose search cannot choose.
  std::map<size_t, CellStatus> ends;
  for (size_t v = 0; v < grid.variants.size(); ++v) {
    const SearchState& search = searches[v];
    if (search.best) continue;
    std::set<CellStatus> found;
    for (size_t trial = 0; trial < search.trials.size(); ++trial)
      if (search.trials[trial].needed)
        for (const SweepCell& cell : grid.searches(v, trial))
          found.insert(states.at(cell.hash).status);
    if (found.contains(CellStatus::damaged))
      ends[v] = CellStatus::damaged;
    else if (search.tasks.empty())
      ends[v] = found == std::set{CellStatus::diverged} ? CellStatus::diverged : CellStatus::failed;
  }
  CellCounts out;
  for (const SweepCell& cell : runs_of(grid, states, shard, searches)) {
    ++out.cells;
    const CellState& state = states.at(cell.hash);
    const auto end = cell.final ? ends.find(cell.variant) : ends.end();
    const CellStatus status = end == ends.end() ? state.status : end->second;
    const bool is_answered = !cell.final && (status == CellStatus::diverged ||
                                             searches[cell.variant].trials[cell.trial].ended);
    if (status == CellStatus::damaged)
      ++out.damaged;
    else if (is_answered || (state.is_trained() && (!cell.final || state.test)))
      ++out.finished;
    else if (status >= CellStatus::diverged && (end != ends.end() || !is_open || !is_open(cell)))
      ++(status == CellStatus::diverged ? out.diverged : out.failed);
  }
  return out;
}

}  // namespace longhand::train
