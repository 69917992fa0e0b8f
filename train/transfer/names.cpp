#include "longhand/train/transfer/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {
namespace {

/// Returns the lines with each of these values in place of a mark in their names.
std::vector<NameLine> with_values(const std::vector<NameLine>& lines, char mark,
                                  const std::vector<std::string>& values) {
  std::vector<NameLine> out;
  for (const NameLine& line : lines) {
    if (line.theirs.find(mark) == std::string::npos) {
      out.push_back(line);
      continue;
    }
    for (const std::string& value : values) {
      out.push_back(line);
      out.back().theirs = replaced(line.theirs, mark, value);
      for (std::string& name : out.back().ours) name = replaced(name, mark, value);
    }
  }
  return out;
}

/// Returns the lines of a scheme for a model with this many blocks, one per tensor.
std::vector<NameLine> lines_of(const NameScheme& scheme, int64_t blocks) {
  std::vector<std::string> numbers;
  for (int64_t i = 0; i < blocks; ++i) numbers.push_back(std::to_string(i));
  return with_values(with_values(scheme.lines, '*', {"weight", "bias"}), '#', numbers);
}

/// Returns a file's prefix in place of the backbone; nothing if its names do not fit the scheme.
std::optional<std::string> beginning(const NameScheme& scheme, const nn::StateDict& state) {
  for (const auto& [name, tensor] : state)
    if (name == scheme.anchor || name.ends_with("." + scheme.anchor))
      return name.substr(0, name.size() - scheme.anchor.size());
  return std::nullopt;
}

/// Returns the same tensors with names that begin as in the table.
nn::StateDict with_backbone(const NameScheme& scheme, const nn::StateDict& state) {
  const std::string begin = *beginning(scheme, state);
  std::string wrapper;  // such as torch.compile's "_orig_mod.", also of the head
  if (begin.ends_with(scheme.backbone))
    wrapper = begin.substr(0, begin.size() - scheme.backbone.size());
  std::set<std::string> outside;  // where backbones have no beginning: names that are not of them
  for (const NameLine& line : lines_of(scheme, 0)) {
    if (!line.theirs.starts_with(scheme.backbone)) outside.insert(line.theirs);
    outside.insert(line.ours.begin(), line.ours.end());
  }
  nn::StateDict out;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(begin) && !(begin.empty() && outside.contains(name)))
      out[scheme.backbone + name.substr(begin.size())] = tensor;
    else
      out[name.starts_with(wrapper) ? name.substr(wrapper.size()) : name] = tensor;
  }
  return out;
}

/// Returns the number of blocks in names that begin as in the table.
int64_t count_blocks(const NameScheme& scheme, const nn::StateDict& state) {
  const std::string name = scheme.backbone + scheme.anchor;
  const size_t at = name.find(".0.") + 1;
  int64_t n = 0;
  while (state.contains(name.substr(0, at) + std::to_string(n) + name.substr(at + 1))) ++n;
  return n;
}

/// Returns the number of segments in a file with this prefix: 1, or 2 as in BERT.
int64_t segments_of(const NameScheme& scheme, const std::string& begin,
                    const nn::StateDict& state) {
  for (const NameLine& line : scheme.lines) {
    if (line.plus_first_row_of.empty()) continue;
    const auto found = state.find(begin + line.plus_first_row_of.substr(scheme.backbone.size()));
    if (found != state.end() && found->second.size(0) == 1) return 1;
  }
  return 2;
}

Tensor flipped(const Tensor& t) { return t.rank() == 2 ? t.transpose(0, 1).contiguous() : t; }

/// Returns the weight that belongs to a bias.
const Tensor* weight_of(const std::string& bias, const nn::StateDict& state) {
  if (!bias.ends_with(".bias")) return nullptr;
  const auto found = state.find(bias.substr(0, bias.size() - 4) + "weight");
  return found == state.end() ? nullptr : &found->second;
}

