#include "longhand/train/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <utility>

#include "longhand/attention/ranks/over_ranks.h"
#include "longhand/attention/ranks/sequence_part.h"
#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/train/distributed/gradient_join.h"
#include "longhand/train/experiment.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;
using attention::BlockLinear;
using attention::SequencePath;
using attention::TransformerConfig;

double number(int64_t n) { return static_cast<double>(n); }

/// Numbers (of TransformerConfig::element_bytes() bytes) of one block for B sequences of N tokens.
struct Layer {
  double parameters = 0, buffers = 0;
  double kept = 0;          // from the forward pass on
  double feed_forward = 0;  // the part of it that is freed before the gradients of attention
  double attention = 0;     // gradients of attention, besides what is kept
  double forward = 0;       // scratch of the forward pass of attention
  double scratch = 0;       // of the gradients of the widest linear layer
  double evaluation = 0;    // peak of a forward pass without gradients, besides its input
};

/// Partial sums and packed copies of a weight in the gradients of a linear layer: see
/// autograd/ops/linear_kernel.cpp.
double linear_scratch(double rows, double in, double out) {
  constexpr double small_weight = 1 << 19, most_sums = 1 << 22;  // numbers of f32
  const double weight = in * out, tasks = std::clamp(rows / 192, 1.0, 64.0);
  return weight + (weight <= small_weight ? std::min(tasks * weight, most_sums) : weight);
}

/// A batch of B sequences, and the tokens of each that a rank has: N of P N.
struct Tokens {
  double B, N, P = 1;
};

/// The memory of a variant. If sequences are cut, that of what it computes on each rank, and of the
/// tokens and heads that it gets from others.
attention::Memory attention_memory(const attention::Config& config,
                                   const attention::Capabilities& can, const Tokens& t,
                                   bool training) {
  const auto of = [&](const attention::Config& own, double queries, double keys) {
    return attention::memory(
        config.name, own, {.batch = t.B, .queries = queries, .keys = keys, .training = training});
  };
  attention::Memory out = of(config, t.N, t.N);
  const auto P = static_cast<int64_t>(t.P);
  const SequencePath path =
      attention::sequence_path(can.needs, config.causal, config.heads % P == 0);
  const bool heads = path == SequencePath::heads;
  if (t.P == 1 || (!heads && path != SequencePath::gathered && path != SequencePath::ring &&
                   path != SequencePath::keys))
    return out;
  const double of_part = t.B * t.N * number(config.heads * config.head_dim);
  if (path == SequencePath::ring) {
    // Keys and values of the part are kept as one message, which replaces them. Two more are under way;
    // in the backward pass, so are two of gradients.
    const double message = 2 * of_part;
    out.forward += 3 * message + of_part;
    out.backward += 4 * message;
    return out;
  }
  if (path == SequencePath::keys) {
    const attention::Memory of_keys = of(config, t.N, t.P * t.N);
    const double more = 2 * (t.P - 1) * of_part;
    out.kept = of_keys.kept + more;
    out.forward = of_keys.forward + more;
    out.backward = of_keys.backward + more;
    return out;
  }
  attention::Config whole = config;
  if (heads) {
    whole.heads /= P;
    whole.kv_heads = std::max<int64_t>(1, whole.kv_heads / P);
  }
  const attention::Memory of_whole = of(whole, t.P * t.N, t.P * t.N);
  // Queries, keys and values of whole sequences replace those of the part; the result comes in addition
  // to that of the part. Each is copied once on its way.
  const double inputs = can.uses_queries_and_keys ? 3 : 1;
  const double result = t.B * t.P * t.N * number(whole.heads * whole.head_dim);
  out.kept = of_whole.kept + inputs * (result - of_part) + result;
  out.forward = of_whole.forward + inputs * result;
  out.backward = of_whole.backward + inputs * result + result;
  return out;
}

