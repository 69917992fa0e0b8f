// The machine's memory for a run; rejects runs that exceed it, naming values that fit.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/config/memory.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// Returns the number in a control group's file; infinity if there is none.
double number_in(const fs::path& file) {
  std::ifstream in(file);
  double bytes = 0;
  return in >> bytes ? bytes : INFINITY;  // "max" is not a number
}

/// Calls f(limit, used), in bytes, for this process's control groups and their ancestors; infinite
/// where unknown.
template <class F>
void for_each_group(F f) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const fs::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    fs::path group = line.substr(second + 1);
    for (int depth = 0; depth < 64; ++depth) {
      const fs::path folder = root / group.relative_path();
      f(number_in(folder / (unified ? "memory.max" : "memory.limit_in_bytes")),
        number_in(folder / (unified ? "memory.current" : "memory.usage_in_bytes")));
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
}

/// Returns the tokens of a sequence, including the class token.
double length_of(const TransformerConfig& c) { return number(c.max_length + c.has_class_token()); }

std::string count_text(double value) {
  if (value >= 1e15) return fmt::format("{:.2g}", value);
  std::string out = fmt::format("{:.0f}", value);
  for (auto i = std::ssize(out) - 3; i > 0; i -= 3) out.insert(static_cast<size_t>(i), 1, ',');
  return out;
}

/// Rounds down to two significant digits: the largest value that fits is an estimate.
int64_t rounded(int64_t value) {
  int64_t unit = 1;
  while (value / unit >= 100) unit *= 10;
  return value / unit * unit;
}

/// Returns the largest number in [low, high) that fits, to 1 / 256; 0 if `low` does not.
template <class Fits>
int64_t largest(int64_t low, int64_t high, const Fits& fits) {
  if (!fits(low)) return 0;
  while (high - low > std::max<int64_t>(1, high / 256)) {
    const auto middle = static_cast<int64_t>(std::sqrt(number(low) * number(high)));
    const int64_t next = std::clamp(middle, low + 1, high - 1);
    (fits(next) ? low : high) = next;
  }
  return low;
}

/// An option that may be the cause, and how to set it in a request.
struct Knob {
  std::string name;
  int64_t value, least, step;
  std::function<void(MemoryRequest&, int64_t)> set;
  std::string unit{};
  bool is_work = false;  // the size of a batch, not of the model or the data
  int64_t most = 0;      // the largest value that fits; 0 if none does
};

class Excess {
 public:
  Excess(const MemoryRequest& request, double limit)
      : request_(request), limit_(limit), estimate_(estimate_memory(request)) {}

  bool exists() const { return !fits(estimate_); }
  const MemoryEstimate& estimate() const { return estimate_; }

  /// "train.batch_size = 100,000 x 64 tokens with softmax attention needs"
  std::string cause() const {
    const TransformerConfig& c = request_.model;
    const auto is_largest = [&](double part) {
      return part >= std::max({state(), estimate_.training, evaluation(), estimate_.data});
    };
    const auto size = [](const char* name, int64_t value) {
      return concat_message(name, " = ", count_text(number(value)));
    };
    if (is_largest(estimate_.data))
      return concat_message("the data of ", count_text(request_.data.examples), " examples needs");
    if (is_largest(state())) {
      const bool of_tokens =
          number(c.vocabulary) * number(c.d_model) > estimate_.parameter_count / 4;
      return concat_message(
          size("model.layers", c.layers), " x ", size("model.d_model", c.d_model),
          c.d_mlp > 0 ? ", " + size("model.d_mlp", c.d_mlp) : "",
          of_tokens ? ", " + size("model.vocabulary", c.vocabulary) : "", ": ",
          estimate_.parameter_count > 0 ? count_text(estimate_.parameter_count) + " " : "",
          "parameters", request_.trains ? " with gradients and optimizer state need" : " need");
    }
    const bool evaluates = is_largest(evaluation());
    // Model sizes, if these are what is large.
    std::string through;
    if (c.layers > 100) through += " through " + size("model.layers", c.layers);
    if (c.d_model > 4096) through += " of " + size("model.d_model", c.d_model);
    if (c.d_mlp > 16384) through += " with " + size("model.d_mlp", c.d_mlp);
    const std::string batch = !evaluates ? size_of("batch_size", batch_size())
                              : eval_follows()
                                  ? "evaluation of " + size_of("batch_size", batch_size())
                                  : size_of("eval_batch_size", eval_batch_size());
    return concat_message(batch, " x ", count_text(length_of(c)), " tokens",
                          !evaluates && request_.micro_batches() > 1
                              ? concat_message(" in ", request_.micro_batches(), " micro-batches")
                              : "",
                          through, " with ", is_naive() ? "naive " : "", c.attention_name(),
                          " attention needs");
  }