/// Distributes the rows of a tensor over the names here.
void put(nn::StateDict& state, const NameLine& line, const Tensor& whole) {
  const auto parts = static_cast<int64_t>(line.ours.size());
  check<DataError>(parts == 1 || (whole.rank() >= 1 && whole.size(0) % parts == 0), line.theirs,
                   " has shape ", whole.shape(), "; expected as many rows for each of ",
                   comma_list(line.ours));
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t rows = parts == 1 ? 0 : whole.size(0) / parts;
    state[line.ours[static_cast<size_t>(i)]] =
        parts == 1 ? whole : whole.slice(0, i * rows, (i + 1) * rows).contiguous();
  }
}

}  // namespace

void NameScheme::check_model(const attention::TransformerConfig& model) const {
  const EffectiveValues values = options_of_model(model);
  for (const auto& [option, possible] : needs) {
    const auto found = values.find(option);
    if (found == values.end()) continue;  // mlp, without feed-forward networks
    const std::string value = to_string(found->second.value);
    check<ConfigError>(std::ranges::find(possible, value) != possible.end(), "model.", option,
                       " = ", value, ": ", title, " corresponds to a model with model.", option,
                       " = ", fmt::format("{}", fmt::join(possible, " or ")));
  }
}

const NameScheme* find_scheme(const std::string& name) {
  std::vector<std::string> names = {"longhand"};
  for (const NameScheme& scheme : name_schemes()) {
    if (scheme.name == name) return &scheme;
    names.push_back(scheme.name);
  }
  check<ConfigError>(name == "longhand", "--names ", name, ": expected one of ", comma_list(names),
                     suggestion(name, names));
  return nullptr;
}

const NameScheme* detect_scheme(const nn::StateDict& theirs) {
  std::vector<std::string> fit;
  const NameScheme* out = nullptr;
  for (const NameScheme& scheme : name_schemes()) {
    const auto begin = beginning(scheme, theirs);
    if (!begin) continue;
    // Fused query, key and value show how matrices are stored: (3 d, d) or (d, 3 d).
    const Shape& shape = theirs.at(*begin + scheme.anchor).shape();
    if (shape.rank() == 2 && (shape[0] < shape[1]) != scheme.transposed) continue;
    if (scheme.segments && segments_of(scheme, *begin, theirs) != scheme.segments) continue;
    fit.push_back(scheme.name);
    out = &scheme;
  }
  check<ConfigError>(fit.size() <= 1, "the names of tensors are those of ",
                     fmt::format("{}", fmt::join(fit, " and of ")),
                     ": say which with --names, or select some with --prefix");
  return out;
}

Translated from_names(const NameScheme& scheme, const nn::StateDict& theirs,
                      const attention::TransformerConfig& model) {
  check<DataError>(beginning(scheme, theirs).has_value(), "--names ", scheme.name,
                   ": no tensor has a name that ends in ", scheme.anchor);
  scheme.check_model(model);
  const nn::StateDict all = with_backbone(scheme, theirs);
  const std::vector<NameLine> lines =
      lines_of(scheme, std::max(count_blocks(scheme, all), model.layers));
  const bool has_biases = std::ranges::any_of(lines, [&](const NameLine& line) {
    return all.contains(line.theirs) && !line.ours.empty() && line.ours[0].starts_with("blocks.") &&
           line.ours[0].ends_with(".bias");
  });
  Translated out{.state = all};
  for (const NameLine& line : lines) {
    const auto found = all.find(line.theirs);
    if (line.ours != std::vector{line.theirs}) out.state.erase(line.theirs);
    for (const std::string& name : line.ours)
      out.theirs[name] =
          line.ours.size() == 1 ? line.theirs : concat_message(line.theirs, " (", name, ")");
    if (!line.copy_of.empty() && model.tied_embeddings) {
      const auto original = all.find(line.copy_of);
      check<DataError>(
          found == all.end() || original == all.end() || identical(found->second, original->second),
          line.theirs, " differs from ", line.copy_of,
          ", but model.tied_embeddings is true; expected false");
    } else if (found != all.end() && !line.ours.empty()) {
      const Tensor& whole = found->second;
      check<DataError>(whole.rank() >= 1 && whole.size(0) > line.skipped, line.theirs,
                       " has shape ", whole.shape(), "; expected more than ", line.skipped,
                       " rows");
      put(out.state, line,
          line.skipped ? whole.slice(0, line.skipped, whole.size(0)).contiguous()
          : scheme.transposed && line.matrix ? flipped(whole)
                                             : whole);
    } else if (line.theirs.empty()) {
      out.state[line.ours[0]] = Tensor::zeros({model.classes});
    } else if (!has_biases) {
      for (const std::string& name : line.ours)
        if (const auto weight = weight_of(name, out.state))
          out.state[name] = Tensor::zeros({weight->size(0)}, weight->dtype());
    }
    if (const auto row = all.find(line.plus_first_row_of); row != all.end() && found != all.end()) {
      Tensor& sum = out.state.at(line.ours[0]);  // in f64, so that it is rounded once
      sum = add(Variable(sum.to(DType::f64)), Variable(row->second.slice(0, 0, 1).to(DType::f64)))
                .value();
      out.state.erase(line.plus_first_row_of);
    }
  }
  return out;
}