Layer layer_memory(const TransformerConfig& c, int64_t index, const Tokens& t, bool training) {
  const double B = t.B, N = t.N;
  const attention::Config config = c.attention_config(index);
  const auto can = attention::capabilities(config.name, config);
  const attention::Memory memory = attention_memory(config, can, t, training);
  const double d = number(c.d_model), tokens = B * N, x = tokens * d, h = number(c.d_mlp),
               kv = number(c.d_model / c.heads * (c.kv_heads ? c.kv_heads : c.heads)),
               norm = c.norm_type == "layer_norm" ? 2 : 1, branches = c.d_mlp > 0 ? 2 : 1;
  const bool qk = can.uses_queries_and_keys;
  Layer out;
  double inner = 0;  // between the two products of layers of low rank
  const auto linear = [&](BlockLinear which, double in, double to) {
    const double rank = number(c.rank_of(index, which));
    out.parameters += (rank > 0 ? rank * (in + to) : in * to) + to;
    if (rank > 0) inner += tokens * rank;
  };
  if (qk) linear(BlockLinear::query, d, d);
  if (qk && can.uses_keys) linear(BlockLinear::key, d, kv);
  linear(BlockLinear::value, d, kv);
  linear(BlockLinear::output, d, d);
  if (c.d_mlp > 0) linear(BlockLinear::fc1, d, h), linear(BlockLinear::fc2, h, d);
  out.parameters += branches * norm * d + memory.parameters;
  const attention::Surroundings& around = c.around;
  const bool gated = around.output_gate != "none", convolved = around.short_conv > 0,
             normed_heads = around.head_norm != "none";
  const double D = number(c.d_model / c.heads);
  if (gated) out.parameters += d * d + d;
  if (normed_heads) out.parameters += (around.head_norm == "layer_norm" ? 2 : 1) * D;
  if (qk && around.qk_norm == "rms_norm") out.parameters += (can.uses_keys ? 2 : 1) * D;
  if (convolved) out.parameters += number(around.short_conv * c.projected_width(index));
  out.buffers = memory.buffers;

  // q, k and v as they are projected, and where the variant needs them copied for all heads.
  const double keys = qk && can.uses_keys ? tokens * kv : 0;
  const double projected = (qk ? x : 0) + keys + tokens * kv;
  const double copies = memory.shares_heads || kv == d ? 0 : (qk ? 2 : 1) * x;
  const double rotated = qk && c.positions == "rotary" ? 3 * x : 0;
  const double normed = can.uses_x || can.shortens ? x : 0;
  // A convolution keeps its input and what SiLU is applied to, a norm its input. With a gate, what
  // it multiplies, what it multiplies by and, for SiLU, its input are kept.
  const double convolutions = convolved ? 2 * projected : 0;
  const double norms = (qk && around.qk_norm != "none" ? x + keys : 0) + (normed_heads ? x : 0);
  const double gate = gated ? (around.output_gate == "silu" ? 3 : 2) * x : 0;
  const double surroundings = convolutions + norms + gate;
  const double streams = branches * x * (c.norm == "post" ? 2 : 1);
  out.feed_forward = c.d_mlp > 0 ? tokens * h + x : 0;
  out.kept = streams + (out.feed_forward - (c.d_mlp > 0 ? x : 0)) + projected + copies + x +
             memory.kept + inner + normed + surroundings;
  // The gradients of the residual stream and of the result, then those of q, k and v.
  out.attention = (gated ? 3 : 2) * x + projected + copies + memory.backward;
  out.forward = std::max(memory.forward, rotated);
  out.scratch = x + std::max(linear_scratch(tokens, d, d + (qk ? d + kv : 0) + (gated ? d : 0)),
                             c.d_mlp > 0 ? linear_scratch(tokens, d, h) : 0);
  out.evaluation = std::max(projected + copies + memory.kept + std::max(memory.forward, rotated) +
                                normed + (gated ? x : 0) + (convolved ? x : 0),
                            c.d_mlp > 0 ? x + tokens * h : x);
  return out;
}