  /// Returns the values that would fit, each alone.
  std::string remedies() const {
    std::vector<std::string> list;
    for (const Knob& knob : knobs())
      if (knob.most > 0 && list.size() < 3)
        list.push_back(concat_message("at most ", knob.name, count_text(number(rounded(knob.most))),
                                      knob.unit));
    if (const std::string parts = micro_batches(); !parts.empty())
      list.insert(list.begin() + std::min<std::ptrdiff_t>(1, std::ssize(list)), parts);
    MemoryRequest other = request_;
    other.train.trainer.step.recompute = true;
    if (request_.trains && !request_.train.trainer.step.recompute && fits(other))
      list.emplace_back("train.recompute = true");
    other = request_;
    other.model.attention_options.set("impl", std::string("tiled"));
    if (is_naive() && fits(other)) list.emplace_back("attention.impl = \"tiled\"");
    std::string out;
    for (size_t i = 0; i < list.size(); ++i)
      out.append(i == 0 ? "" : i + 1 == list.size() ? ", or " : ", ").append(list[i]);
    return out;
  }

 private:
  int64_t batch_size() const { return request_.train.loading.batch_size; }
  int64_t eval_batch_size() const { return request_.train.trainer.eval_batch_size; }
  bool is_default(const std::string& section, const std::string& key) const {
    const auto values = request_.effective.find(section);
    return values != request_.effective.end() && !values->second.at(key).given;
  }
  /// Returns "train.batch_size = 100,000", or "… (all 40 examples)" if there are fewer examples.
  std::string size_of(const std::string& key, int64_t used) const {
    const auto values = request_.effective.find("train");
    const auto* const given = values == request_.effective.end()
                                  ? nullptr
                                  : std::get_if<int64_t>(&values->second.at(key).value);
    return concat_message("train.", key, " = ", count_text(number(given ? *given : used)),
                          given && *given > used
                              ? concat_message(" (all ", count_text(number(used)), " examples)")
                              : "");
  }
  bool eval_follows() const { return is_default("train", "eval_batch_size"); }
  double evaluation() const { return eval_batch_size() > 0 ? estimate_.evaluation : 0; }
  double state() const {
    return estimate_.parameters + estimate_.gradients + estimate_.optimizer + estimate_.teacher +
           estimate_.checkpoint;
  }
  bool fits(const MemoryEstimate& e) const {
    return !e.exceeds && e.total() + program_memory <= limit_;
  }
  bool fits(const MemoryRequest& r) const {
    try {
      return fits(estimate_memory(r));
    } catch (const ConfigError&) {  // another option does not allow this value
      return false;
    }
  }

  /// Returns knobs in the order of likely causes: the largest first.
  std::vector<Knob> knobs() const {
    const TransformerConfig& c = request_.model;
    std::vector<Knob> all;
    const bool steps = request_.trains && estimate_.training >= evaluation();
    const double work = std::max(estimate_.training, evaluation());
    const auto add = [&](std::string name, int64_t value, const auto& set, std::string unit = "",
                         int64_t least = 1, int64_t step = 1) {
      all.push_back({std::move(name), value, least, step, set, std::move(unit)});
    };
    if (work >= state()) {
      if (steps || eval_follows())
        add("train.batch_size = ", batch_size(), [this](MemoryRequest& r, int64_t v) {
          int64_t& evaluated = r.train.trainer.eval_batch_size;
          if (eval_follows()) evaluated = std::min(evaluated, v);
          r.train.loading.batch_size = v;
        });
      if (!steps)
        add("train.eval_batch_size = ", eval_batch_size(),
            [](MemoryRequest& r, int64_t v) { r.train.trainer.eval_batch_size = v; });
      add(
          "", c.max_length, [](MemoryRequest& r, int64_t v) { r.model.max_length = v; },
          " tokens in a sequence", 16);
      for (Knob& knob : all) knob.is_work = true;
    }
    add("model.layers = ", c.layers, [](MemoryRequest& r, int64_t v) { r.model.layers = v; });
    add("model.d_mlp = ", c.d_mlp, [](MemoryRequest& r, int64_t v) { r.model.d_mlp = v; });
    add(
        "model.d_model = ", c.d_model,
        [this](MemoryRequest& r, int64_t v) {
          if (is_default("model", "d_mlp") && r.model.d_mlp > 0) r.model.d_mlp = 2 * v;
          r.model.d_model = v;
        },
        "", c.heads, c.heads);
    if (work < state() && number(c.vocabulary) * number(c.d_model) > estimate_.parameter_count / 4)
      add(
          "", c.vocabulary,
          [](MemoryRequest& r, int64_t v) {
            if (r.model.classes == r.model.vocabulary) r.model.classes = v;
            r.model.vocabulary = v;
          },
          " different tokens, numbered from 0 (model.vocabulary)");
    add("data.train_size = ", static_cast<int64_t>(std::min(request_.data.examples, 9e18)),
        [](MemoryRequest& r, int64_t v) {
          r.data.bytes *= number(v) / r.data.examples;
          r.data.examples = number(v);
        });
    std::erase_if(all, [](const Knob& k) { return k.value <= k.least; });
    for (Knob& knob : all)
      knob.most =
          knob.step * largest(knob.least / knob.step, knob.value / knob.step, [&](int64_t units) {
            MemoryRequest other = request_;
            knob.set(other, units * knob.step);
            return fits(other);
          });
    // If an option had to shrink to almost nothing, another one is the cause.
    std::erase_if(all, [](const Knob& k) {
      return !k.is_work && k.value < 4096 && number(k.most) < 0.1 * number(k.value);
    });
    return all;
  }