nn::StateDict to_names(const NameScheme& scheme, const nn::StateDict& ours,
                       const attention::TransformerConfig& model) {
  scheme.check_model(model);
  nn::StateDict out, left = ours;
  for (const NameLine& line : lines_of(scheme, model.layers)) {
    std::vector<Tensor> parts;
    for (const std::string& name : line.ours)
      if (const auto found = ours.find(name); found != ours.end()) parts.push_back(found->second);
    if (line.theirs.empty() && !parts.empty()) {
      const Tensor zeros = Tensor::zeros(parts[0].shape(), parts[0].dtype());
      check<ConfigError>(identical(parts[0], zeros), "--names ", scheme.name, ": ", scheme.title,
                         " has no ", line.ours[0], ", which is not 0 in this checkpoint");
      left.erase(line.ours[0]);
      continue;
    }
    if (parts.empty() && model.tied_embeddings && !line.copy_of.empty())
      out[line.theirs] = out.at(line.copy_of);
    // Incomplete groups of tensors keep the names here, which are rejected below.
    if (parts.empty() || parts.size() < line.ours.size()) continue;
    if (line.skipped)
      parts.insert(parts.begin(),
                   Tensor::zeros({line.skipped, parts[0].size(1)}, parts[0].dtype()));
    const Tensor whole =
        parts.size() == 1 ? parts[0] : concat(Variables(parts.begin(), parts.end()), 0).value();
    out[line.theirs] = scheme.transposed && line.matrix ? flipped(whole) : whole;
    if (!line.plus_first_row_of.empty())
      out[line.plus_first_row_of] = Tensor::zeros({scheme.segments, whole.size(1)}, whole.dtype());
    for (const std::string& name : line.ours) left.erase(name);
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : left) names.push_back(name);
  check<ConfigError>(names.empty(), "--names ", scheme.name, ": ", scheme.title,
                     " has no names for ", short_list(names));
  return out;
}

nn::StateDict renamed(const nn::StateDict& state, const std::vector<std::string>& rules) {
  nn::StateDict out;
  std::set<std::string> used;
  for (const auto& [name, tensor] : state) {
    std::string to = name;
    for (const std::string& rule : rules) {
      const size_t equals = rule.find('=');
      check<ConfigError>(equals != std::string::npos, "--rename ", rule,
                         ": expected FROM=TO, two beginnings of names");
      if (!name.starts_with(rule.substr(0, equals))) continue;
      to = rule.substr(equals + 1) + name.substr(equals);
      used.insert(rule);
      break;
    }
    check<ConfigError>(out.emplace(to, tensor).second, "--rename: two tensors would have the name ",
                       to, "; one of them is ", name);
  }
  for (const std::string& rule : rules)
    check<ConfigError>(used.contains(rule), "--rename ", rule, ": no name begins with ",
                       rule.substr(0, rule.find('=')),
                       state.empty() ? "" : "; the first is " + state.begin()->first);
  return out;
}

}  // namespace longhand::train