/// The number of layers that may differ; all others are like the last of these.
int64_t differing_layers(const TransformerConfig& c) {
  const auto has_list = [&](const std::string& key) {
    const auto* const list =
        std::get_if<std::vector<int64_t>>(&c.attention_options.find(key)->value);
    return list && list->size() > 1;
  };
  const std::vector<std::string> keys = c.attention_options.keys();
  const bool differ = !c.layer_attention.empty() || c.low_rank.size() > 1 ||
                      std::any_of(keys.begin(), keys.end(), has_list);
  return differ ? c.layers : 2;  // the first may own what all share
}

/// Sums over the layers.
struct Blocks {
  double parameters = 0, buffers = 0, kept = 0, evaluation = 0;
  Layer first, last, largest;  // largest: kept

  Blocks(const TransformerConfig& c, const Tokens& tokens, bool training) {
    const int64_t each = std::min(c.layers, differing_layers(c));
    for (int64_t i = 0; i < each; ++i) {
      const double times = i + 1 == each ? number(c.layers - i) : 1;
      last = layer_memory(c, i, tokens, training);
      if (i == 0) first = last;
      if (last.kept >= largest.kept) largest = last;
      parameters += times * last.parameters;
      buffers += times * last.buffers;
      kept += times * last.kept;
      evaluation = std::max(evaluation, last.evaluation);
    }
  }
};

double length_of(const TransformerConfig& c) {
  return number(c.max_length) + (!c.per_token && c.pooling == "cls" ? 1 : 0);
}

/// The tokens of a sequence that a rank has.
double part_of_sequence(const MemoryRequest& r) {
  return number(attention::SequencePart::tokens_of(static_cast<int64_t>(length_of(r.model)),
                                                   r.sequence_ranks));
}

/// Parameters outside of blocks, in numbers; `table` are those of the positions and tokens.
struct Ends {
  double table = 0, head = 0, buffers = 0;

  explicit Ends(const TransformerConfig& c) {
    const double d = number(c.d_model), width = c.head_hidden ? number(c.head_hidden) : d;
    table = number(c.vocabulary) * d;
    if (c.positions == "learned") table += length_of(c) * d;
    if (c.positions == "sinusoidal") buffers = length_of(c) * d;
    if (!c.per_token && c.pooling == "cls") table += d;
    head = number(c.classes);
    if (c.head_hidden) head += d * width + width;
    if (!c.tied_embeddings) head += number(c.classes) * width;
    if (c.norm == "pre") head += (c.norm_type == "layer_norm" ? 2 : 1) * d;
  }
};

/// Rows of logits, for `sequences` sequences.
double logit_rows(const MemoryRequest& r, double sequences) {
  if (!r.model.per_token) return sequences;
  return sequences * part_of_sequence(r) * (r.counted <= 0.5 ? r.counted : 1);
}

/// The head: its input, what is gathered from it, and logits.
double head_memory(const MemoryRequest& r, double B, double N) {
  const TransformerConfig& c = r.model;
  const double d = number(c.d_model), rows = logit_rows(r, B);
  double out = rows * number(c.classes + c.head_hidden) + 3 * rows;
  if (!c.per_token)
    out += B * N * d + 2 * B * d;  // the normalised tokens that are pooled
  else if (r.counted <= 0.5)
    out += rows * d;
  return out;
}

struct Step {
  double activations = 0;  // besides all gradients
};