  std::string micro_batches() const {
    const int64_t size = request_.micro_batch_size();
    if (!request_.trains || size == 1 || estimate_.training < evaluation()) return {};
    for (const bool with_evaluation : {false, true}) {
      const auto of_size = [&](int64_t sequences) {
        MemoryRequest out = request_;
        TrainerOptions& options = out.train.trainer;
        const int64_t in_parts = options.step.shards * sequences;
        options.step.micro_batches = (batch_size() + in_parts - 1) / in_parts;
        if (with_evaluation)
          options.eval_batch_size = std::min(eval_batch_size(), out.micro_batch_size());
        return out;
      };
      const int64_t most = largest(1, size, [&](int64_t n) { return fits(of_size(n)); });
      if (most == 0) continue;
      const TrainerOptions options = of_size(most).train.trainer;
      return concat_message(
          "train.micro_batches = ", count_text(number(options.step.micro_batches)),
          with_evaluation
              ? " with train.eval_batch_size = " + count_text(number(options.eval_batch_size))
              : "");
    }
    return {};
  }

  /// attention.impl = "naive"
  bool is_naive() const {
    const TransformerConfig& c = request_.model;
    const auto* const impl = c.attention_options.find("impl");
    return c.layer_attention.empty() && impl && impl->value == OptionValue(std::string("naive"));
  }

  const MemoryRequest& request_;
  double limit_;
  MemoryEstimate estimate_;
};

}  // namespace

MemoryLimit machine_memory() {
  const double physical = number(sysconf(_SC_PHYS_PAGES)) * number(sysconf(_SC_PAGESIZE));
  MemoryLimit out{0.9 * physical,
                  concat_message("this machine (90 % of its ", bytes_text(physical), ")")};
  const auto consider = [&](double bytes, const char* what) {
    if (bytes < out.bytes) out = {bytes, what};
  };
  for_each_group(
      [&](double limit, double) { consider(limit, "this process (by its control group)"); });
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    consider(static_cast<double>(addresses.rlim_cur) / 2,
             "this process (half of its address space, ulimit -v)");
  return out;
}

int64_t available_memory() {
  double available = 0;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("MemAvailable:")) available = 1024 * std::stod(line.substr(13));
  for_each_group([&](double limit, double used) {
    if (std::isfinite(limit) && std::isfinite(used))
      available = std::clamp(limit - used, 0.0, available);
  });
  return static_cast<int64_t>(available);
}

MemoryLimit memory_limit(const MemoryRequest& request) {
  const double gib = request.train.memory_limit;
  if (gib > 0) return {gib * (1 << 30), "train.memory_limit"};
  return machine_memory();
}

MemoryEstimate check_memory(const MemoryRequest& request) {
  const MemoryLimit limit = memory_limit(request);
  const Excess excess(request, limit.bytes);
  if (!excess.exists()) return excess.estimate();
  const std::string remedies = excess.remedies();
  const MemoryEstimate& estimate = excess.estimate();
  throw ConfigError(concat_message(
      excess.cause(), estimate.exceeds ? " more than " : " ",
      bytes_text(estimate.total() + program_memory), ", ", limit.what, " has ",
      bytes_text(limit.bytes),
      remedies.empty() ? "; no single option can reduce that enough" : ": " + remedies,
      "; train.memory_limit = GIB replaces the limit, --estimate shows the parts"));
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = bytes / 1024;
  for (; value >= 1000 && unit < 5; ++unit) value /= 1024;
  return fmt::format("{} {}",
                     value >= 1e6  ? fmt::format("{:.2g}", value)
                     : value >= 10 ? fmt::format("{:.0f}", value)
                                   : fmt::format("{:.1f}", value),
                     units[unit]);
}

std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& e,
                                                         const MemoryLimit& limit) {
  std::vector<std::pair<std::string, double>> all = {{"parameters", e.parameters}};
  const bool evaluates = e.evaluation > e.gradients + e.training;
  if (e.gradients > 0) all.emplace_back("gradients", evaluates ? 0 : e.gradients);
  if (e.optimizer > 0) all.emplace_back("optimizer", e.optimizer);
  all.emplace_back("activations", evaluates ? e.evaluation : e.training);
  all.emplace_back("data", e.data);
  if (e.teacher > 0) all.emplace_back("teacher", e.teacher);
  if (e.checkpoint > 0) all.emplace_back("checkpoint", e.checkpoint);
  all.emplace_back("program", program_memory);
  all.emplace_back("total", e.total() + program_memory);
  all.emplace_back("available", limit.bytes);
  return all;
}

std::string memory_line(const MemoryEstimate& e, const MemoryLimit& limit) {
  std::string parts;
  for (const auto& [name, bytes] : memory_parts(e, limit)) {
    if (name == "total") break;
    parts += concat_message(parts.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  }
  return concat_message("memory: about ", bytes_text(e.total() + program_memory), " of ",
                        bytes_text(limit.bytes), " (", parts, ")");
}

}  // namespace longhand::train