/// The peak of a training step in numbers, besides parameters, gradients and optimizer.
double step_memory(const MemoryRequest& r, const Blocks& blocks, const Ends& ends) {
  const TransformerConfig& c = r.model;
  const double B = number(r.micro_batch_size()), N = part_of_sequence(r),
               x = B * N * number(c.d_model);
  const double all = blocks.parameters + ends.head + ends.table, head = head_memory(r, B, N);
  const Layer& last = blocks.largest;
  double peak = 0;  // with the gradients that are there
  const auto at = [&](double numbers, double gradients) {
    peak = std::max(peak, numbers + gradients);
  };
  const double of_block = std::max(last.attention - last.feed_forward, last.scratch);
  if (r.recompute) {
    const double inputs = number(c.layers) * x;
    at(inputs + x + std::max(head + number(c.classes) * number(c.d_model), last.evaluation), 0);
    at(inputs + last.kept + x + of_block, ends.head);
    at(last.kept + x + of_block, all - ends.table);
  } else {
    at(blocks.kept + x + head + number(c.classes) * number(c.d_model), 0);
    at(blocks.kept + last.forward, 0);
    at(blocks.kept + of_block, ends.head);
    at(last.kept + of_block, all - ends.table);
  }
  at(2 * x, all);
  return std::max(peak - all, 0.0);
}

/// The number of gradient sums that wait in the tree of micro-batches.
double waiting_sums(int64_t micro_batches) {
  return std::floor(std::log2(number(std::max<int64_t>(1, micro_batches))));
}

/// Bytes that the sum of gradients over ranks takes besides them: of the bucket that is on its way, the
/// parts of all ranks, and a copy for each of the two sums. `P` are those of all parameters.
double joining(const MemoryRequest& r, double P, const Ends& ends) {
  if (r.ranks() == 1) return 0;
  const double bucket =
      number(GradientJoin::bucket_bytes) + number(r.model.element_bytes()) * ends.table;
  return 3 * std::min(P, bucket);
}

/// The share of the targets of a few examples that count.
double counted_share(const data::Dataset& dataset) {
  std::vector<int64_t> indices(static_cast<size_t>(std::min<int64_t>(8, dataset.size())));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  if (indices.empty()) return 1;
  const data::Batch batch = dataset.collate(indices);
  if (batch.targets.rank() != 2) return 1;
  const auto targets = batch.targets.to_vector<int32_t>();
  const auto counted = std::count_if(targets.begin(), targets.end(),
                                     [](int32_t t) { return t != data::ignore_index; });
  return number(counted) / number(std::max<int64_t>(1, std::ssize(targets)));
}

/// The limit in a file of a control group; infinity if there is none.
double limit_in(const fs::path& file) {
  std::ifstream in(file);
  double bytes = 0;
  return in >> bytes ? bytes : INFINITY;  // "max" is no number
}

/// The least limit of the control groups of this process and those above them.
double group_limit() {
  double least = INFINITY;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const fs::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* const name = unified ? "memory.max" : "memory.limit_in_bytes";
    fs::path group = line.substr(second + 1);
    for (int depth = 0; depth < 64; ++depth) {
      least = std::min(least, limit_in(root / group.relative_path() / name));
      if (!group.has_relative_path()) break;
      group = group.parent_path();
    }
  }
  return least;
}

std::string count_text(double value) {
  char digits[64];
  if (value >= 1e15) {
    std::snprintf(digits, sizeof digits, "%.2g", value);
    return digits;
  }
  std::snprintf(digits, sizeof digits, "%.0f", value);
  std::string out;
  for (size_t i = 0; digits[i]; ++i) {
    const size_t left = std::string_view(digits).size() - 1 - i;
    out += digits[i];
    if (left > 0 && left % 3 == 0) out += ',';
  }
  return out;
}

/// Two significant digits, rounded down: the largest value that fits is an estimate.
int64_t rounded(int64_t value) {
  int64_t unit = 1;
  while (value / unit >= 100) unit *= 10;
  return value / unit * unit;
}

/// An option that may be the cause, and how to set it in a request.
struct Knob {
  std::string name;
  int64_t value, least = 1, step = 1;
  std::function<void(MemoryRequest&, int64_t)> set;
  std::string unit{};
};

class Excess {
 public:
  Excess(const MemoryRequest& request, double limit)
      : request_(request), limit_(limit), estimate_(estimate_memory(request)) {}

  bool exists() const { return !fits(request_); }

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
      return concat_message(size("model.layers", c.layers), " x ", size("model.d_model", c.d_model),
                            c.d_mlp > 0 ? ", " + size("model.d_mlp", c.d_mlp) : "",
                            of_tokens ? ", " + size("model.vocabulary", c.vocabulary) : "", ": ",
                            count_text(estimate_.parameter_count), " parameters",
                            request_.trains ? " with gradients and optimizer state need" : " need");
    }
    const bool evaluates = is_largest(evaluation());
    // Sizes of the model where they are what is large.
    std::string through;
    if (c.layers > 100) through += " through " + size("model.layers", c.layers);
    if (c.d_model > 4096) through += " of " + size("model.d_model", c.d_model);
    if (c.d_mlp > 16384) through += " with " + size("model.d_mlp", c.d_mlp);
    const std::string batch = !evaluates ? size("train.batch_size", request_.batch_size)
                              : request_.eval_follows
                                  ? "evaluation of " + size("train.batch_size", request_.batch_size)
                                  : size("train.eval_batch_size", request_.eval_batch_size);
    return concat_message(batch, " x ", count_text(length_of(c)), " tokens",
                          !evaluates && request_.micro_batches > 1
                              ? concat_message(" in ", request_.micro_batches, " micro-batches")
                              : "",
                          through, " with ", is_naive() ? "naive " : "", c.attention_name(),
                          " attention needs");
  }

  /// What would fit, each alone.
  std::string remedies() const {
    std::vector<std::string> list;
    for (const Knob& knob : knobs()) {
      const int64_t most = largest(knob);
      if (most >= knob.least && list.size() < 3)
        list.push_back(
            concat_message("at most ", knob.name, count_text(number(rounded(most))), knob.unit));
    }
    if (const std::string parts = micro_batches(); !parts.empty())
      list.insert(list.begin() + std::min<std::ptrdiff_t>(1, std::ssize(list)), parts);
    for (const auto& [text, change] : switches())
      if (MemoryRequest other = request_; change(other), fits(other)) list.push_back(text);
    std::string out;
    for (size_t i = 0; i < list.size(); ++i)
      out.append(i == 0 ? "" : i + 1 == list.size() ? ", or " : ", ").append(list[i]);
    return out;
  }

 private:
  double evaluation() const { return request_.eval_batch_size > 0 ? estimate_.evaluation : 0; }
  double state() const {
    return estimate_.parameters + estimate_.gradients + estimate_.optimizer + estimate_.teacher +
           estimate_.checkpoint;
  }
  bool fits(const MemoryRequest& r) const {
    try {
      return estimate_memory(r).total() + program_memory <= limit_;
    } catch (const ConfigError&) {  // another option does not allow this value
      return false;
    }
  }

  /// The largest value below the present one that fits; 0 if none does.
  int64_t largest(const Knob& knob) const {
    const auto fits_with = [&](int64_t units) {
      MemoryRequest other = request_;
      knob.set(other, units * knob.step);
      return fits(other);
    };
    int64_t low = 0, high = knob.value / knob.step;  // units: low fits, or is 0; high does not
    if (!fits_with(std::max<int64_t>(1, knob.least / knob.step))) return 0;
    low = std::max<int64_t>(1, knob.least / knob.step);
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (fits_with(middle) ? low : high) = middle;
    }
    return low * knob.step;
  }

  /// In the order in which they are the likely cause: what is largest comes first.
  std::vector<Knob> knobs() const {
    const TransformerConfig& c = request_.model;
    std::vector<Knob> all;
    const bool steps = request_.trains && estimate_.training >= evaluation();
    const double work = std::max(estimate_.training, evaluation());
    if (work >= state()) {
      if (steps || request_.eval_follows)
        all.push_back(
            {"train.batch_size = ", request_.batch_size, 1, 1, [](MemoryRequest& r, int64_t v) {
               if (r.eval_follows) r.eval_batch_size = std::min(r.eval_batch_size, v);
               r.batch_size = v;
               r.micro_batches = std::min(r.micro_batches, v);
             }});
      if (!steps)
        all.push_back({"train.eval_batch_size = ", request_.eval_batch_size, 1, 1,
                       [](MemoryRequest& r, int64_t v) { r.eval_batch_size = v; }});
      all.push_back({"", c.max_length, 16, 1,
                     [](MemoryRequest& r, int64_t v) { r.model.max_length = v; },
                     " tokens in a sequence"});
    }
    all.push_back({"model.layers = ", c.layers, 1, 1,
                   [](MemoryRequest& r, int64_t v) { r.model.layers = v; }});
    all.push_back(
        {"model.d_mlp = ", c.d_mlp, 1, 1, [](MemoryRequest& r, int64_t v) { r.model.d_mlp = v; }});
    all.push_back(
        {"model.d_model = ", c.d_model, c.heads, c.heads, [](MemoryRequest& r, int64_t v) {
           if (!r.fixed_mlp && r.model.d_mlp > 0) r.model.d_mlp = 2 * v;
           r.model.d_model = v;
         }});
    if (work < state() && number(c.vocabulary) * number(c.d_model) > estimate_.parameter_count / 4)
      all.push_back({"", c.vocabulary, 1, 1,
                     [](MemoryRequest& r, int64_t v) {
                       if (r.model.classes == r.model.vocabulary) r.model.classes = v;
                       r.model.vocabulary = v;
                     },
                     " different tokens, numbered from 0 (model.vocabulary)"});
    all.push_back(
        {"data.train_size = ", static_cast<int64_t>(std::min(request_.data.examples, 9e18)), 1, 1,
         [](MemoryRequest& r, int64_t v) {
           r.data.bytes *= number(v) / r.data.examples;
           r.data.examples = number(v);
         }});
    std::erase_if(all, [](const Knob& k) { return k.value <= k.least || k.value == 0; });
    // Of a number that must shrink to next to nothing, another one is the cause.
    const auto kept = [&](const Knob& k) { return number(largest(k)) / number(k.value); };
    std::stable_sort(all.begin(), all.end(),
                     [&](const Knob& a, const Knob& b) { return is_work(a) && !is_work(b); });
    std::erase_if(
        all, [&](const Knob& k) { return !is_work(k) && number(k.value) < 4096 && kept(k) < 0.1; });
    return all;
  }
  static bool is_work(const Knob& k) {
    return k.name.starts_with("train.") || k.unit.starts_with(" tokens");
  }

  std::string micro_batches() const {
    if (!request_.trains || request_.micro_batches >= request_.batch_size ||
        estimate_.training < evaluation())
      return {};
    for (const bool with_evaluation : {false, true})
      for (int64_t parts = request_.micro_batches + 1; parts <= request_.batch_size;
           parts = std::max(parts + 1, parts + parts / 16)) {
        MemoryRequest other = request_;
        other.micro_batches = parts;
        if (with_evaluation)
          other.eval_batch_size = std::min(other.eval_batch_size, other.micro_batch_size());
        if (!fits(other)) continue;
        std::string text = concat_message("train.micro_batches = ", count_text(number(parts)));
        if (with_evaluation)
          text += concat_message(" with train.eval_batch_size = ",
                                 count_text(number(other.eval_batch_size)));
        return text;
      }
    return {};
  }

  std::vector<std::pair<std::string, std::function<void(MemoryRequest&)>>> switches() const {
    std::vector<std::pair<std::string, std::function<void(MemoryRequest&)>>> all;
    if (request_.trains && !request_.recompute)
      all.emplace_back("train.recompute = true", [](MemoryRequest& r) { r.recompute = true; });
    if (is_naive())
      all.emplace_back("attention.impl = \"tiled\"", [](MemoryRequest& r) {
        r.model.attention_options.set("impl", std::string("tiled"));
      });
    return all;
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

double MemoryEstimate::work() const { return std::max(gradients + training, evaluation); }

double MemoryEstimate::total() const {
  return parameters + optimizer + work() + data + teacher + checkpoint;
}

MemoryRequest memory_request(const Plan& plan, const data::Task* task) {
  const TrainerOptions& t = plan.train.trainer;
  MemoryRequest out{.model = plan.model,
                    .fixed_mlp = plan.effective.at("model").at("d_mlp").given,
                    .trains = !task || task->train,
                    .batch_size = plan.train.loading.batch_size,
                    .micro_batches = t.shards * t.micro_batches,
                    .eval_batch_size = t.eval_batch_size,
                    .eval_follows = !plan.effective.at("train").at("eval_batch_size").given,
                    .recompute = t.recompute,
                    .moments = plan.optimizer.optimizer.type != "sgd"      ? 2.0
                               : plan.optimizer.optimizer.sgd.momentum > 0 ? 1.0
                                                                           : 0.0,
                    .average = t.ema_decay > 0,
                    .teacher = !plan.train.distill.from.empty(),
                    .saves = !task || task->train,
                    .counted = 0,
                    .data = plan.data,
                    .limit_gib = plan.train.memory_limit,
                    .sequence_ranks = t.sequence_ranks,
                    .shares_optimizer = t.shard_optimizer};
  if (!task) {
    if (out.data.examples > 0)
      out.batch_size =
          std::min(out.batch_size, static_cast<int64_t>(std::min(out.data.examples, 9e18)));
    return out;
  }
  const data::Dataset* const some = task->train        ? task->train.get()
                                    : task->validation ? task->validation.get()
                                                       : task->test.get();
  if (!some) return out;
  out.counted = counted_share(*some);
  if (!task->train) return out;
  out.data.examples = number(task->train->size());
  out.batch_size = std::min(out.batch_size, task->train->size());
  out.micro_batches = std::min(out.micro_batches, out.batch_size);
  out.eval_batch_size =
      task->validation ? std::min(out.eval_batch_size, task->validation->size()) : 0;
  return out;
}

MemoryEstimate estimate_memory(const MemoryRequest& r) {
  const TransformerConfig& c = r.model;
  const double N = part_of_sequence(r);
  const Ends ends(c);
  MemoryEstimate out;
  const Blocks blocks(c, {number(r.micro_batch_size()), N, number(r.sequence_ranks)}, true);
  out.parameter_count = blocks.parameters + ends.head + ends.table;
  // Parameters are tensors with names, handles and moments, a few hundred bytes each.
  const double objects = 16 * 1024 * number(c.layers);
  const double size = number(c.element_bytes()), P = size * out.parameter_count;
  const double ranks = number(r.ranks());
  const bool shares = r.shares_optimizer && r.ranks() > 1;
  out.parameters = P + size * (blocks.buffers + ends.buffers) + objects;
  if (r.trains) {
    out.gradients = P * (1 + waiting_sums(r.micro_batches / r.data_ranks)) + joining(r, P, ends);
    out.training = size * step_memory(r, blocks, ends);
    // Each rank sends its part of the parameters, and receives all.
    if (shares) out.training = std::max(out.training, P + P / ranks);
  }
  const double moments = P * r.moments, average = r.average ? P : 0;
  out.optimizer = (shares ? moments / ranks : moments) + average;
  if (r.eval_batch_size > 0) {
    const double B = number(r.eval_batch_size), x = B * N * number(c.d_model);
    const Blocks forward(c, {B, N, number(r.sequence_ranks)}, false);
    out.evaluation = size * std::max(2 * x + forward.evaluation, x + head_memory(r, B, N));
  }
  const double targets = c.per_token ? number(c.max_length) : 1;
  out.data = r.data.bytes + 8 * r.data.examples +
             2 * sizeof(int32_t) *
                 number(std::max(r.trains ? r.batch_size : 0, r.eval_batch_size)) *
                 (number(c.max_length) + targets);
  if (r.teacher)
    out.teacher = P + size * logit_rows(r, number(r.micro_batch_size())) * number(c.classes);
  if (r.saves) {
    constexpr double retained = 64.0 * (1 << 20);  // M_TRIM_THRESHOLD: see core/storage.cpp
    const double image = P + moments + average;
    out.checkpoint = 2 * image + std::min(image / 2, retained) + (shares ? moments : 0);
  }
  return out;
}

MemoryLimit machine_memory() {
  const double physical = number(sysconf(_SC_PHYS_PAGES)) * number(sysconf(_SC_PAGESIZE));
  MemoryLimit out{0.9 * physical,
                  concat_message("this machine (90 % of its ", bytes_text(physical), ")")};
  const auto consider = [&](double bytes, const char* what) {
    if (bytes < out.bytes) out = {bytes, what};
  };
  consider(group_limit(), "this process (by its control group)");
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY)
    consider(static_cast<double>(addresses.rlim_cur) / 2,
             "this process (half of its address space, ulimit -v)");
  return out;
}

MemoryLimit memory_limit(const MemoryRequest& request) {
  if (request.limit_gib > 0) return {request.limit_gib * (1 << 30), "train.memory_limit"};
  return machine_memory();
}

void check_memory(const MemoryRequest& request) {
  const MemoryLimit limit = memory_limit(request);
  const Excess excess(request, limit.bytes);
  if (!excess.exists()) return;
  const std::string remedies = excess.remedies();
  throw ConfigError(concat_message(
      excess.cause(), " ", bytes_text(estimate_memory(request).total() + program_memory), ", ",
      limit.what, " has ", bytes_text(limit.bytes),
      remedies.empty() ? "; no single option can reduce that enough" : ": " + remedies,
      "; train.memory_limit = GIB replaces the limit, --estimate shows the parts"));
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = bytes / 1024;
  for (; value >= 1000 && unit < 5; ++unit) value /= 1024;
  char text[64];
  std::snprintf(text, sizeof text,
                value >= 1e6  ? "%.2g %s"
                : value >= 10 ? "%.0f %s"
                              : "%.1f %s",
                value, units[unit]);
  return text;
}

namespace {

/// The parts with their names, in the order of the table.
std::vector<std::pair<std::string, double>> parts_of(const MemoryEstimate& e) {
  std::vector<std::pair<std::string, double>> all = {{"parameters", e.parameters}};
  const bool evaluates = e.evaluation > e.gradients + e.training;
  if (e.gradients > 0) all.emplace_back("gradients", evaluates ? 0 : e.gradients);
  if (e.optimizer > 0) all.emplace_back("optimizer", e.optimizer);
  all.emplace_back("activations", evaluates ? e.evaluation : e.training);
  all.emplace_back("data", e.data);
  if (e.teacher > 0) all.emplace_back("teacher", e.teacher);
  if (e.checkpoint > 0) all.emplace_back("checkpoint", e.checkpoint);
  all.emplace_back("program", program_memory);
  return all;
}

}  // namespace

std::string memory_line(const MemoryEstimate& e, const MemoryLimit& limit) {
  std::string parts;
  for (const auto& [name, bytes] : parts_of(e))
    parts += concat_message(parts.empty() ? "" : ", ", name, " ", bytes_text(bytes));
  return concat_message("memory: about ", bytes_text(e.total() + program_memory), " of ",
                        bytes_text(limit.bytes), " (", parts, ")");
}

std::vector<std::pair<std::string, double>> memory_parts(const MemoryEstimate& e,
                                                         const MemoryLimit& limit) {
  std::vector<std::pair<std::string, double>> all = parts_of(e);
  all.emplace_back("total", e.total() + program_memory);
  all.emplace_back("available", limit.bytes);
  return all;
}

}  // namespace longhand::train
